//! What a supervisor such as systemd is told.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::process::Signal;

use crate::support::{PATIENCE, Server};

/// The next message, which must come.
fn next(socket: &UnixDatagram) -> String {
    let mut buffer = [0; 4096];
    let length = socket.recv(&mut buffer).unwrap();
    String::from_utf8(buffer[..length].to_vec()).unwrap()
}

/// It is told in this order that the server is ready, that it is alive, and that it stops.
fn hears_all(socket: &UnixDatagram, name: &str) {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let env = [("NOTIFY_SOCKET", name), ("WATCHDOG_USEC", "100000")];
    let mut server = Server::start_on("memory:", &[], &env);
    let ready = next(socket);
    assert!(ready.starts_with("READY=1\nSTATUS="), "{ready}");
    assert!(ready.contains(&server.addr.to_string()), "{ready}");
    for _ in 0..3 {
        assert_eq!(next(socket), "WATCHDOG=1");
    }
    server.acquire("a", "one", 60).granted();
    server.signal(Signal::TERM);
    let mut last = next(socket);
    while last == "WATCHDOG=1" {
        last = next(socket);
    }
    assert_eq!(last, "STOPPING=1\nSTATUS=stopping");
    assert!(server.wait().success());
}

#[test]
fn a_socket_with_a_path() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    hears_all(&socket, path.to_str().unwrap());
}

#[test]
fn an_abstract_socket() {
    let name = format!("ferrolho-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let socket = UnixDatagram::bind_addr(&address).unwrap();
    hears_all(&socket, &format!("@{name}"));
}

#[test]
fn a_watchdog_of_another_process_is_not_ours() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let env = [
        ("NOTIFY_SOCKET", path.to_str().unwrap()),
        ("WATCHDOG_USEC", "1000"),
        ("WATCHDOG_PID", "1"),
    ];
    let mut server = Server::start_on("memory:", &[], &env);
    assert!(next(&socket).starts_with("READY=1"));
    server.stop();
    assert_eq!(next(&socket), "STOPPING=1\nSTATUS=stopping");
}

#[test]
fn a_supervisor_that_is_not_there_stops_nothing() {
    for name in ["/nowhere/at/all", "relative", ""] {
        let mut server = Server::start_on("memory:", &[], &[("NOTIFY_SOCKET", name)]);
        server.acquire("a", "one", 60).granted();
        server.stop();
    }
}

//! How a server stops: at once for those who wait, and not before the last release. (Cases: row 110.)

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::{Request, Server, acquire};

#[test]
fn a_stop_tells_waiters_and_lets_go_within_ten_seconds() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = Server::start();
        server.acquire("r", "a", 600).granted();
        let mut waiting: Vec<_> = (0..50)
            .map(|number| server.wait_for("r", &format!("b{number}"), 600, 300))
            .collect();
        server.until_waiting("r", 50);
        let mut stream = server.events("", None);
        let mut idle = server.connect();
        idle.call(&Request::get("/healthz"));
        let begun = Instant::now();
        server.signal(signal);
        for connection in &mut waiting {
            let answer = connection.answer();
            answer.problem(503, "shutting-down");
            assert!(answer.header("retry-after").is_some());
        }
        assert_eq!(stream.block(), None);
        assert!(server.wait().success());
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        server.start_again();
        assert_eq!(server.find("r").lock().owner, "a");
        assert_eq!(server.waiters("r"), [""; 0]);
    }
}

/// Until its end a server that stops renews and releases, and takes no new locks.
#[test]
fn a_server_that_stops_still_renews_and_releases() {
    let mut server = Server::start();
    for name in ["r", "s"] {
        server.acquire(name, "a", 600).granted();
    }
    let mut waiting = server.wait_for("r", "b", 600, 300);
    server.until_waiting("r", 1);
    let mut holder = server.connect();
    holder.call(&Request::get("/locks/r")).lock();
    server.signal(Signal::TERM);
    waiting.answer().problem(503, "shutting-down");
    holder
        .call(&acquire("free", "b", 600))
        .problem(503, "shutting-down");
    holder
        .call(&Request::get("/readyz"))
        .problem(503, "shutting-down");
    let renewal = Request::post("/locks/s/renew").body(r#"{"owner":"a","ttl_seconds":900}"#);
    let renewed = holder.call(&renewal).lock();
    holder.call(&Request::delete("/locks/r?owner=a")).done();
    assert!(server.wait().success());
    server.start_again();
    server.find("r").not_found();
    server.find("free").not_found();
    assert_eq!(server.find("s").lock(), renewed);
}

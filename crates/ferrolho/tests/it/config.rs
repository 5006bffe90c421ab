//! The server's settings, and how it says what is wrong with them.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::{Server, ferrolho};

/// Starts a server that must refuse to, and returns the one line in which it says why.
fn refused(dir: &Path, args: &[&str]) -> String {
    let output = ferrolho(&["serve"]).args(args).current_dir(dir).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{args:?}");
    assert!(output.stdout.is_empty());
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ferrolho.toml");
    fs::write(&file, "listen = \"127.0.0.1:0\"\nmax_tll_seconds = 5\n").unwrap();
    let in_file = file.to_str().unwrap();
    for (args, said) in [
        (&["--config", in_file][..], "max_tll_seconds"),
        (&["--config", "no.toml"], "no.toml"),
        (&["--listen", "nowhere"], "listen"),
        (&["--listen", "0.0.0.0:0"], "--allow-anonymous"),
        (&["--store", "redis://user:secret@host"], "store"),
        (
            &["--listen", "127.0.0.1:0", "--store", "sqlite:no/such/dir/x.db"],
            "no/such/dir/x.db",
        ),
        (&["--max-ttl-seconds", "0"], "max_ttl_seconds"),
        (&["--max-waiters=-1"], "max_waiters"),
        (&["--log-format", "xml"], "log_format"),
    ] {
        let line = refused(dir.path(), args);
        assert!(line.contains(said) && !line.contains("secret"), "{line}");
    }
}

#[test]
fn a_port_and_a_file_have_one_server() {
    let server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    let address = server.addr.to_string();
    let port_in_use = refused(dir.path(), &["--listen", &address, "--store", "memory:"]);
    assert!(port_in_use.contains(&address), "{port_in_use}");
    let path = server.database().path().unwrap().to_owned();
    let store = format!("sqlite:{path}");
    let file_in_use = refused(dir.path(), &["--listen", "127.0.0.1:0", "--store", &store]);
    assert!(file_in_use.contains("another"), "{file_in_use}");
}

#[test]
fn flags_win_then_the_environment_and_what_is_empty_is_not_given() {
    let mut server = Server::start_on("memory:", &[], &[("FERROLHO_MAX_TTL_SECONDS", "")]);
    server.acquire("r", "a", 86_400).granted();
    server.kill();
    server.set_env("FERROLHO_MAX_TTL_SECONDS", "10");
    server.start_again();
    server.acquire("r", "a", 11).invalid(&["ttl_seconds"]);
    server.acquire("r", "a", 10).granted();
    let flag = Server::start_on(
        "memory:",
        &["--max-ttl-seconds", "20"],
        &[("FERROLHO_MAX_TTL_SECONDS", "10")],
    );
    flag.acquire("r", "a", 20).granted();
}

#[test]
fn a_stop_tells_waiters_and_lets_go_within_ten_seconds() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = Server::start();
        server.acquire("r", "a", 60).granted();
        let mut waiting = server.wait_for("r", "b", 60, 60);
        server.until_waiting("r", 1);
        let mut stream = server.begin(&crate::support::Request::get("/events"));
        assert_eq!(stream.head().unwrap().status, 200);
        let begun = Instant::now();
        server.signal(signal);
        let refused = waiting.answer();
        refused.problem(503, "shutting-down");
        assert!(refused.header("retry-after").is_some());
        assert!(server.wait().success());
        assert!(begun.elapsed() < Duration::from_secs(10));
        server.start_again();
        assert_eq!(server.find("r").lock().owner, "a");
    }
}

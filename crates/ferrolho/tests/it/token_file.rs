//! The file of tokens: how its lines are made, read, read again, and first put to use.

use std::fs;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::auth::{Made, asking};
use crate::support::{Request, Server, acquire, acquire_waiting, ferrolho, until};

#[test]
fn what_token_new_is_told_wrongly_it_refuses() {
    for args in [
        &["--name", "ci"][..],
        &["--allow", "*"],
        &["--name", "", "--allow", "*"],
        &["--name", "ci", "--allow", "a*b"],
        &["--name", "ci", "--allow", ""],
        &["--name", "ci", "--allow", "*", "--no-acquire"],
    ] {
        let output = ferrolho(&["token", "new"]).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(64), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn a_bad_file_is_refused_at_start_and_passed_over_later() {
    let known = Made::full("app", "*");
    let server = asking(&[&known]);
    fs::write(server.token_file(), "{\"name\":").unwrap();
    server.signal(Signal::HUP);
    until("it is said", || {
        server.log().contains("the tokens stay as they were")
    });
    assert_eq!(known.get(&server, "/locks").status, 200);
    let path = server.token_file();
    let start = |file: &str| {
        let output = ferrolho(&[
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--store",
            "memory:",
            "--tokens",
            file,
        ])
        .output()
        .unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = start(path.to_str().unwrap());
    assert!(
        said.contains("line 1:") && said.trim().lines().count() == 1,
        "{said}"
    );
    let said = start("/nowhere/tokens");
    assert!(said.contains("/nowhere/tokens: cannot be read"), "{said}");
}

/// A hundred reloads while callers work, one wait goes on and one stream is open: nobody notices.
#[test]
fn a_reload_fails_no_request() {
    let known = Made::full("app", "*");
    let server = asking(&[&known]);
    server.acquire("held", "a", 600).granted();
    let mut waiting = server.begin(&acquire_waiting("held", "b", 600, 60));
    server.until_waiting("held", 1);
    let mut stream = server.events("?prefix=held", None);
    thread::scope(|scope| {
        let callers: Vec<_> = (0..4)
            .map(|n| {
                let server = &server;
                scope.spawn(move || {
                    let mut connection = server.connect();
                    for _ in 0..100 {
                        connection.call(&acquire(&format!("r{n}"), "o", 60)).granted();
                        let release = Request::delete(&format!("/locks/r{n}?owner=o"));
                        connection.call(&release).done();
                    }
                })
            })
            .collect();
        while callers.iter().any(|caller| !caller.is_finished()) {
            server.signal(Signal::HUP);
            thread::sleep(Duration::from_millis(2));
        }
    });
    server.release("held", "a").done();
    assert_eq!(waiting.answer().granted().owner, "b");
    assert_eq!(stream.take(2).len(), 2);
}

/// A lock from before the tokens belongs to nobody who can show one: it ends by its time, or by an administrator.
#[test]
fn locks_from_before_the_tokens_are_nobodys() {
    let mut server = Server::start();
    server.acquire("old", "worker", 600).granted();
    let made = Made::new(&["--name", "worker", "--allow", "*", "--read", "--admin"]);
    server.stop();
    fs::write(server.token_file(), &made.line).unwrap();
    server.set_env("FERROLHO_TOKENS", "tokens");
    server.start_again();
    assert_eq!(made.get(&server, "/locks/old").lock().principal, None);
    made.release(&server, "old", "worker").forbidden();
    made.acquire(&server, "old", "worker").refused();
    let force = Request::post("/locks/old/force-release").json(&json!({"reason": "from before"}));
    made.call(&server, force).done();
    let lock = made.acquire(&server, "old", "worker").granted();
    assert_eq!(lock.principal.as_deref(), Some("worker"));
}

#[test]
fn the_small_commands_show_the_token_of_the_environment() {
    let made = Made::full("app", "*");
    let server = asking(&[&made]);
    let run = |token: &str, args: &[&str]| {
        let output = ferrolho(args)
            .env("FERROLHO_URL", format!("http://{}", server.addr))
            .env("FERROLHO_TOKEN", token)
            .output()
            .unwrap();
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(token.is_empty() || !said.contains(token), "{said}");
        (output.status.code(), said)
    };
    let token = made.token.as_str();
    assert_eq!(
        run(token, &["acquire", "r", "--owner", "me", "--ttl", "60s"]).0,
        Some(0)
    );
    assert_eq!(run(token, &["status", "r"]).0, Some(0));
    assert_eq!(run(token, &["run", "job", "--", "true"]).0, Some(0));
    assert_eq!(run(token, &["release", "r", "--owner", "me"]).0, Some(0));
    for wrong in ["", "ferrolho_wrong"] {
        let (code, said) = run(wrong, &["run", "job", "--", "true"]);
        assert!(code != Some(0) && said.contains("token"), "{code:?} {said}");
    }
}

//! `run` and the small commands: a server that is frozen, killed, and started again; a queue that is left; costs.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Server, seconds};
use crate::lab::{FERROLHO, Lab, is_alive, until};

#[test]
fn a_run_that_is_told_to_end_while_it_waits_leaves_the_queue() {
    let lab = Lab::new();
    let server = Server::start();
    let url = server.url();
    let mut holder = lab.start(&["--url", &url, "--", "sleep", "300"]);
    let waiters = || {
        let output = lab.command(&["status", "r", "--url", &url]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().matches("waits").count()
    };
    until("it holds", || {
        lab.command(&["status", "r", "--url", &url])
            .output()
            .unwrap()
            .status
            .success()
    });
    let mut waiting = lab.start(&["--url", &url, "--wait", "60s", "--", "touch", "ran"]);
    until("it waits", || waiters() == 1);
    let sent = Instant::now();
    waiting.send(Signal::TERM);
    assert_eq!(waiting.wait().code(), Some(143));
    assert!(sent.elapsed() < seconds(1));
    holder.send(Signal::TERM);
    assert_eq!(holder.wait().code(), Some(143));
    // At once, and not when the place or a ghost's lifetime is over.
    assert_eq!(lab.run(&["--url", &url, "--", "true"]).status.code(), Some(0));
    assert!(!lab.file("ran").exists());
}

#[test]
fn a_frozen_server_ends_the_command_before_the_lock() {
    let lab = Lab::new();
    let server = Server::start();
    let script = "trap '' TERM; echo $$ >main; while :; do sleep 0.02; done";
    let run = lab.start(&["--url", &server.url(), "--ttl", "2s", "--", "sh", "-c", script]);
    let main = lab.pid("main");
    server.send(Signal::STOP);
    let stopped = Instant::now();
    until("the command is dead", || !is_alive(main));
    // No request was answered after the stop, so the lock ends at most its lifetime after it.
    assert!(stopped.elapsed() < seconds(2), "{:?}", stopped.elapsed());
    server.send(Signal::CONT);
    assert_eq!(run.end().status.code(), Some(74));
}

#[test]
fn a_server_that_is_killed_and_started_again_loses_no_lock() {
    let lab = Lab::new();
    let store = format!("sqlite:{}", lab.file("locks.db").display());
    let mut server = Server::start_with(&store, "127.0.0.1:0");
    let (url, listen) = (server.url(), server.addr.to_string());
    let mut run = lab.start(&[
        "--url",
        &url,
        "--ttl",
        "6s",
        "--",
        "sh",
        "-c",
        "echo $$ >main; sleep 7; exit 3",
    ]);
    lab.pid("main");
    server.send(Signal::KILL);
    server.child.wait().unwrap();
    let server = Server::start_with(&store, &listen);
    let other = lab.start(&["--url", &url, "--", "true"]);
    assert_eq!(other.end().status.code(), Some(75));
    assert_eq!(run.wait().code(), Some(3));
    assert_eq!(
        lab.run(&["--url", &server.url(), "--", "true"]).status.code(),
        Some(0)
    );
}

#[test]
fn a_run_costs_no_more_than_a_few_calls_of_curl() {
    let lab = Lab::new();
    let server = Server::start();
    let median = |mut act: Box<dyn FnMut() + '_>| {
        let mut times: Vec<Duration> = (0..21)
            .map(|_| {
                let begun = Instant::now();
                act();
                begun.elapsed()
            })
            .collect();
        times.sort();
        times[times.len() / 2]
    };
    let url = server.url();
    let run = median(Box::new(|| {
        let mut run = lab.command(&["run", "r", "--url", &url, "--", "true"]);
        assert!(run.status().unwrap().success());
    }));
    let post = |path: &str, body: &str| {
        let mut curl = Command::new("curl");
        curl.args([
            "-sf",
            "-o",
            "/dev/null",
            "-d",
            body,
            &format!("{url}/locks/c{path}"),
        ]);
        assert!(curl.status().unwrap().success());
    };
    let curl = median(Box::new(|| {
        post("", "{\"owner\":\"a\",\"ttl_seconds\":30}");
        post("/release", "{\"owner\":\"a\"}");
        assert!(Command::new("true").status().unwrap().success());
    }));
    // About the same where this was measured, in a debug build.
    assert!(run < curl * 4, "run {run:?}, curl {curl:?}");
}

#[test]
fn watch_and_list_show_what_happens() {
    let lab = Lab::new();
    let server = Server::start();
    let mut watch = lab.command(&["watch", "w/", "--json", "--url", &server.url()]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let mut next = || -> serde_json::Value { serde_json::from_str(&lines.next().unwrap()).unwrap() };
    assert_eq!(next(), serde_json::json!({"reset": true}));
    let run = |name: &str, command: &str| {
        let mut run = lab.command(&["run", name, "--url", &server.url(), "--", "sh", "-c", command]);
        assert!(run.status().unwrap().success());
    };
    let list = format!(
        "{FERROLHO} list w/ --url {} >list; {FERROLHO} list --json --url {} >json",
        server.url(),
        server.url()
    );
    run("w/ü '\"", &list);
    let acquired = next();
    assert_eq!(
        (&acquired["kind"], &acquired["resource"]),
        (&"acquired".into(), &"w/ü '\"".into())
    );
    assert!(acquired["id"].is_string());
    assert_eq!(next()["kind"], "released");
    assert!(lab.read("list").contains("w/ü '\""), "{}", lab.read("list"));
    let json: serde_json::Value = serde_json::from_str(&lab.read("json")).unwrap();
    assert_eq!(json["locks"][0]["resource"], "w/ü '\"");
    watch.kill().unwrap();
    watch.wait().unwrap();
}

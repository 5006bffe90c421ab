//! A store that is away: nothing is claimed that is not known, and it heals by itself. (Cases: row 63.)

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Answer, Server, until};

/// Keeps the server from writing, as another program does that holds SQLite's write lock.
fn seize(server: &Server) -> rusqlite::Connection {
    let database = server.database();
    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    database
}

/// It says that it does not know, when to ask again, and nothing of its inside.
fn unavailable(answer: &Answer) {
    let problem = answer.problem(503, "unavailable");
    let seconds: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!(seconds >= 1);
    let text = problem.to_string().to_lowercase();
    for inside in ["sql", "database", "ferrolho.db", "busy", "locked", "/tmp"] {
        assert!(!text.contains(inside), "{text}");
    }
}

#[test]
fn nothing_is_claimed_while_nothing_can_be_written() {
    let server = Server::start();
    let lock = server.acquire("r", "a", 600).granted();
    let seized = seize(&server);
    unavailable(&server.acquire("free", "b", 600));
    unavailable(&server.acquire("r", "a", 600));
    unavailable(&server.renew("r", "a", 900));
    unavailable(&server.release("r", "a"));
    unavailable(&server.post(
        "/locks",
        &json!({"resources": ["x", "y"], "owner": "b", "ttl_seconds": 600}),
    ));
    unavailable(&server.post("/owners/a/renew", &json!({"ttl_seconds": 900})));
    unavailable(&server.delete("/owners/a", &json!({})));
    // What is known is still told.
    assert_eq!(server.find("r").lock(), lock);
    server.acquire("r", "b", 600).refused();
    server.renew("r", "b", 600).forbidden();
    server.release("none", "b").not_found();
    drop(seized);
    // It heals by itself, and nothing of all that has happened.
    until("it writes again", || {
        server.acquire("again", "b", 600).status == 200
    });
    assert_eq!(server.find("r").lock(), lock);
    for name in ["free", "x", "y"] {
        server.find(name).not_found();
    }
    server.release("r", "a").done();
}

#[test]
fn those_who_wait_stay_while_the_store_is_away() {
    let server = Server::start();
    server.acquire("r", "a", 600).granted();
    let mut patient = server.wait_for("r", "b", 600, 300);
    server.until_waiting("r", 1);
    let seized = seize(&server);
    unavailable(&server.release("r", "a"));
    assert_eq!(server.waiters("r"), ["b"]);
    assert!(!patient.has_news());
    drop(seized);
    until("it is released", || server.release("r", "a").status == 204);
    let lock = patient.answer().granted();
    assert_eq!(server.find("r").lock(), lock);
}

/// A lock that ends while nothing can be written is over all the same, and one whose wait is over is told that
/// nothing is known, since the lock is free and could not be had.
#[test]
fn a_lock_that_ends_while_the_store_is_away_is_over() {
    let server = Server::start();
    let asked = Instant::now();
    server.acquire("r", "a", 2).granted();
    let mut in_vain = server.wait_for("r", "b", 600, 3);
    let mut patient = server.wait_for("r", "c", 600, 300);
    let seized = seize(&server);
    let answer = in_vain.answer();
    if answer.status == 503 {
        unavailable(&answer);
    } else {
        // The machine stood still for so long that it was granted before the file was seized, or refused.
        answer.is_granted();
    }
    assert!(asked.elapsed() >= Duration::from_secs(2));
    drop(seized);
    if server.find("r").status == 200 && server.find("r").lock().owner == "b" {
        server.release("r", "b").done();
    }
    assert_eq!(patient.answer().granted().owner, "c");
}

#[test]
fn readiness_says_so() {
    let server = Server::start();
    assert_eq!(server.get("/readyz").json()["status"], "ready");
    assert_eq!(server.get("/readyz").json()["store"], "sqlite");
    assert_eq!(server.get("/healthz").json(), json!({"status": "ok"}));
}

//! The edge of expiry: a lock lives at least as long as asked, and then it is gone for everybody at once.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{PATIENCE, Request, Server, on_every_engine, until};

on_every_engine!(
    a_lock_lives_as_long_as_asked_and_ends_soon_after,
    a_dead_lock_is_gone_on_every_surface,
    a_renewed_lock_never_vanishes,
    a_shorter_renewal_ends_sooner,
    a_lock_lives_as_long_as_its_holder_asked_and_not_as_others_do,
);

/// How long a lock may be seen after its end, by the contract, and the time that a busy machine may take to show it.
const GONE_WITHIN: Duration = Duration::from_millis(500);
const SLACK: Duration = Duration::from_secs(5);

fn a_lock_lives_as_long_as_asked_and_ends_soon_after(server: &Server) {
    for ttl in [1, 2] {
        let asked = Instant::now();
        server.acquire("r", "a", ttl).granted();
        let granted = Instant::now();
        let asked_for = Duration::from_secs(ttl.into());
        until("it ends", || server.find("r").status == 404);
        assert!(
            asked.elapsed() >= asked_for,
            "{:?} of {asked_for:?}",
            asked.elapsed()
        );
        assert!(
            granted.elapsed() < asked_for + GONE_WITHIN + SLACK,
            "{:?}",
            granted.elapsed()
        );
    }
}

fn a_dead_lock_is_gone_on_every_surface(server: &Server) {
    server.expired("r", "a");
    assert_eq!(
        server.get("/locks").json(),
        json!({"locks": [], "next_cursor": null})
    );
    assert_eq!(server.get("/locks?owner=a").json()["locks"], json!([]));
    server.renew("r", "a", 30).not_found();
    server.release("r", "a").not_found();
    server
        .post("/owners/a/renew", &json!({"ttl_seconds": 30}))
        .not_found();
    server.delete("/owners/a", &json!({})).not_found();
    let set = json!({"resources": ["r", "s"], "owner": "b", "ttl_seconds": 30});
    assert_eq!(server.post("/locks", &set).json()["acquired"], true);
}

fn a_renewed_lock_never_vanishes(server: &Server) {
    const TTL: Duration = Duration::from_secs(2);
    let mut connection = server.connect();
    let renewal = Request::post("/locks/r/renew").json(&json!({"owner": "a", "ttl_seconds": 2}));
    let begun = Instant::now();
    let mut sent = Instant::now();
    let mut lock = server.acquire("r", "a", 2).granted();
    // Three lives of the lock, were it not renewed. It is renewed and looked at without a pause.
    while begun.elapsed() < TTL * 3 {
        let sends = Instant::now();
        let answer = connection.call(&renewal);
        if answer.status == 404 {
            // This machine stood still for a whole life of the lock.
            assert!(sent.elapsed() >= TTL, "it vanished");
            sent = Instant::now();
            lock = server.acquire("r", "a", 2).granted();
            continue;
        }
        sent = sends;
        assert_eq!(answer.lock().fencing_token, lock.fencing_token);
        let found = connection.call(&Request::get("/locks/r"));
        if found.status == 200 || sent.elapsed() < TTL {
            assert_eq!(found.lock(), answer.lock());
        }
    }
}

/// Renewals do not add up, and the last one counts.
fn a_shorter_renewal_ends_sooner(server: &Server) {
    server.acquire("r", "a", 600).granted();
    let long = server.renew("r", "a", 3_600).lock();
    for _ in 0..20 {
        server.renew("r", "a", 600).lock();
    }
    let shorter = server.find("r").lock();
    assert!(shorter.expires_at < long.expires_at);
    assert!(shorter.life() < Duration::from_mins(10) + PATIENCE, "{shorter:?}");
    server.renew("r", "a", 1).lock();
    until("it ends", || server.acquire("r", "b", 600).is_granted());
}

fn a_lock_lives_as_long_as_its_holder_asked_and_not_as_others_do(server: &Server) {
    let lock = server.acquire("r", "a", 600).granted();
    let mut impatient = server.wait_for("r", "b", 1, 2);
    server.acquire("r", "c", 1).refused();
    impatient.answer().refused();
    assert_eq!(server.find("r").lock(), lock);
}

#[test]
fn a_restart_neither_prolongs_a_dead_lock_nor_drops_a_live_one() {
    let mut server = Server::start();
    server.acquire("short", "a", 2).granted();
    let granted = Instant::now();
    let live = server.acquire("long", "a", 600).granted();
    server.kill();
    // Its end comes while nobody is there to see it.
    thread::sleep(Duration::from_secs(2).saturating_sub(granted.elapsed()));
    server.start_again();
    server.find("short").not_found();
    server.acquire("short", "b", 30).granted();
    assert_eq!(server.find("long").lock(), live);
    server.acquire("long", "b", 30).refused();
    // And before its end a restart changes nothing about when that is.
    let asked = Instant::now();
    server.acquire("third", "a", 3).granted();
    server.kill();
    server.start_again();
    until("it ends", || server.find("third").status == 404);
    assert!(asked.elapsed() >= Duration::from_secs(3));
    assert!(asked.elapsed() < Duration::from_secs(3) + GONE_WITHIN + SLACK);
}

/// What is over is taken out of the file too, though nobody asks for it again.
#[test]
fn rows_of_dead_locks_do_not_pile_up() {
    const LOCKS: usize = 20_000;
    let server = Server::start();
    let mut connection = server.connect();
    let names: Vec<String> = (0..LOCKS).map(|number| format!("once-{number}")).collect();
    server.acquire("stays", "a", 600).granted();
    for set in names.chunks(32) {
        let body = json!({"resources": set, "owner": "a", "ttl_seconds": 1});
        let answer = connection.call(&Request::post("/locks").json(&body)).json();
        assert_eq!(answer["acquired"], true, "{answer}");
    }
    until("they are gone", || {
        server.get("/readyz").json()["live_locks"] == 1
    });
    assert_eq!(server.get("/locks").json()["locks"].as_array().unwrap().len(), 1);
    let mut server = server;
    server.stop();
    let rows: i64 = server
        .database()
        .query_row("SELECT count(*) FROM distributed_locks", [], |row| row.get(0))
        .unwrap();
    assert_eq!(rows, 1);
}

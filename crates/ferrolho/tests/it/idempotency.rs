//! `Idempotency-Key`: a repeat of the request that made the live grant gets that grant, and a lost answer locks
//! nobody out.

use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::support::{Answer, Request, Server, acquire, acquire_waiting, on_every_engine};

on_every_engine!(
    a_repeat_gets_the_same_grant,
    a_key_is_worth_nothing_once_its_grant_is_over,
    a_key_is_the_holders_own,
    keys_that_are_none_are_refused,
    a_set_is_repeated_as_a_whole,
    repeats_at_the_same_moment_get_one_grant,
    a_caller_that_lost_its_answer_is_not_shut_out,
);

fn with_key(server: &Server, owner: &str, key: &str) -> Answer {
    server.call(&acquire("r", owner, 600).header("idempotency-key", key))
}

fn a_repeat_gets_the_same_grant(server: &Server) {
    let first = with_key(server, "a", "k1").granted();
    for _ in 0..3 {
        assert_eq!(with_key(server, "a", "k1").granted(), first);
    }
    let renewed = server.renew("r", "a", 900).lock();
    assert_eq!(with_key(server, "a", "k1").granted(), renewed);
    let other = with_key(server, "a", "k2").granted();
    assert!(other.fencing_token > first.fencing_token);
    // The first grant is fenced off; its key makes a new one.
    let again = with_key(server, "a", "k1").granted();
    assert!(again.fencing_token > other.fencing_token);
    let without = server.acquire("r", "a", 600).granted();
    assert!(without.fencing_token > again.fencing_token);
}

fn a_key_is_worth_nothing_once_its_grant_is_over(server: &Server) {
    let first = with_key(server, "a", "k").granted();
    server.release("r", "a").done();
    let second = with_key(server, "a", "k").granted();
    assert!(second.fencing_token > first.fencing_token);
    server.renew("r", "a", 1).lock();
    crate::support::until("it ends", || server.find("r").status == 404);
    let third = with_key(server, "a", "k").granted();
    assert!(third.fencing_token > second.fencing_token);
}

fn a_key_is_the_holders_own(server: &Server) {
    let lock = with_key(server, "a", "k").granted();
    with_key(server, "b", "k").refused();
    assert_eq!(server.find("r").lock(), lock);
    // Nor does it mean anything for another lock.
    let other = acquire("s", "a", 600).header("idempotency-key", "k");
    assert_eq!(server.call(&other).granted().resource, "s");
}

fn keys_that_are_none_are_refused(server: &Server) {
    let too_long = "k".repeat(65);
    for key in ["", " ", "a b", "a\tb", "caf\u{e9}", &too_long] {
        with_key(server, "a", key).invalid(&["Idempotency-Key"]);
    }
    let twice = acquire("r", "a", 600)
        .header("idempotency-key", "k")
        .header("Idempotency-Key", "k");
    server.call(&twice).invalid(&["Idempotency-Key"]);
    server.find("r").not_found();
    for key in ["k".repeat(64), "!#$%&'()*+,-./:;<=>?@[]^_`{|}~\"\\".to_owned()] {
        let lock = with_key(server, "a", &key).granted();
        assert_eq!(with_key(server, "a", &key).granted(), lock);
    }
}

fn a_set_is_repeated_as_a_whole(server: &Server) {
    let set = |key: &str, resources: &[&str]| {
        let body = json!({"resources": resources, "owner": "a", "ttl_seconds": 600});
        let request = Request::post("/locks").json(&body).header("idempotency-key", key);
        server.call(&request).json()
    };
    let first = set("k", &["x", "y"]);
    assert_eq!(first["acquired"], true);
    assert_eq!(set("k", &["x", "y"]), first);
    let turned = set("k", &["y", "x"]);
    assert_eq!(turned["locks"][0], first["locks"][1]);
    // One of the two is gone, so this is no repeat of the whole.
    server.release("y", "a").done();
    let again = set("k", &["x", "y"]);
    assert_eq!(again["acquired"], true);
    assert!(again["locks"][0]["fencing_token"].as_u64() > first["locks"][0]["fencing_token"].as_u64());
}

fn repeats_at_the_same_moment_get_one_grant(server: &Server) {
    for round in 0..20 {
        let request = acquire(&format!("r{round}"), "a", 600).header("idempotency-key", "k");
        let mut calls: Vec<_> = (0..8).map(|_| server.begin(&request)).collect();
        let locks: Vec<_> = calls.iter_mut().map(|call| call.answer().granted()).collect();
        assert!(locks.iter().all(|lock| *lock == locks[0]), "{locks:?}");
        assert_eq!(server.find(&format!("r{round}")).lock(), locks[0]);
    }
}

/// The answer to an acquire is lost at every possible moment; the caller repeats it under its key.
fn a_caller_that_lost_its_answer_is_not_shut_out(server: &Server) {
    for round in 0..60u64 {
        let name = format!("r{round}");
        let request = acquire(&name, "a", 600).header("idempotency-key", &format!("k{round}"));
        let lost = server.begin(&request);
        thread::sleep(Duration::from_micros(round * 50));
        lost.reset();
        // It may be in a hurry, too.
        let mut calls = [server.begin(&request), server.begin(&request)];
        let [one, two] = calls.each_mut().map(|call| call.answer().granted());
        assert_eq!(one, two);
        assert_eq!(server.find(&name).lock(), one);
        server.acquire(&name, "b", 600).refused();
    }
}

#[test]
fn a_key_is_known_after_a_kill() {
    let mut server = Server::start();
    let lock = with_key(&server, "a", "k").granted();
    server.kill();
    server.start_again();
    assert_eq!(with_key(&server, "a", "k").granted(), lock);
}

#[test]
fn a_wait_is_repeated_too() {
    let server = Server::memory();
    server.acquire("r", "a", 600).granted();
    let request = acquire_waiting("r", "b", 600, 60).header("idempotency-key", "k");
    let mut waiting = server.begin(&request);
    server.until_waiting("r", 1);
    server.release("r", "a").done();
    let lock = waiting.answer().granted();
    assert_eq!(server.call(&request).granted(), lock);
}

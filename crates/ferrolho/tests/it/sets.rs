//! Sets: all of the locks or none of them, without a deadlock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Answer, Lock, Request, Server, on_every_engine, until};

on_every_engine!(
    a_set_is_granted_as_a_whole,
    a_set_is_refused_as_a_whole,
    a_set_waits_until_all_of_it_is_free,
    nobody_overtakes_a_set,
    sets_take_their_turn_among_others,
    crossing_sets_are_whole_and_nobody_is_stuck,
);

fn set(resources: &[&str], owner: &str, wait: u32) -> Request {
    let body = json!({"resources": resources, "owner": owner, "ttl_seconds": 600, "wait_seconds": wait});
    Request::post("/locks").json(&body)
}

/// The locks of a set that was granted, in the order in which they were asked for.
fn granted(answer: &Answer) -> Vec<Lock> {
    let json = answer.json();
    assert_eq!(
        (answer.status, &json["acquired"]),
        (200, &Value::Bool(true)),
        "{json}"
    );
    assert_eq!(json.as_object().unwrap().len(), 2);
    serde_json::from_value(json["locks"].clone()).unwrap()
}

/// The resources for which a set was refused.
fn refused(answer: &Answer) -> Vec<String> {
    let json = answer.json();
    assert_eq!(
        (answer.status, &json["acquired"]),
        (200, &Value::Bool(false)),
        "{json}"
    );
    assert_eq!(json.as_object().unwrap().len(), 2);
    assert!(answer.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    serde_json::from_value(json["resources"].clone()).unwrap()
}

fn a_set_is_granted_as_a_whole(server: &Server) {
    let locks = granted(&server.call(&set(&["z", "a", "m"], "one", 0)));
    let names: Vec<&str> = locks.iter().map(|lock| lock.resource.as_str()).collect();
    assert_eq!(names, ["z", "a", "m"]);
    for lock in &locks {
        assert_eq!(server.find(&lock.resource).lock(), *lock);
        assert_eq!(lock.life(), Duration::from_mins(10));
    }
    // Each of them is a lock like any other.
    server.release("a", "one").done();
    server.acquire("a", "two", 600).granted();
    server.release("m", "two").forbidden();
    server.renew("z", "one", 60).lock();
    // What its owner holds already is granted again.
    server.release("a", "two").done();
    let again = granted(&server.call(&set(&["m", "a"], "one", 0)));
    assert!(again[0].fencing_token > locks[2].fencing_token);
}

fn a_set_is_refused_as_a_whole(server: &Server) {
    server.acquire("b", "other", 600).granted();
    server.acquire("d", "other", 600).granted();
    server.acquire("e", "one", 600).granted();
    let answer = server.call(&set(&["a", "b", "c", "d", "e"], "one", 0));
    assert_eq!(refused(&answer), ["b", "d"]);
    for name in ["a", "c"] {
        server.find(name).not_found();
    }
    assert_eq!(server.find("e").lock().owner, "one");
    let begun = Instant::now();
    assert_eq!(refused(&server.call(&set(&["a", "b"], "one", 1))), ["b"]);
    assert!(begun.elapsed() >= Duration::from_secs(1));
    server.find("a").not_found();
}

fn a_set_waits_until_all_of_it_is_free(server: &Server) {
    server.acquire("a", "one", 600).granted();
    server.acquire("b", "two", 600).granted();
    server.acquire("c", "three", 2).granted();
    let mut waiting = server.begin(&set(&["a", "b", "c"], "set", 60));
    for name in ["a", "b", "c"] {
        server.until_waiting(name, 1);
        assert_eq!(server.waiters(name), ["set"]);
    }
    server.release("a", "one").done();
    server.release("b", "two").done();
    // The last of them ends by itself.
    let locks = granted(&waiting.answer());
    assert!(
        locks
            .iter()
            .all(|lock| lock.owner == "set" && lock.life().as_secs() == 600)
    );
}

fn nobody_overtakes_a_set(server: &Server) {
    server.acquire("a", "one", 600).granted();
    let mut waiting = server.begin(&set(&["a", "b"], "set", 300));
    server.until_waiting("b", 1);
    // It is free, and somebody came first.
    server.find("b").not_found();
    server.acquire("b", "newcomer", 600).refused();
    assert_eq!(refused(&server.call(&set(&["b", "c"], "newcomer", 0))), ["b"]);
    server.find("c").not_found();
    let mut behind = server.wait_for("b", "behind", 600, 300);
    server.until_waiting("b", 2);
    server.release("a", "one").done();
    granted(&waiting.answer());
    assert!(!behind.has_news());
    server.release("b", "set").done();
    behind.answer().granted();
}

fn sets_take_their_turn_among_others(server: &Server) {
    server.acquire("a", "one", 600).granted();
    server.acquire("b", "two", 600).granted();
    let mut first = server.wait_for("a", "first", 600, 300);
    server.until_waiting("a", 1);
    let mut second = server.begin(&set(&["b", "a"], "second", 300));
    server.until_waiting("a", 2);
    let mut third = server.wait_for("b", "third", 600, 300);
    server.until_waiting("b", 2);
    server.release("b", "two").done();
    assert!(!second.has_news() && !third.has_news());
    server.release("a", "one").done();
    first.answer().granted();
    server.release("a", "first").done();
    granted(&second.answer());
    server.release("b", "second").done();
    third.answer().granted();
}

/// 32 callers take sets over 8 names, in every order, and keep what they hold alone.
fn crossing_sets_are_whole_and_nobody_is_stuck(server: &Server) {
    const NAMES: [&str; 8] = ["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7"];
    let users: [AtomicUsize; 8] = std::array::from_fn(|_| AtomicUsize::new(0));
    let begun = Instant::now();
    let run = |caller: usize| {
        let owner = format!("caller-{caller}");
        let mut connection = server.connect();
        let mut turns = 0;
        while begun.elapsed() < Duration::from_secs(4) {
            // 3 has no factor in common with 8: no name comes twice in a set.
            let size = 2 + (caller + turns) % 3;
            let numbers: Vec<usize> = (0..size)
                .map(|step| (caller + turns + step * if caller.is_multiple_of(2) { 3 } else { 5 }) % 8)
                .collect();
            let names: Vec<&str> = numbers.iter().map(|number| NAMES[*number]).collect();
            let locks = granted(&connection.call(&set(&names, &owner, 300)));
            assert_eq!(locks.len(), size);
            for number in &numbers {
                assert_eq!(users[*number].swap(caller + 1, Ordering::SeqCst), 0);
            }
            for number in &numbers {
                assert_eq!(users[*number].swap(0, Ordering::SeqCst), caller + 1);
                let target = format!("/locks/{}?owner={owner}", NAMES[*number]);
                connection.call(&Request::delete(&target)).done();
            }
            turns += 1;
        }
        turns
    };
    let turns: Vec<usize> = thread::scope(|scope| {
        let run = &run;
        let callers: Vec<_> = (0..32).map(|caller| scope.spawn(move || run(caller))).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    assert!(turns.iter().all(|turns| *turns > 0), "{turns:?}");
    for name in NAMES {
        until("nobody waits", || server.waiters(name).is_empty());
        server.find(name).not_found();
    }
}

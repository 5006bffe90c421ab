//! Ownership: an answer touches only the holding that it was meant for.

use std::collections::HashMap;

use proptest::prelude::*;
use serde_json::json;

use crate::support::{Lock, Request, Server, on_every_engine};

on_every_engine!(
    a_late_release_does_not_touch_the_next_holder,
    a_late_renewal_does_not_touch_the_next_holder,
    a_renewal_does_not_revive_a_dead_lock,
    the_holder_never_waits_for_itself,
    a_named_token_narrows_release_and_renewal,
    every_lock_of_many_is_its_own,
    random_histories_agree_with_the_rules,
);

fn a_late_release_does_not_touch_the_next_holder(server: &Server) {
    let late = server.expired("r", "a");
    let next = server.acquire("r", "b", 30).granted();
    assert!(next.fencing_token > late.fencing_token);
    let token = json!({"owner": "a", "fencing_token": late.fencing_token});
    for _ in 0..2 {
        server.release("r", "a").forbidden();
        server.delete("/locks/r", &token).forbidden();
    }
    assert_eq!(server.find("r").lock(), next);
    server.acquire("r", "c", 30).refused();
}

fn a_late_renewal_does_not_touch_the_next_holder(server: &Server) {
    server.expired("r", "a");
    let next = server.acquire("r", "b", 30).granted();
    server.renew("r", "a", 3600).forbidden();
    server
        .post("/owners/a/renew", &json!({"ttl_seconds": 3600}))
        .not_found();
    assert_eq!(server.find("r").lock(), next);
}

fn a_renewal_does_not_revive_a_dead_lock(server: &Server) {
    let dead = server.expired("r", "a");
    server.renew("r", "a", 60).not_found();
    server.find("r").not_found();
    // Somebody else had it in between.
    let between = server.acquire("r", "b", 30).granted();
    server.release("r", "b").done();
    server.renew("r", "a", 60).not_found();
    server.find("r").not_found();
    let next = server.acquire("r", "a", 30).granted();
    assert!(dead.fencing_token < between.fencing_token && between.fencing_token < next.fencing_token);
}

fn the_holder_never_waits_for_itself(server: &Server) {
    let first = server.acquire("r", "a", 600).granted();
    // If it did, this test would take five minutes.
    let again = server.wait_for("r", "a", 600, 300).answer().granted();
    assert!(again.fencing_token > first.fencing_token);
    assert!(again.expires_at > first.expires_at);
    let waiting = server.wait_for("r", "b", 600, 300);
    server.until_waiting("r", 1);
    let third = server.wait_for("r", "a", 600, 300).answer().granted();
    assert!(third.fencing_token > again.fencing_token);
    assert_eq!(server.waiters("r"), ["b"]);
    drop(waiting);
}

fn a_named_token_narrows_release_and_renewal(server: &Server) {
    let old = server.acquire("r", "a", 60).granted();
    let new = server.acquire("r", "a", 60).granted();
    // An older incarnation under the same name is fenced off.
    let stale = json!({"owner": "a", "fencing_token": old.fencing_token});
    let stale_renewal = json!({"owner": "a", "fencing_token": old.fencing_token, "ttl_seconds": 60});
    server.delete("/locks/r", &stale).forbidden();
    server.post("/locks/r/release", &stale).forbidden();
    server.post("/locks/r/renew", &stale_renewal).forbidden();
    let in_query = format!("/locks/r?owner=a&fencing_token={}", old.fencing_token);
    server.call(&Request::delete(&in_query)).forbidden();
    assert_eq!(server.find("r").lock(), new);
    // The right token in another's name is no better.
    let stolen = json!({"owner": "b", "fencing_token": new.fencing_token});
    server.delete("/locks/r", &stolen).forbidden();
    let renewal = json!({"owner": "a", "fencing_token": new.fencing_token, "ttl_seconds": 90});
    server.post("/locks/r/renew", &renewal).lock();
    let in_query = format!("/locks/r?owner=a&fencing_token={}", new.fencing_token);
    server.call(&Request::delete(&in_query)).done();
    server.find("r").not_found();
}

fn every_lock_of_many_is_its_own(server: &Server) {
    const LOCKS: usize = 300;
    let mut connection = server.connect();
    let names: Vec<String> = (0..LOCKS).map(|number| format!("key-{number}")).collect();
    for name in &names {
        connection
            .call(&crate::support::acquire(name, "a", 600))
            .granted();
    }
    // 101 and 300 have no common factor: every lock once, in no order.
    for step in 0..LOCKS {
        let name = &names[step * 101 % LOCKS];
        connection
            .call(&Request::delete(&format!("/locks/{name}?owner=a")))
            .done();
        connection
            .call(&Request::get(&format!("/locks/{name}")))
            .not_found();
    }
}

/// What a caller may do to one of few locks, in the name of one of few owners.
#[derive(Clone, Copy, Debug)]
enum Act {
    Acquire,
    Renew(Token),
    Release(Token),
    Look,
}

/// Which token the caller names.
#[derive(Clone, Copy, Debug)]
enum Token {
    None,
    /// Of the grant before the last one.
    Stale,
    /// Of the last grant, whoever got it.
    Last,
}

fn acts() -> impl Strategy<Value = Vec<(Act, usize, usize)>> {
    let token = || prop_oneof![Just(Token::None), Just(Token::Stale), Just(Token::Last)];
    let act = prop_oneof![
        3 => Just(Act::Acquire),
        2 => token().prop_map(Act::Renew),
        2 => token().prop_map(Act::Release),
        1 => Just(Act::Look),
    ];
    prop::collection::vec((act, 0..2usize, 0..3usize), 1..60)
}

/// A lock as the rules have it: who holds it, and the tokens of all its grants.
#[derive(Default)]
struct Model {
    live: Option<Lock>,
    tokens: Vec<u64>,
}

impl Model {
    fn named(&self, token: Token) -> Option<u64> {
        match token {
            Token::None => None,
            Token::Stale => self.tokens.iter().rev().nth(1).copied(),
            Token::Last => self.tokens.last().copied(),
        }
    }

    /// How a claim to hold the lock ends: 404, 403, or nothing against it.
    fn objection(&self, owner: &str, token: Option<u64>) -> Option<u16> {
        match &self.live {
            None => Some(404),
            Some(lock) if lock.owner != owner => Some(403),
            Some(lock) if token.is_some_and(|token| token != lock.fencing_token) => Some(403),
            Some(_) => None,
        }
    }
}

fn random_histories_agree_with_the_rules(server: &Server) {
    let run = std::cell::Cell::new(0);
    let config = ProptestConfig {
        cases: 40,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(acts in acts())| {
        run.set(run.get() + 1);
        let mut models: HashMap<usize, Model> = HashMap::new();
        for (act, resource, owner) in acts {
            let model = models.entry(resource).or_default();
            let name = format!("history-{}-{resource}", run.get());
            carry_out(server, model, act, &name, ["a", "b", "c"][owner]);
        }
    });
}

/// Carries out an act and compares the answer, and the lock afterwards, with the model.
fn carry_out(server: &Server, model: &mut Model, act: Act, name: &str, owner: &str) {
    let claim = |token: Option<u64>| match token {
        Some(token) => json!({"owner": owner, "fencing_token": token}),
        None => json!({"owner": owner}),
    };
    match act {
        Act::Look => {}
        Act::Acquire => {
            let answer = server.acquire(name, owner, 600);
            let is_free = model.live.as_ref().is_none_or(|lock| lock.owner == owner);
            assert_eq!(answer.is_granted(), is_free);
            if is_free {
                let lock = answer.granted();
                assert!(model.tokens.last().is_none_or(|last| *last < lock.fencing_token));
                model.tokens.push(lock.fencing_token);
                model.live = Some(lock);
            }
        }
        Act::Renew(token) => {
            let token = model.named(token);
            let mut body = claim(token);
            body["ttl_seconds"] = json!(900);
            let answer = server.post(&format!("/locks/{name}/renew"), &body);
            let objection = model.objection(owner, token);
            assert_eq!(answer.status, objection.unwrap_or(200), "{}", answer.text());
            if objection.is_none() {
                model.live = Some(answer.lock());
            }
        }
        Act::Release(token) => {
            let token = model.named(token);
            let answer = server.delete(&format!("/locks/{name}"), &claim(token));
            let objection = model.objection(owner, token);
            assert_eq!(answer.status, objection.unwrap_or(204), "{}", answer.text());
            if objection.is_none() {
                model.live = None;
            }
        }
    }
    let found = server.find(name);
    match &model.live {
        None => found.not_found(),
        Some(lock) => assert_eq!(found.lock(), *lock),
    }
}

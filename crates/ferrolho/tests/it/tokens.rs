//! Fencing tokens: one for each grant, rising for ever.

use std::sync::Mutex;
use std::thread;

use serde_json::json;

use crate::support::{Lock, Request, Server, acquire, on_every_engine, until};

on_every_engine!(
    tokens_rise_over_every_way_in_which_a_lock_can_end,
    looking_and_renewing_keep_the_token,
    every_grant_has_a_token_of_its_own_in_the_order_of_grants,
);

fn tokens_rise_over_every_way_in_which_a_lock_can_end(server: &Server) {
    let mut last = 0;
    let mut rises = |lock: Lock| {
        assert!(lock.fencing_token > last, "{lock:?} after {last}");
        last = lock.fencing_token;
    };
    for round in 0..3 {
        rises(server.acquire("r", "a", 600).granted());
        rises(server.acquire("r", "a", 600).granted());
        server.release("r", "a").done();
        rises(server.acquire("r", "b", 600).granted());
        assert_eq!(server.delete("/owners/b", &json!({})).status, 200);
        let set = json!({"resources": ["q", "r"], "owner": "c", "ttl_seconds": 600});
        let locks = server.post("/locks", &set).json()["locks"].clone();
        rises(serde_json::from_value(locks[1].clone()).unwrap());
        let mut heir = server.wait_for("r", "d", 600, 60);
        server.until_waiting("r", 1);
        server.release("r", "c").done();
        rises(heir.answer().granted());
        server.release("r", "d").done();
        server.release("q", "c").done();
        if round == 0 {
            rises(server.expired("r", "e"));
        }
    }
}

fn looking_and_renewing_keep_the_token(server: &Server) {
    let token = server.acquire("r", "a", 600).granted().fencing_token;
    server.acquire("elsewhere", "a", 600).granted();
    for ttl in 600..610 {
        assert_eq!(server.renew("r", "a", ttl).lock().fencing_token, token);
        assert_eq!(server.find("r").lock().fencing_token, token);
        server.acquire("r", "b", 30).refused();
    }
}

/// 16 callers take and give back one lock, and renew it while they have it. The lock itself puts the grants in order.
fn every_grant_has_a_token_of_its_own_in_the_order_of_grants(server: &Server) {
    const EACH: usize = 15;
    let grants = Mutex::new(Vec::new());
    let run = |caller: usize| {
        let owner = format!("caller-{caller}");
        let mut connection = server.connect();
        for _ in 0..EACH {
            let body = json!({"owner": owner, "ttl_seconds": 600, "wait_seconds": 60});
            let lock = connection.call(&Request::post("/locks/r").json(&body)).granted();
            grants.lock().unwrap().push(lock.fencing_token);
            let body = json!({"owner": owner, "ttl_seconds": 600});
            let renewed = connection
                .call(&Request::post("/locks/r/renew").json(&body))
                .lock();
            assert_eq!(renewed.fencing_token, lock.fencing_token);
            connection
                .call(&Request::delete(&format!("/locks/r?owner={owner}")))
                .done();
        }
    };
    thread::scope(|scope| {
        for caller in 0..16 {
            let run = &run;
            scope.spawn(move || run(caller));
        }
    });
    let grants = grants.into_inner().unwrap();
    assert_eq!(grants.len(), 16 * EACH);
    assert!(grants.is_sorted_by(|before, after| before < after), "{grants:?}");
}

#[test]
fn tokens_rise_over_restarts_sweeps_and_kills() {
    let mut server = Server::start();
    let mut last = 0;
    for round in 0..6 {
        let lock = server.acquire("r", "a", 600).granted();
        assert!(lock.fencing_token > last, "round {round}: {lock:?} after {last}");
        last = lock.fencing_token;
        match round % 3 {
            0 => server.release("r", "a").done(),
            1 => {
                server.release("r", "a").done();
                last = server.expired("r", "b").fencing_token;
                until("it is swept", || server.get("/readyz").json()["live_locks"] == 0);
            }
            _ => {}
        }
        if round % 2 == 0 {
            server.kill();
        } else {
            server.stop();
        }
        server.start_again();
    }
}

#[test]
fn tokens_rise_over_restarts_of_a_server_that_forgets() {
    let mut server = Server::memory();
    let mut last = 0;
    for _ in 0..3 {
        for _ in 0..100 {
            let token = server.acquire("r", "a", 600).granted().fencing_token;
            assert!(token > last && token < 1 << 53, "{token} after {last}");
            last = token;
        }
        server.kill();
        server.start_again();
        server.find("r").not_found();
    }
}

#[test]
fn tokens_rise_over_each_resource_of_many_callers() {
    let server = Server::start();
    let run = |caller: usize| {
        let mut connection = server.connect();
        let mut last = vec![0; 10];
        for step in 0..200 {
            let resource = (step + caller) % 10;
            let answer = connection.call(&acquire(&format!("r{resource}"), &format!("c{caller}"), 600));
            if answer.is_granted() {
                let token = answer.granted().fencing_token;
                assert!(token > last[resource]);
                last[resource] = token;
                connection
                    .call(&Request::delete(&format!("/locks/r{resource}?owner=c{caller}")))
                    .done();
            }
        }
        last
    };
    let last: Vec<Vec<u64>> = thread::scope(|scope| {
        let run = &run;
        let callers: Vec<_> = (0..8).map(|caller| scope.spawn(move || run(caller))).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    for resource in 0..10 {
        let highest = last.iter().map(|of_caller| of_caller[resource]).max().unwrap();
        let lock = server.acquire(&format!("r{resource}"), "last", 600).granted();
        assert!(lock.fencing_token > highest);
    }
}

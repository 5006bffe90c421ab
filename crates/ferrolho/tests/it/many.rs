//! Many locks at once: lists, and all that one owner holds.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{Request, Server, on_every_engine};

on_every_engine!(
    a_list_is_paged_in_the_order_of_bytes,
    a_list_may_be_narrowed,
    a_page_is_right_while_locks_come_and_go,
    one_heartbeat_renews_all_that_an_owner_holds,
    all_that_an_owner_holds_is_released,
    what_an_owner_gives_back_goes_to_those_who_wait,
);

fn names(page: &Value) -> Vec<String> {
    let locks = page["locks"].as_array().unwrap();
    locks
        .iter()
        .map(|lock| lock["resource"].as_str().unwrap().to_owned())
        .collect()
}

/// All pages of a list.
fn all(server: &Server, query: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut target = format!("/locks?{query}");
    loop {
        let page = server.get(&target).json();
        found.extend(names(&page));
        match page["next_cursor"].as_str() {
            None => return found,
            Some(cursor) => target = format!("/locks?{query}&cursor={cursor}"),
        }
    }
}

fn a_list_is_paged_in_the_order_of_bytes(server: &Server) {
    assert_eq!(
        server.get("/locks").json(),
        json!({"locks": [], "next_cursor": null})
    );
    let expected: BTreeSet<String> = (0..60).map(|number| format!("r{}", number * 37 % 60)).collect();
    for (number, name) in expected.iter().enumerate() {
        server.acquire(name, &format!("o{}", number % 2), 600).granted();
    }
    let expected: Vec<String> = expected.into_iter().collect();
    for limit in [1, 7, 30, 59, 60, 61, 1_000] {
        assert_eq!(all(server, &format!("limit={limit}")), expected);
    }
    // The last page says so, even when it is full.
    let page = server.get("/locks?limit=60").json();
    assert_eq!(page["next_cursor"], Value::Null);
    let page = server.get("/locks?limit=59").json();
    assert_eq!(names(&page).len(), 59);
    assert!(page["next_cursor"].is_string());
}

fn a_list_may_be_narrowed(server: &Server) {
    for (name, owner) in [
        ("a%b", "one"),
        ("a_b", "one"),
        ("aXb", "two"),
        ("A", "two"),
        ("é1", "one"),
        ("è1", "two"),
    ] {
        server.acquire(name, owner, 600).granted();
    }
    for (query, found) in [
        ("prefix=a", vec!["a%b", "aXb", "a_b"]),
        ("prefix=a%25", vec!["a%b"]),
        ("prefix=a_", vec!["a_b"]),
        ("prefix=%C3%A9", vec!["é1"]),
        ("prefix=A", vec!["A"]),
        ("prefix=aXbc", vec![]),
        ("prefix=", vec!["A", "a%b", "aXb", "a_b", "è1", "é1"]),
        ("owner=two", vec!["A", "aXb", "è1"]),
        ("owner=one&prefix=a", vec!["a%b", "a_b"]),
        ("owner=nobody", vec![]),
        ("owner=tw", vec![]),
        ("cursor=a_", vec!["a_b", "è1", "é1"]),
        ("cursor=a_b", vec!["è1", "é1"]),
        ("cursor=a_b&prefix=a", vec![]),
    ] {
        assert_eq!(
            names(&server.get(&format!("/locks?{query}")).json()),
            found,
            "{query}"
        );
    }
}

fn a_page_is_right_while_locks_come_and_go(server: &Server) {
    for number in 10..40 {
        server.acquire(&format!("stays-{number}"), "a", 600).granted();
    }
    let mut found = Vec::new();
    let mut target = "/locks?limit=5".to_owned();
    let mut step = 0;
    loop {
        let page = server.get(&target).json();
        found.extend(names(&page));
        let Some(cursor) = page["next_cursor"].as_str() else {
            break;
        };
        target = format!("/locks?limit=5&cursor={cursor}");
        // The lock at which the next page begins may go, and others come before and behind it.
        server.acquire("stays-00", "a", 600).granted();
        server.acquire(&format!("comes-{step}"), "a", 600).granted();
        server.release(cursor, "a").done();
        step += 1;
    }
    let expected: Vec<String> = (10..40).map(|number| format!("stays-{number}")).collect();
    assert_eq!(found, expected);
}

fn one_heartbeat_renews_all_that_an_owner_holds(server: &Server) {
    server
        .post("/owners/a/renew", &json!({"ttl_seconds": 60}))
        .not_found();
    let mut before = Vec::new();
    for number in 0..70 {
        before.push(server.acquire(&format!("r{number:02}"), "a", 60).granted());
    }
    let other = server.acquire("other", "b", 60).granted();
    let answer = server.post("/owners/a/renew", &json!({"ttl_seconds": 600}));
    let renewed = answer.json()["locks"].as_array().unwrap().clone();
    assert_eq!(renewed.len(), 70);
    for (before, renewed) in before.iter().zip(renewed) {
        let lock: crate::support::Lock = serde_json::from_value(renewed).unwrap();
        assert_eq!(server.find(&before.resource).lock(), lock);
        assert_eq!(lock.fencing_token, before.fencing_token);
        assert_eq!(lock.acquired_at, before.acquired_at);
        assert!(lock.expires_at > before.expires_at);
    }
    assert_eq!(server.find("other").lock(), other);
}

fn all_that_an_owner_holds_is_released(server: &Server) {
    server.delete("/owners/a", &json!({})).not_found();
    let names: Vec<String> = (0..70).map(|number| format!("r{number:02}")).collect();
    for name in &names {
        server.acquire(name, "a", 600).granted();
    }
    server.acquire("other", "A", 600).granted();
    let answer = server.call(&Request::delete("/owners/a"));
    assert_eq!(answer.json(), json!({"released": names}));
    server.delete("/owners/a", &json!({})).not_found();
    assert_eq!(all(server, ""), ["other"]);
}

fn what_an_owner_gives_back_goes_to_those_who_wait(server: &Server) {
    server.acquire("r", "a", 600).granted();
    server.acquire("s", "a", 600).granted();
    let mut waiting = server.wait_for("r", "b", 600, 300);
    server.until_waiting("r", 1);
    assert_eq!(
        server.call(&Request::delete("/owners/a")).json(),
        json!({"released": ["r", "s"]})
    );
    let lock = waiting.answer().granted();
    assert_eq!(server.find("r").lock(), lock);
    assert_eq!(all(server, ""), ["r"]);
}

/// 50 000 live locks: a page is still a page, and others are served meanwhile.
#[test]
fn a_list_of_many_is_bounded() {
    let server = Server::memory();
    let mut connection = server.connect();
    let resources: Vec<String> = (0..50_000).map(|number| format!("r{number:05}")).collect();
    for set in resources.chunks(32) {
        let body = json!({"resources": set, "owner": "a", "ttl_seconds": 600});
        let answer = connection.call(&Request::post("/locks").json(&body)).json();
        assert_eq!(answer["acquired"], true, "{answer}");
    }
    let page = server.get("/locks").json();
    assert_eq!(names(&page), resources[..100]);
    let page = server.get("/locks?limit=1000&cursor=r25000").json();
    assert_eq!(names(&page), resources[25_001..26_001]);
    server.acquire("r00000", "b", 600).refused();
    assert_eq!(server.get("/readyz").json()["live_locks"], 50_000);
}

/// What a name costs is given back with its lock, whether it was waited for or not.
#[test]
fn names_that_come_and_go_cost_no_memory() {
    let server = Server::memory();
    let mut connection = server.connect();
    let mut come_and_go = |from: usize, count: usize| {
        let names: Vec<String> = (from..from + count)
            .map(|number| format!("name-{number}"))
            .collect();
        for set in names.chunks(32) {
            let body = json!({"resources": set, "owner": "a", "ttl_seconds": 600});
            let answer = connection.call(&Request::post("/locks").json(&body)).json();
            assert_eq!(answer["acquired"], true, "{answer}");
            let mut waiting = server.wait_for(&set[0], "b", 600, 300);
            let answer = connection.call(&Request::delete("/owners/a"));
            assert_eq!(answer.json()["released"].as_array().unwrap().len(), set.len());
            waiting.answer().granted();
            server.release(&set[0], "b").done();
        }
        server.memory_kib()
    };
    let before = come_and_go(0, 30_000);
    let after = come_and_go(30_000, 90_000);
    assert!(after < before + before / 5, "{before} KiB, then {after} KiB");
    assert_eq!(server.get("/readyz").json()["live_locks"], 0);
}

//! Names: each is one lock, everywhere the same and independent of all others, or is refused everywhere.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{Request, Server, lock_path, on_every_engine};

on_every_engine!(
    every_legal_name_is_one_lock_everywhere,
    illegal_names_are_refused_everywhere,
    owners_are_names_too,
    a_name_is_decoded_once,
    a_raw_slash_is_never_part_of_a_name,
    long_names_are_never_cut,
);

fn legal() -> Vec<String> {
    let mut names: Vec<String> = [
        "job",
        "Job",
        "JOB",
        "job/",
        "/job",
        "team/job",
        "a//b",
        "a\\b",
        "a b",
        "a  b",
        "a+b",
        "a%2Fb",
        "%",
        "%41",
        "a?b=c",
        "a#b",
        "a&b",
        "a;b",
        "a:b",
        "a=b",
        "'",
        "\"",
        "''",
        "{resource}",
        "${x}",
        "<b>x</b>",
        "<img src=x onerror=alert(1)>",
        "...",
        "..a",
        "a..",
        ".hidden",
        "a/../b",
        "-",
        "--owner",
        "_",
        "*",
        "~",
        "null",
        "true",
        "0",
        "renew",
        "release",
        "locks",
        "waiters",
        "force-release",
        "caf\u{e9}",
        "cafe\u{301}",
        "\u{df}",
        "ss",
        "\u{130}",
        "i\u{307}",
        "語",
        "🔒",
        "👩\u{200d}🔧",
        "\u{202e}evil",
        "a\u{200b}b",
        "\u{feff}x",
        "a\u{a0}b",
        "a\u{2028}b",
        "\u{fffd}",
        "\u{10ffff}",
        "𝕁ob",
    ]
    .map(str::to_owned)
    .into();
    names.extend(["x".repeat(254), "x".repeat(255), "語".repeat(85), "🔒".repeat(63)]);
    names
}

/// All live locks, page by page: their names, in the order in which they come.
fn listed(server: &Server) -> Vec<String> {
    let mut names = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = server.get(&format!("/locks?limit=7{cursor}")).json();
        let locks = page["locks"].as_array().unwrap();
        names.extend(
            locks
                .iter()
                .map(|lock| lock["resource"].as_str().unwrap().to_owned()),
        );
        match &page["next_cursor"] {
            Value::Null => return names,
            next => {
                let next = lock_path(next.as_str().unwrap());
                cursor = format!("&cursor={}", next.trim_start_matches("/locks/"));
            }
        }
    }
}

fn every_legal_name_is_one_lock_everywhere(server: &Server) {
    let names = legal();
    let distinct: BTreeSet<&String> = names.iter().collect();
    assert_eq!(distinct.len(), names.len());
    for (number, name) in names.iter().enumerate() {
        let lock = server.acquire(name, &format!("owner-{number}"), 600).granted();
        assert_eq!(lock.resource, *name);
    }
    let in_order: Vec<String> = distinct.into_iter().cloned().collect();
    assert_eq!(listed(server), in_order, "ordered by bytes");
    for (number, name) in names.iter().enumerate() {
        let owner = format!("owner-{number}");
        let lock = server.find(name).lock();
        assert_eq!((&lock.resource, &lock.owner), (name, &owner));
        let refused = server.acquire(name, "other", 600);
        refused.refused();
        assert_eq!(refused.json()["resource"], *name);
        assert_eq!(server.renew(name, &owner, 600).lock().resource, *name);
        let set = json!({"resources": [name], "owner": "other", "ttl_seconds": 600});
        assert_eq!(server.post("/locks", &set).json()["resources"], json!([name]));
        assert_eq!(server.waiters(name), [""; 0]);
        assert_eq!(
            server.delete(&format!("/owners/{owner}"), &json!({})).json()["released"],
            json!([name])
        );
        server.find(name).not_found();
    }
    assert_eq!(listed(server), [""; 0]);
}

/// As they stand in a path.
const ILLEGAL: [&str; 27] = [
    ".",
    "..",
    "%2e",
    "%2E%2e",
    "%20",
    "%20a",
    "a%20",
    "a%09",
    "%0A",
    "a%00b",
    "a%01b",
    "a%7Fb",
    "a%C2%85b",
    "a%E3%80%80",
    "%C2%A0a",
    "%FF",
    "a%FFb",
    "%C0%80",
    "%ED%A0%80",
    "%F4%90%80%80",
    "%E8%AA",
    "%",
    "%4",
    "%zz",
    "a%2",
    "a%%41",
    "%u0041",
];

fn illegal_names_are_refused_everywhere(server: &Server) {
    let body = json!({"owner": "a", "ttl_seconds": 30});
    let owner = json!({"owner": "a"});
    let too_long = "x".repeat(256);
    for name in ILLEGAL.into_iter().chain([too_long.as_str()]) {
        let path = format!("/locks/{name}");
        server.post(&path, &body).invalid(&["resource"]);
        server.get(&path).invalid(&["resource"]);
        server.delete(&path, &owner).invalid(&["resource"]);
        server
            .post(&format!("{path}/renew"), &body)
            .invalid(&["resource"]);
        server
            .post(&format!("{path}/release"), &owner)
            .invalid(&["resource"]);
        server.get(&format!("{path}/waiters")).invalid(&["resource"]);
        let reason = json!({"reason": "why"});
        server
            .post(&format!("{path}/force-release"), &reason)
            .invalid(&["resource"]);
    }
    for name in ["", " a", "a ", ".", "..", "a\0b", "a\nb", "a\u{85}b", &too_long] {
        let set = json!({"resources": ["fine", name], "owner": "a", "ttl_seconds": 30});
        server.post("/locks", &set).invalid(&["resources"]);
    }
    assert_eq!(listed(server), [""; 0]);
}

fn owners_are_names_too(server: &Server) {
    for owner in ["", ".", "..", "a\0b", "a\nb", "a\u{85}b", &"x".repeat(256)] {
        server.acquire("r", owner, 30).invalid(&["owner"]);
        server.release("r", owner).invalid(&["owner"]);
        server.renew("r", owner, 30).invalid(&["owner"]);
    }
    for owner in legal() {
        // White space around an owner is not part of it.
        let lock = server.acquire("r", &format!(" {owner}\t"), 30).granted();
        assert_eq!(lock.owner, owner);
        assert_eq!(server.find("r").lock().owner, owner);
        server.release("r", "another").forbidden();
        let renewed = server.post(
            &format!(
                "/owners/{}/renew",
                lock_path(&owner).trim_start_matches("/locks/")
            ),
            &json!({"ttl_seconds": 30}),
        );
        assert_eq!(renewed.json()["locks"][0]["owner"], owner);
        let in_query = lock_path(&owner).replace("/locks/", "/locks/r?owner=");
        server.call(&Request::delete(&in_query)).done();
    }
}

fn a_name_is_decoded_once(server: &Server) {
    let body = json!({"owner": "a", "ttl_seconds": 30});
    for (path, name) in [
        ("/locks/%6Aob", "job"),
        ("/locks/team%2Fjob", "team/job"),
        ("/locks/team%2fjob", "team/job"),
        ("/locks/%252F", "%2F"),
        ("/locks/a%2Bb", "a+b"),
        ("/locks/a+b", "a+b"),
        ("/locks/%C3%A9", "é"),
        ("/locks/renew", "renew"),
        ("/locks/a%3Fb", "a?b"),
        ("/locks/a;b=c,d@e!$'()*", "a;b=c,d@e!$'()*"),
    ] {
        assert_eq!(server.post(path, &body).granted().resource, name);
        assert_eq!(server.find(name).lock().resource, name);
        assert_eq!(server.post(&format!("{path}/renew"), &body).lock().resource, name);
        server.delete(path, &json!({"owner": "a"})).done();
    }
}

fn a_raw_slash_is_never_part_of_a_name(server: &Server) {
    server.acquire("team/job", "a", 30).granted();
    server.acquire("state", "a", 30).granted();
    let body = json!({"owner": "b", "ttl_seconds": 30});
    for path in [
        "/locks/team/job",
        "/locks/state/",
        "/locks//state",
        "/locks/",
        "//locks/state",
        "/locks/state/renew/",
    ] {
        server.post(path, &body).problem(404, "no-such-route");
        server.get(path).problem(404, "no-such-route");
        server
            .delete(path, &json!({"owner": "b"}))
            .problem(404, "no-such-route");
    }
    let other = server.post("/locks/state%2F", &body).granted();
    assert_eq!(other.resource, "state/");
    assert_eq!(server.find("state").lock().owner, "a");
}

fn long_names_are_never_cut(server: &Server) {
    let stem = "y".repeat(254);
    for (last, owner) in [("a", "one"), ("b", "two")] {
        server.acquire(&format!("{stem}{last}"), owner, 30).granted();
    }
    server.acquire(&stem, "three", 30).granted();
    for length in [256, 300, 4_000, 10_000] {
        server
            .acquire(&"y".repeat(length), "four", 30)
            .invalid(&["resource"]);
    }
    assert_eq!(server.find(&format!("{stem}a")).lock().owner, "one");
    assert_eq!(server.find(&format!("{stem}b")).lock().owner, "two");
    // Three bytes of a path for each byte of the name.
    let escaped = format!("/locks/{}", "%7A".repeat(255));
    let body = json!({"owner": "a", "ttl_seconds": 30});
    assert_eq!(server.post(&escaped, &body).granted().resource, "z".repeat(255));
}

#[test]
fn a_hundred_and_fifty_thousand_names_do_not_meet() {
    let server = Server::memory();
    let mut connection = server.connect();
    let names: Vec<String> = (0..150_000).map(|number| format!("name-{number}")).collect();
    for (number, set) in names.chunks(32).enumerate() {
        let body = json!({"resources": set, "owner": format!("owner-{number}"), "ttl_seconds": 600});
        let answer = connection.call(&Request::post("/locks").json(&body)).json();
        assert_eq!(answer["acquired"], true, "{answer}");
    }
    assert_eq!(server.get("/readyz").json()["live_locks"], 150_000);
}

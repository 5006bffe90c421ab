//! Names: each passes exactly and is independent of all others, or is refused. (Cases: NAM.)

use serde_json::json;

use crate::support::{Request, Server, lock_path};

#[test]
fn names_pass_exactly_everywhere() {
    let server = Server::start();
    let names = [
        "a",
        "A",
        "a/b",
        "a%2Fb",
        "a b",
        "a+b",
        "a?b=c",
        "a#b",
        "..a",
        "...",
        "caf\u{e9}",
        "cafe\u{301}",
        "語",
        "\"quoted\"",
        "<img src=x onerror=alert(1)>",
        "renew",
        "release",
        "a\u{200b}",
        "%",
        "%zz",
        "🔒",
    ];
    for (n, name) in names.iter().enumerate() {
        assert_eq!(
            server.acquire(name, &format!("o{n}"), 60).granted().resource,
            *name
        );
    }
    for (n, name) in names.iter().enumerate() {
        assert_eq!(server.find(name).lock().owner, format!("o{n}"), "{name}");
        assert_eq!(server.renew(name, &format!("o{n}"), 60).lock().resource, *name);
    }
    let listed = server.get("/locks?limit=1000").json()["locks"].clone();
    let listed: Vec<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|l| l["resource"].as_str().unwrap())
        .collect();
    let mut sorted = names.to_vec();
    sorted.sort_unstable();
    assert_eq!(listed, sorted, "ordered by bytes");
    for (n, name) in names.iter().enumerate() {
        server.release(name, &format!("o{n}")).done();
        server.find(name).not_found();
    }
}

#[test]
fn escapes_are_decoded_once_and_needless_ones_change_nothing() {
    let server = Server::memory();
    server.acquire("job", "a", 60).granted();
    assert_eq!(server.get("/locks/%6Aob").lock().resource, "job");
    assert_eq!(server.get("/locks/%6aob").lock().resource, "job");
    server.get("/locks/%256Aob").not_found();
    server.get("/locks/team/job").problem(404, "no-such-route");
    server.get("/locks/job/").problem(404, "no-such-route");
}

#[test]
fn names_that_cannot_be_are_refused_by_name() {
    let server = Server::memory();
    for name in [
        "%zz",
        "%",
        "%4",
        "%FF",
        "a%00b",
        "%0A",
        "a%C2%85",
        "%20a",
        "a%20",
        ".",
        "..",
        "%2E%2E",
        "%ED%A0%80",
    ] {
        for (method, path) in [
            ("GET", ""),
            ("POST", ""),
            ("DELETE", ""),
            ("POST", "/renew"),
            ("GET", "/waiters"),
        ] {
            let request = Request::new(method, &format!("/locks/{name}{path}"));
            let request = if method == "GET" {
                request
            } else {
                request.body("{}")
            };
            let problem = server.call(&request).problem(422, "validation-failed");
            let fields: Vec<_> = problem["errors"]
                .as_array()
                .unwrap()
                .iter()
                .map(|e| e["field"].clone())
                .collect();
            assert!(fields.contains(&json!("resource")), "{name}: {problem}");
        }
    }
    for owner in ["a\0b", ".", "..", "a\u{85}b"] {
        server.acquire("r", owner, 30).invalid(&["owner"]);
    }
    let surrogate = "{\"owner\":\"\\ud800\",\"ttl_seconds\":30}";
    server
        .call(&Request::post(&lock_path("r")).body(surrogate))
        .invalid(&["owner"]);
}

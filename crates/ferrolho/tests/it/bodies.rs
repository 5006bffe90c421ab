//! Bodies, methods and errors. (Cases: WEB, NUM.)

use serde_json::json;

use crate::support::{Request, Server};

fn body(text: &str) -> Request {
    Request::post("/locks/r").body(text)
}

#[test]
fn unknown_and_doubled_keys_are_refused_by_name() {
    let server = Server::memory();
    for (text, fields) in [
        ("{\"owner\":\"a\",\"ttl_seconds\":30,\"ttl\":1}", vec!["ttl"]),
        (
            "{\"owner\":\"a\",\"ttl_seconds\":30,\"wait_secs\":1}",
            vec!["wait_secs"],
        ),
        (
            "{\"owner\":\"a\",\"ttl_seconds\":30,\"Owner\":\"b\"}",
            vec!["Owner"],
        ),
        (
            "{\"owner\":\"a\",\"owner\":\"a\",\"ttl_seconds\":30}",
            vec!["owner"],
        ),
        (
            "{\"owner\":\"a\",\"\\u006fwner\":\"b\",\"ttl_seconds\":30}",
            vec!["owner"],
        ),
        (
            "{\"ttl_seconds\":\"x\",\"wait_seconds\":301}",
            vec!["owner", "ttl_seconds", "wait_seconds"],
        ),
        (
            "{\"owner\":\"a\",\"ttl_seconds\":30,\"metadata\":[]}",
            vec!["metadata"],
        ),
        (
            "{\"owner\":\"a\",\"ttl_seconds\":30,\"wait_seconds\":1.0}",
            vec!["wait_seconds"],
        ),
        (
            "{\"owner\":\"a\",\"ttl_seconds\":30,\"wait_seconds\":null}",
            vec!["wait_seconds"],
        ),
        ("[]", vec!["body", "owner", "ttl_seconds"]),
        ("null", vec!["body", "owner", "ttl_seconds"]),
        ("", vec!["owner", "ttl_seconds"]),
    ] {
        server.call(&body(text)).invalid(&fields);
    }
    let good = json!({"owner": "a", "ttl_seconds": 30});
    server
        .post("/locks/r?fail_if_hold=true", &good)
        .invalid(&["fail_if_hold"]);
    server
        .post("/locks/r?fail_if_held=yes", &good)
        .invalid(&["fail_if_held"]);
    server
        .post("/locks/r?fail_if_held=true&fail_if_held=true", &good)
        .invalid(&["fail_if_held"]);
    server.get("/locks/r?x=1").invalid(&["x"]);
    server
        .get("/locks?limit=0&cursor=.")
        .invalid(&["cursor", "limit"]);
    server.find("r").not_found();
}

#[test]
fn what_is_not_json_is_malformed() {
    let server = Server::memory();
    for text in [
        &b"{"[..],
        b"{\"owner\":}",
        b"owner=a",
        b"{} {}",
        b"{\"owner\":\"\xff\"}",
        b"\xef\xbb\xbf{}",
    ] {
        server
            .call(&Request::post("/locks/r").body(text))
            .problem(400, "malformed-json");
    }
}

#[test]
fn large_bodies_are_refused_and_the_type_does_not_matter() {
    let server = Server::memory();
    let good = "{\"owner\":\"a\",\"ttl_seconds\":30}";
    let long = |bytes: usize| format!("{good}{}", " ".repeat(bytes - good.len()));
    server.call(&body(&long(64 * 1024))).granted();
    server
        .call(&body(&long(64 * 1024 + 1)))
        .problem(413, "body-too-large");
    let form = body("{\"owner\":\"a\",\"ttl_seconds\":30}")
        .header("content-type", "application/x-www-form-urlencoded");
    server.call(&form).granted();
}

#[test]
fn a_release_says_its_owner_in_the_body_or_in_the_query() {
    let server = Server::memory();
    let held = || server.acquire("r", "a b", 30).granted().fencing_token;
    held();
    server.call(&Request::delete("/locks/r?owner=a%20b")).done();
    held();
    server
        .call(&Request::delete("/locks/r?owner=a+b").body("{\"owner\":\"a b\"}"))
        .done();
    let token = held();
    server
        .call(&Request::delete("/locks/r?owner=b").body("{\"owner\":\"a b\"}"))
        .invalid(&["owner"]);
    server
        .call(&Request::delete(&format!(
            "/locks/r?owner=a+b&fencing_token={}",
            token + 1
        )))
        .forbidden();
    server
        .call(
            &Request::post("/locks/r/release")
                .body(format!("{{\"owner\":\"a b\",\"fencing_token\":{token}}}")),
        )
        .done();
}

#[test]
fn methods_paths_and_ids() {
    let server = Server::memory();
    let not_allowed = server.call(&Request::new("PUT", "/locks/r"));
    not_allowed.problem(405, "method-not-allowed");
    assert_eq!(not_allowed.header("allow"), Some("GET, HEAD, POST, DELETE"));
    server
        .call(&Request::new("OPTIONS", "/locks/r/renew"))
        .problem(405, "method-not-allowed");
    server.get("/nothing").problem(404, "no-such-route");
    assert_eq!(server.call(&Request::new("HEAD", "/healthz")).status, 200);
    let named = server.call(&Request::get("/locks/r").header("x-request-id", "my-id-1"));
    assert_eq!(named.header("x-request-id"), Some("my-id-1"));
    let unfit = server.call(&Request::get("/locks/r").header("x-request-id", "<script>"));
    assert_ne!(unfit.header("x-request-id"), Some("<script>"));
    let held = server.acquire("h", "a", 30);
    held.granted();
    let refused = server.post(
        "/locks/h?fail_if_held=true",
        &json!({"owner": "b", "ttl_seconds": 30}),
    );
    refused.problem(409, "held");
    assert!(refused.header("retry-after").is_some());
    assert_eq!(server.get("/problems/held").status, 200);
    assert_eq!(server.get("/problems").status, 200);
}

#[test]
fn other_sites_and_foreign_names_are_refused() {
    let server = Server::memory();
    let good = || body("{\"owner\":\"a\",\"ttl_seconds\":30}");
    for (name, value) in [
        ("host", "evil.example"),
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
    ] {
        server
            .call(&good().header(name, value))
            .problem(403, "not-permitted");
    }
    server.find("r").not_found();
    server
        .call(
            &good()
                .header("host", "localhost:1")
                .header("sec-fetch-site", "same-origin"),
        )
        .granted();
}

#[test]
fn metadata_comes_back_as_it_came() {
    let server = Server::start();
    let text = "{ \"b\": 1e2, \"a\":\"\\u0000\\ud83d\\ude00\",\"a\":1 }";
    let answer = server.call(&body(&format!(
        "{{\"owner\":\"a\",\"ttl_seconds\":30,\"metadata\":{text}}}"
    )));
    assert!(answer.text().contains(text), "{}", answer.text());
    assert!(server.find("r").text().contains(text));
}

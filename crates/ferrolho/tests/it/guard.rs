//! Whom a browser may bring here: no page of another site, and nothing that was sent to a foreign name.
//! (Cases: row 118.)

use crate::support::{Answer, Request, Server};

const GOOD: &str = r#"{"owner":"a","ttl_seconds":30}"#;

fn acquire_with(server: &Server, headers: &[(&str, &str)]) -> Answer {
    let request = headers.iter().fold(
        Request::post("/locks/r")
            .body(GOOD)
            .header("content-type", "text/plain"),
        |request, (name, value)| request.header(name, value),
    );
    server.call(&request)
}

#[test]
fn what_a_foreign_page_sends_is_refused() {
    let server = Server::memory();
    let own = format!("http://{}", server.addr);
    for headers in [
        &[("sec-fetch-site", "cross-site")][..],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "")],
        &[("Sec-Fetch-Site", "same-origin, cross-site")],
        &[
            ("sec-fetch-site", "same-origin"),
            ("sec-fetch-site", "cross-site"),
        ],
        &[("sec-fetch-site", "cross-site"), ("origin", own.as_str())],
        &[("origin", "http://evil.example")],
        &[("origin", "null")],
        &[("origin", "")],
        &[("origin", "http://localhost")],
        &[("origin", "http://127.0.0.1:1")],
        &[("origin", "file://")],
        &[("origin", "chrome-extension://abc")],
        &[("origin", own.as_str()), ("origin", "http://evil.example")],
    ] {
        acquire_with(&server, headers).problem(403, "not-permitted");
    }
    server.find("r").not_found();
    let evil = Request::delete("/locks/r?owner=a").header("origin", "http://evil.example");
    server.acquire("r", "a", 600).granted();
    server.call(&evil).problem(403, "not-permitted");
    for target in ["/locks/r", "/locks", "/events", "/healthz"] {
        let look = Request::get(target).header("sec-fetch-site", "cross-site");
        server.call(&look).problem(403, "not-permitted");
    }
    server.find("r").lock();
}

#[test]
fn our_own_pages_and_programs_are_let_in() {
    let server = Server::memory();
    let own = format!("http://{}", server.addr);
    for headers in [
        &[][..],
        &[("sec-fetch-site", "same-origin")],
        &[("sec-fetch-site", "none")],
        &[("sec-fetch-site", "same-origin"), ("origin", own.as_str())],
        &[("origin", own.as_str())],
        &[("host", "localhost:80"), ("origin", "http://localhost:80")],
    ] {
        acquire_with(&server, headers).granted();
    }
}

#[test]
fn a_foreign_name_in_host_is_refused() {
    let server = Server::with(&["--allowed-host", "locks.example, other.example"]);
    for host in [
        "evil.example",
        "evil.example:7400",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "xlocks.example",
        "locks.example.evil",
        "locks.example@evil.example",
        "evil.example/localhost",
        "localhost:80:80",
        "localhost:x",
        "[::1",
        "127.0.0.1 evil.example",
        "",
        "*",
        "0x7f000001",
    ] {
        let answer = acquire_with(&server, &[("host", host)]);
        assert!((400..500).contains(&answer.status), "{host:?}: {}", answer.text());
    }
    acquire_with(&server, &[("host", "evil.example")]).problem(403, "not-permitted");
    let twice = acquire_with(&server, &[("host", "localhost"), ("host", "evil.example")]);
    assert!((400..500).contains(&twice.status));
    server.find("r").not_found();
    for host in [
        "localhost",
        "LocalHost:7400",
        "127.0.0.1",
        "127.0.0.1:9",
        "[::1]",
        "[::1]:7400",
        "10.1.2.3",
        "locks.example",
        "LOCKS.example:443",
        "other.example",
    ] {
        acquire_with(&server, &[("host", host)]).granted();
    }
}

#[test]
fn a_link_from_elsewhere_leads_to_pages_only() {
    let server = Server::memory();
    let link = |method: &str, target: &str| {
        let request = Request::new(method, target)
            .header("sec-fetch-site", "cross-site")
            .header("sec-fetch-mode", "navigate");
        server.call(&request)
    };
    assert_eq!(link("GET", "/problems").status, 200);
    assert_eq!(link("GET", "/problems/held").status, 200);
    for target in ["/locks", "/locks/r", "/events", "/readyz"] {
        link("GET", target).problem(403, "not-permitted");
    }
    link("POST", "/problems").problem(403, "not-permitted");
    let embedded = Request::get("/problems")
        .header("sec-fetch-site", "cross-site")
        .header("sec-fetch-mode", "no-cors");
    server.call(&embedded).problem(403, "not-permitted");
}

#[test]
fn no_answer_invites_other_sites() {
    let server = Server::memory();
    let preflight = Request::new("OPTIONS", "/locks/r")
        .header("origin", "http://evil.example")
        .header("access-control-request-method", "DELETE");
    let answer = server.call(&preflight);
    answer.problem(403, "not-permitted");
    for answer in [answer, server.get("/locks"), server.get("/problems")] {
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
}

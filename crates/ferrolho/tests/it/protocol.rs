//! Methods, paths, ids and the form of answers; what comes over the wire as it should not. (Cases: WEB.)

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::json;

use crate::support::{Request, Server};

/// Every path, with the methods that it knows.
const PATHS: [(&str, &str); 12] = [
    ("/locks/r", "GET, HEAD, POST, DELETE"),
    ("/locks/r/renew", "POST"),
    ("/locks/r/release", "POST"),
    ("/locks/r/force-release", "POST"),
    ("/locks/r/waiters", "GET, HEAD"),
    ("/locks", "GET, HEAD, POST"),
    ("/owners/a", "DELETE"),
    ("/owners/a/renew", "POST"),
    ("/events", "GET, HEAD"),
    ("/healthz", "GET, HEAD"),
    ("/readyz", "GET, HEAD"),
    ("/problems/held", "GET, HEAD"),
];

#[test]
fn other_methods_are_refused_with_those_that_are_allowed() {
    let server = Server::memory();
    server.acquire("r", "a", 600).granted();
    for (path, allowed) in PATHS {
        for method in [
            "GET", "POST", "DELETE", "PUT", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "get", "LOCK",
        ] {
            if allowed.split(", ").any(|allowed| allowed == method) {
                continue;
            }
            let answer = server.call(&Request::new(method, path));
            answer.problem(405, "method-not-allowed");
            assert_eq!(answer.header("allow"), Some(allowed), "{method} {path}");
        }
    }
    server.find("r").lock();
}

#[test]
fn what_is_nowhere_is_not_found() {
    let server = Server::memory();
    for path in [
        "/lock/r",
        "/Locks/r",
        "/locks/r/steal",
        "/locks/r/renew/now",
        "/owners",
        "/owners/",
        "/owners//renew",
        "/owners/a/locks",
        "/events/",
        "/healthz/",
        "/healthz2",
        "/problems/held/x",
        "/problems/",
        "/..",
        "/locks/r/../s",
        "/%6cocks/r",
        "/locks%2Fr",
        "/%3Cscript%3E",
        "/%",
    ] {
        server.get(path).problem(404, "no-such-route");
        server
            .call(&Request::new("PUT", path))
            .problem(404, "no-such-route");
    }
    server.get("/problems/nonsense").problem(404, "no-such-route");
    server
        .call(&Request::new("OPTIONS", "*"))
        .problem(404, "no-such-route");
}

#[test]
fn head_is_get_without_a_body() {
    let server = Server::memory();
    server.acquire("r", "a", 600).granted();
    for path in [
        "/locks/r",
        "/locks/none",
        "/locks",
        "/locks/r/waiters",
        "/healthz",
        "/readyz",
        "/problems/held",
        "/nowhere",
    ] {
        let (get, head) = (server.get(path), server.call(&Request::new("HEAD", path)));
        assert_eq!(head.status, get.status, "{path}");
        assert!(head.body.is_empty());
        for name in ["content-type", "cache-control", "content-security-policy"] {
            assert_eq!(head.header(name), get.header(name), "{path}");
        }
        // The connection is fit for the next request.
        let mut connection = server.connect();
        connection.call(&Request::new("HEAD", path));
        connection.call(&Request::get("/locks/r")).lock();
    }
}

#[test]
fn every_answer_has_an_id() {
    let server = Server::memory();
    let mut own = BTreeSet::new();
    for path in ["/locks/none", "/healthz", "/problems", "/nowhere"] {
        for _ in 0..10 {
            own.insert(server.get(path).header("x-request-id").unwrap().to_owned());
        }
        let named = Request::get(path).header("X-Request-Id", "job-7_a.b:C");
        assert_eq!(server.call(&named).header("x-request-id"), Some("job-7_a.b:C"));
        for unfit in ["", "a b", "<script>", "caf\u{e9}", "a\tb", &"x".repeat(65)] {
            let answer = server.call(&Request::get(path).header("x-request-id", unfit));
            assert_ne!(answer.header("x-request-id"), Some(unfit));
            assert!(!answer.text().contains("<script>"));
            own.insert(answer.header("x-request-id").unwrap().to_owned());
        }
    }
    assert_eq!(own.len(), 4 * 16, "no id comes twice");
    let problem = server.call(&Request::get("/locks/none").header("x-request-id", "mine"));
    assert_eq!(problem.problem(404, "not-found")["request_id"], "mine");
}

#[test]
fn a_problem_says_which_path_it_is_about() {
    let server = Server::memory();
    for path in [
        "/locks/none",
        "/locks/team%2Fjob",
        "/locks/%FF",
        "/nowhere/at/all",
    ] {
        assert_eq!(server.get(path).json()["instance"], path);
    }
    let with_query = server.get("/locks/none?token=secret");
    assert!(!with_query.text().contains("secret"));
}

const CODES: [(&str, &str); 17] = [
    ("validation-failed", "422"),
    ("malformed-json", "400"),
    ("not-found", "404"),
    ("forbidden", "403"),
    ("held", "409"),
    ("unauthorized", "401"),
    ("not-permitted", "403"),
    ("no-such-route", "404"),
    ("method-not-allowed", "405"),
    ("body-too-large", "413"),
    ("path-too-long", "414"),
    ("too-many-waiters", "429"),
    ("limit-reached", "429"),
    ("unavailable", "503"),
    ("too-slow", "503"),
    ("shutting-down", "503"),
    ("internal", "500"),
];

#[test]
fn every_kind_of_problem_has_a_page() {
    let server = Server::memory();
    let list = server.get("/problems");
    for (code, status) in CODES {
        let path = format!("/problems/{code}");
        assert!(list.text().contains(&path), "{code}");
        let page = server.get(&path);
        assert_eq!(page.status, 200);
        assert!(page.header("content-type").unwrap().starts_with("text/html"));
        assert!(page.header("content-security-policy").is_some());
        let text = page.text();
        assert!(text.contains(code) && text.contains(status), "{text}");
    }
}

#[test]
fn long_paths_are_refused_and_so_are_heads_without_end() {
    let server = Server::memory();
    for bytes in [20_000, 60_000] {
        let path = format!("/locks/{}", "x".repeat(bytes));
        let problem = server.get(&path).problem(414, "path-too-long");
        assert_eq!(problem["limit"], "path-bytes");
        let query = format!("/locks?prefix={}", "x".repeat(bytes));
        server.get(&query).problem(414, "path-too-long");
    }
    let status = |request: &Request| {
        let mut connection = server.connect();
        // The server need not listen to all of it.
        let _cut_short = connection.try_send(request);
        connection.try_answer().unwrap().status
    };
    let in_path = Request::get(&format!("/locks/{}", "x".repeat(100_000)));
    let in_header = Request::get("/healthz").header("x", &"y".repeat(1_000_000));
    let in_number = (0..500).fold(Request::get("/healthz"), |request, number| {
        request.header(&format!("x-{number}"), "y")
    });
    for request in [in_path, in_header, in_number] {
        let status = status(&request);
        assert!((400..500).contains(&status), "{status}");
    }
    server.find("r").not_found();
}

#[test]
fn what_is_no_http_is_refused_and_harms_nobody() {
    let server = Server::memory();
    server.acquire("r", "a", 600).granted();
    for bytes in [
        &b"\0\0\0\0\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"GET /locks/r\r\n\r\n",
        b"GET /locks/r HTTP/9.9\r\n\r\n",
        b"GET /locks/r HTTP/1.1\r\nhost\r\n\r\n",
        b"GET /locks/a b HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"POST /locks/r HTTP/1.1\r\nhost: localhost\r\ncontent-length: x\r\n\r\n",
        b"POST /locks/r HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        b"POST /locks/r HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        b"POST /locks/r HTTP/1.1\r\nhost: localhost\r\ncontent-length: 18446744073709551615\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ] {
        let mut connection = server.connect();
        connection.write(bytes).unwrap();
        connection.half_close();
        if let Ok(answer) = connection.try_answer() {
            assert!((400..500).contains(&answer.status), "{answer:?}");
        }
    }
    server.find("r").lock();
}

#[test]
fn one_connection_carries_many_requests() {
    let server = Server::memory();
    let mut connection = server.connect();
    for number in 0..200 {
        let request = crate::support::acquire(&format!("r{number}"), "a", 600);
        connection.call(&request).granted();
        connection
            .call(&Request::get("/nowhere"))
            .problem(404, "no-such-route");
        connection
            .call(&Request::delete(&format!("/locks/r{number}?owner=a")))
            .done();
    }
    // Requests that are sent ahead are answered in order.
    for number in 0..50 {
        connection.send(&Request::get(&format!("/locks/ahead-{number}")));
    }
    for number in 0..50 {
        let problem = connection.answer().problem(404, "not-found");
        assert_eq!(problem["instance"], format!("/locks/ahead-{number}"));
    }
}

#[test]
fn http_2_is_spoken_to_those_who_begin_with_it() {
    let server = Server::memory();
    let curl = |args: &[&str]| {
        let output = Command::new("curl")
            .args([
                "-sS",
                "--http2-prior-knowledge",
                "-w",
                " %{http_version} %{http_code}",
            ])
            .args(args)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let url = format!("http://{}/locks/r", server.addr);
    let body = json!({"owner": "a", "ttl_seconds": 600}).to_string();
    let granted = curl(&["-d", &body, &url]);
    assert!(
        granted.contains("\"acquired\":true") && granted.ends_with(" 2 200"),
        "{granted}"
    );
    let released = curl(&["-X", "DELETE", &format!("{url}?owner=a")]);
    assert_eq!(released, " 2 204");
    server.find("r").not_found();
}

#[test]
fn whoever_says_nothing_is_hung_up_on() {
    let server = Server::with(&["--head-timeout-seconds", "1"]);
    let mut silent = server.connect();
    let mut slow = server.connect();
    slow.write(b"GET /healthz HTTP/1.1\r\nhost:").unwrap();
    let mut idle = server.connect();
    assert_eq!(idle.call(&Request::get("/healthz")).status, 200);
    for connection in [&mut silent, &mut slow, &mut idle] {
        // Its end, or a last word and its end.
        while connection.try_answer().is_ok() {}
    }
    assert_eq!(server.get("/healthz").json(), json!({"status": "ok"}));
}

//! Bodies: what is unknown, doubled or hostile is refused by name, and nothing is stored. (Cases: WEB, AMB.)

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Answer, Request, Server};

/// `POST /locks/r` with this body.
fn body(text: impl Into<Vec<u8>>) -> Request {
    Request::post("/locks/r").body(text)
}

const GOOD: &str = r#"{"owner":"a","ttl_seconds":30}"#;

/// Every endpoint that reads a body, with all that a good one needs, but for its closing brace.
pub(crate) const ENDPOINTS: [(&str, &str, &str); 8] = [
    ("POST", "/locks/r", r#"{"owner":"a","ttl_seconds":30"#),
    ("DELETE", "/locks/r", r#"{"owner":"a""#),
    ("POST", "/locks/r/renew", r#"{"owner":"a","ttl_seconds":30"#),
    ("POST", "/locks/r/release", r#"{"owner":"a""#),
    ("POST", "/locks/r/force-release", r#"{"reason":"why""#),
    (
        "POST",
        "/locks",
        r#"{"resources":["r"],"owner":"a","ttl_seconds":30"#,
    ),
    ("POST", "/owners/a/renew", r#"{"ttl_seconds":30"#),
    ("DELETE", "/owners/a", "{"),
];

pub(crate) fn send(server: &Server, method: &str, target: &str, body: &str) -> Answer {
    server.call(&Request::new(method, target).body(body))
}

#[test]
fn unknown_keys_are_refused_by_name_everywhere() {
    let server = Server::memory();
    let lock = server.acquire("r", "a", 600).granted();
    for (method, target, good) in ENDPOINTS {
        for key in [
            "ttl",
            "wait_secs",
            "Owner",
            "OWNER",
            "owner ",
            "",
            "ttlSeconds",
            "token",
            "__proto__",
        ] {
            let comma = if good == "{" { "" } else { "," };
            let answer = send(&server, method, target, &format!("{good}{comma}\"{key}\":1}}"));
            answer.invalid(&[key]);
        }
    }
    assert_eq!(server.find("r").lock(), lock);
}

#[test]
fn doubled_keys_are_refused_whatever_they_say() {
    let server = Server::memory();
    for text in [
        r#"{"owner":"a","owner":"a","ttl_seconds":30}"#,
        r#"{"owner":"a","ttl_seconds":30,"owner":"b"}"#,
        r#"{"owner":"a","\u006fwner":"b","ttl_seconds":30}"#,
        r#"{"\u006fwner":"a","ttl_seconds":30,"o\u0077ner":7}"#,
    ] {
        server.call(&body(text)).invalid(&["owner"]);
    }
    let thrice = r#"{"owner":"a","ttl_seconds":30,"ttl_seconds":3600,"ttl_seconds":30}"#;
    server
        .call(&body(thrice))
        .invalid(&["ttl_seconds", "ttl_seconds"]);
    server.find("r").not_found();
}

#[test]
fn every_wrong_field_is_named_in_one_answer() {
    let server = Server::memory();
    let text = r#"{"owner":" ","ttl_seconds":"30","wait_seconds":301,"metadata":[],"ttl":1}"#;
    let request = Request::post("/locks/%FF?fail_if_hold=true")
        .body(text)
        .header("idempotency-key", "a b");
    server.call(&request).invalid(&[
        "owner",
        "ttl_seconds",
        "wait_seconds",
        "metadata",
        "ttl",
        "resource",
        "fail_if_hold",
        "Idempotency-Key",
    ]);
}

#[test]
fn values_of_the_wrong_type_are_refused() {
    let server = Server::memory();
    for owner in ["null", "7", "true", "[\"a\"]", "{\"a\":1}"] {
        let text = format!(r#"{{"owner":{owner},"ttl_seconds":30}}"#);
        server.call(&body(text)).invalid(&["owner"]);
    }
    for metadata in ["null", "7", "true", "\"{}\"", "[]", "[{}]"] {
        let text = format!(r#"{{"owner":"a","ttl_seconds":30,"metadata":{metadata}}}"#);
        server.call(&body(text)).invalid(&["metadata"]);
    }
    for resources in [
        "null",
        "\"r\"",
        "7",
        "{}",
        "[]",
        "[7]",
        "[null]",
        "[[\"r\"]]",
        "[\"r\",\"r\"]",
        "[\"r\",\"\\u0072\"]",
    ] {
        let text = format!(r#"{{"resources":{resources},"owner":"a","ttl_seconds":30}}"#);
        server
            .call(&Request::post("/locks").body(text))
            .invalid(&["resources"]);
    }
    let many: Vec<String> = (0..33).map(|number| format!("r{number}")).collect();
    let set = json!({"resources": many, "owner": "a", "ttl_seconds": 30});
    server.post("/locks", &set).invalid(&["resources"]);
    let set = json!({"resources": many[..32], "owner": "a", "ttl_seconds": 30});
    assert_eq!(server.post("/locks", &set).json()["acquired"], true);
}

#[test]
fn a_body_that_is_no_object_says_so() {
    let server = Server::memory();
    for text in ["null", "[]", "[{}]", "\"owner\"", "7", "true"] {
        server
            .call(&body(text))
            .invalid(&["body", "owner", "ttl_seconds"]);
        let delete = Request::delete("/locks/r").body(text);
        server.call(&delete).invalid(&["body", "owner"]);
    }
}

#[test]
fn no_body_is_an_empty_object() {
    let server = Server::memory();
    let lock = server.acquire("r", "a", 600).granted();
    for text in [None, Some(""), Some(" \n\t"), Some("{}"), Some(" { } ")] {
        let with = |request: Request| match text {
            Some(text) => server.call(&request.body(text)),
            None => server.call(&request),
        };
        with(Request::post("/locks/r")).invalid(&["owner", "ttl_seconds"]);
        with(Request::delete("/locks/r")).invalid(&["owner"]);
        with(Request::post("/locks/r/release")).invalid(&["owner"]);
        with(Request::post("/locks/r/renew")).invalid(&["owner", "ttl_seconds"]);
        with(Request::post("/locks")).invalid(&["resources", "owner", "ttl_seconds"]);
        with(Request::post("/owners/a/renew")).invalid(&["ttl_seconds"]);
    }
    assert_eq!(server.find("r").lock(), lock);
}

#[test]
fn what_is_not_json_is_malformed() {
    let server = Server::memory();
    for text in [
        &b"{"[..],
        b"}",
        b"{\"owner\":}",
        b"{\"owner\"}",
        b"{'owner':'a'}",
        b"{owner:\"a\"}",
        b"owner=a",
        b"owner=a&ttl_seconds=30",
        b"{} {}",
        b"{},",
        b"[",
        b"nul",
        b"\"",
        b"<xml/>",
        b"{\"owner\":\"a\",}",
        b"{\"owner\":\"a\nb\"}",
        b"{\"owner\":\"\\x41\"}",
        b"{\"owner\":\"\\u12\"}",
        b"{\"owner\":\"\xff\"}",
        b"\xff\xfe{}",
        b"\xef\xbb\xbf{}",
        b"{\"\xc0\xaf\":1}",
        b"\0",
        b"{}\0",
        b"// no\n{}",
    ] {
        server.call(&body(text)).problem(400, "malformed-json");
        server
            .call(&Request::delete("/locks/r").body(text))
            .problem(400, "malformed-json");
    }
    server.find("r").not_found();
}

#[test]
fn lone_surrogates_are_no_text() {
    let server = Server::memory();
    for half in [
        "\\ud800",
        "\\udc00",
        "\\ud800\\u0041",
        "\\udc00\\ud800",
        "a\\udbff",
    ] {
        let text = format!(r#"{{"owner":"{half}","ttl_seconds":30}}"#);
        server.call(&body(text)).invalid(&["owner"]);
        let text = format!(r#"{{"resources":["{half}"],"owner":"a","ttl_seconds":30}}"#);
        server
            .call(&Request::post("/locks").body(text))
            .invalid(&["resources"]);
        let text = format!(r#"{{"owner":"a","ttl_seconds":30,"{half}":1}}"#);
        let status = server.call(&body(text)).status;
        assert!(status == 400 || status == 422, "{status}");
    }
    let whole = r#"{"owner":"\ud83d\udd12","ttl_seconds":30}"#;
    assert_eq!(server.call(&body(whole)).granted().owner, "🔒");
}

#[test]
fn a_body_has_at_most_64_kib() {
    let server = Server::memory();
    let long = |bytes: usize| format!("{GOOD}{}", " ".repeat(bytes - GOOD.len()));
    let chunked = |text: &str| {
        let chunks = format!("{:x}\r\n{text}\r\n0\r\n\r\n", text.len());
        body(chunks).header("transfer-encoding", "chunked")
    };
    server.call(&body(long(64 * 1024))).granted();
    server.call(&chunked(&long(64 * 1024))).granted();
    let before = server.find("r").lock();
    server
        .call(&body(long(64 * 1024 + 1)))
        .problem(413, "body-too-large");
    server
        .call(&chunked(&long(64 * 1024 + 1)))
        .problem(413, "body-too-large");
    // Who announces too much is not listened to.
    for announced in ["65537", "10000000000", "9223372036854775807"] {
        let request = Request::post("/locks/r").header("content-length", announced);
        let problem = server.call(&request).problem(413, "body-too-large");
        assert_eq!(problem["limit"], "body-bytes");
    }
    assert_eq!(server.find("r").lock(), before);
}

#[test]
fn a_body_that_does_not_arrive_is_not_waited_for_for_long() {
    let server = Server::with(&["--body-timeout-seconds", "1"]);
    let begun = Instant::now();
    let mut slow = server.connect();
    let request = Request::post("/locks/r").header("content-length", "30");
    slow.send(&request);
    // A byte now and then makes no difference.
    let answer = loop {
        if slow.has_news() {
            break slow.answer();
        }
        // The server may have closed it by now.
        let _closed = slow.write(b" ");
        thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(answer.problem(408, "too-slow")["limit"], "body-timeout-seconds");
    assert!(begun.elapsed() >= Duration::from_secs(1));
    let mut cut_short = server.begin(&request);
    cut_short.write(b"{\"owner\":\"a\",").unwrap();
    drop(cut_short);
    server.find("r").not_found();
}

#[test]
fn a_body_is_json_whatever_it_is_called() {
    let server = Server::memory();
    server.call(&body(GOOD)).granted();
    for name in [
        "application/json",
        "application/json; charset=utf-8",
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/octet-stream",
        "multipart/form-data; boundary=x",
        "nonsense",
        "",
    ] {
        server.call(&body(GOOD).header("content-type", name)).granted();
        server
            .call(&body("owner=a").header("content-type", name))
            .problem(400, "malformed-json");
    }
}

#[test]
fn a_body_may_come_in_pieces_or_on_demand() {
    let server = Server::memory();
    let mut pieces: Vec<String> = GOOD.chars().map(|c| format!("1\r\n{c}\r\n")).collect();
    pieces.push("0\r\n\r\n".to_owned());
    let request = body(pieces.concat()).header("transfer-encoding", "chunked");
    server.call(&request).granted();
    let delete = Request::delete("/locks/r")
        .body("b\r\n{\"owner\":\"a\r\n2\r\n\"}\r\n0\r\n\r\n")
        .header("transfer-encoding", "chunked");
    server.call(&delete).done();
    let mut on_demand = server.begin(
        &Request::post("/locks/r")
            .header("expect", "100-continue")
            .header("content-length", &GOOD.len().to_string()),
    );
    on_demand.write(GOOD.as_bytes()).unwrap();
    on_demand.answer().granted();
}

#[test]
fn metadata_comes_back_as_it_came() {
    let server = Server::start();
    let deep = format!("{{\"d\":{}{}}}", "[".repeat(2_000), "]".repeat(2_000));
    let longest = format!("{{\"x\":\"{}\"}}", "y".repeat(4 * 1024 - 8));
    for text in [
        r#"{ "b": 1e2, "a":"\u0000\ud83d\ude00","a":1 }"#,
        "{}",
        r#"{"n":-0.0,"big":123456789012345678901234567890,"x":1.0}"#,
        r#"{"html":"<script>alert(1)</script>","quote":"'\"\\"}"#,
        &deep,
        &longest,
    ] {
        let answer = server.call(&body(format!(
            r#"{{"owner":"a","ttl_seconds":600,"metadata":{text}}}"#
        )));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let member = format!("\"metadata\":{text}");
        assert!(answer.text().contains(&member), "{}", answer.text());
        assert!(server.find("r").text().contains(&member));
        assert!(server.get("/locks").text().contains(&member));
    }
    let too_long = format!("{{\"x\":\"{}\"}}", "y".repeat(4 * 1024 - 7));
    let text = format!(r#"{{"owner":"a","ttl_seconds":30,"metadata":{too_long}}}"#);
    server.call(&body(text)).invalid(&["metadata"]);
}

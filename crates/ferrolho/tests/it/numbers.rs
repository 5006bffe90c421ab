//! Numbers: each is taken exactly or refused by name; what is answered is what is stored.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Answer, Request, Server, on_every_engine};

on_every_engine!(
    lifetimes_at_every_edge,
    what_is_no_integer_is_refused_everywhere,
    tokens_that_a_caller_names_at_every_edge,
    the_answer_is_what_is_stored,
);

/// JSON numbers that no field takes: above every range.
const HUGE: [&str; 9] = [
    "86401",
    "2147483648",
    "4294967297",
    "10000000000",
    "10000000000000000",
    "9007199254740993",
    "9223372036854775807",
    "18446744073709551616",
    "99999999999999999999999999999999999999999999999999",
];

/// JSON values that are no integers, as they stand in a body.
const NO_INTEGERS: [&str; 16] = [
    "null", "true", "false", "\"30\"", "\"\"", "1.5", "30.0", "3e1", "1e3", "1E0", "1e308", "-1.0", "0.0",
    "[]", "[30]", "{}",
];

/// What is no JSON at all.
const NO_JSON: [&str; 9] = [
    "030",
    "+30",
    "0x1E",
    "NaN",
    "Infinity",
    "-Infinity",
    "1_000",
    "30,",
    "'30'",
];

fn post(server: &Server, path: &str, body: &str) -> Answer {
    server.call(&Request::post(path).body(body))
}

/// Every request with this lifetime, each beside a field for whom it is, where one is needed.
fn with_ttl(server: &Server, ttl: &str) -> [(&'static str, Answer); 4] {
    let body = format!(r#"{{"owner":"a","ttl_seconds":{ttl}}}"#);
    [
        ("acquire", post(server, "/locks/r", &body)),
        ("renew", post(server, "/locks/r/renew", &body)),
        (
            "heartbeat",
            post(server, "/owners/a/renew", &format!(r#"{{"ttl_seconds":{ttl}}}"#)),
        ),
        (
            "set",
            post(
                server,
                "/locks",
                &format!(r#"{{"resources":["r"],"owner":"a","ttl_seconds":{ttl}}}"#),
            ),
        ),
    ]
}

fn lifetimes_at_every_edge(server: &Server) {
    for ttl in [1u64, 2, 86_399, 86_400] {
        for (what, answer) in with_ttl(server, &ttl.to_string()) {
            assert_eq!(answer.status, 200, "{what} {ttl}: {}", answer.text());
        }
        let body = json!({"owner": "a", "ttl_seconds": ttl});
        let lock = server.post("/locks/r", &body).granted();
        assert_eq!(lock.life(), Duration::from_secs(ttl));
    }
    let before = server.find("r").lock();
    for ttl in ["0", "-0", "-1", "-100", "-9223372036854775809"]
        .into_iter()
        .chain(HUGE)
    {
        for (_, answer) in with_ttl(server, ttl) {
            answer.invalid(&["ttl_seconds"]);
        }
    }
    assert_eq!(server.find("r").lock(), before);
}

fn what_is_no_integer_is_refused_everywhere(server: &Server) {
    let lock = server.acquire("r", "a", 600).granted();
    for value in NO_INTEGERS {
        for (_, answer) in with_ttl(server, value) {
            answer.invalid(&["ttl_seconds"]);
        }
        let body = format!(r#"{{"owner":"a","ttl_seconds":30,"wait_seconds":{value}}}"#);
        post(server, "/locks/r", &body).invalid(&["wait_seconds"]);
        let body = format!(r#"{{"owner":"a","fencing_token":{value}}}"#);
        server
            .call(&Request::delete("/locks/r").body(body.as_str()))
            .invalid(&["fencing_token"]);
        post(server, "/locks/r/release", &body).invalid(&["fencing_token"]);
        let body = format!(r#"{{"owner":"a","ttl_seconds":30,"fencing_token":{value}}}"#);
        post(server, "/locks/r/renew", &body).invalid(&["fencing_token"]);
    }
    for value in NO_JSON {
        for (_, answer) in with_ttl(server, value) {
            answer.problem(400, "malformed-json");
        }
    }
    assert_eq!(server.find("r").lock(), lock);
}

fn tokens_that_a_caller_names_at_every_edge(server: &Server) {
    let lock = server.acquire("r", "a", 600).granted();
    for token in ["0", "-1", "9007199254740992", "18446744073709551616"] {
        let body = format!(r#"{{"owner":"a","fencing_token":{token}}}"#);
        server
            .call(&Request::delete("/locks/r").body(body))
            .invalid(&["fencing_token"]);
        let query = format!("/locks/r?owner=a&fencing_token={token}");
        server.call(&Request::delete(&query)).invalid(&["fencing_token"]);
    }
    for token in ["", "x", "1.0", "1e1", "%2B1", "1%20", "0x1", "true"] {
        let query = format!("/locks/r?owner=a&fencing_token={token}");
        server.call(&Request::delete(&query)).invalid(&["fencing_token"]);
    }
    for other in [1, lock.fencing_token + 1, (1 << 53) - 1] {
        if other != lock.fencing_token {
            let body = json!({"owner": "a", "fencing_token": other});
            server.delete("/locks/r", &body).forbidden();
        }
    }
    assert_eq!(server.find("r").lock(), lock);
    let body = json!({"owner": "a", "fencing_token": lock.fencing_token});
    server.delete("/locks/r", &body).done();
}

fn the_answer_is_what_is_stored(server: &Server) {
    for (number, ttl) in [59u32, 3_600, 86_400].into_iter().enumerate() {
        let metadata = json!({"n": number, "deep": {"list": [1, 2.5, null, "é\u{0}"]}});
        let body = json!({"owner": "a", "ttl_seconds": ttl, "metadata": metadata});
        let granted = server.post("/locks/r", &body).granted();
        assert_eq!(granted.metadata, Some(metadata));
        assert_eq!(server.find("r").lock(), granted);
        let listed = &server.get("/locks").json()["locks"][0];
        assert_eq!(
            serde_json::from_value::<crate::support::Lock>(listed.clone()).unwrap(),
            granted
        );
        let renewed = server.renew("r", "a", ttl).lock();
        assert_eq!(server.find("r").lock(), renewed);
        let renewed = &server
            .post("/owners/a/renew", &json!({"ttl_seconds": ttl}))
            .json()["locks"][0];
        let found = server.find("r");
        assert_eq!(found.json(), *renewed);
    }
}

#[test]
fn waits_at_every_edge() {
    let server = Server::memory();
    server.acquire("r", "a", 600).granted();
    for wait in ["-1", "301", "4294967296", "-9223372036854775809"]
        .into_iter()
        .chain(HUGE)
    {
        let body = format!(r#"{{"owner":"b","ttl_seconds":30,"wait_seconds":{wait}}}"#);
        post(&server, "/locks/r", &body).invalid(&["wait_seconds"]);
        post(&server, "/locks/free", &body).invalid(&["wait_seconds"]);
    }
    assert_eq!(server.waiters("r"), [""; 0]);
    server.find("free").not_found();
    // Zero is zero, and not some default.
    let begun = Instant::now();
    let body = json!({"owner": "b", "ttl_seconds": 30, "wait_seconds": 0});
    server.post("/locks/r", &body).refused();
    assert!(begun.elapsed() < Duration::from_secs(1));
    let longest = json!({"owner": "b", "ttl_seconds": 30, "wait_seconds": 300});
    let mut waiting = server.begin(&Request::post("/locks/r").json(&longest));
    server.until_waiting("r", 1);
    server.release("r", "a").done();
    waiting.answer().granted();
}

#[test]
fn limits_of_a_list_at_every_edge() {
    let server = Server::memory();
    for number in 0..3 {
        server.acquire(&format!("r{number}"), "a", 30).granted();
    }
    for limit in [
        "0",
        "-1",
        "1001",
        "1.0",
        "1e1",
        "x",
        "%2B1",
        "18446744073709551617",
        "true",
    ] {
        server.get(&format!("/locks?limit={limit}")).invalid(&["limit"]);
    }
    for (limit, count) in [(1, 1), (2, 2), (3, 3), (1000, 3)] {
        let page = server.get(&format!("/locks?limit={limit}")).json();
        assert_eq!(page["locks"].as_array().unwrap().len(), count);
        assert_eq!(page["next_cursor"] == Value::Null, count == 3, "{page}");
    }
}

#[test]
fn the_longest_lifetime_is_a_setting_up_to_ten_years() {
    for max in ["1", "60", "315360000"] {
        let server = Server::with(&["--max-ttl-seconds", max]);
        let longest: u32 = max.parse().unwrap();
        let lock = server.acquire("r", "a", longest).granted();
        assert_eq!(lock.life().as_secs(), u64::from(longest));
        server.renew("r", "a", longest).lock();
        server.acquire("r", "a", longest + 1).invalid(&["ttl_seconds"]);
        server.renew("r", "a", longest + 1).invalid(&["ttl_seconds"]);
    }
}

/// Numbers above 2^53 lose their last digits in many readers of JSON. When there is no token left below, nothing
/// is granted.
#[test]
fn no_token_reaches_two_to_the_53rd() {
    let last = (1u64 << 53) - 1;
    let server = Server::on_file(|path| {
        let database = rusqlite::Connection::open(path).unwrap();
        database.execute_batch(ferrolho_testkit::SEED_TABLE).unwrap();
        database
            .execute_batch(
                "INSERT INTO distributed_locks VALUES (1, 'old', 'a', '2099-01-01 00:00:00', '2001-01-01 00:00:00');
                 UPDATE sqlite_sequence SET seq = 9007199254740989",
            )
            .unwrap();
    });
    let first = server.acquire("r", "a", 600).granted();
    let second = server.acquire("r", "a", 600).granted();
    assert_eq!((first.fencing_token, second.fencing_token), (last - 1, last));
    let spent = server.acquire("r", "a", 600);
    assert!(spent.status >= 500, "{}", spent.text());
    assert_eq!(server.find("r").lock(), second);
    assert_eq!(server.renew("r", "a", 600).lock().fencing_token, last);
    server.release("r", "a").done();
    assert!(server.acquire("r", "a", 600).status >= 500);
    server.find("r").not_found();
}

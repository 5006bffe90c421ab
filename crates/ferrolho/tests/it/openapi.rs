//! The API's description, for programs and for people.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::{Request, Server};

/// The description as it is checked in.
const CHECKED_IN: &str = include_str!("../../../../openapi.json");

#[test]
fn the_description_that_is_checked_in_is_not_stale() {
    let answer = Server::memory().get("/openapi.json");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert!(
        answer.text() == CHECKED_IN,
        "openapi.json is stale: curl http://127.0.0.1:7400/openapi.json > openapi.json"
    );
}

/// All values under this key, wherever it is.
fn under<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                if name == key {
                    found.push(value);
                }
                under(value, key, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| under(item, key, found)),
        _ => {}
    }
}

#[test]
fn the_description_is_whole() {
    let document: Value = serde_json::from_str(CHECKED_IN).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let mut references = Vec::new();
    under(&document, "$ref", &mut references);
    assert!(references.len() > 20);
    for reference in references {
        let pointer = reference.as_str().unwrap().strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
    // A response without a description makes a document invalid.
    let mut responses = Vec::new();
    under(&document, "responses", &mut responses);
    for response in responses
        .iter()
        .flat_map(|responses| responses.as_object().unwrap().values())
    {
        assert!(response["description"].is_string(), "{response}");
    }
}

/// The schemas say of real answers what is in them.
#[test]
fn answers_have_the_members_that_are_described() {
    let document: Value = serde_json::from_str(CHECKED_IN).unwrap();
    let schemas = &document["components"]["schemas"];
    let check = |schema: &Value, answer: &Value| {
        let described: BTreeSet<&String> = schema["properties"].as_object().unwrap().keys().collect();
        for name in answer.as_object().unwrap().keys() {
            assert!(described.contains(name), "{name} is not described: {answer}");
        }
        for required in schema["required"].as_array().unwrap() {
            assert!(
                answer.get(required.as_str().unwrap()).is_some(),
                "{required}: {answer}"
            );
        }
    };
    let server = Server::memory();
    let granted = server.acquire("r", "a", 60).json();
    check(&schemas["AcquireAnswer"]["oneOf"][0], &granted);
    check(&schemas["Lock"], &granted["lock"]);
    check(
        &schemas["AcquireAnswer"]["oneOf"][1],
        &server.acquire("r", "b", 60).json(),
    );
    check(&schemas["LockList"], &server.get("/locks").json());
    check(&schemas["Ready"], &server.get("/readyz").json());
    check(&schemas["Problem"], &server.get("/locks/none").json());
    let invalid = server.get("/locks?limit=0").json();
    check(&schemas["Problem"], &invalid);
    check(&schemas["FieldError"], &invalid["errors"][0]);
    let waiting = server.wait_for("r", "b", 60, 60);
    server.until_waiting("r", 1);
    let waiters = server.get("/locks/r/waiters").json();
    check(&schemas["WaiterList"], &waiters);
    check(&schemas["Waiter"], &waiters["waiters"][0]);
    drop(waiting);
}

#[test]
fn the_page_shows_it_and_needs_nothing_from_elsewhere() {
    let server = Server::memory();
    let navigation = Request::get("/docs")
        .header("sec-fetch-site", "cross-site")
        .header("sec-fetch-mode", "navigate");
    let answer = server.call(&navigation);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
    let policy = answer.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"));
    let page = answer.text();
    for path in ["/locks/{resource}/renew", "/owners/{owner}", "/events"] {
        assert!(page.contains(path), "{path}");
    }
    // What it does load is ours and is there.
    for target in page
        .split("href=\"/")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
    {
        assert_eq!(server.get(&format!("/{target}")).status, 200, "{target}");
    }
    server.get("/docs?x=1").invalid(&["x"]);
    server.get("/openapi.json?x=1").invalid(&["x"]);
}

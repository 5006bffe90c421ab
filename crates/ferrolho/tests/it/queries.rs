//! Queries: a release without a body, an error instead of a refusal, and whatever is not known. (Cases: WEB, AMB.)

use serde_json::json;

use crate::bodies::{ENDPOINTS, send};
use crate::support::{Request, Server};

#[test]
fn a_release_may_say_its_owner_in_the_query() {
    let server = Server::memory();
    let held = || server.acquire("r", "a b", 600).granted().fencing_token;
    for target in [
        "/locks/r?owner=a%20b",
        "/locks/r?owner=a+b",
        "/locks/r?%6Fwner=+a+b+",
    ] {
        held();
        server.call(&Request::delete(target)).done();
    }
    let token = held();
    let wrong = format!("/locks/r?owner=a+b&fencing_token={}", token + 1);
    server.call(&Request::delete(&wrong)).forbidden();
    let right = format!("/locks/r?owner=a+b&fencing_token={token}");
    server.call(&Request::delete(&right)).done();
    held();
    server.call(&Request::post("/locks/r/release?owner=a+b")).done();
    // The same twice is no contradiction.
    let token = held();
    let both = json!({"owner": "a b", "fencing_token": token});
    server
        .delete(&format!("/locks/r?owner=a+b&fencing_token={token}"), &both)
        .done();
}

#[test]
fn a_release_that_contradicts_itself_is_refused() {
    let server = Server::memory();
    let lock = server.acquire("r", "a", 600).granted();
    let token = lock.fencing_token;
    let body = json!({"owner": "a", "fencing_token": token});
    server.delete("/locks/r?owner=b", &body).invalid(&["owner"]);
    server.delete("/locks/r?owner=A", &body).invalid(&["owner"]);
    server
        .delete(&format!("/locks/r?fencing_token={}", token + 1), &body)
        .invalid(&["fencing_token"]);
    server
        .delete("/locks/r?owner=", &body)
        .invalid(&["owner", "owner"]);
    for target in ["/locks/r?owner=a&owner=a", "/locks/r?owner=a&%6fwner=b"] {
        server.call(&Request::delete(target)).invalid(&["owner"]);
    }
    assert_eq!(server.find("r").lock(), lock);
}

#[test]
fn unknown_parameters_are_refused_by_name_everywhere() {
    let server = Server::memory();
    let lock = server.acquire("r", "a", 600).granted();
    for (method, target, good) in ENDPOINTS {
        let target = format!("{target}?fail_if_hold=true");
        send(&server, method, &target, &format!("{good}}}")).invalid(&["fail_if_hold"]);
    }
    for target in [
        "/locks/r",
        "/locks",
        "/locks/r/waiters",
        "/events",
        "/healthz",
        "/readyz",
        "/problems",
        "/problems/held",
    ] {
        server.get(&format!("{target}?x=1")).invalid(&["x"]);
        server.get(&format!("{target}?Limit=1")).invalid(&["Limit"]);
        server.get(&format!("{target}?%78=%31")).invalid(&["x"]);
    }
    server.get("/locks?prefix=a&prefix=a").invalid(&["prefix"]);
    server.get("/locks?prefix=%FF").invalid(&["prefix"]);
    server.get("/locks?cursor=%00").invalid(&["cursor"]);
    server.get("/locks?owner=%20.%20").invalid(&["owner"]);
    server.get("/locks?%FF=1").invalid(&["query"]);
    // A release knows no lifetime, a renewal no wait.
    let release = json!({"owner": "a", "ttl_seconds": 30});
    server.delete("/locks/r", &release).invalid(&["ttl_seconds"]);
    let renewal = json!({"owner": "a", "ttl_seconds": 30, "wait_seconds": 1});
    server.post("/locks/r/renew", &renewal).invalid(&["wait_seconds"]);
    assert_eq!(server.find("r").lock(), lock);
}

#[test]
fn a_refusal_is_an_error_for_whoever_asks_for_that() {
    let server = Server::memory();
    let lock = server.acquire("r", "a", 600).granted();
    let other = json!({"owner": "b", "ttl_seconds": 30});
    let held = server.post("/locks/r?fail_if_held=true", &other);
    held.problem(409, "held");
    let seconds: u64 = held.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=600).contains(&seconds));
    server.post("/locks/r?fail_if_held=false", &other).refused();
    let set = json!({"resources": ["free", "r"], "owner": "b", "ttl_seconds": 30});
    server.post("/locks?fail_if_held=true", &set).problem(409, "held");
    server.find("free").not_found();
    for value in ["", "1", "yes", "TRUE", "True", "%20true", "true,true", "null"] {
        let target = format!("/locks/r?fail_if_held={value}");
        server.post(&target, &other).invalid(&["fail_if_held"]);
    }
    server
        .post("/locks/r?fail_if_held", &other)
        .invalid(&["fail_if_held"]);
    assert_eq!(server.find("r").lock(), lock);
    let own = json!({"owner": "a", "ttl_seconds": 30});
    server.post("/locks/r?fail_if_held=true", &own).granted();
}

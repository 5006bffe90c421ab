//! Locks that are taken away by an administrator.

use serde_json::json;

use crate::auth::{Made, asking};
use crate::support::{Request, acquire_waiting};

fn admin() -> Made {
    Made::new(&["--name", "root", "--allow", "*", "--admin"])
}

fn force(resource: &str, reason: &str) -> Request {
    Request::post(&format!("/locks/{resource}/force-release")).json(&json!({"reason": reason}))
}

#[test]
fn it_is_gone_and_the_next_token_is_higher() {
    let admin = admin();
    let server = asking(&[&admin]);
    let worker = Made::full("app", "*");
    admin.call(&server, force("r", "nobody has it")).not_found();
    drop(server);
    let server = asking(&[&worker, &admin]);
    let mut stream = server.events("", None);
    let lock = server.acquire("r", "a", 600).granted();
    admin.call(&server, force("r", "  host is on fire  ")).done();
    server.find("r").not_found();
    server.renew("r", "a", 60).not_found();
    server.release("r", "a").not_found();
    let next = server.acquire("r", "a", 600).granted();
    assert!(next.fencing_token > lock.fencing_token);
    let events = stream.take(3);
    assert_eq!(events[1].kind, "forced");
    assert_eq!(events[1].reason.as_deref(), Some("host is on fire"));
    assert_eq!(events[1].lock, lock);
}

#[test]
fn who_waits_gets_it_in_the_same_moment() {
    let (worker, admin) = (Made::full("app", "*"), admin());
    let server = asking(&[&worker, &admin]);
    let mut stream = server.events("", None);
    let lock = server.acquire("r", "a", 600).granted();
    let mut waiting = server.begin(&acquire_waiting("r", "b", 600, 60));
    server.until_waiting("r", 1);
    admin.call(&server, force("r", "stuck")).done();
    let next = waiting.answer().granted();
    assert_eq!(next.owner, "b");
    assert!(next.fencing_token > lock.fencing_token);
    let kinds: Vec<String> = stream.take(3).into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds, ["acquired", "forced", "acquired"]);
}

/// Who has seen one holder on a page does not take the lock away from the next.
#[test]
fn a_token_names_the_grant_that_is_meant() {
    let (worker, admin) = (Made::full("app", "*"), admin());
    let server = asking(&[&worker, &admin]);
    let first = server.acquire("r", "a", 600).granted();
    server.release("r", "a").done();
    let second = server.acquire("r", "b", 600).granted();
    let take = |token: u64| {
        let body = json!({"reason": "stuck", "fencing_token": token});
        admin.call(&server, Request::post("/locks/r/force-release").json(&body))
    };
    take(first.fencing_token).problem(403, "forbidden");
    assert_eq!(server.find("r").lock(), second);
    take(second.fencing_token).done();
    take(second.fencing_token).not_found();
}

#[test]
fn a_reason_must_be_given() {
    let (worker, admin) = (Made::full("app", "*"), admin());
    let server = asking(&[&worker, &admin]);
    let lock = server.acquire("r", "a", 600).granted();
    for body in [
        json!({}),
        json!({"reason": ""}),
        json!({"reason": "   "}),
        json!({"reason": 7}),
        json!({"reason": null}),
        json!({"reason": "two\nlines"}),
        json!({"reason": "x".repeat(256)}),
    ] {
        let request = Request::post("/locks/r/force-release").json(&body);
        admin.call(&server, request).invalid(&["reason"]);
    }
    assert_eq!(server.find("r").lock(), lock);
}

//! What can be looked at besides locks: lines of all who wait, a lock's history, and who one is oneself.

use serde_json::{Value, json};

use crate::auth::Made;
use crate::support::{Request, Server, acquire_waiting, lock_path, on_every_engine, until};

on_every_engine!(
    lines_tell_how_many_wait_for_what,
    a_lock_has_a_history_of_its_own_events,
);

fn lines_tell_how_many_wait_for_what(server: &Server) {
    let lines = || server.get("/waiters").json()["lines"].clone();
    assert_eq!(lines(), json!([]));
    for name in ["b", "a", "free"] {
        server.acquire(name, "holder", 600).granted();
    }
    let _waiting =
        [("b", "x"), ("b", "y"), ("a", "x")].map(|(name, owner)| server.wait_for(name, owner, 600, 60));
    server.until_waiting("a", 1);
    server.until_waiting("b", 2);
    assert_eq!(
        lines(),
        json!([{"resource": "a", "waiters": 1}, {"resource": "b", "waiters": 2}])
    );
    // Requests of one owner share a place.
    let _again = server.begin(&acquire_waiting("a", "x", 600, 60));
    server.acquire("seen", "holder", 600).granted();
    assert_eq!(lines()[0], json!({"resource": "a", "waiters": 1}));
}

fn a_lock_has_a_history_of_its_own_events(server: &Server) {
    let path = format!("{}/events", lock_path("team/job"));
    let history = || server.get(&path).json()["events"].as_array().unwrap().clone();
    assert_eq!(history(), Vec::<Value>::new());
    let first = server.acquire("team/job", "a", 600).granted();
    server.acquire("other", "a", 600).granted();
    assert_eq!(server.renew("team/job", "a", 700).status, 200);
    server.release("team/job", "a").done();
    let second = server.acquire("team/job", "b", 600).granted();
    until("the events have come", || history().len() == 4);
    let events = history();
    let kinds: Vec<&str> = events
        .iter()
        .map(|event| event["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["acquired", "renewed", "released", "acquired"]);
    let token = |event: &Value| event["lock"]["fencing_token"].as_u64().unwrap();
    assert_eq!(token(&events[0]), first.fencing_token);
    assert_eq!(token(&events[3]), second.fencing_token);
    assert!(events.iter().all(|event| event["resource"] == "team/job"));
    // An id of the history is one that the stream goes on from.
    let id = events[2]["id"].as_str().unwrap();
    let mut stream = server.events("", Some(id));
    let (_, next) = stream.event();
    assert_eq!(next.lock.fencing_token, second.fencing_token);
}

#[test]
fn a_caller_is_told_who_it_is_and_sees_no_more_than_it_may() {
    let (full, blind) = (
        Made::full("ci", "ci/*"),
        Made::new(&["--name", "writer", "--allow", "*"]),
    );
    let admin = Made::new(&["--name", "root", "--allow", "ci/*", "--allow", "x", "--admin"]);
    let lines = [&full.line, &blind.line, &admin.line]
        .map(String::as_str)
        .join("\n");
    let server = Server::asking(&lines, &admin.token);
    let who = |made: &Made| made.get(&server, "/whoami").json();
    assert_eq!(
        who(&full),
        json!({"principal": "ci", "rights": ["acquire", "read"], "allow": ["ci/*"]})
    );
    assert_eq!(
        who(&admin),
        json!({"principal": "root", "rights": ["acquire", "admin"], "allow": ["ci/*", "x"]})
    );
    assert_eq!(server.call(&Request::get("/whoami").token("wrong")).status, 401);
    blind.acquire(&server, "ci/a", "o").granted();
    blind.acquire(&server, "secret", "o").granted();
    for target in ["/locks/secret/events", "/locks/secret/waiters"] {
        assert_eq!(full.get(&server, target).status, 403, "{target}");
    }
    assert_eq!(full.get(&server, "/locks/ci%2Fa/events").status, 200);
    for target in ["/waiters", "/locks/ci%2Fa/events"] {
        assert_eq!(blind.get(&server, target).status, 403, "{target}");
    }
    let waiting = |name: &str| server.begin(&acquire_waiting(name, "w", 600, 60).token(&blind.token));
    let _waiting = [waiting("ci/a"), waiting("secret")];
    until("both wait", || {
        let seen = full.get(&server, "/waiters").json();
        seen["lines"] == json!([{"resource": "ci/a", "waiters": 1}])
    });
}

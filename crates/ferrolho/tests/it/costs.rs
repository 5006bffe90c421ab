//! What requests cost in commits, each of which is a sync of the disk. Counts, so that a slow machine changes nothing.

use serde_json::json;

use crate::support::Server;

/// How many commits these requests cost.
fn commits(server: &Server, requests: impl FnOnce()) -> u64 {
    let count = || {
        let text = server.metrics().text;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("ferrolho_store_commit_duration_seconds_count "))
            .unwrap();
        line.parse::<u64>().unwrap()
    };
    let before = count();
    requests();
    count() - before
}

#[test]
fn every_change_costs_one_commit_and_nothing_else_costs_any() {
    let server = Server::start();
    let one = |requests: &dyn Fn()| assert_eq!(commits(&server, requests), 1);
    let none = |requests: &dyn Fn()| assert_eq!(commits(&server, requests), 0);
    one(&|| _ = server.acquire("r", "a", 600).granted());
    one(&|| _ = server.acquire("r", "a", 600).granted());
    one(&|| assert_eq!(server.renew("r", "a", 600).status, 200));
    none(&|| {
        assert!(!server.acquire("r", "b", 600).is_granted());
        assert_eq!(server.renew("r", "b", 600).status, 403);
        assert_eq!(server.release("r", "b").status, 403);
        assert_eq!(server.release("free", "b").status, 404);
        server.find("r").lock();
        assert_eq!(server.get("/locks").status, 200);
    });
    // A hand-over is one commit, also with many in line.
    let mut first = server.wait_for("r", "first", 600, 60);
    server.until_waiting("r", 1);
    let _others: Vec<_> = (0..20)
        .map(|number| server.wait_for("r", &format!("w{number}"), 600, 60))
        .collect();
    server.until_waiting("r", 21);
    one(&|| server.release("r", "a").done());
    assert_eq!(first.answer().granted().owner, "first");
    one(&|| server.release("r", "first").done());
}

#[test]
fn what_is_asked_for_together_is_committed_together() {
    let server = Server::start();
    let names: Vec<String> = (0..32).map(|number| format!("n{number}")).collect();
    let set = json!({"resources": names, "owner": "o", "ttl_seconds": 600});
    assert_eq!(
        commits(&server, || assert_eq!(server.post("/locks", &set).status, 200)),
        1
    );
    let renewal = json!({"ttl_seconds": 600});
    let renewed = commits(&server, || {
        assert_eq!(server.post("/owners/o/renew", &renewal).status, 200);
    });
    let released = commits(&server, || {
        assert_eq!(server.delete("/owners/o", &json!({})).status, 200);
    });
    // Each of them stands alone, so the first may be on its way to the disk before the others have come.
    assert!((1..=2).contains(&renewed), "{renewed}");
    assert!((1..=2).contains(&released), "{released}");
}

//! The seed's twelve attacks, and the nine things not to do.

use serde_json::json;

use crate::support::{Request, Server, lock_path, on_every_engine, until};

on_every_engine!(
    atk_01_a_held_lock_is_not_acquired_by_another,
    atk_02_a_lock_is_not_released_by_another,
    atk_03_an_expired_lock_may_be_taken,
    atk_04_a_lock_is_not_renewed_by_another,
    atk_05_a_ttl_of_zero_or_less_is_refused,
    atk_06_sql_in_a_name_is_only_a_name,
    atk_07_an_empty_owner_is_refused,
    atk_08_a_ttl_that_is_no_integer_is_refused,
    atk_09_the_same_owner_may_acquire_again,
    atk_10_of_many_at_once_one_wins,
    atk_11_what_is_not_there_or_over_is_not_found,
    atk_12_long_names_are_refused,
    every_lock_has_an_end,
    another_owner_is_told_apart_from_no_lock,
    an_expired_lock_is_not_renewed_even_by_its_owner,
);

fn atk_01_a_held_lock_is_not_acquired_by_another(server: &Server) {
    let lock = server.acquire("payment:42", "a", 30).granted();
    server.acquire("payment:42", "attacker", 30).refused();
    assert_eq!(server.find("payment:42").lock(), lock);
}

fn atk_02_a_lock_is_not_released_by_another(server: &Server) {
    let lock = server.acquire("payment:42", "a", 30).granted();
    server.release("payment:42", "attacker").forbidden();
    assert_eq!(server.find("payment:42").lock(), lock);
}

fn atk_03_an_expired_lock_may_be_taken(server: &Server) {
    let old = server.expired("payment:42", "a");
    let new = server.acquire("payment:42", "b", 30).granted();
    assert!(new.fencing_token > old.fencing_token);
    server.release("payment:42", "a").forbidden();
    assert_eq!(server.find("payment:42").lock(), new);
}

fn atk_04_a_lock_is_not_renewed_by_another(server: &Server) {
    let lock = server.acquire("payment:42", "a", 30).granted();
    server.renew("payment:42", "attacker", 3600).forbidden();
    assert_eq!(server.find("payment:42").lock(), lock);
}

fn atk_05_a_ttl_of_zero_or_less_is_refused(server: &Server) {
    for ttl in ["0", "-1", "-100", "-0", "86401", "9223372036854775808", "1e308"] {
        let body = format!("{{\"owner\":\"a\",\"ttl_seconds\":{ttl}}}");
        server
            .call(&Request::post("/locks/r").body(body.clone()))
            .invalid(&["ttl_seconds"]);
        server
            .call(&Request::post("/locks/r/renew").body(body))
            .invalid(&["ttl_seconds"]);
    }
    server.find("r").not_found();
}

fn atk_06_sql_in_a_name_is_only_a_name(server: &Server) {
    let name = "resource'; DROP TABLE distributed_locks; --";
    let other = server.acquire("other", "a", 30).granted();
    let lock = server.acquire(name, "a'; --", 30).granted();
    assert_eq!(lock.resource, name);
    assert_eq!(server.find(name).lock(), lock);
    server.release(name, "a'; --").done();
    assert_eq!(server.find("other").lock(), other);
}

fn atk_07_an_empty_owner_is_refused(server: &Server) {
    let lock = server.acquire("r", "a", 30).granted();
    for owner in ["", " ", "\t\n", "\u{3000}"] {
        server.acquire("free", owner, 30).invalid(&["owner"]);
        server.release("r", owner).invalid(&["owner"]);
        server.renew("r", owner, 30).invalid(&["owner"]);
    }
    assert_eq!(server.find("r").lock(), lock);
}

fn atk_08_a_ttl_that_is_no_integer_is_refused(server: &Server) {
    for ttl in ["\"3600\"", "60.5", "30.0", "3e1", "true", "null", "[]", "{}"] {
        let body = format!("{{\"owner\":\"a\",\"ttl_seconds\":{ttl}}}");
        server
            .call(&Request::post("/locks/r").body(body))
            .invalid(&["ttl_seconds"]);
    }
    server.find("r").not_found();
}

fn atk_09_the_same_owner_may_acquire_again(server: &Server) {
    let first = server.acquire("r", "a", 5).granted();
    let again = server.acquire("r", " a ", 60).granted();
    assert_eq!(again.owner, "a");
    assert!(again.fencing_token > first.fencing_token);
    assert!(again.expires_at > first.expires_at);
}

fn atk_10_of_many_at_once_one_wins(server: &Server) {
    for round in 0..10 {
        let name = format!("r{round}");
        let mut callers: Vec<_> = (0..32)
            .map(|n| server.begin(&crate::support::acquire(&name, &format!("o{n}"), 30)))
            .collect();
        let won = callers
            .iter_mut()
            .filter_map(|caller| caller.answer().is_granted().then_some(()))
            .count();
        assert_eq!(won, 1);
    }
}

fn atk_11_what_is_not_there_or_over_is_not_found(server: &Server) {
    server.find("nonexistent").not_found();
    server.acquire("r", "a", 1).granted();
    until("it is over", || server.find("r").status == 404);
    server.find("r").not_found();
    assert_eq!(server.get("/locks").json()["locks"], json!([]));
}

fn atk_12_long_names_are_refused(server: &Server) {
    for fits in ["x".repeat(255), "語".repeat(85)] {
        assert_eq!(server.acquire(&fits, "a", 30).granted().resource, fits);
    }
    for too_long in ["x".repeat(256), "語".repeat(86), "x".repeat(4_000)] {
        server.acquire(&too_long, "a", 30).invalid(&["resource"]);
    }
    server.acquire("r", &"o".repeat(256), 30).invalid(&["owner"]);
    let before = server.peak_memory_kib();
    for _ in 0..5 {
        let mut connection = server.connect();
        // The server may hang up before all of it is sent.
        let _cut = connection.write(format!("POST /locks/{}", "x".repeat(10_000_000)).as_bytes());
        let _cut = connection.write(b" HTTP/1.1\r\nhost: localhost\r\n\r\n");
        if let Ok(answer) = connection.try_answer() {
            assert!((400..500).contains(&answer.status), "{}", answer.status);
        }
    }
    let grown = server.peak_memory_kib().saturating_sub(before);
    assert!(grown < 10_000, "five paths of 10 MB cost {grown} KiB");
    server
        .call(&Request::post(&format!("/locks/{}", "x".repeat(20_000))))
        .problem(414, "path-too-long");
}

fn every_lock_has_an_end(server: &Server) {
    server
        .post("/locks/r", &json!({"owner": "a"}))
        .invalid(&["ttl_seconds"]);
    server
        .post("/locks/r", &json!({"owner": "a", "ttl_seconds": null}))
        .invalid(&["ttl_seconds"]);
    server.find("r").not_found();
}

fn another_owner_is_told_apart_from_no_lock(server: &Server) {
    server.release("r", "a").not_found();
    server.acquire("r", "a", 30).granted();
    server.release("r", "b").forbidden();
    let path = lock_path("r");
    for body in ["", "{}", "null", "{\"owner\":\"\"}"] {
        assert_eq!(
            server.call(&Request::delete(&path).body(body)).status,
            422,
            "{body}"
        );
    }
    server.release("r", "a").done();
    server.release("r", "a").not_found();
}

fn an_expired_lock_is_not_renewed_even_by_its_owner(server: &Server) {
    server.expired("r", "a");
    server.renew("r", "a", 60).not_found();
    server.find("r").not_found();
}

#[test]
fn one_row_per_resource_is_a_constraint_of_the_database() {
    let server = Server::start();
    server.acquire("r", "a", 30).granted();
    until("the row is in the table", || {
        let count = "SELECT count(*) FROM distributed_locks WHERE resource = 'r'";
        server
            .database()
            .query_row(count, [], |row| row.get::<_, i64>(0))
            .unwrap()
            == 1
    });
    let second = "INSERT INTO distributed_locks (resource, owner, expires_at, acquired_at) VALUES ('r', 'b', \
                  '2999-01-01T00:00:00.000000Z', '2026-01-01T00:00:00.000000Z')";
    let refused = server.database().execute(second, []).unwrap_err().to_string();
    assert!(refused.contains("UNIQUE"), "{refused}");
}

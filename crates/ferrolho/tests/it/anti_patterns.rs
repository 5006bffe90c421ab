//! "O Que NÃO Fazer": what the seed warns of, row by row.

use serde_json::json;

use crate::support::{Server, lock_path, on_every_engine};

on_every_engine!(
    release_is_only_for_the_owner,
    no_lock_is_without_an_end,
    a_lock_is_never_over_when_it_is_made,
    the_wrong_owner_and_no_lock_are_told_apart,
    a_ttl_is_an_integer_and_nothing_that_looks_like_one,
    an_owner_is_never_empty,
    a_name_has_a_length_of_its_own,
    an_expired_lock_belongs_to_nobody,
);

/// "Sem constraint UNIQUE(resource)".
#[test]
fn there_is_one_row_for_a_resource() {
    let server = Server::start();
    let insert = "INSERT INTO distributed_locks (resource, owner, expires_at, acquired_at)
                  VALUES ('r', ?1, '2099-01-01 00:00:00', '2001-01-01 00:00:00')";
    server.database().execute(insert, ["a"]).unwrap();
    let second = server.database().execute(insert, ["b"]).unwrap_err();
    assert!(second.to_string().contains("UNIQUE"), "{second}");
    assert_eq!(server.find("r").lock().owner, "a");
    server.acquire("r", "b", 30).refused();
}

/// "Liberar sem verificação de proprietário".
fn release_is_only_for_the_owner(server: &Server) {
    let lock = server.acquire("r", "a", 30).granted();
    for other in ["b", "A", "aa", "a\u{301}"] {
        server.release("r", other).forbidden();
    }
    server.delete("/locks/r", &json!({})).invalid(&["owner"]);
    assert_eq!(server.find("r").lock(), lock);
    server.release("r", "a").done();
}

/// "Sem TTL nos locks".
fn no_lock_is_without_an_end(server: &Server) {
    for body in [json!({"owner": "a"}), json!({"owner": "a", "ttl_seconds": null})] {
        server.post("/locks/r", &body).invalid(&["ttl_seconds"]);
    }
    server.find("r").not_found();
    // The holder is never heard of again, and the lock is free for others.
    server.expired("r", "crashed");
    server.acquire("r", "b", 30).granted();
}

/// "Aceitar TTL de 0 ou negativo".
fn a_lock_is_never_over_when_it_is_made(server: &Server) {
    for ttl in [0, -1] {
        let body = json!({"owner": "a", "ttl_seconds": ttl});
        server.post("/locks/r", &body).invalid(&["ttl_seconds"]);
    }
    assert_eq!(server.acquire("r", "a", 1).granted().life().as_secs(), 1);
}

/// "Retornar 404 em incompatibilidade de proprietário (liberação)".
fn the_wrong_owner_and_no_lock_are_told_apart(server: &Server) {
    server.release("r", "b").not_found();
    server.acquire("r", "a", 30).granted();
    server.release("r", "b").forbidden();
    server.renew("r", "b", 30).forbidden();
    server.release("r", "a").done();
    server.release("r", "b").not_found();
}

/// "Aceitar string/float como TTL".
fn a_ttl_is_an_integer_and_nothing_that_looks_like_one(server: &Server) {
    for ttl in [json!("3600"), json!(60.5), json!(true), json!([60])] {
        let body = json!({"owner": "a", "ttl_seconds": ttl});
        server.post("/locks/r", &body).invalid(&["ttl_seconds"]);
    }
    server.find("r").not_found();
}

/// "Armazenar proprietário sem validação".
fn an_owner_is_never_empty(server: &Server) {
    for owner in [json!(""), json!("  "), json!(null), json!(7), json!(["a"])] {
        let body = json!({"owner": owner, "ttl_seconds": 30});
        server.post("/locks/r", &body).invalid(&["owner"]);
    }
    server.find("r").not_found();
    let lock = server.acquire("r", "  a ", 30).granted();
    assert_eq!(lock.owner, "a");
    server.release("r", "a ").done();
}

/// "Sem limite de comprimento de recurso".
fn a_name_has_a_length_of_its_own(server: &Server) {
    let (fits, too_long) = ("é".repeat(127), "é".repeat(128));
    server.acquire(&fits, "a", 30).granted();
    let answer = server.acquire(&too_long, "a", 30);
    answer.invalid(&["resource"]);
    assert!(
        answer.text().contains("256"),
        "it says how long it is: {}",
        answer.text()
    );
    server.acquire("r", &too_long, 30).invalid(&["owner"]);
}

/// "Renovar locks expirados".
fn an_expired_lock_belongs_to_nobody(server: &Server) {
    let lock = server.expired("r", "a");
    server.renew("r", "a", 30).not_found();
    let body = json!({"owner": "a", "ttl_seconds": 30, "fencing_token": lock.fencing_token});
    server
        .post(&format!("{}/renew", lock_path("r")), &body)
        .not_found();
    server.release("r", "a").not_found();
    server.find("r").not_found();
    server.acquire("r", "b", 30).granted();
}

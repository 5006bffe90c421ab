//! The seed's sixteen reference scenarios.

use ferrolho_testkit::SEED_TABLE;
use serde_json::json;

use crate::support::{Server, on_every_engine};

on_every_engine!(
    a_new_lock_is_acquired,
    the_same_owner_acquires_again,
    a_contested_lock_is_not_acquired,
    an_acquire_without_owner_is_not_valid,
    an_acquire_without_ttl_is_not_valid,
    an_acquire_with_ttl_zero_is_not_valid,
    a_live_lock_is_found,
    an_unknown_lock_is_not_found,
    its_owner_releases_a_lock,
    another_does_not_release_a_lock,
    nothing_to_release_is_not_found,
    a_released_lock_goes_to_another,
    an_expired_lock_goes_to_another,
    its_owner_renews_a_lock,
    another_does_not_renew_a_lock,
    an_expired_lock_is_not_renewed,
);

fn a_new_lock_is_acquired(server: &Server) {
    let lock = server.acquire("payment:42", "a", 30).granted();
    assert_eq!((lock.resource.as_str(), lock.owner.as_str()), ("payment:42", "a"));
    assert_eq!(lock.life().as_secs(), 30);
    assert_eq!(lock.metadata, None);
}

fn the_same_owner_acquires_again(server: &Server) {
    let first = server.acquire("payment:42", "a", 30).granted();
    let second = server.acquire("payment:42", "a", 60).granted();
    assert!(second.fencing_token > first.fencing_token);
    assert!(second.acquired_at > first.acquired_at);
    assert_eq!(second.life().as_secs(), 60);
    assert_eq!(server.find("payment:42").lock(), second);
}

fn a_contested_lock_is_not_acquired(server: &Server) {
    let lock = server.acquire("payment:42", "a", 30).granted();
    let answer = server.acquire("payment:42", "b", 30);
    let seconds = answer.refused();
    assert!(seconds <= 30, "{seconds}");
    assert_eq!(
        answer.json(),
        json!({"acquired": false, "resource": "payment:42"})
    );
    assert_eq!(server.find("payment:42").lock(), lock);
}

fn an_acquire_without_owner_is_not_valid(server: &Server) {
    server
        .post("/locks/r", &json!({"ttl_seconds": 30}))
        .invalid(&["owner"]);
    server.find("r").not_found();
}

fn an_acquire_without_ttl_is_not_valid(server: &Server) {
    server
        .post("/locks/r", &json!({"owner": "a"}))
        .invalid(&["ttl_seconds"]);
    server.find("r").not_found();
}

fn an_acquire_with_ttl_zero_is_not_valid(server: &Server) {
    server.acquire("r", "a", 0).invalid(&["ttl_seconds"]);
    server.find("r").not_found();
}

fn a_live_lock_is_found(server: &Server) {
    let lock = server.acquire("r", "a", 30).granted();
    assert_eq!(server.find("r").lock(), lock);
}

fn an_unknown_lock_is_not_found(server: &Server) {
    server.find("nonexistent").not_found();
}

fn its_owner_releases_a_lock(server: &Server) {
    server.acquire("r", "a", 30).granted();
    server.release("r", "a").done();
    server.find("r").not_found();
}

fn another_does_not_release_a_lock(server: &Server) {
    let lock = server.acquire("r", "a", 30).granted();
    server.release("r", "b").forbidden();
    assert_eq!(server.find("r").lock(), lock);
}

fn nothing_to_release_is_not_found(server: &Server) {
    server.release("r", "a").not_found();
}

fn a_released_lock_goes_to_another(server: &Server) {
    let first = server.acquire("r", "a", 30).granted();
    server.release("r", "a").done();
    let second = server.acquire("r", "b", 30).granted();
    assert_eq!(second.owner, "b");
    assert!(second.fencing_token > first.fencing_token);
}

fn an_expired_lock_goes_to_another(server: &Server) {
    let first = server.expired("r", "a");
    let second = server.acquire("r", "b", 30).granted();
    assert_eq!(second.owner, "b");
    assert!(second.fencing_token > first.fencing_token);
}

fn its_owner_renews_a_lock(server: &Server) {
    let lock = server.acquire("r", "a", 30).granted();
    let renewed = server.renew("r", "a", 3600).lock();
    assert_eq!(renewed.fencing_token, lock.fencing_token);
    assert_eq!(renewed.acquired_at, lock.acquired_at);
    assert!(renewed.life().as_secs() >= 3600);
    assert_eq!(server.find("r").lock(), renewed);
}

fn another_does_not_renew_a_lock(server: &Server) {
    let lock = server.acquire("r", "a", 30).granted();
    server.renew("r", "b", 3600).forbidden();
    assert_eq!(server.find("r").lock(), lock);
}

fn an_expired_lock_is_not_renewed(server: &Server) {
    server.expired("r", "a");
    server.renew("r", "a", 30).not_found();
    server.find("r").not_found();
}

/// Rows as another program writes them that knows nothing but the seed's table, in the forms of time that it may
/// use.
const LONG_AGO: [&str; 3] = [
    "2001-01-01 00:00:00",
    "2001-01-01T00:00:00Z",
    "2001-01-01T00:00:00.000000Z",
];

fn insert(server: &Server, resource: &str, expires_at: &str) -> u64 {
    let database = server.database();
    let insert = "INSERT INTO distributed_locks (resource, owner, expires_at, acquired_at) VALUES (?1, 'dead', ?2, ?2)";
    database.execute(insert, [resource, expires_at]).unwrap();
    database.last_insert_rowid().try_into().unwrap()
}

#[test]
fn an_expired_row_of_the_bare_schema_goes_to_another() {
    let server = Server::start();
    for (number, long_ago) in LONG_AGO.into_iter().enumerate() {
        let resource = format!("r{number}");
        let id = insert(&server, &resource, long_ago);
        server.find(&resource).not_found();
        let lock = server.acquire(&resource, "b", 30).granted();
        assert_eq!(lock.owner, "b");
        assert!(lock.fencing_token > id);
    }
}

#[test]
fn an_expired_row_of_the_bare_schema_is_neither_found_nor_renewed_nor_released() {
    let server = Server::start();
    for (number, long_ago) in LONG_AGO.into_iter().enumerate() {
        let resource = format!("r{number}");
        insert(&server, &resource, long_ago);
        server.renew(&resource, "dead", 30).not_found();
        server.release(&resource, "dead").not_found();
        server.find(&resource).not_found();
    }
}

#[test]
fn rows_of_the_bare_schema_from_before_the_start_count() {
    let server = Server::on_file(|path| {
        let rows = "INSERT INTO distributed_locks VALUES
            (7, 'live', 'a', '2099-01-01 00:00:00', '2001-01-01 00:00:00'),
            (9, 'over', 'a', '2001-01-01 00:00:00', '2001-01-01 00:00:00')";
        let database = rusqlite::Connection::open(path).unwrap();
        database.execute_batch(SEED_TABLE).unwrap();
        database.execute_batch(rows).unwrap();
    });
    let live = server.find("live").lock();
    assert_eq!((live.owner.as_str(), live.fencing_token), ("a", 7));
    assert_eq!(live.expires_at, "2099-01-01T00:00:00.000000Z");
    server.acquire("live", "b", 30).refused();
    server.release("live", "b").forbidden();
    server.find("over").not_found();
    assert!(server.acquire("over", "b", 30).granted().fencing_token > 9);
    server.release("live", "a").done();
    server.find("live").not_found();
}

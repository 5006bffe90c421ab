//! The seed's twelve attacks.

use std::sync::Barrier;
use std::thread;

use serde_json::json;

use crate::support::{Connection, Request, Server, on_every_engine};

on_every_engine!(
    atk_01_acquiring_a_lock_that_another_holds,
    atk_02_releasing_the_lock_of_another,
    atk_03_stealing_a_lock_after_its_end,
    atk_04_renewing_the_lock_of_another,
    atk_05_a_ttl_of_zero_or_less,
    atk_06_sql_in_the_name,
    atk_07_an_empty_owner,
    atk_08_a_ttl_that_is_no_integer,
    atk_09_acquiring_again_as_the_same_owner,
    atk_10_two_owners_at_the_same_moment,
    atk_11_looking_at_a_lock_that_is_not_there_or_over,
    atk_12_an_extremely_long_name,
);

#[test]
fn all_twelve_with_authentication() {
    let made = crate::auth::Made::new(&["--name", "app", "--allow", "*", "--read"]);
    assert_eq!(CASES.len(), 12);
    for (_, attack) in CASES {
        attack(&Server::asking(&made.line, &made.token));
    }
}

fn atk_01_acquiring_a_lock_that_another_holds(server: &Server) {
    let lock = server.acquire("payment:42", "victim", 30).granted();
    for _ in 0..20 {
        server.acquire("payment:42", "attacker", 86_400).refused();
    }
    assert_eq!(server.find("payment:42").lock(), lock);
}

fn atk_02_releasing_the_lock_of_another(server: &Server) {
    let lock = server.acquire("payment:42", "victim", 30).granted();
    server.release("payment:42", "attacker").forbidden();
    let token = json!({"owner": "attacker", "fencing_token": lock.fencing_token});
    server.delete("/locks/payment:42", &token).forbidden();
    server.post("/locks/payment:42/release", &token).forbidden();
    let in_query = Request::delete("/locks/payment:42?owner=attacker");
    server.call(&in_query).forbidden();
    assert_eq!(server.find("payment:42").lock(), lock);
}

fn atk_03_stealing_a_lock_after_its_end(server: &Server) {
    let lock = server.acquire("payment:42", "victim", 1).granted();
    let stolen = loop {
        let answer = server.acquire("payment:42", "attacker", 30);
        if answer.is_granted() {
            break answer.granted();
        }
    };
    assert!(
        stolen.acquired_at >= lock.expires_at,
        "{stolen:?} before the end of {lock:?}"
    );
    assert!(stolen.fencing_token > lock.fencing_token);
    server.release("payment:42", "victim").forbidden();
    server.renew("payment:42", "victim", 30).forbidden();
    server.acquire("payment:42", "victim", 30).refused();
}

fn atk_04_renewing_the_lock_of_another(server: &Server) {
    let lock = server.acquire("payment:42", "victim", 30).granted();
    server.renew("payment:42", "attacker", 3600).forbidden();
    server.renew("payment:42", "attacker", 1).forbidden();
    assert_eq!(server.find("payment:42").lock(), lock);
}

fn atk_05_a_ttl_of_zero_or_less(server: &Server) {
    for ttl in [0, -1, -100, i64::MIN] {
        let body = json!({"owner": "attacker", "ttl_seconds": ttl});
        server.post("/locks/r", &body).invalid(&["ttl_seconds"]);
        server.find("r").not_found();
    }
    let lock = server.acquire("r", "a", 30).granted();
    for ttl in [0, -100] {
        let body = json!({"owner": "a", "ttl_seconds": ttl});
        server.post("/locks/r", &body).invalid(&["ttl_seconds"]);
        server.post("/locks/r/renew", &body).invalid(&["ttl_seconds"]);
    }
    assert_eq!(server.find("r").lock(), lock);
}

fn atk_06_sql_in_the_name(server: &Server) {
    let names = [
        "resource'; DROP TABLE distributed_locks; --",
        "' OR '1'='1",
        "x\" OR 1=1 --",
        "'||(SELECT owner FROM distributed_locks)||'",
        "%",
        "_",
        "$1 ?1 :x",
    ];
    server.acquire("other", "victim", 30).granted();
    for name in names {
        let lock = server.acquire(name, name, 30).granted();
        assert_eq!((lock.resource.as_str(), lock.owner.as_str()), (name, name));
        assert_eq!(server.find(name).lock(), lock);
    }
    for name in names {
        server.release("other", name).forbidden();
        server.release(name, name).done();
        server.find(name).not_found();
    }
    assert_eq!(server.find("other").lock().owner, "victim");
}

fn atk_07_an_empty_owner(server: &Server) {
    let lock = server.acquire("r", "a", 30).granted();
    for owner in ["", " ", " \t\n ", "\u{3000}"] {
        server.acquire("free", owner, 30).invalid(&["owner"]);
        server.release("r", owner).invalid(&["owner"]);
        server.renew("r", owner, 30).invalid(&["owner"]);
    }
    for target in [
        "/locks/r?owner=",
        "/locks/r?owner=+",
        "/locks/r?owner=%20",
        "/locks/r",
    ] {
        server.call(&Request::delete(target)).invalid(&["owner"]);
    }
    assert_eq!(server.find("r").lock(), lock);
    server.find("free").not_found();
}

fn atk_08_a_ttl_that_is_no_integer(server: &Server) {
    let lock = server.acquire("r", "a", 30).granted();
    for ttl in [
        "\"3600\"", "60.5", "30.0", "3e1", "true", "null", "[30]", "{}", "\"\"",
    ] {
        let body = format!(r#"{{"owner":"a","ttl_seconds":{ttl}}}"#);
        for path in ["/locks/free", "/locks/r", "/locks/r/renew"] {
            server
                .call(&Request::post(path).body(body.as_str()))
                .invalid(&["ttl_seconds"]);
        }
    }
    assert_eq!(server.find("r").lock(), lock);
    server.find("free").not_found();
}

fn atk_09_acquiring_again_as_the_same_owner(server: &Server) {
    let mut before = server.acquire("r", "a", 30).granted();
    for _ in 0..10 {
        let again = server.acquire("r", "a", 60).granted();
        assert!(again.fencing_token > before.fencing_token);
        assert!(again.acquired_at > before.acquired_at);
        assert!(again.expires_at > before.expires_at);
        assert_eq!(server.find("r").lock(), again);
        before = again;
    }
}

fn atk_10_two_owners_at_the_same_moment(server: &Server) {
    const ROUNDS: usize = 50;
    let start = Barrier::new(2);
    let take = |owner: &str| {
        let mut connection = server.connect();
        let mut won = Vec::new();
        for round in 0..ROUNDS {
            let body = json!({"owner": owner, "ttl_seconds": 30});
            let request = Request::post(&format!("/locks/r{round}")).json(&body);
            start.wait();
            won.push(connection.call(&request).is_granted());
        }
        won
    };
    let (one, two) = thread::scope(|scope| {
        let two = scope.spawn(|| take("two"));
        (take("one"), two.join().unwrap())
    });
    for round in 0..ROUNDS {
        assert_ne!(one[round], two[round], "round {round}");
        let owner = server.find(&format!("r{round}")).lock().owner;
        assert_eq!(owner, if one[round] { "one" } else { "two" });
    }
}

fn atk_11_looking_at_a_lock_that_is_not_there_or_over(server: &Server) {
    server.find("nonexistent").not_found();
    let lock = server.expired("r", "a");
    let answer = server.find("r");
    answer.not_found();
    assert!(!answer.text().contains(&lock.expires_at), "{}", answer.text());
    assert_eq!(server.get("/locks").json()["locks"], json!([]));
}

/// How much memory paths of 10 MB may cost, however many come, in KiB: less than the size of one.
const COST_KIB: u64 = 9 * 1024;

fn atk_12_an_extremely_long_name(server: &Server) {
    let longest = "x".repeat(255);
    server.acquire(&longest, "a", 30).granted();
    for length in [256, 257, 1_000, 8_000] {
        let too_long = "x".repeat(length);
        server.acquire(&too_long, "a", 30).invalid(&["resource"]);
        server.find(&too_long).invalid(&["resource"]);
        server.renew(&too_long, "a", 30).invalid(&["resource"]);
        server.release(&too_long, "a").invalid(&["resource"]);
    }
    assert_eq!(server.find(&longest).lock().owner, "a");
    let before = server.peak_memory_kib();
    for _ in 0..50 {
        let status = send_ten_megabytes(&mut server.connect());
        assert!((400..500).contains(&status), "{status}");
    }
    let cost = server.peak_memory_kib() - before;
    assert!(cost < COST_KIB, "{cost} KiB");
    assert_eq!(server.find(&longest).lock().owner, "a");
}

fn send_ten_megabytes(connection: &mut Connection) -> u16 {
    let target = format!("/locks/{}", "x".repeat(10 * 1024 * 1024));
    let body = json!({"owner": "attacker", "ttl_seconds": 30});
    let request = Request::post(&target).json(&body);
    // The server need not listen to all of it.
    let _cut_short = connection.try_send(&request);
    connection.try_answer().unwrap().status
}

//! The hole of the seed: many callers see that a lock is over, and each believes that it may have it.

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use serde_json::json;

use crate::support::{Lock, PATIENCE, Server, acquire, on_every_engine};

on_every_engine!(
    callers_at_the_very_end_of_a_lock_make_one_winner,
    callers_at_a_lock_that_never_was_make_one_winner,
);

const CALLERS: usize = 64;
const ROUNDS: usize = 500;

/// Lets all callers ask for each of the names at the same moment, after `prepare`, which one of them does. Gives back
/// the grants of each name.
fn race(server: &Server, names: &[String], prepare: impl Fn(&str) + Sync) -> Vec<Vec<Lock>> {
    let start = Barrier::new(CALLERS);
    let run = |caller: usize| {
        let mut connection = server.connect();
        let mut grants = Vec::new();
        for name in names {
            let request = acquire(name, &format!("caller-{caller}"), 600);
            if caller == 0 {
                prepare(name);
            }
            start.wait();
            let answer = connection.call(&request);
            grants.push(answer.is_granted().then(|| answer.granted()));
        }
        grants
    };
    let mut of_name = vec![Vec::new(); names.len()];
    thread::scope(|scope| {
        let run = &run;
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| scope.spawn(move || run(caller)))
            .collect();
        for caller in callers {
            for (grants, grant) in of_name.iter_mut().zip(caller.join().unwrap()) {
                grants.extend(grant);
            }
        }
    });
    of_name
}

fn assert_one_winner_each(server: &Server, names: &[String], grants: &[Vec<Lock>]) {
    for (name, grants) in names.iter().zip(grants) {
        assert_eq!(grants.len(), 1, "{name}: {grants:?}");
        assert_eq!(server.find(name).lock(), grants[0]);
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("payment:{number}")).collect()
}

#[test]
fn sixty_four_callers_race_for_one_expired_row_five_hundred_times() {
    let server = Server::start();
    let database = server.database();
    let names = names(ROUNDS);
    let database = std::sync::Mutex::new(database);
    let grants = race(&server, &names, |name| {
        let insert = "INSERT INTO distributed_locks (resource, owner, expires_at, acquired_at)
                      VALUES (?1, 'dead', '2001-01-01 00:00:00', '2001-01-01 00:00:00')";
        database.lock().unwrap().execute(insert, [name]).unwrap();
    });
    assert_one_winner_each(&server, &names, &grants);
}

fn callers_at_a_lock_that_never_was_make_one_winner(server: &Server) {
    let names = names(50);
    let grants = race(server, &names, |_| {});
    assert_one_winner_each(server, &names, &grants);
}

/// All names end in the same moment. Every caller asks for each of them in turn, again and again, from before the
/// end until every name has a winner.
fn callers_at_the_very_end_of_a_lock_make_one_winner(server: &Server) {
    let names = names(200);
    let mut ends = Vec::new();
    for set in names.chunks(25) {
        let body = json!({"resources": set, "owner": "dead", "ttl_seconds": 1});
        let answer = server.post("/locks", &body).json();
        assert_eq!(answer["acquired"], true, "{answer}");
        ends.push(answer["locks"][0]["expires_at"].as_str().unwrap().to_owned());
    }
    let begun = Instant::now();
    let run = |caller: usize| {
        let mut connection = server.connect();
        let mut grants = Vec::new();
        let mut open = names.clone();
        while !open.is_empty() {
            assert!(begun.elapsed() < PATIENCE, "nobody gets {open:?}");
            open.retain(|name| {
                let answer = connection.call(&acquire(name, &format!("caller-{caller}"), 600));
                if answer.is_granted() {
                    grants.push(answer.granted());
                }
                // Whoever is refused for more than the second that the dead have can go: there is a winner.
                !answer.json()["acquired"].as_bool().unwrap() && answer.header("retry-after") == Some("1")
            });
        }
        grants
    };
    let grants: Vec<Lock> = thread::scope(|scope| {
        let run = &run;
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| scope.spawn(move || run(caller)))
            .collect();
        callers
            .into_iter()
            .flat_map(|caller| caller.join().unwrap())
            .collect()
    });
    let by_name = names.iter().map(|name| {
        let of_name = grants.iter().filter(|grant| grant.resource == *name);
        of_name.cloned().collect()
    });
    assert_one_winner_each(server, &names, &by_name.collect::<Vec<_>>());
    // Nobody was let in early.
    assert!(grants.iter().all(|grant| grant.acquired_at >= ends[0]));
}

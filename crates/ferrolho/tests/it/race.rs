//! The seed's hole: two callers that both read an expired lock must not both win it.

use std::sync::Barrier;
use std::thread;

use crate::support::{Server, acquire};

const ROUNDS: usize = 500;
const CALLERS: usize = 64;

#[test]
fn of_sixty_four_who_race_for_an_expired_lock_one_wins() {
    let server = Server::start();
    {
        // Rows that are over, written by the bare schema: no round has to wait for a second to pass.
        let mut database = server.database();
        let transaction = database.transaction().unwrap();
        for round in 0..ROUNDS {
            let insert = "INSERT INTO distributed_locks (resource, owner, expires_at, acquired_at) \
                          VALUES (?1, 'dead', '2026-01-01 00:00:01', '2026-01-01 00:00:00')";
            transaction.execute(insert, [format!("r{round}")]).unwrap();
        }
        transaction.commit().unwrap();
    }
    let start = Barrier::new(CALLERS);
    let wins: Vec<Vec<bool>> = thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|n| {
                let (server, start) = (&server, &start);
                scope.spawn(move || {
                    let mut connection = server.connect();
                    let mut won = Vec::new();
                    for round in 0..ROUNDS {
                        start.wait();
                        let request = acquire(&format!("r{round}"), &format!("o{n}"), 60);
                        won.push(connection.call(&request).is_granted());
                    }
                    won
                })
            })
            .collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    for round in 0..ROUNDS {
        assert_eq!(wins.iter().filter(|won| won[round]).count(), 1, "round {round}");
    }
}

//! A file as the seed makes it.

use ferrolho_testkit::SEED_TABLE;

use crate::disk::read_in;
use crate::judge::{Case, Fact};
use crate::load::{Act, Asked, Grant};
use crate::record::{Record, can_trace};
use crate::trace::CallerId;

const LOCKS: u64 = 300;

/// Records the first start on such a file, whose locks are known as if they had been answered.
pub(crate) fn record_a_first_start() -> Option<Record> {
    if !can_trace() {
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut database = rusqlite::Connection::open(directory.path().join("ferrolho.db")).unwrap();
    let transaction = database.transaction().unwrap();
    transaction.execute_batch(SEED_TABLE).unwrap();
    for number in 1..=LOCKS {
        let insert = "INSERT INTO distributed_locks (resource, owner, expires_at, acquired_at)
                      VALUES (?1, 'seed', '2100-01-01 00:00:00', '2026-01-01 00:00:00')";
        transaction.execute(insert, [name(number)]).unwrap();
    }
    transaction.commit().unwrap();
    drop(database);
    let image = read_in(directory.path());
    Some(Record::of_a_start(Case::new(
        image,
        (1..=LOCKS).map(granted).collect(),
    )))
}

fn name(number: u64) -> String {
    format!("seed-{number}")
}

fn granted(number: u64) -> Fact {
    let act = Act::Acquire {
        owner: "seed".to_owned(),
        names: vec![name(number)],
        granted: Some(vec![Grant {
            name: name(number),
            token: number,
            end: "2100-01-01T00:00:00.000000Z".to_owned(),
        }]),
    };
    let caller = CallerId { server: 0, port: 0 };
    Fact {
        asked: Asked { caller, nth: 0, act },
        is_answered: true,
    }
}

use std::collections::BTreeMap;

use ferrolho_core::{
    Cause, Change, Expected, Grant, Holder, Lock, Mark, Metadata, Owner, Principal, Ttl, Write,
};
use proptest::prelude::*;

use super::*;
use crate::sqlite::schema;
use crate::table::Locks;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros(1_800_000_000_000_000).plus(Duration::from_secs(seconds))
}

fn resource(number: usize) -> Resource {
    Resource::new(&format!("r{number} 'é\"")).unwrap()
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Grant,
    Extend,
    Remove,
}

/// What happens to the file.
#[derive(Clone, Debug)]
struct Step {
    acts: BTreeMap<usize, Act>,
    is_due: bool,
    /// The commit fails and is rolled back.
    fails: bool,
    /// The server is killed and started again.
    is_killed: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let act = prop::sample::select(vec![Act::Grant, Act::Grant, Act::Extend, Act::Remove]);
    (
        prop::collection::btree_map(0..8_usize, act, 0..6),
        prop::bool::weighted(0.4),
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.1),
    )
        .prop_map(|(acts, is_due, fails, is_killed)| Step {
            acts,
            is_due,
            fails,
            is_killed,
        })
}

/// The change that this act is, if it can be done.
fn change(number: usize, act: Act, table: &Table, at: u64) -> Option<Change> {
    let resource = resource(number);
    let held = table.get(&resource);
    let expected = held.map_or(Expected::Free, |held| Expected::Token(held.lock.fencing_token));
    let seconds = Ttl::new(i128::from(at) + 1000, Ttl::MAX).unwrap();
    let write = match act {
        Act::Grant => Write::Grant(Grant {
            holder: Holder {
                owner: Owner::new(&format!("owner {at}")).unwrap(),
                principal: at.is_multiple_of(2).then(|| Principal::new("p\\").unwrap()),
            },
            ttl: seconds,
            metadata: at
                .is_multiple_of(3)
                .then(|| Metadata::parse("{ \"a\":\"\\u0000\" , \"b\":1e2}").unwrap()),
            mark: if at.is_multiple_of(5) {
                Mark::from_key("k\"1").unwrap()
            } else {
                Mark::Random(at)
            },
        }),
        Act::Extend => Write::Extend(seconds),
        Act::Remove => Write::Remove,
    };
    let needs_a_lock = !matches!(act, Act::Grant);
    (held.is_some() || !needs_a_lock).then_some(Change {
        resource,
        expected,
        write,
        cause: Cause::Acquire,
    })
}

fn locks_of(table: &Table) -> BTreeMap<Resource, Arc<Held>> {
    (0..8)
        .filter_map(|number| table.get(&resource(number)))
        .map(|held| (held.lock.resource.clone(), Arc::clone(held)))
        .collect()
}

fn locks_in(connection: &Connection) -> (BTreeMap<Resource, Arc<Held>>, u64) {
    let loaded = rows::load(connection).unwrap();
    let locks = loaded.locks.into_iter();
    (
        locks.map(|held| (held.lock.resource.clone(), held)).collect(),
        loaded.top_token,
    )
}

fn records(connection: &Connection) -> i64 {
    connection
        .query_row("SELECT count(*) FROM ferrolho_journal", [], |row| row.get(0))
        .unwrap()
}

proptest! {
    /// However batches are written and folded, with commits that fail and kills in between: what a new start
    /// finds is what was committed, and the counter is where it was.
    #[test]
    fn a_start_finds_what_was_committed(steps in prop::collection::vec(step(), 1..30)) {
        let mut connection = Connection::open_in_memory().unwrap();
        schema::migrate(&mut connection).unwrap();
        let mut table = Table::new(Locks::default(), 0);
        let mut journal = Journal::with_limits(1, 2);
        let mut top = 0;
        for (number, step) in (0..).zip(steps) {
            let mut batch = Batch::new(&table, at(number));
            for (name, act) in &step.acts {
                if let Some(change) = change(*name, *act, &table, number) {
                    batch.decide(&table, &[change]).unwrap();
                }
            }
            connection.execute_batch("BEGIN IMMEDIATE").unwrap();
            journal.write(&connection, &batch, &table, step.is_due).unwrap();
            if step.fails {
                connection.execute_batch("ROLLBACK").unwrap();
                journal.rolled_back();
            } else {
                connection.execute_batch("COMMIT").unwrap();
                journal.committed();
                top = batch.top_token();
                batch.publish(&mut table);
            }
            prop_assert_eq!(journal.changes == 0, records(&connection) == 0);
            if step.is_killed {
                recover(&mut connection).unwrap();
                journal = Journal::with_limits(1, 2);
            }
            if journal.changes == 0 {
                prop_assert_eq!(locks_in(&connection), (locks_of(&table), top));
            }
        }
        recover(&mut connection).unwrap();
        prop_assert_eq!(locks_in(&connection), (locks_of(&table), top));
        prop_assert_eq!(records(&connection), 0);
    }
}

#[test]
fn folding_under_load_comes_to_an_end() {
    let mut connection = Connection::open_in_memory().unwrap();
    schema::migrate(&mut connection).unwrap();
    let mut table = Table::new(Locks::default(), 0);
    let mut journal = Journal::with_limits(1, 4);
    let mut write = |journal: &mut Journal, names: std::ops::Range<usize>, is_due| {
        let mut batch = Batch::new(&table, at(0));
        for number in names {
            let change = change(number, Act::Grant, &table, 1).unwrap();
            batch.decide(&table, &[change]).unwrap();
        }
        journal.write(&connection, &batch, &table, is_due).unwrap();
        journal.committed();
        batch.publish(&mut table);
    };
    write(&mut journal, 0..20, false);
    assert_eq!(journal.stale.len(), 20);
    let mut commits = 0;
    while journal.changes > 0 {
        assert!(journal.due().is_some());
        let next = 20 + 3 * commits;
        write(&mut journal, next..next + 3, true);
        commits += 1;
        assert!(commits < 20, "{journal:?}");
    }
    assert!(!journal.is_folding);
}

fn held(number: usize, token: u64, end: u64) -> Arc<Held> {
    Arc::new(Held {
        lock: Lock {
            resource: resource(number),
            owner: Owner::new(&format!("owner {token}")).unwrap(),
            expires_at: at(end),
            acquired_at: at(0),
            fencing_token: FencingToken::new(token.into()).unwrap(),
            metadata: None,
            principal: None,
        },
        mark: Mark::Random(0),
    })
}

/// Another program has changed rows whose locks had changed since they were written.
#[test]
fn another_programs_change_counts_unless_the_lock_is_a_new_grant() {
    // The row as it was written, the lock as it is now, the row as it is found, what comes of it.
    let cases = [
        (
            "nobody touched it",
            Some((5, 10)),
            Some((5, 20)),
            Some((5, 10)),
            Some((5, 20)),
        ),
        ("released since", Some((5, 10)), None, Some((5, 10)), None),
        (
            "granted since, not to be seen",
            None,
            Some((6, 20)),
            None,
            Some((6, 20)),
        ),
        (
            "granted since, and taken by the other",
            None,
            Some((6, 20)),
            Some((7, 30)),
            Some((6, 20)),
        ),
        (
            "granted and released since, and taken by the other",
            None,
            None,
            Some((7, 30)),
            Some((7, 30)),
        ),
        (
            "renewed since, and deleted by the other",
            Some((5, 10)),
            Some((5, 20)),
            None,
            None,
        ),
        (
            "renewed since, and taken by the other",
            Some((5, 10)),
            Some((5, 20)),
            Some((7, 30)),
            Some((7, 30)),
        ),
        (
            "granted anew since, and the old one deleted",
            Some((5, 10)),
            Some((6, 20)),
            None,
            Some((6, 20)),
        ),
    ];
    for (number, (name, row, ours, found, expected)) in cases.into_iter().enumerate() {
        let lock = |lock: Option<(u64, u64)>| lock.map(|(token, end)| held(number, token, end));
        let table = Table::new(lock(ours).into_iter().collect(), 9);
        let mut journal = Journal::empty();
        journal.stale.insert(resource(number), row_of(lock(row).as_ref()));
        let mut read: Vec<_> = lock(found).into_iter().collect();
        let untouched = held(99, 1, 50);
        read.push(untouched.clone());
        journal.reconcile(&mut read, &table);
        read.sort_by(|a, b| a.lock.resource.cmp(&b.lock.resource));
        let expected: Vec<_> = lock(expected).into_iter().chain([untouched]).collect();
        assert_eq!(read, expected, "{name}");
    }
}

#[test]
fn a_record_that_cannot_be_read_is_not_passed_over() {
    let mut connection = Connection::open_in_memory().unwrap();
    schema::migrate(&mut connection).unwrap();
    connection
        .execute("INSERT INTO ferrolho_journal (record) VALUES ('{}')", [])
        .unwrap();
    let refused = recover(&mut connection).unwrap_err().to_string();
    assert!(
        refused.contains("its journal has a record that cannot be read"),
        "{refused}"
    );
    assert_eq!(records(&connection), 1);
}

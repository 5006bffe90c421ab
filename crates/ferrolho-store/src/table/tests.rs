use std::time::Duration;

use ferrolho_core::{Cause, Change, EventKind, Expected, Grant, Holder, Owner, Principal, Ttl, Write};
use proptest::prelude::*;

use super::*;
use crate::Outcome;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros(1_800_000_000_000_000).plus(Duration::from_secs(seconds))
}

fn holder(owner: &str, principal: Option<&str>) -> Holder {
    Holder {
        owner: Owner::new(owner).unwrap(),
        principal: principal.map(|name| Principal::new(name).unwrap()),
    }
}

fn grant(resource: &str, holder: Holder, ttl: i128) -> Change {
    Change {
        resource: Resource::new(resource).unwrap(),
        expected: Expected::Free,
        write: Write::Grant(Grant {
            holder,
            ttl: Ttl::new(ttl, Ttl::MAX).unwrap(),
            metadata: None,
            mark: Mark::Random(1),
        }),
        cause: Cause::Acquire,
    }
}

fn kinds(events: &[ferrolho_core::Event]) -> Vec<(EventKind, u64)> {
    events
        .iter()
        .map(|event| (event.kind, event.lock.fencing_token.get()))
        .collect()
}

#[test]
fn a_lock_is_over_at_its_end_and_not_a_microsecond_before() {
    let mut table = Table::new(Locks::default(), 0);
    let mut batch = Batch::new(&table, at(0));
    batch.decide(&table, &[grant("r", holder("a", None), 1)]).unwrap();
    batch.publish(&mut table);
    let held = table.get(&Resource::new("r").unwrap()).unwrap();
    let just_before = Timestamp::from_micros(at(1).as_micros() - 1);
    assert_eq!(held.live(just_before).unwrap().left, Duration::from_micros(1));
    assert_eq!(held.live(at(1)), None);
}

#[test]
fn a_dropped_batch_was_never_there() {
    let table = Table::new(Locks::default(), 4);
    let mut batch = Batch::new(&table, at(0));
    let first = batch.decide(&table, &[grant("r", holder("a", None), 1)]).unwrap();
    assert!(matches!(first, Outcome::Applied(_)));
    let second = batch.decide(&table, &[grant("r", holder("b", None), 1)]).unwrap();
    assert!(matches!(second, Outcome::Stale(_)), "the batch sees itself");
    drop(batch);
    assert_eq!(table.get(&Resource::new("r").unwrap()), None);
    assert_eq!(table.earliest_end(), None);
}

#[test]
fn an_end_is_reported_once_by_whoever_comes_first() {
    let mut table = Table::new(Locks::default(), 0);
    let mut batch = Batch::new(&table, at(0));
    for name in ["r", "s"] {
        batch
            .decide(&table, &[grant(name, holder("a", None), 1)])
            .unwrap();
    }
    batch.publish(&mut table);

    let mut batch = Batch::new(&table, at(1));
    batch.decide(&table, &[grant("r", holder("b", None), 9)]).unwrap();
    assert_eq!(batch.reap(&table, 10), 1, "r has been replaced already");
    let events = batch.publish(&mut table);
    assert_eq!(
        kinds(&events),
        [
            (EventKind::Expired, 1),
            (EventKind::Acquired, 3),
            (EventKind::Expired, 2)
        ]
    );
    let mut batch = Batch::new(&table, at(2));
    assert_eq!(batch.reap(&table, 10), 0);
    assert_eq!(table.live_locks(at(2)), 1);
}

#[test]
fn tokens_end_below_2_to_the_53() {
    let mut table = Table::new(Locks::default(), FencingToken::MAX.get() - 1);
    let mut batch = Batch::new(&table, at(0));
    let both = [grant("r", holder("a", None), 1), grant("s", holder("a", None), 1)];
    assert_eq!(batch.decide(&table, &both), Err(TokensUsedUp));
    batch.decide(&table, &both[..1]).unwrap();
    assert_eq!(batch.decide(&table, &both[1..]), Err(TokensUsedUp));
    batch.publish(&mut table);
    let last = table.get(&Resource::new("r").unwrap()).unwrap();
    assert_eq!(last.lock.fencing_token, FencingToken::MAX);
}

/// Few names, so that they meet; some are prefixes of others, some sort oddly.
fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "a b", "a/b", "ab", "b", "é", "語", "\u{10ffff}"])
}

proptest! {
    #[test]
    fn lists_by_every_index_agree_with_a_plain_filter(
        puts in prop::collection::vec((name(), name(), 0_u64..4, prop::bool::weighted(0.3)), 0..60),
        prefix in prop::sample::select(vec!["", "a", "a ", "ab", "é", "zz"]),
        owner in prop::option::of(name()),
        principal in prop::option::of(prop::option::of(Just("p"))),
        after in prop::option::of(name()),
        limit in 1_usize..6,
    ) {
        let mut table = Table::new(Locks::default(), 0);
        let mut plain: BTreeMap<String, Arc<Held>> = BTreeMap::new();
        for (token, (resource, owner, end, removed)) in (1..).zip(puts) {
            let held = Arc::new(Held {
                lock: Lock {
                    resource: Resource::new(resource).unwrap(),
                    owner: Owner::new(owner).unwrap(),
                    expires_at: at(end),
                    acquired_at: at(0),
                    fencing_token: FencingToken::new(token).unwrap(),
                    metadata: None,
                    principal: (end % 2 == 0).then(|| Principal::new("p").unwrap()),
                },
                mark: Mark::Random(0),
            });
            if removed {
                plain.remove(resource);
                table.put(&held.lock.resource, None);
            } else {
                plain.insert(resource.to_owned(), Arc::clone(&held));
                table.put(&held.lock.resource, Some(Arc::clone(&held)));
            }
        }
        prop_assert_eq!(table.locks.ends.len(), plain.len());
        prop_assert_eq!(table.locks.owners.len(), plain.len());
        prop_assert_eq!(table.earliest_end(), plain.values().map(|held| held.lock.expires_at).min());
        let query = ListQuery {
            prefix: prefix.to_owned(),
            owner: owner.map(|owner| Owner::new(owner).unwrap()),
            holder: principal.zip(owner).map(|(principal, owner)| holder(owner, principal)),
            after: after.map(|after| Resource::new(after).unwrap()),
            limit,
        };
        let now = at(1);
        let wanted: Vec<_> = plain
            .values()
            .filter(|held| after.is_none_or(|after| held.lock.resource.as_str() > after))
            .filter(|held| query.wants(&held.lock))
            .filter_map(|held| held.live(now))
            .collect();
        let page = table.list(&query, now).answer;
        prop_assert_eq!(page.more, wanted.len() > limit);
        prop_assert_eq!(&page.locks[..], &wanted[..wanted.len().min(limit)]);
        prop_assert_eq!(table.live_locks(now), plain.values().filter(|held| held.is_live(now)).count());
    }
}

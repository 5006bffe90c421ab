//! Random histories on several servers of one store, against a plain map: whatever is tried where, the answer is the
//! map's, and all feeds tell the same story. A failure names the seed; `FERROLHO_SEED` repeats it.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferrolho_core::{Cause, Change, Claim, Event, EventKind, Expected, FencingToken, Lock, Reason, Write};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::kit::{attempt, events, find, grant_to, holder, resource, ttl};
use crate::{Feed, ListQuery, Outcome, Store};

const STEPS: usize = 400;
const NAMES: [&str; 4] = ["r", "r/", "r/s", "t"];
const OWNERS: [&str; 3] = ["a", "b", "c"];
/// No lock ends by itself while the test runs.
const LIFE: u32 = 3600;

/// What should be there, and what should have been told.
#[derive(Default)]
struct Model {
    locks: BTreeMap<String, Lock>,
    /// The highest token that each resource has had.
    tokens: BTreeMap<String, FencingToken>,
    told: Vec<(EventKind, Lock)>,
}

impl Model {
    fn holds(&self, change: &Change) -> bool {
        match (&change.expected, self.locks.get(change.resource.as_str())) {
            (Expected::Free, lock) => lock.is_none(),
            (Expected::HeldBy(claim), Some(lock)) => claim.is_true_of(lock),
            (Expected::Token(token), Some(lock)) => *token == lock.fencing_token,
            (_, None) => false,
        }
    }

    /// Takes in what a change made.
    fn take(&mut self, change: &Change, made: Option<Lock>) {
        let name = change.resource.to_string();
        let before = self.locks.remove(&name);
        for kind in change.event_kinds() {
            let lock = match kind {
                EventKind::Acquired | EventKind::Renewed => &made,
                EventKind::Released | EventKind::Forced | EventKind::Expired => &before,
            };
            self.told.extend(lock.clone().map(|lock| (*kind, lock)));
        }
        let Some(lock) = made else { return };
        if let (Write::Extend(_), Some(before)) = (&change.write, before) {
            assert_eq!(lock.fencing_token, before.fencing_token);
        } else {
            let last = self.tokens.insert(name.clone(), lock.fencing_token);
            assert!(
                last.is_none_or(|last| last < lock.fencing_token),
                "{lock:?} after {last:?}"
            );
        }
        self.locks.insert(name, lock);
    }
}

/// A change that makes sense, right or wrong, for one of the names.
fn some_change(random: &mut StdRng, model: &Model, name: &str) -> Change {
    let owner = OWNERS[random.random_range(0..OWNERS.len())];
    let token = model.tokens.get(name).copied();
    let claim = Claim {
        holder: holder(owner),
        token: token.filter(|_| random.random_bool(0.3)),
    };
    let grant = Write::Grant(grant_to(holder(owner), LIFE));
    let reason = || Reason::new("by hand").unwrap();
    let (expected, write, cause) = match (random.random_range(0..6), token) {
        (0 | 1, _) => (Expected::Free, grant, Cause::Acquire),
        (2, _) => (Expected::HeldBy(claim), Write::Extend(ttl(LIFE)), Cause::Renew),
        (3, _) => (Expected::HeldBy(claim), Write::Remove, Cause::Release),
        (4, _) => (Expected::HeldBy(claim), grant, Cause::Release),
        (_, Some(token)) => (Expected::Token(token), Write::Remove, Cause::Force(reason())),
        (_, None) => (Expected::HeldBy(claim), grant, Cause::Acquire),
    };
    Change {
        resource: resource(name),
        expected,
        write,
        cause,
    }
}

async fn step(random: &mut StdRng, stores: &[Arc<dyn Store>], model: &mut Model) {
    let store = &stores[random.random_range(0..stores.len())];
    let mut changes = Vec::new();
    for name in NAMES {
        if random.random_bool(0.4) {
            changes.push(some_change(random, model, name));
        }
    }
    if changes.is_empty() {
        changes.push(some_change(random, model, NAMES[0]));
    }
    let expected = changes.iter().all(|change| model.holds(change));
    match store.apply(attempt(changes.clone())).await.unwrap() {
        Outcome::Applied(made) => {
            assert!(expected, "{changes:?} was carried out on {:?}", model.locks);
            for (change, live) in changes.iter().zip(made) {
                model.take(change, live.map(|live| live.lock));
            }
        }
        Outcome::Stale(found) => {
            assert!(!expected, "{changes:?} was refused on {:?}", model.locks);
            for (change, live) in changes.iter().zip(found) {
                assert_eq!(
                    live.map(|live| live.lock).as_ref(),
                    model.locks.get(change.resource.as_str())
                );
            }
        }
    }
    let reader = &stores[random.random_range(0..stores.len())];
    if random.random_bool(0.3) {
        let name = NAMES[random.random_range(0..NAMES.len())];
        let found = find(reader, name).await.map(|live| live.lock);
        assert_eq!(found.as_ref(), model.locks.get(name), "{name}");
    }
    if random.random_bool(0.1) {
        let query = ListQuery {
            limit: 10,
            ..ListQuery::default()
        };
        let page = reader.list(&query).await.unwrap();
        assert!(page.locks.iter().map(|live| &live.lock).eq(model.locks.values()));
    }
}

async fn compare_feed(mut feed: Feed, model: &Model) -> Vec<Event> {
    let told = events(&mut feed, model.told.len()).await;
    let brief: Vec<_> = told
        .iter()
        .map(|event| (event.kind, event.lock.clone()))
        .collect();
    assert_eq!(brief, model.told);
    assert!(told.is_sorted_by(|a, b| a.position < b.position));
    told
}

/// Carries out some hundred random attempts on these servers of one store, which is empty.
pub async fn behave_as_one_map(stores: &[Arc<dyn Store>]) {
    let seed = std::env::var("FERROLHO_SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    eprintln!("FERROLHO_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let feeds: Vec<_> = stores.iter().map(|store| store.changes()).collect();
    let mut model = Model::default();
    for _ in 0..STEPS {
        step(&mut random, stores, &mut model).await;
    }
    let mut told = Vec::new();
    for feed in feeds {
        told.push(compare_feed(feed, &model).await);
    }
    assert!(told.windows(2).all(|pair| pair[0] == pair[1]));
}

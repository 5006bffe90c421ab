//! The audit trail held against what a store that fails at random has really done: what is done has one line, what may
//! have been done a line that says so, and there is no other. A failure names its seed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::{Claim, Event, EventKind};
use ferrolho_server::audit::{Audit, Destination, Origin};
use ferrolho_server::service::{Acquired, Limits, ReleaseRequest, Service};
use ferrolho_store::{Feed, FeedItem, Store};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::Value;
use tempfile::NamedTempFile;
use tokio::time::{Instant, sleep, timeout};

use crate::faults::{Fault, Faulty};
use crate::support::*;

const SEEDS: u64 = 200;
const CALLERS: usize = 6;
const ROUNDS: usize = 8;

/// A trail, and the feed of the same store.
struct Books {
    file: NamedTempFile,
    feed: Feed,
    audit: Audit,
}

/// A grant: its resource, its owner and its token.
type Grant = (String, String, u64);

impl Books {
    fn open(store: &dyn Store) -> Self {
        let file = NamedTempFile::new().unwrap();
        let audit = Audit::start(Destination::File(file.path().to_owned())).unwrap();
        Self {
            file,
            feed: store.changes(),
            audit,
        }
    }

    /// What is done has one line, what may have been done a line that says so, and there is no other.
    async fn check(mut self) -> Result<(), String> {
        let events = self.events().await?;
        self.audit.close();
        let text = fs::read_to_string(self.file.path()).unwrap();
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        for kind in [EventKind::Acquired, EventKind::Released, EventKind::Expired] {
            check_kind(kind, &events, &lines).map_err(|what| format!("{}: {what}", kind.as_str()))?;
        }
        Ok(())
    }

    async fn events(&mut self) -> Result<Vec<Event>, String> {
        let mut all = Vec::new();
        let soon = Duration::from_millis(1);
        while let Ok(Some(item)) = timeout(soon, self.feed.next()).await {
            match item {
                FeedItem::Events(events) => all.extend_from_slice(&events),
                FeedItem::Gap => return Err("the feed has a gap".to_owned()),
            }
        }
        Ok(all)
    }
}

fn check_kind(kind: EventKind, events: &[Event], lines: &[Value]) -> Result<(), String> {
    let of_event = |event: &Event| -> Grant {
        let lock = &event.lock;
        (
            lock.resource.to_string(),
            lock.owner.to_string(),
            lock.fencing_token.get(),
        )
    };
    let happened: BTreeSet<Grant> = events
        .iter()
        .filter(|event| event.kind == kind)
        .map(of_event)
        .collect();
    let mut done: BTreeMap<Grant, usize> = BTreeMap::new();
    let mut unknown = BTreeSet::new();
    for line in lines.iter().filter(|line| line["event"] == kind.as_str()) {
        let text = |name: &str| line[name].as_str().unwrap().to_owned();
        let (resource, owner) = (text("resource"), text("owner"));
        if line["outcome"] == "done" {
            let token = line["fencing_token"].as_u64().unwrap();
            *done.entry((resource, owner, token)).or_default() += 1;
        } else {
            assert_eq!(line["outcome"], "unknown", "{line}");
            unknown.insert((resource, owner));
        }
    }
    for (grant, times) in &done {
        if *times > 1 || !happened.contains(grant) {
            return Err(format!(
                "{grant:?} has {times} lines; it happened: {}",
                happened.contains(grant)
            ));
        }
    }
    let is_noted =
        |grant: &&Grant| done.contains_key(*grant) || unknown.contains(&(grant.0.clone(), grant.1.clone()));
    match happened.iter().find(|grant| !is_noted(grant)) {
        None => Ok(()),
        Some(grant) => Err(format!("{grant:?} has no line")),
    }
}

#[test]
fn everything_that_was_done_has_its_line() {
    for seed in 0..SEEDS {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let said = runtime.block_on(storm(seed));
        assert_eq!(said, Ok(()), "seed {seed}");
    }
}

async fn storm(seed: u64) -> Result<(), String> {
    let mut dice = StdRng::seed_from_u64(seed);
    // Every third store is one that others share, where looking costs as much as trying.
    let store = Faulty::new(seed % 3 == 2);
    let books = Books::open(&*store);
    let service = Service::start(
        Arc::clone(&store) as Arc<dyn Store>,
        Limits::default(),
        books.audit.clone(),
    );
    let callers: Vec<_> = (0..CALLERS)
        .map(|number| {
            let dice = StdRng::seed_from_u64(dice.random());
            tokio::spawn(live(Arc::clone(&service), number, dice))
        })
        .collect();
    let weather = tokio::spawn(weather(Arc::clone(&store), StdRng::seed_from_u64(dice.random())));
    for caller in callers {
        caller.await.unwrap();
    }
    weather.abort();
    store.set_away(false);
    // The longest lifetime, and for how long a lost attempt is watched for.
    sleep(Duration::from_mins(1)).await;
    books.check().await
}

/// Faults for the next attempts, and times in which nothing answers.
async fn weather(store: Arc<Faulty>, mut dice: StdRng) {
    loop {
        sleep(Duration::from_millis(dice.random_range(0..1500))).await;
        let late = Duration::from_millis(dice.random_range(0..5000));
        match dice.random_range(0..6) {
            0 => store.next(&[Fault::Refused]),
            1 => store.next(&[Fault::AnswerLost]),
            2 | 3 => store.next(&[Fault::RequestLost]),
            4 => store.next(&[Fault::CarriedOutAfter(late)]),
            _ => {
                store.set_away(true);
                sleep(late).await;
                store.set_away(false);
            }
        }
    }
}

/// Asks for locks and sets of them, hangs up, comes back under its key, and gives some back.
async fn live(service: Arc<Service>, number: usize, mut dice: StdRng) {
    for round in 0..ROUNDS {
        sleep(Duration::from_millis(dice.random_range(0..500))).await;
        let owner = format!("{number}.{round}");
        let names = ["x", "y", "z", "x y", "z y"][dice.random_range(0..5)];
        let has_key = dice.random_bool(0.7);
        for _ in 0..3 {
            let mut asked = request(&owner, names, dice.random_range(2..=8), dice.random_range(0..=4));
            if has_key {
                asked = keyed(&owner, asked);
            }
            let patience = Duration::from_millis(dice.random_range(100..6_000));
            match timeout(patience, service.acquire(asked)).await {
                Ok(Ok(Acquired::Granted(locks))) => {
                    sleep(Duration::from_millis(dice.random_range(0..3_000))).await;
                    for lock in locks.into_iter().filter(|_| dice.random_bool(0.8)) {
                        let claim = Claim {
                            holder: lock.holder(),
                            token: number.is_multiple_of(2).then_some(lock.fencing_token),
                        };
                        let released = service.release(ReleaseRequest {
                            resource: lock.resource,
                            claim,
                            arrived: Instant::now(),
                            origin: Origin::default(),
                        });
                        // Its outcome may be unknown; the trail is asked later.
                        let _ = released.await;
                    }
                    break;
                }
                Ok(Ok(Acquired::Held { .. })) => break,
                Ok(Err(_)) | Err(_) => {}
            }
        }
    }
}

//! Several servers on a cluster of three members.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrolho_core::{Change, EventKind, Live, Metadata, Write};
use ferrolho_store::conformance::{Engine, Servers};
use ferrolho_store::{Attempt, ListQuery, Outcome, Store};
use ferrolho_testkit::Etcd;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::kit::{
    PATIENCE, acquire, attempt, events_until, find, grant_to, holder, must, must_remove, open, release,
    renew, resource,
};

/// Three members, for the suite's checks of several servers.
struct Cluster {
    etcd: Etcd,
    store: Arc<dyn Store>,
}

#[async_trait::async_trait]
impl Engine for Cluster {
    async fn start() -> Option<Self> {
        let etcd = Etcd::start_cluster()?;
        let store = open(&etcd).await;
        Some(Self { etcd, store })
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }
}

#[async_trait::async_trait]
impl Servers for Cluster {
    async fn another(&self) -> Arc<dyn Store> {
        open(&self.etcd).await
    }
}

ferrolho_store::conformance_suite!(@servers Cluster);

/// What the locks protect, kept outside of the service: it refuses two users at once, and tokens that do not
/// rise.
#[derive(Default)]
struct Protected {
    last_token: AtomicU64,
    user: Mutex<Option<u64>>,
    uses: AtomicU64,
}

impl Protected {
    fn enter(&self, token: u64) {
        let before = self.last_token.swap(token, Ordering::SeqCst);
        assert!(before < token, "token {token} after {before}");
        let other = self.user.lock().unwrap().replace(token);
        assert_eq!(other, None, "two at once");
        self.uses.fetch_add(1, Ordering::SeqCst);
    }

    fn leave(&self, token: u64) {
        assert_eq!(self.user.lock().unwrap().take(), Some(token), "two at once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_callers_on_three_servers_take_turns() {
    let Some(etcd) = Etcd::start_cluster() else { return };
    let mut stores = Vec::new();
    for _ in 0..3 {
        stores.push(open(&etcd).await);
    }
    let names = ["one", "two", "three", "four"];
    let protected: Arc<HashMap<&str, Protected>> =
        Arc::new(names.iter().map(|name| (*name, Protected::default())).collect());
    let mut callers = JoinSet::new();
    for number in 0..64 {
        let store = Arc::clone(&stores[number % stores.len()]);
        let protected = Arc::clone(&protected);
        callers.spawn(async move {
            let name = names[number % names.len()];
            let give_up = Instant::now() + PATIENCE;
            let mut turns = 0;
            while turns < 5 {
                assert!(Instant::now() < give_up, "only {turns} turns");
                let change = acquire(name, &format!("caller {number}"), 30);
                match attempt(&store, change).await.unwrap() {
                    Ok(made) => {
                        let live = made.unwrap();
                        let token = live.lock.fencing_token.get();
                        protected[name].enter(token);
                        tokio::task::yield_now().await;
                        protected[name].leave(token);
                        must_remove(&store, release(&live)).await;
                        turns += 1;
                    }
                    Err(other) => assert!(other.is_some_and(|live| live.lock.resource == resource(name))),
                }
            }
        });
    }
    callers.join_all().await;
    let uses: u64 = protected
        .values()
        .map(|protected| protected.uses.load(Ordering::SeqCst))
        .sum();
    assert_eq!(uses, 64 * 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_holds_what_any_server_has_answered() {
    let Some(etcd) = Etcd::start_cluster() else { return };
    let (here, there) = (open(&etcd).await, open(&etcd).await);
    let query = ListQuery {
        limit: 10,
        ..ListQuery::default()
    };
    let listed = async |store: &Arc<dyn Store>| -> Vec<String> {
        let page = store.list(&query).await.unwrap();
        page.locks
            .iter()
            .map(|live| live.lock.resource.to_string())
            .collect()
    };
    for round in 0..50 {
        let live = must(&here, acquire("r", "a", 30)).await;
        assert_eq!(listed(&there).await, ["r"], "round {round}");
        must_remove(&there, release(&live)).await;
        assert!(listed(&here).await.is_empty(), "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_there_is_told_here() {
    let Some(etcd) = Etcd::start_cluster() else { return };
    let (here, there) = (open(&etcd).await, open(&etcd).await);
    let mut feed = here.changes();
    let mut delays = Vec::new();
    for _ in 0..50 {
        let live = must(&here, acquire("r", "a", 30)).await;
        let asked = Instant::now();
        must_remove(&there, release(&live)).await;
        events_until(&mut feed, EventKind::Released, "r").await;
        delays.push(asked.elapsed());
    }
    delays.sort_unstable();
    // Far below what any polling would take.
    assert!(
        delays[25] < Duration::from_millis(500),
        "the median is {:?}",
        delays[25]
    );
}

/// What a transaction may hold, all at once: sets of the most locks with the longest names and the largest
/// metadata, handed over, so that the note holds them too. While the first are under way the others wait, and
/// then go three at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_batch_fits() {
    let Some(etcd) = Etcd::start() else { return };
    let store = open(&etcd).await;
    let metadata = Metadata::parse(&format!("{{\"k\":\"{}\"}}", "x".repeat(4088))).unwrap();
    let owner = "\"".repeat(255);
    let largest = |change: Change| Change {
        write: Write::Grant(ferrolho_core::Grant {
            metadata: Some(metadata.clone()),
            ..grant_to(holder(&owner), 60)
        }),
        ..change
    };
    let name = |set: usize, number: usize| format!("{:\"<250}{set}{number:03}", "");
    let mut held: Vec<Vec<Live>> = Vec::new();
    for set in 0..9 {
        let changes = (0..32)
            .map(|number| largest(acquire(&name(set, number), "a", 60)))
            .collect();
        held.push(apply_all(&store, changes).await);
    }
    for round in 0..3 {
        let mut at_once = JoinSet::new();
        for set in &held {
            let changes = set.iter().map(|live| largest(release(live))).collect();
            let store = Arc::clone(&store);
            at_once.spawn(async move { apply_all(&store, changes).await });
        }
        held = at_once.join_all().await;
        assert_eq!(held.concat().len(), 9 * 32, "round {round}");
    }
}

async fn apply_all(store: &Arc<dyn Store>, changes: Vec<Change>) -> Vec<Live> {
    let attempt = Attempt {
        changes,
        not_after: Instant::now() + PATIENCE,
    };
    match store.apply(attempt).await.unwrap() {
        Outcome::Applied(made) => made.into_iter().map(Option::unwrap).collect(),
        Outcome::Stale(found) => panic!("{found:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_begin_alike_are_independent() {
    let Some(etcd) = Etcd::start() else { return };
    let store = open(&etcd).await;
    let names = ["a", "a/", "a/b", "ab", "a/b/c", "lock/a", "note", "base"];
    let mut held = Vec::new();
    for (number, name) in names.iter().enumerate() {
        held.push(must(&store, acquire(name, &format!("owner {number}"), 60)).await);
    }
    for (number, live) in held.iter().enumerate() {
        must_remove(&store, release(live)).await;
        for (later, name) in names.iter().enumerate() {
            let found = find(&store, name).await.map(|live| live.lock);
            assert_eq!(
                found.as_ref(),
                (later > number).then(|| &held[later].lock),
                "{name}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_with_other_prefixes_share_nothing() {
    let Some(etcd) = Etcd::start() else { return };
    let here = open(&etcd).await;
    let there = crate::kit::open_url(&format!("{}?prefix=other", etcd.url())).await;
    let mut feed = there.changes();
    let live = must(&here, acquire("r", "a", 60)).await;
    let other = must(&there, acquire("r", "b", 60)).await;
    must(&here, renew(&live, 30)).await;
    must_remove(&there, release(&other)).await;
    assert_eq!(events_until(&mut feed, EventKind::Released, "r").await.len(), 2);
    assert!(find(&here, "r").await.is_some());
}

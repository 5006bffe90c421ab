//! How long locks live: at least as long as asked, and not much longer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::EventKind;
use ferrolho_store::{Feed, FeedItem, Store};
use ferrolho_testkit::Etcd;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::kit::{PATIENCE, acquire, attempt, events_until, find, must, next, open, renew};

/// etcd grants no lease below two seconds; a lock of one second lives one second all the same, and a look and an
/// acquire agree on its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_second_is_one_second() {
    let Some(etcd) = Etcd::start() else { return };
    let (here, there) = (open(&etcd).await, open(&etcd).await);
    for (store, other) in [(&here, &there), (&there, &here)] {
        let asked = Instant::now();
        let live = must(store, acquire("r", "a", 1)).await;
        assert_eq!(
            live.lock.expires_at.since(live.lock.acquired_at),
            Duration::from_secs(1)
        );
        while find(other, "r").await.is_some() {
            sleep(Duration::from_millis(5)).await;
        }
        let lived = asked.elapsed();
        assert!(lived >= Duration::from_secs(1), "it lived {lived:?}");
        assert!(lived < Duration::from_secs(2), "it lived {lived:?}");
        let next = must(other, acquire("r", "b", 30)).await;
        assert!(next.lock.fencing_token > live.lock.fencing_token);
        crate::kit::must_remove(other, crate::kit::release(&next)).await;
    }
}

/// A lock whose server has gone is ended by the others, on time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_end_what_a_lost_server_leaves() {
    let Some(etcd) = Etcd::start() else { return };
    let (here, there) = (open(&etcd).await, open(&etcd).await);
    let mut feed = there.changes();
    let asked = Instant::now();
    must(&here, acquire("r", "a", 2)).await;
    drop(here);
    events_until(&mut feed, EventKind::Expired, "r").await;
    let lived = asked.elapsed();
    assert!(lived >= Duration::from_secs(2), "it lived {lived:?}");
    assert!(lived < Duration::from_secs(4), "it lived {lived:?}");
    assert_eq!(find(&there, "r").await, None);
}

/// A lock whose servers have all gone for long is over for whoever comes; one that lives is kept, with no more
/// time than its whole life.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_server_times_old_locks_by_their_leases() {
    let Some(etcd) = Etcd::start() else { return };
    let store = open(&etcd).await;
    must(&store, acquire("short", "a", 1)).await;
    must(&store, acquire("long", "a", 60)).await;
    drop(store);
    sleep(Duration::from_secs(8)).await;
    let store = open(&etcd).await;
    assert_eq!(find(&store, "short").await, None);
    let left = find(&store, "long").await.unwrap().left;
    assert!(
        left <= Duration::from_secs(58),
        "it is given {left:?} of its remaining 52 s"
    );
    assert!(
        left >= Duration::from_secs(50),
        "it is given {left:?} of its remaining 52 s"
    );
}

/// Until when each lock was promised to live, kept outside of the service.
#[derive(Default)]
struct Log(Mutex<BTreeMap<String, Instant>>);

impl Log {
    fn promise(&self, name: &str, until: Instant) {
        let mut log = self.0.lock();
        let entry = log.entry(name.to_owned()).or_insert(until);
        *entry = until.max(*entry);
    }
}

const LIFE: Duration = Duration::from_secs(1);

/// Takes locks, one after the other, and renews each at the last moment, `before_end` before its end, until that
/// comes too late or was done often enough. Returns how many renewals came in time.
async fn live_dangerously(store: Arc<dyn Store>, log: Arc<Log>, number: u64, stop: Instant) -> usize {
    let before_end = Duration::from_millis(5 + number % 60);
    let mut in_time = 0;
    for life in 0.. {
        if Instant::now() > stop {
            break;
        }
        let name = format!("lock {number} {life}");
        let mut asked = Instant::now();
        // While the leader is away there is nothing to promise.
        let Ok(Ok(Some(live))) = attempt(&store, acquire(&name, "a", 1)).await else {
            continue;
        };
        for _ in 0..4 {
            log.promise(&name, asked + LIFE);
            sleep_until(asked + LIFE - before_end).await;
            asked = Instant::now();
            match attempt(&store, renew(&live, 1)).await {
                Ok(Ok(Some(_))) => in_time += 1,
                _ => break,
            }
            log.promise(&name, asked + LIFE);
        }
    }
    in_time
}

/// Writes down when each lock is said to have ended by itself.
async fn judge(mut feed: Feed, ends: Arc<Mutex<BTreeMap<String, Instant>>>) {
    loop {
        let FeedItem::Events(events) = next(&mut feed).await else {
            panic!("a gap")
        };
        let now = Instant::now();
        for event in events.iter().filter(|event| event.kind == EventKind::Expired) {
            let before = ends.lock().insert(event.resource.to_string(), now);
            assert_eq!(before, None, "{event:?} ended twice");
        }
    }
}

/// 180 holders on two servers renew at the last moment for some seconds, with `disturb` in the midst of it; a
/// third server says when their locks end.
async fn none_ends_early(etcd: &mut Etcd, disturb: impl AsyncFnOnce(&mut Etcd)) {
    let stores = [open(etcd).await, open(etcd).await];
    let third = open(etcd).await;
    let (log, ends) = (Arc::new(Log::default()), Arc::default());
    let mut judges = JoinSet::new();
    judges.spawn(judge(third.changes(), Arc::clone(&ends)));
    let stop = Instant::now() + Duration::from_secs(6);
    let mut holders = JoinSet::new();
    for number in 0..180 {
        let store = Arc::clone(&stores[usize::try_from(number % 2).unwrap()]);
        holders.spawn(live_dangerously(store, Arc::clone(&log), number, stop));
        sleep(Duration::from_millis(5)).await;
    }
    disturb(etcd).await;
    let in_time: usize = holders.join_all().await.into_iter().sum();
    assert!(in_time >= 150, "only {in_time} renewals came in time");
    let promised = std::mem::take(&mut *log.0.lock());
    let give_up = Instant::now() + PATIENCE;
    for (name, until) in &promised {
        while !ends.lock().contains_key(name) {
            assert!(judges.try_join_next().is_none(), "the judge has given up");
            assert!(Instant::now() < give_up, "{name} never ended");
            sleep(Duration::from_millis(10)).await;
        }
        let early = until.saturating_duration_since(ends.lock()[name]);
        assert!(early.is_zero(), "{name} ended {early:?} early");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_renewed_at_the_last_moment_never_end_early() {
    let Some(mut etcd) = Etcd::start() else { return };
    none_ends_early(&mut etcd, async |_| {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_when_the_leader_is_killed() {
    let Some(mut etcd) = Etcd::start_cluster() else {
        return;
    };
    none_ends_early(&mut etcd, async |etcd| {
        let leader = etcd.leader();
        etcd.kill(leader);
    })
    .await;
}

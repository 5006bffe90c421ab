//! What only shows from inside, on a real etcd.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{PutOptions, Txn, TxnOp};
use ferrolho_core::{Cause, Change, EventKind, Expected, Grant, Holder, Mark, Owner, Resource, Ttl, Write};
use ferrolho_testkit::Etcd;
use tokio::time::{Instant, sleep, timeout};

use super::commit::Committer;
use super::keys::Keys;
use super::known::Locks;
use super::members::{Effort, Members};
use super::record::{Act, Me, Pen, Record, Version};
use super::requests::Cluster;
use super::{EtcdConfig, EtcdStore, load};
use crate::clock::{Moment, wall_now};
use crate::{Attempt, FeedItem, Outcome, Store};

const PATIENCE: Duration = Duration::from_secs(30);

fn config(etcd: &Etcd) -> EtcdConfig {
    etcd.url().parse().unwrap()
}

fn grant(ttl: i128) -> Grant {
    Grant {
        holder: Holder {
            owner: Owner::new("a").unwrap(),
            principal: None,
        },
        ttl: Ttl::new(ttl, Ttl::MAX).unwrap(),
        metadata: None,
        mark: Mark::Random(7),
    }
}

fn attempt(name: &str, expected: Expected, write: Write, cause: Cause) -> Attempt {
    Attempt {
        changes: vec![Change {
            resource: Resource::new(name).unwrap(),
            expected,
            write,
            cause,
        }],
        not_after: Instant::now() + PATIENCE,
    }
}

fn acquire(name: &str) -> Attempt {
    attempt(name, Expected::Free, Write::Grant(grant(60)), Cause::Acquire)
}

/// Reading everything anew tells whether anything has happened, and is not misled by what others did.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_reading_tells_whether_anything_was_missed() {
    let Some(etcd) = Etcd::start() else { return };
    let config = config(&etcd);
    let me = Me {
        number: 1,
        started: Moment::now(),
    };
    let cluster = Arc::new(Cluster::new(Members::new(&config).unwrap()));
    let committer = Committer::new(cluster, Keys::new(&config.prefix), Arc::new(Locks::new(me)), me);
    let store = EtcdStore::open(&config).await.unwrap();
    store.apply(acquire("r")).await.unwrap();
    assert!(load::load(&committer).await.unwrap());
    assert!(!load::load(&committer).await.unwrap());
    etcd.control(&["put", "somebody/elses", "1"]);
    assert!(!load::load(&committer).await.unwrap());
    // It came and went, and left everything as it was.
    let Outcome::Applied(made) = store.apply(acquire("s")).await.unwrap() else {
        panic!("it is free")
    };
    let token = made[0].as_ref().unwrap().lock.fencing_token;
    let remove = attempt("s", Expected::Token(token), Write::Remove, Cause::Undo);
    assert!(matches!(store.apply(remove).await.unwrap(), Outcome::Applied(_)));
    assert!(load::load(&committer).await.unwrap());
    assert!(!load::load(&committer).await.unwrap());
}

/// A write of this server that was committed so late that its lease would end before its lock gets another lease.
/// Nothing else about the lock changes, and nothing is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_write_is_put_under_a_lease_that_lasts() {
    let Some(etcd) = Etcd::start() else { return };
    let store = EtcdStore::open(&config(&etcd)).await.unwrap();
    let mut feed = store.changes();
    let Committer {
        keys, cluster, me, ..
    } = &*store.committer;
    let resource = Resource::new("late").unwrap();
    let key = keys.lock(&resource);
    let until = Instant::now() + PATIENCE;
    let short = cluster.grant_lease(5, until).await.unwrap();
    // As if it had been sent with a lease that just lasts, and been committed when that is almost over.
    let pen = Pen {
        by: me.number,
        now: wall_now(),
        clock: me.started.elapsed(),
        base: 0,
        spare: Duration::ZERO,
    };
    let record = Record::grant(&grant(20), pen);
    let put = TxnOp::put(
        key.clone(),
        record.encode(),
        Some(PutOptions::new().with_lease(short.id)),
    );
    cluster
        .transact(Txn::new().and_then([put]), Effort::Once(until), until)
        .await
        .unwrap();
    let first = store.find(&resource).await.unwrap().unwrap();
    let kept = loop {
        assert!(Instant::now() < until, "it stays under its short lease");
        let reading = cluster.read(std::slice::from_ref(&key), until).await.unwrap();
        let version = Version::read(&resource, reading.values[0].as_ref().unwrap()).unwrap();
        if version.act == Act::Kept {
            break version;
        }
        sleep(Duration::from_millis(10)).await;
    };
    assert_ne!(kept.lease, short.id);
    assert_eq!(kept.lock, first.lock);
    let lease_left = cluster.lease_left(kept.lease, until).await.unwrap().unwrap();
    assert!(lease_left > Duration::from_secs(29), "{lease_left:?}");
    let later = store.find(&resource).await.unwrap().unwrap();
    assert_eq!((later.lock, later.mark), (first.lock.clone(), first.mark));
    assert!(later.left <= first.left, "its life did not begin anew");
    // The short lease ends without it, and it was told of once.
    while cluster.lease_left(short.id, until).await.unwrap().is_some() {
        sleep(Duration::from_millis(50)).await;
    }
    assert!(store.find(&resource).await.unwrap().is_some());
    store.apply(acquire("next")).await.unwrap();
    let mut told = Vec::new();
    while told.len() < 2 {
        match timeout(PATIENCE, feed.next()).await.unwrap().unwrap() {
            FeedItem::Events(events) => told.extend(
                events
                    .iter()
                    .map(|event| (event.kind, event.resource.to_string())),
            ),
            FeedItem::Gap => panic!("a gap"),
        }
    }
    let acquired = |name: &str| (EventKind::Acquired, name.to_owned());
    assert_eq!(told, [acquired("late"), acquired("next")]);
}

//! Members that die, hang, are cut off, or all go at once: answers come in bounded time, are true, and the store
//! recovers by itself.

use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::EventKind;
use ferrolho_store::{FeedItem, Store, StoreError};
use ferrolho_testkit::{Etcd, Flow, Proxy};
use tokio::time::{Instant, sleep};

use crate::kit::{
    PATIENCE, acquire, attempt, config, events_until, find, look, must, must_remove, next, open, open_url,
    release, renew, until_done, until_it_answers,
};

/// The next event on this resource of this kind, whatever else is told, gaps too.
async fn told(feed: &mut ferrolho_store::Feed, kind: EventKind, name: &str) {
    loop {
        if let FeedItem::Events(events) = next(feed).await
            && events
                .iter()
                .any(|event| event.kind == kind && event.resource.as_str() == name)
        {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_is_killed_while_locks_are_held_and_waited_for() {
    let Some(mut etcd) = Etcd::start_cluster() else {
        return;
    };
    let (here, there) = (open(&etcd).await, open(&etcd).await);
    let mut feed = there.changes();
    let long = must(&here, acquire("long", "a", 60)).await;
    let asked = Instant::now();
    must(&here, acquire("short", "a", 4)).await;
    let leader = etcd.leader();
    etcd.kill(leader);
    // Held locks stay held, through the election too: an answer says so or is no answer.
    while asked.elapsed() < Duration::from_secs(3) {
        if let Ok(found) = look(&there, "short").await {
            assert!(found.is_some() || asked.elapsed() >= Duration::from_secs(4));
        }
        sleep(Duration::from_millis(50)).await;
    }
    // What waits for the end of a lock hears of it.
    told(&mut feed, EventKind::Expired, "short").await;
    assert!(asked.elapsed() >= Duration::from_secs(4));
    until_it_answers(&there).await;
    assert_eq!(find(&there, "long").await.unwrap().lock, long.lock);
    let renewed = must(&there, renew(&long, 60)).await;
    assert_eq!(renewed.lock.fencing_token, long.lock.fencing_token);
    must_remove(&there, release(&renewed)).await;
    told(&mut feed, EventKind::Released, "long").await;
    let next = until_done(&here, &acquire("short", "b", 30)).await;
    assert_eq!(find(&there, "short").await.unwrap().lock, next.lock);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_hangs_is_left() {
    let Some(etcd) = Etcd::start_cluster() else { return };
    let (here, there) = (open(&etcd).await, open(&etcd).await);
    for member in 0..etcd.count() {
        let live = until_done(&here, &acquire("r", "a", 60)).await;
        let mut feed = there.changes();
        etcd.pause(member);
        until_it_answers(&here).await;
        until_it_answers(&there).await;
        // The watch may have been on this member, and has to move on by itself.
        let renewed = loop {
            if let Ok(Ok(renewed)) = attempt(&here, renew(&live, 60)).await {
                break renewed.unwrap();
            }
        };
        told(&mut feed, EventKind::Renewed, "r").await;
        let removed = attempt(&there, release(&renewed)).await;
        assert!(
            matches!(removed, Ok(Ok(None)) | Err(StoreError::Unknown(_))),
            "{removed:?}"
        );
        told(&mut feed, EventKind::Released, "r").await;
        etcd.resume(member);
        // It has to catch up before it can be asked again.
        etcd.leader();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_quorum_nothing_is_said_and_with_it_all_is_well() {
    let Some(mut etcd) = Etcd::start_cluster() else {
        return;
    };
    let (here, there) = (open(&etcd).await, open(&etcd).await);
    let live = must(&here, acquire("r", "a", 600)).await;
    etcd.kill(0);
    etcd.kill(1);
    for store in [&here, &there] {
        let found = look(store, "r").await;
        assert!(matches!(found, Err(StoreError::Unavailable(_))), "{found:?}");
        let nothing = look(store, "nothing").await;
        assert!(matches!(nothing, Err(StoreError::Unavailable(_))), "{nothing:?}");
        let acquired = attempt(store, acquire("other", "a", 60)).await;
        assert!(acquired.is_err(), "{acquired:?}");
        let refused = attempt(store, acquire("r", "b", 60)).await;
        assert!(refused.is_err(), "{refused:?}");
        assert!(store.check().await.is_err());
    }
    etcd.boot(0);
    etcd.boot(1);
    for store in [&here, &there] {
        until_it_answers(store).await;
        assert_eq!(find(store, "r").await.unwrap().lock, live.lock);
        until_done(store, &acquire("again", "a", 60)).await;
        let again = find(store, "again").await.unwrap();
        must_remove(store, release(&again)).await;
        store.check().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_members_are_restarted() {
    let Some(mut etcd) = Etcd::start_cluster() else {
        return;
    };
    let (here, there) = (open(&etcd).await, open(&etcd).await);
    let mut feed = there.changes();
    let asked = Instant::now();
    let long = must(&here, acquire("long", "a", 60)).await;
    must(&here, acquire("short", "a", 3)).await;
    for round in 0..2 {
        for member in 0..etcd.count() {
            etcd.kill(member);
        }
        for member in 0..etcd.count() {
            etcd.boot(member);
        }
        etcd.wait_until_up();
        until_it_answers(&there).await;
        assert_eq!(
            find(&there, "long").await.unwrap().lock,
            long.lock,
            "round {round}"
        );
    }
    // The leases have their whole time again; the locks have not.
    told(&mut feed, EventKind::Expired, "short").await;
    assert!(asked.elapsed() >= Duration::from_secs(3));
    assert_eq!(find(&here, "short").await, None);
    let next = until_done(&there, &acquire("short", "b", 30)).await;
    must_remove(&here, release(&next)).await;
    must_remove(&there, release(&long)).await;
}

/// Restarts refill every lease; they cannot keep a lock alive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarts_do_not_keep_a_dead_lock() {
    let Some(mut etcd) = Etcd::start() else { return };
    let store = open(&etcd).await;
    let asked = Instant::now();
    let life = Duration::from_secs(6);
    let first = must(&store, acquire("r", "a", 6)).await;
    loop {
        etcd.kill(0);
        etcd.boot(0);
        etcd.wait_until_up();
        until_it_answers(&store).await;
        match find(&store, "r").await {
            // Never more than it was given, whatever the lease says.
            Some(found) => {
                assert!(found.left <= life.saturating_sub(asked.elapsed()) + Duration::from_secs(1));
            }
            None => break,
        }
        assert!(
            asked.elapsed() < life + Duration::from_secs(3),
            "it is still there"
        );
    }
    assert!(asked.elapsed() >= life);
    let next = until_done(&store, &acquire("r", "b", 30)).await;
    assert!(next.lock.fencing_token > first.lock.fencing_token);
}

/// A server that is cut off from the cluster, without a word: it says that it does not know, and comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_cut_off() {
    let Some(etcd) = Etcd::start_cluster() else { return };
    let mut proxies = Vec::new();
    for member in 0..etcd.count() {
        proxies.push(Proxy::start(etcd.address(member).parse().unwrap()).await);
    }
    let through = proxies
        .iter()
        .map(|proxy| proxy.address().to_string())
        .collect::<Vec<_>>()
        .join(",");
    let cut = open_url(&format!("etcd://{through}")).await;
    let other = open(&etcd).await;
    let mut feed = cut.changes();
    let held = must(&cut, acquire("held", "a", 60)).await;
    events_until(&mut feed, EventKind::Acquired, "held").await;

    for proxy in &proxies {
        proxy.set(Flow::Lose);
    }
    let looked = look(&cut, "held").await;
    assert!(matches!(looked, Err(StoreError::Unavailable(_))), "{looked:?}");
    let acquired = attempt(&cut, acquire("new", "a", 60)).await;
    assert!(acquired.is_err(), "{acquired:?}");
    must_remove(&other, release(&held)).await;
    must(&other, acquire("held", "b", 60)).await;

    for proxy in &proxies {
        proxy.heal();
    }
    until_it_answers(&cut).await;
    assert_eq!(find(&cut, "held").await.unwrap().lock.owner.as_str(), "b");
    // It missed nothing.
    let events = events_until(&mut feed, EventKind::Acquired, "held").await;
    assert!(
        events.iter().any(|event| event.kind == EventKind::Released),
        "{events:?}"
    );
}

/// The answer to a grant is lost: the outcome is unknown, and the mark tells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_is_unknown_and_its_mark_is_found() {
    let Some(etcd) = Etcd::start() else { return };
    let proxy = Proxy::start(etcd.address(0).parse().unwrap()).await;
    let store = open_url(&format!("etcd://{}", proxy.address())).await;
    must(&store, acquire("first", "a", 60)).await;
    proxy.set_to_client(Flow::Lose);
    let change = acquire("r", "a", 60);
    let answer = attempt(&store, change.clone()).await;
    assert!(matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}");
    proxy.heal();
    until_it_answers(&store).await;
    let live = until_done(&store, &change).await;
    assert_eq!(
        Some(live.lock),
        find(&open(&etcd).await, "r").await.map(|live| live.lock)
    );
}

/// A connection that the network has lost without a word costs one answer, and not all until a probe finds it dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_has_died_in_silence_costs_one_answer() {
    let Some(etcd) = Etcd::start() else { return };
    let proxy = Proxy::start(etcd.address(0).parse().unwrap()).await;
    let store = open_url(&format!("etcd://{}", proxy.address())).await;
    for round in 0..3 {
        let live = must(&store, acquire("held", "a", 60)).await;
        proxy.set(Flow::Lose);
        // What is sent now never comes back; what is sent later could go over a new connection.
        let lost = attempt(&store, renew(&live, 60)).await;
        assert!(matches!(lost, Err(StoreError::Unknown(_))), "{lost:?}");
        proxy.heal();
        let answer = attempt(&store, renew(&live, 60)).await;
        assert!(matches!(answer, Ok(Ok(Some(_)))), "round {round}: {answer:?}");
        must_remove(&store, release(&live)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_nobody_there_a_store_does_not_open() {
    let started = Instant::now();
    let opened = ferrolho_store::etcd::EtcdStore::open(&config("etcd://127.0.0.1:1,127.0.0.1:2")).await;
    let error = opened.err().unwrap().to_string();
    assert!(error.contains("cannot be used"), "{error}");
    assert!(started.elapsed() < PATIENCE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_under_way_is_finished_before_the_store_is_closed() {
    let Some(etcd) = Etcd::start() else { return };
    let store = open(&etcd).await;
    let mut attempts = tokio::task::JoinSet::new();
    for number in 0..50 {
        let store: Arc<dyn Store> = Arc::clone(&store);
        attempts.spawn(async move { attempt(&store, acquire(&format!("r{number}"), "a", 60)).await });
    }
    tokio::task::yield_now().await;
    store.close().await;
    let after = open(&etcd).await;
    let mut granted = 0;
    for answer in attempts.join_all().await {
        match answer {
            Ok(made) => {
                let live = made.unwrap().unwrap();
                assert_eq!(
                    find(&after, live.lock.resource.as_str()).await.unwrap().lock,
                    live.lock
                );
                granted += 1;
            }
            Err(error) => assert!(matches!(error, StoreError::Unavailable(_)), "{error}"),
        }
    }
    let query = ferrolho_store::ListQuery {
        limit: 100,
        ..Default::default()
    };
    assert_eq!(after.list(&query).await.unwrap().locks.len(), granted);
}

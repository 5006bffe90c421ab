//! etcd out of space.

use std::time::Duration;

use ferrolho_core::EventKind;
use ferrolho_store::StoreError;
use ferrolho_testkit::{Etcd, EtcdOptions};
use tokio::time::{Instant, sleep};

use crate::kit::{
    PATIENCE, acquire, attempt, events_until, find, must, must_remove, open, release, renew, until_done,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_etcd_refuses_releases_and_heals() {
    let options = EtcdOptions {
        quota_bytes: Some(4 << 20),
        ..EtcdOptions::default()
    };
    let Some(etcd) = Etcd::start_with(1, &options) else {
        return;
    };
    let (here, there) = (open(&etcd).await, open(&etcd).await);
    let mut feed = there.changes();
    let long = must(&here, acquire("long", "a", 600)).await;
    let released = must(&here, acquire("released", "a", 600)).await;
    let asked = Instant::now();
    must(&here, acquire("short", "a", 3)).await;
    let ballast = "x".repeat(100 << 10);
    while etcd.try_control(&["put", "ballast", &ballast]).is_ok() {
        assert!(asked.elapsed() < PATIENCE, "etcd does not fill");
    }

    // What needs space is refused, and it is known that nothing was done; the reason is named.
    for store in [&here, &there] {
        let refused = attempt(store, acquire("new", "a", 600)).await;
        let Err(StoreError::Unavailable(reason)) = &refused else {
            panic!("{refused:?}")
        };
        assert!(reason.to_string().contains("space"), "{reason}");
        assert_eq!(find(store, "new").await, None);
        let refused = attempt(store, renew(&long, 60)).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
        assert_eq!(find(store, "long").await.unwrap().lock, long.lock);
        let health = store.check().await;
        assert!(health.unwrap_err().to_string().contains("NOSPACE"));
    }
    // What frees space works, and is told.
    must_remove(&there, release(&released)).await;
    assert_eq!(find(&here, "released").await, None);
    events_until(&mut feed, EventKind::Released, "released").await;
    let expired = events_until(&mut feed, EventKind::Expired, "short").await;
    assert!(asked.elapsed() >= Duration::from_secs(3), "{expired:?}");
    assert_eq!(find(&here, "short").await, None);

    // An operator makes room.
    let answer = etcd.control(&["get", "ballast", "-w", "json"]);
    let revision: String = answer
        .split("\"revision\":")
        .nth(1)
        .unwrap()
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    etcd.control(&["compact", &revision]);
    etcd.control(&["defrag"]);
    etcd.control(&["alarm", "disarm"]);
    for (store, name) in [(&here, "here"), (&there, "there")] {
        until_done(store, &acquire(name, "a", 600)).await;
        let give_up = Instant::now() + PATIENCE;
        while let Err(error) = store.check().await {
            assert!(Instant::now() < give_up, "{error}");
            sleep(Duration::from_millis(20)).await;
        }
    }
    must(&there, renew(&long, 60)).await;
    events_until(&mut feed, EventKind::Renewed, "long").await;
}

/// The quota is reached by the store's own transactions, many at a time: whatever is answered is true.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_answer_lies_while_it_fills() {
    let options = EtcdOptions {
        quota_bytes: Some(4 << 20),
        ..EtcdOptions::default()
    };
    let Some(etcd) = Etcd::start_with(1, &options) else {
        return;
    };
    let store = open(&etcd).await;
    let metadata = ferrolho_core::Metadata::parse(&format!("{{\"k\":\"{}\"}}", "x".repeat(4000))).unwrap();
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..32 {
        let (store, metadata) = (std::sync::Arc::clone(&store), metadata.clone());
        callers.spawn(async move {
            let mut answers = Vec::new();
            for number in 0.. {
                let name = format!("r {caller} {number}");
                let mut change = acquire(&name, "a", 600);
                if let ferrolho_core::Write::Grant(grant) = &mut change.write {
                    grant.metadata = Some(metadata.clone());
                }
                let answer = attempt(&store, change).await;
                let is_full = answer.is_err();
                answers.push((name, answer));
                if is_full {
                    break;
                }
            }
            answers
        });
    }
    let answers = callers.join_all().await.concat();
    assert!(
        answers.iter().any(|(_, answer)| answer.is_err()),
        "it did not fill"
    );
    for (name, answer) in answers {
        let found = find(&store, &name).await.map(|live| live.lock);
        match answer {
            Ok(made) => assert_eq!(made.unwrap().map(|live| live.lock), found),
            Err(StoreError::Unavailable(_)) => assert_eq!(found, None, "it was done after all"),
            Err(StoreError::Unknown(_)) => {}
            Err(StoreError::TooLate) => panic!("nobody was late"),
        }
    }
}

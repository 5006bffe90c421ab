//! etcd's history: compacted while nobody looks, compacted by the store itself, and gone back in.

use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::{EventKind, FencingToken};
use ferrolho_store::etcd::EtcdStore;
use ferrolho_store::{FeedItem, Lift, Store, StoreError, StoreUrl, lift_tokens};
use ferrolho_testkit::{Etcd, Proxy};
use tokio::time::{Instant, sleep};

use crate::kit::{
    PATIENCE, acquire, attempt, config, events_until, find, look, must, must_remove, next, open, open_url,
    release, until_it_answers,
};

fn revision(etcd: &Etcd) -> String {
    let answer = etcd.control(&["get", "up", "-w", "json"]);
    let digits = answer.split("\"revision\":").nth(1).unwrap();
    digits.chars().take_while(char::is_ascii_digit).collect()
}

/// While the watch is cut, its place is compacted away: a gap is told, and what happened meanwhile is known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_survives_compaction() {
    let Some(mut etcd) = Etcd::start() else { return };
    let proxy = Proxy::start(etcd.address(0).parse().unwrap()).await;
    let cut = open_url(&format!("etcd://{}", proxy.address())).await;
    let other = open(&etcd).await;
    let mut feed = cut.changes();
    let held = must(&cut, acquire("held", "a", 600)).await;
    let kept = must(&cut, acquire("kept", "a", 600)).await;
    events_until(&mut feed, EventKind::Acquired, "kept").await;
    proxy.refuse();
    must_remove(&other, release(&held)).await;
    must(&other, acquire("held", "b", 600)).await;
    etcd.control(&["compact", &revision(&etcd)]);
    etcd.kill(0);
    etcd.boot(0);
    etcd.wait_until_up();
    proxy.heal();
    let item = next(&mut feed).await;
    assert!(matches!(item, FeedItem::Gap), "{item:?}");
    assert_eq!(find(&cut, "held").await.unwrap().lock.owner.as_str(), "b");
    assert_eq!(find(&cut, "kept").await.unwrap().lock, kept.lock);
    // It goes on from there.
    must_remove(&other, release(&kept)).await;
    events_until(&mut feed, EventKind::Released, "kept").await;
}

/// The store's own churn does not stay for ever, unless that is left to others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_history_is_compacted() {
    let Some(etcd) = Etcd::start() else { return };
    let mut config = config(&etcd.url());
    config.history = None;
    let leaves_it: Arc<dyn Store> = Arc::new(EtcdStore::open(&config).await.unwrap());
    let before = revision(&etcd);
    must(&leaves_it, acquire("r", "a", 600)).await;
    let get = ["get", "ferrolho/note", "--rev", &before];

    config.history = Some(Duration::from_secs(2));
    let opened = Instant::now();
    let compacts = EtcdStore::open(&config).await.unwrap();
    while etcd.try_control(&get).is_ok() {
        must(&leaves_it, acquire(&format!("{:?}", opened.elapsed()), "a", 600)).await;
        assert!(opened.elapsed() < PATIENCE, "nothing was compacted");
        sleep(Duration::from_millis(50)).await;
    }
    assert!(
        opened.elapsed() >= Duration::from_secs(2),
        "the history was not kept"
    );
    assert!(etcd.try_control(&get).unwrap_err().contains("compacted"));
    compacts.close().await;
}

/// etcd is restored from a back-up under a running server: that server says nothing any more; a new one, after
/// the documented step, gives out larger tokens than ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_back_up_is_noticed_and_tokens_can_be_raised() {
    let Some(mut etcd) = Etcd::start() else { return };
    let store = open(&etcd).await;
    must(&store, acquire("saved", "a", 600)).await;
    etcd.kill(0);
    etcd.save(0);
    etcd.boot(0);
    etcd.wait_until_up();
    until_it_answers(&store).await;
    let mut highest = 0;
    for _ in 0..20 {
        let live = must(&store, acquire("r", "a", 600)).await;
        highest = live.lock.fencing_token.get();
        must_remove(&store, release(&live)).await;
    }
    etcd.kill(0);
    etcd.restore(0);
    etcd.boot(0);
    etcd.wait_until_up();
    let give_up = Instant::now() + PATIENCE;
    loop {
        match look(&store, "r").await {
            Err(error) if error.to_string().contains("restored") => break,
            answer => assert!(answer.is_err() && Instant::now() < give_up, "{answer:?}"),
        }
    }
    let refused = attempt(&store, acquire("r", "a", 600)).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");

    let above = FencingToken::new(highest.into()).unwrap();
    let url: StoreUrl = etcd.url().parse().unwrap();
    let lifted = lift_tokens(&url, Lift::Above(above)).await.unwrap();
    assert_eq!(lifted, highest);
    let store = open(&etcd).await;
    let live = must(&store, acquire("r", "a", 600)).await;
    assert!(live.lock.fencing_token > above);
    must_remove(&store, release(&live)).await;

    // A server that runs takes a new base up by itself, and what lives keeps its token.
    let saved = find(&store, "saved").await.unwrap();
    let above = FencingToken::new((1 << 40) + 7).unwrap();
    lift_tokens(&url, Lift::Above(above)).await.unwrap();
    assert_eq!(
        lift_tokens(&url, Lift::Above(live.lock.fencing_token))
            .await
            .unwrap(),
        above.get()
    );
    let live = must(&store, acquire("r", "a", 600)).await;
    assert!(live.lock.fencing_token > above);
    let renewed = must(&store, crate::kit::renew(&live, 60)).await;
    assert_eq!(renewed.lock.fencing_token, live.lock.fencing_token);
    assert_eq!(find(&open(&etcd).await, "r").await.unwrap().lock, renewed.lock);
    assert_eq!(find(&store, "saved").await.unwrap().lock, saved.lock);

    // By a number, from where it is now.
    must_remove(&store, release(&renewed)).await;
    let further = lift_tokens(&url, Lift::By(1000)).await.unwrap();
    assert_eq!(further, above.get() + 1000);
    let live = must(&store, acquire("r", "a", 600)).await;
    assert!(live.lock.fencing_token.get() > renewed.lock.fencing_token.get() + 1000);
}

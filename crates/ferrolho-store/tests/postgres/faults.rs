//! Servers that restart, sessions that are ended, networks that go silent: answers come in bounded
//! time, are true, and the store recovers by itself. (Cases: PG.)

use std::time::Duration;

use ferrolho_core::EventKind;
use ferrolho_store::StoreError;
use ferrolho_testkit::{Flow, Proxy};
use tokio::time::{Instant, sleep};

use crate::kit::{
    PATIENCE, acquire, attempt, find, look, must, must_remove, open, release, renew, server, told,
    told_or_missed, until_done, until_it_answers,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_loses_nothing_and_is_got_over() {
    let Some(mut server) = server() else { return };
    let store = open(&server.url("locks")).await;
    let mut held = must(&store, acquire("held", "a", 600)).await;
    for crash in [false, true] {
        let mut feed = store.changes();
        if crash {
            server.crash();
        } else {
            server.stop();
        }
        assert!(matches!(
            look(&store, "held").await,
            Err(StoreError::Unavailable(_))
        ));
        assert!(store.check().await.is_err());
        assert!(attempt(&store, acquire("free", "a", 600)).await.is_err());
        server.boot();
        until_done(&store, &acquire("free", "a", 600)).await;
        assert_eq!(find(&store, "held").await.unwrap().lock, held.lock);
        told_or_missed(&mut feed, EventKind::Acquired, "free").await;
        let token = held.lock.fencing_token;
        held = must(&store, renew(&held, 600)).await;
        assert_eq!(held.lock.fencing_token, token);
        told(&mut feed, EventKind::Renewed, "held").await;
        let free = find(&store, "free").await.unwrap();
        must_remove(&store, release(&free)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_sessions_are_made_again_and_nothing_is_claimed() {
    let Some(server) = server() else { return };
    let (here, there) = (open(&server.url("locks")).await, open(&server.url("locks")).await);
    let mut feed = here.changes();
    let mut last = 0;
    for round in 0..10 {
        assert!(server.terminate_sessions("locks", "ferrolho") > 0);
        let name = format!("r{round}");
        let live = until_done(&here, &acquire(&name, "a", 600)).await;
        assert_eq!(find(&there, &name).await.unwrap().lock, live.lock);
        assert!(live.lock.fencing_token.get() > last);
        last = live.lock.fencing_token.get();
    }
    until_done(&there, &acquire("other", "b", 600)).await;
    told_or_missed(&mut feed, EventKind::Acquired, "other").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_network_is_noticed_in_seconds_and_healed() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start_local(server.port()).await;
    let store = open(&server.url_at(proxy.port(), "locks")).await;
    let live = must(&store, acquire("r", "a", 600)).await;
    for flow in [Flow::Lose, Flow::Hold] {
        proxy.set(flow);
        let begun = Instant::now();
        assert!(matches!(look(&store, "r").await, Err(StoreError::Unavailable(_))));
        assert!(attempt(&store, renew(&live, 600)).await.is_err());
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        proxy.heal();
        until_done(&store, &renew(&live, 600)).await;
    }
    // An answer that is lost is an unknown outcome, and never a refusal. None of the connections of a new handle is one
    // that the network has killed before, on which the request itself would be lost.
    let store = open(&server.url_at(proxy.port(), "locks")).await;
    proxy.set_to_client(Flow::Lose);
    let lost = attempt(&store, acquire("lost", "a", 600)).await;
    assert!(matches!(lost, Err(StoreError::Unknown(_))), "{lost:?}");
    proxy.heal();
    until_done(&store, &renew(&live, 600)).await;
    until_it_answers(&store).await;
    assert!(find(&store, "lost").await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_may_not_be_written_refuses_and_heals() {
    let Some(server) = server() else { return };
    let store = open(&server.url("locks")).await;
    let live = must(&store, acquire("r", "a", 600)).await;
    server.sql(
        "postgres",
        "ALTER DATABASE locks SET default_transaction_read_only = on",
    );
    server.terminate_sessions("locks", "ferrolho");
    let deadline = Instant::now() + PATIENCE;
    while look(&store, "r").await.is_ok() {
        assert!(Instant::now() < deadline);
        sleep(Duration::from_millis(20)).await;
    }
    assert!(attempt(&store, renew(&live, 600)).await.is_err());
    assert!(store.check().await.is_err());
    server.sql(
        "postgres",
        "ALTER DATABASE locks SET default_transaction_read_only = off",
    );
    until_done(&store, &renew(&live, 600)).await;
}

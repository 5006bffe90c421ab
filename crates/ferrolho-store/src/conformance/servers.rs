//! Several servers on one store.

use ferrolho_core::EventKind;

use super::Servers;
use super::histories::behave_as_one_map;
use super::kit::{
    acquire, apply, assert_same, events, events_until, find, must, must_remove, release, renew, until_over,
};
use super::races::one_winner;

/// What one server answered, the other sees at once, refuses on, and may end; tokens rise across both.
pub async fn an_answer_of_one_is_seen_by_the_other(engine: &mut impl Servers) {
    let other = engine.another().await;
    let stores = [engine.store(), other];
    let mut last = 0;
    for round in 0..20 {
        let (here, there) = (&stores[round % 2], &stores[(round + 1) % 2]);
        let live = must(here, acquire("r", "a", 30)).await;
        assert!(live.lock.fencing_token.get() > last);
        last = live.lock.fencing_token.get();
        assert_same(find(there, "r").await.as_ref(), &live);
        let current = apply(there, acquire("r", "b", 30)).await.unwrap_err();
        assert_same(current.as_ref(), &live);
        let renewed = must(there, renew(&live, 60)).await;
        assert_same(find(here, "r").await.as_ref(), &renewed);
        must_remove(there, release(&live)).await;
        assert_eq!(find(here, "r").await, None);
    }
}

/// The feeds of both servers tell the same events at the same positions, whoever made them; an end is told once.
pub async fn both_see_the_same_history(engine: &mut impl Servers) {
    let other = engine.another().await;
    let stores = [engine.store(), other];
    let mut feeds = stores.each_ref().map(|store| store.changes());
    for round in 0..10 {
        let live = must(&stores[round % 2], acquire(&format!("r{round}"), "a", 30)).await;
        must_remove(&stores[(round + 1) % 2], release(&live)).await;
    }
    must(&stores[0], acquire("short", "a", 1)).await;
    until_over(&stores[1], "short").await;
    must(&stores[1], acquire("last", "a", 30)).await;
    let mut histories = Vec::new();
    for feed in &mut feeds {
        let mut seen = events_until(feed, EventKind::Acquired, "last").await;
        if !seen.iter().any(|event| event.kind == EventKind::Expired) {
            seen.extend(events(feed, 1).await);
        }
        let ends = seen.iter().filter(|event| event.kind == EventKind::Expired);
        assert_eq!(ends.count(), 1, "{seen:?}");
        histories.push(seen);
    }
    assert_eq!(histories[0], histories[1]);
    assert!(histories[0].is_sorted_by(|a, b| a.position < b.position));
}

/// 64 callers on two servers race for fresh and for expired locks: one wins.
pub async fn one_of_many_on_two_servers_wins(engine: &mut impl Servers) {
    let other = engine.another().await;
    let stores = [engine.store(), other];
    for round in 0..10 {
        one_winner(&stores, &format!("fresh {round}"), 64).await;
    }
    for round in 0..3 {
        must(&stores[round % 2], acquire(&format!("expired {round}"), "a", 1)).await;
    }
    for round in 0..3 {
        let name = format!("expired {round}");
        until_over(&stores[round % 2], &name).await;
        one_winner(&stores, &name, 64).await;
    }
}

/// A lock lives on when the server that granted it has gone, and ends by itself all the same.
pub async fn a_lock_outlives_the_server_that_granted_it(engine: &mut impl Servers) {
    let other = engine.another().await;
    let store = engine.store();
    let mut feed = other.changes();
    let long = must(&store, acquire("long", "a", 60)).await;
    must(&store, acquire("short", "a", 1)).await;
    store.close().await;
    assert_same(find(&other, "long").await.as_ref(), &long);
    events_until(&mut feed, EventKind::Expired, "short").await;
    assert_eq!(find(&other, "short").await, None);
    must_remove(&other, release(&long)).await;
}

/// Whatever is tried on which of three servers, it is as if there were one.
pub async fn three_behave_as_one_map(engine: &mut impl Servers) {
    behave_as_one_map(&[engine.store(), engine.another().await, engine.another().await]).await;
}

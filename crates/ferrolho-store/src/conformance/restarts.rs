//! Closing and opening again: what was answered stays true.

use ferrolho_core::Change;

use super::Restarts;
use super::kit::{acquire, assert_same, find, held_by, must, must_remove, release, until_over};
use crate::ListQuery;

/// What was granted is there after a restart, as it was; what was released is not.
pub async fn live_locks_survive_and_released_ones_do_not(engine: &mut impl Restarts) {
    let store = engine.store();
    let mut kept = Vec::new();
    for number in 0..20 {
        let live = must(&store, acquire(&format!("r{number}"), "a", 60)).await;
        if number % 2 == 0 {
            kept.push(live);
        } else {
            must_remove(&store, release(&live)).await;
        }
    }
    let store = engine.reopen().await;
    for live in &kept {
        assert_same(find(&store, live.lock.resource.as_str()).await.as_ref(), live);
    }
    let query = ListQuery {
        limit: 100,
        ..ListQuery::default()
    };
    assert_eq!(store.list(&query).await.unwrap().locks.len(), kept.len());
}

/// Tokens go on rising, also when the lock with the highest was released before, and over several restarts.
pub async fn tokens_rise_over_a_restart(engine: &mut impl Restarts) {
    let mut store = engine.store();
    let mut last = 0;
    for _ in 0..3 {
        for _ in 0..3 {
            let live = must(&store, acquire("r", "a", 60)).await;
            assert!(live.lock.fencing_token.get() > last);
            let again = Change {
                expected: held_by(&live),
                ..acquire("r", "a", 60)
            };
            let again = must(&store, again).await;
            assert!(again.lock.fencing_token > live.lock.fencing_token);
            last = again.lock.fencing_token.get();
            must_remove(&store, release(&again)).await;
        }
        store = engine.reopen().await;
    }
}

/// A restart neither prolongs a lock nor drops one: what ends while nobody looks is over.
pub async fn a_lock_that_ends_while_closed_is_over(engine: &mut impl Restarts) {
    let store = engine.store();
    let short = must(&store, acquire("short", "a", 1)).await;
    let long = must(&store, acquire("long", "a", 60)).await;
    let store = engine.reopen().await;
    until_over(&store, "short").await;
    assert_same(find(&store, "long").await.as_ref(), &long);
    let next = must(&store, acquire("short", "b", 60)).await;
    assert!(next.lock.fencing_token > short.lock.fencing_token);
}

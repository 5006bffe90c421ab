//! Working and closed.

use super::Engine;
use super::kit::{acquire, attempt, must, resource};
use crate::{ListQuery, StoreError};

/// After its close a store refuses everything as not available, and says nothing about locks.
pub async fn a_closed_store_refuses(engine: &mut impl Engine) {
    let store = engine.store();
    must(&store, acquire("r", "a", 60)).await;
    store.close().await;
    let found = store.find(&resource("r")).await;
    assert!(matches!(found, Err(StoreError::Unavailable(_))), "{found:?}");
    let applied = store.apply(attempt(vec![acquire("s", "a", 60)])).await;
    assert!(matches!(applied, Err(StoreError::Unavailable(_))), "{applied:?}");
    let listed = store
        .list(&ListQuery {
            limit: 1,
            ..ListQuery::default()
        })
        .await;
    assert!(matches!(listed, Err(StoreError::Unavailable(_))), "{listed:?}");
    assert!(store.check().await.is_err());
    store.close().await;
}

/// A store that works says so, and what kind it is.
pub async fn a_working_store_says_so(engine: &mut impl Engine) {
    let store = engine.store();
    must(&store, acquire("r", "a", 60)).await;
    let health = store.check().await.unwrap();
    assert!(health.live_locks.is_none_or(|count| count == 1), "{health:?}");
    assert!(["memory", "sqlite", "postgres", "etcd"].contains(&store.traits().name));
}

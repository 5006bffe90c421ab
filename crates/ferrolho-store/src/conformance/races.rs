//! Many at once: at most one holds a lock, whoever asks and whenever.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferrolho_core::{FencingToken, Live};
use tokio::task::JoinSet;

use super::Engine;
use super::kit::{acquire, apply, assert_same, attempt, find, must, must_remove, release, until_over};
use crate::{Outcome, Store};

/// So many callers, spread over these handles, try to get this lock at once. The winner's lock.
pub(super) async fn one_winner(stores: &[Arc<dyn Store>], name: &str, callers: usize) -> Live {
    let mut race = JoinSet::new();
    for number in 0..callers {
        let store = Arc::clone(&stores[number % stores.len()]);
        let change = acquire(name, &format!("caller {number}"), 30);
        race.spawn(async move { apply(&store, change).await });
    }
    let answers = race.join_all().await;
    let mut winners: Vec<Live> = Vec::new();
    for answer in &answers {
        match answer {
            Ok(won) => winners.extend(won.clone()),
            Err(current) => assert!(current.is_some(), "refused, though nobody held it"),
        }
    }
    assert_eq!(winners.len(), 1, "{winners:?}");
    for current in answers.into_iter().filter_map(Result::err).flatten() {
        assert_eq!(current.lock, winners[0].lock, "the losers see who won");
    }
    winners.remove(0)
}

/// 50 callers ask for one fresh lock: one gets it, the others see who did. 20 times.
pub async fn one_of_many_gets_a_fresh_lock(engine: &mut impl Engine) {
    let stores = [engine.store()];
    for round in 0..20 {
        let name = format!("fresh {round}");
        let winner = one_winner(&stores, &name, 50).await;
        assert_same(find(&stores[0], &name).await.as_ref(), &winner);
    }
}

/// 64 callers ask for one lock that has expired and was never released: one gets it. 8 times.
pub async fn one_of_many_gets_an_expired_lock(engine: &mut impl Engine) {
    let stores = [engine.store()];
    let mut before = BTreeMap::new();
    for round in 0..8 {
        let name = format!("expired {round}");
        let live = must(&stores[0], acquire(&name, "first", 1)).await;
        before.insert(name, live.lock.fencing_token);
    }
    for (name, token) in before {
        until_over(&stores[0], &name).await;
        let winner = one_winner(&stores, &name, 64).await;
        assert!(winner.lock.fencing_token > token);
        assert_same(find(&stores[0], &name).await.as_ref(), &winner);
    }
}

/// Sets that cross each other: no lock is in two of those that were carried out, and none is left behind.
pub async fn crossing_sets_never_share_a_lock(engine: &mut impl Engine) {
    let store = engine.store();
    for _ in 0..10 {
        let mut race = JoinSet::new();
        for number in 0..12 {
            let store = Arc::clone(&store);
            let set = [number % 4, (number + 1 + number / 4) % 4]
                .map(|name| acquire(&format!("r{name}"), &format!("caller {number}"), 30));
            race.spawn(async move { store.apply(attempt(set.to_vec())).await.unwrap() });
        }
        let mut held: BTreeMap<String, Live> = BTreeMap::new();
        for outcome in race.join_all().await {
            if let Outcome::Applied(made) = outcome {
                assert_eq!(made.iter().flatten().count(), 2);
                for live in made.into_iter().flatten() {
                    let before = held.insert(live.lock.resource.to_string(), live);
                    assert_eq!(before, None, "in two sets");
                }
            }
        }
        assert!(!held.is_empty(), "somebody wins");
        for name in ["r0", "r1", "r2", "r3"] {
            match held.remove(name) {
                Some(live) => must_remove(&store, release(&live)).await,
                None => assert_eq!(find(&store, name).await, None, "half a set is left"),
            }
        }
    }
}

/// Eight callers take and release one lock in turns: every grant has its own token, and each caller's tokens
/// rise.
pub async fn tokens_order_the_grants_of_many(engine: &mut impl Engine) {
    let store = engine.store();
    let mut race = JoinSet::new();
    for number in 0..8 {
        let store = Arc::clone(&store);
        race.spawn(async move {
            let mut tokens: Vec<FencingToken> = Vec::new();
            while tokens.len() < 10 {
                let change = acquire("r", &format!("caller {number}"), 30);
                match apply(&store, change).await {
                    Ok(won) => {
                        let live = won.unwrap();
                        tokens.push(live.lock.fencing_token);
                        must_remove(&store, release(&live)).await;
                    }
                    Err(_) => tokio::task::yield_now().await,
                }
            }
            assert!(tokens.is_sorted(), "{tokens:?}");
            tokens
        });
    }
    let mut tokens = race.join_all().await.concat();
    let grants = tokens.len();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), grants, "a token came twice");
}

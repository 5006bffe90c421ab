//! What an engine's own tests of faults do: ask in bounded time, and wait until an engine has got over what befell it.

use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::{Change, Live, Write};
use tokio::time::{Instant, sleep, timeout};

use super::kit::resource;
use crate::{Attempt, Outcome, Store, StoreError};

/// How long a test waits for what must happen. Only a broken engine makes it wait so long.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// No answer takes longer than this, whatever has failed: three seconds for each of the steps that an act may
/// need, and some for a slow machine.
pub const BOUND: Duration = Duration::from_secs(15);

/// How soon something is tried again.
pub const AGAIN: Duration = Duration::from_millis(20);

async fn in_time<T>(answer: impl Future<Output = T>) -> T {
    timeout(BOUND, answer)
        .await
        .unwrap_or_else(|_| panic!("no answer within {BOUND:?}"))
}

/// Tries a change, which has to be answered in bounded time: `Ok(Ok)` what it made, `Ok(Err)` what was in its
/// way.
pub async fn attempt(
    store: &Arc<dyn Store>,
    change: Change,
) -> Result<Result<Option<Live>, Option<Live>>, StoreError> {
    let attempt = Attempt {
        changes: vec![change],
        not_after: Instant::now() + PATIENCE,
    };
    Ok(match in_time(store.apply(attempt)).await? {
        Outcome::Applied(mut locks) => Ok(locks.remove(0)),
        Outcome::Stale(mut locks) => Err(locks.remove(0)),
    })
}

/// A look, which has to be answered in bounded time.
pub async fn look(store: &Arc<dyn Store>, name: &str) -> Result<Option<Live>, StoreError> {
    in_time(store.find(&resource(name))).await
}

/// Waits until the store answers a look.
pub async fn until_it_answers(store: &Arc<dyn Store>) {
    let give_up = Instant::now() + PATIENCE;
    while let Err(error) = look(store, "anything").await {
        assert!(Instant::now() < give_up, "it does not answer again: {error}");
        sleep(AGAIN).await;
    }
}

/// Tries until the store carries out a change that leaves a lock; a grant of unknown outcome counts when its mark is
/// found.
pub async fn until_done(store: &Arc<dyn Store>, change: &Change) -> Live {
    let mark = match &change.write {
        Write::Grant(grant) => Some(&grant.mark),
        Write::Extend(_) | Write::Remove => None,
    };
    let give_up = Instant::now() + PATIENCE;
    loop {
        match attempt(store, change.clone()).await {
            Ok(Ok(made)) => return made.unwrap(),
            Ok(Err(Some(live))) if Some(&live.mark) == mark => return live,
            answer => assert!(Instant::now() < give_up, "not done: {answer:?}"),
        }
        sleep(AGAIN).await;
    }
}

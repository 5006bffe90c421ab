//! Acquiring: short polls until the lock comes or the time is over.
//!
//! A long wait is made of polls, short enough for any proxy; the server keeps the place in its queue between them.
//! What fails is tried again while there is time: every attempt of one acquire is safe to repeat (`attempt.rs`).

use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::Resource;
use tokio::time::{Instant, timeout_at};

use crate::attempt::{Entry, Step};
use crate::claims::Claim;
use crate::client::Inner;
use crate::guard::Guard;
use crate::request::{Patience, Wanted};
use crate::transport::Failure;
use crate::{Error, api};

/// The longest single poll of a wait.
const LONGEST_POLL: Duration = Duration::from_secs(20);

/// The pause after a poll that was answered before its time, as when another request of this owner was granted.
const POLL_PAUSE: Duration = Duration::from_millis(50);

/// The first pause after a failure; each next one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause after a failure, before up to as much again is added: the place in the queue is kept for 5 s.
const LONGEST_PAUSE: Duration = Duration::from_millis(1500);

/// Acquires all that is wanted: the first guard and the others.
pub(crate) async fn acquire(inner: Arc<Inner>, wanted: Wanted) -> Result<(Guard, Vec<Guard>), Error> {
    let until = match wanted.patience {
        Patience::None => Some(Instant::now()),
        // A wait of more years than an instant can hold is for ever.
        Patience::For(wait) => Instant::now().checked_add(begun_seconds(wait)),
        Patience::Forever => None,
    };
    let claims = enter(&inner, &wanted, until).await?;
    // Each server is asked twice, however short the wait.
    let enough = api::ROUNDS * inner.transport.server_count();
    let mut entry = Entry::new(inner, wanted, claims);
    let mut failures = 0;
    loop {
        let asked_at = Instant::now();
        let poll = next_poll(until, asked_at);
        let pause = match entry.attempt(poll).await? {
            Step::Granted(granted) => return entry.hand_over(granted),
            Step::Held(held) if poll.is_zero() || is_over(until) => return Err(held),
            Step::Held(_) if asked_at.elapsed() < poll => api::about(POLL_PAUSE),
            Step::Held(_) => Duration::ZERO,
            Step::Failed(failure) => {
                failures += 1;
                if failures >= enough && is_over(until) {
                    return Err(Error::Unreachable(failure.what));
                }
                if failures == 1 && !is_over(until) {
                    tracing::warn!("{}; trying again", failure.what);
                }
                pause_after(failures, &failure)
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// The pause after so many failures, of which this is the last.
fn pause_after(failures: usize, last: &Failure) -> Duration {
    // 2^16 times the first pause is far beyond the longest.
    let doubled = FIRST_PAUSE * (1 << (failures.min(16) - 1));
    let asked = last.retry_after.unwrap_or_default();
    api::about(doubled.max(asked).min(LONGEST_PAUSE))
}

/// How long the next attempt waits: what is left, rounded, and no more than one poll.
fn next_poll(until: Option<Instant>, now: Instant) -> Duration {
    let left = until.map_or(LONGEST_POLL, |until| until.saturating_duration_since(now));
    whole_seconds(left.min(LONGEST_POLL))
}

/// Whether so little is left of the wait that it would round to nothing.
fn is_over(until: Option<Instant>) -> bool {
    until.is_some_and(|until| whole_seconds(until.saturating_duration_since(Instant::now())).is_zero())
}

/// The whole seconds, of which the last may only have begun.
fn begun_seconds(span: Duration) -> Duration {
    let begun = u64::from(span.subsec_nanos() > 0);
    Duration::from_secs(span.as_secs().saturating_add(begun))
}

/// The nearest whole seconds, as the server wants them.
fn whole_seconds(span: Duration) -> Duration {
    Duration::from_secs_f64(span.as_secs_f64().round())
}

/// Waits until nobody else of this client holds or wants any of it. In the order of the names, so that two
/// requests never wait for each other.
async fn enter(inner: &Inner, wanted: &Wanted, until: Option<Instant>) -> Result<Vec<Claim>, Error> {
    let mut names: Vec<&Resource> = wanted.resources.iter().collect();
    names.sort();
    let mut claims = Vec::with_capacity(names.len());
    for name in names {
        let claim = match (wanted.patience, until) {
            (Patience::None, _) => inner.claims.try_enter(name).await,
            (_, Some(until)) => timeout_at(until, inner.claims.enter(name)).await.ok(),
            (_, None) => Some(inner.claims.enter(name).await),
        };
        claims.push(claim.ok_or_else(|| Error::Held {
            resources: vec![name.clone()],
            retry_after: None,
        })?);
    }
    Ok(claims)
}

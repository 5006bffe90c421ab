//! Clearing dead locks away, soon after their end: one sleeper for the next end that is known of.
//!
//! A lock that is over is free at once, by the database's clock, whether it was cleared or not. Clearing it tells
//! those who watch. Every server does it; who comes second finds nothing to do.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::warn;

use super::database::Database;
use super::failure::Failure;
use super::link::Link;
use crate::{ENGINE_TIMEOUT, REAP_PIECE_LOCKS};

/// How long it sleeps at most: an end that nobody told of is found after that.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);

/// How much later than the end it looks, at most; servers spread over this, so that not all come at once.
const SPREAD: Duration = Duration::from_millis(100);

/// How soon it tries again when the database did not answer.
const RETRY: Duration = Duration::from_millis(250);

/// When the next lock ends, as far as is known here.
#[derive(Debug, Default)]
pub(super) struct Ends {
    next: Mutex<Option<Instant>>,
    sooner: Notify,
}

impl Ends {
    /// A lock has so much left.
    pub(super) fn lock_ends_in(&self, left: Duration) {
        let at = Instant::now() + left;
        let mut next = self.next.lock();
        if next.is_none_or(|next| at < next) {
            *next = Some(at);
            drop(next);
            self.sooner.notify_one();
        }
    }

    /// Sleeps until the next end, or for long when there is none.
    async fn sleep(&self) {
        let longest = Instant::now() + LONGEST_SLEEP;
        loop {
            let sooner = self.sooner.notified();
            let next = *self.next.lock();
            let until = next.unwrap_or(longest).min(longest);
            tokio::select! {
                () = sleep_until(until) => return,
                () = sooner => {}
            }
        }
    }
}

/// Clears dead locks away until it is ended itself.
pub(super) async fn clear(database: Arc<Database>, ends: Arc<Ends>, link: Link) {
    let mut was_away = false;
    loop {
        match clear_some(&database, &ends, &link).await {
            Ok(is_more) => {
                was_away = false;
                if !is_more {
                    ends.sleep().await;
                    sleep(SPREAD.mul_f64(rand::random())).await;
                }
            }
            Err(failure) => {
                if !std::mem::replace(&mut was_away, true) {
                    warn!(%failure, "dead locks are not cleared away");
                }
                sleep(RETRY).await;
            }
        }
    }
}

/// Clears a piece if there is any. Tells whether there may be more.
async fn clear_some(database: &Database, ends: &Ends, link: &Link) -> Result<bool, Failure> {
    let until = Instant::now() + ENGINE_TIMEOUT;
    *ends.next.lock() = None;
    let pulse = database.pulse(until).await?;
    match pulse.next_end {
        None => Ok(false),
        Some(left) if left > 0 => {
            ends.lock_ends_in(Duration::from_micros(left.unsigned_abs()));
            Ok(false)
        }
        Some(_) => {
            let piece = i32::try_from(REAP_PIECE_LOCKS).unwrap_or(i32::MAX);
            database.apply(link, &[], piece, until).await?;
            Ok(true)
        }
    }
}

//! The end of lives: removes what is over.
//!
//! A removal compares the modification revision, never the token, since a renewed lock has the same token and
//! must not be removed. Each try has a second; then it is tried again, and with another member when the first did
//! not answer. Versions of this server that were committed so late that their lease would end first are put under
//! another lease here too.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::commit::{Committer, MAX_BATCH_CHANGES};
use super::fates::Fate;
use super::members::ATTEMPT;
use super::plan::{Group, Step, expiry, keeping};
use super::record::Version;
use crate::ENGINE_TIMEOUT;
use crate::clock::Moment;

/// How many transactions that remove may be under way.
const MAX_FLIGHTS: usize = 2;

/// After what time a removal is tried again. A little more than one try takes.
const AGAIN: Duration = Duration::from_millis(1100);

/// How long it sleeps at most. Sleeping stands still while the machine is suspended, and lives do not.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Ends lives until it is ended itself.
pub(super) async fn run(committer: Arc<Committer>) {
    let locks = Arc::clone(&committer.locks);
    let mut flights = JoinSet::new();
    let mut is_failing = false;
    loop {
        for version in locks.take_thin() {
            tokio::spawn(keep(Arc::clone(&committer), version));
        }
        let next = launch(&committer, &mut flights);
        tokio::select! {
            () = sleep(next), if flights.len() < MAX_FLIGHTS => {}
            () = locks.sooner.notified() => {}
            Some(landed) = flights.join_next() => {
                if let Ok(failed) = landed {
                    report(failed.as_deref(), &mut is_failing);
                }
            }
        }
    }
}

/// Sends off what is due, and says for how long there is nothing more to do.
fn launch(committer: &Arc<Committer>, flights: &mut JoinSet<Option<String>>) -> Duration {
    while flights.len() < MAX_FLIGHTS {
        let (due, next) = committer.locks.take_due(MAX_BATCH_CHANGES, AGAIN);
        if due.is_empty() {
            return next.map_or(LONGEST_SLEEP, |next| next.since(Moment::now()).min(LONGEST_SLEEP));
        }
        flights.spawn(end(Arc::clone(committer), due));
    }
    LONGEST_SLEEP
}

/// Tries once to remove versions whose life is over. Returns what went wrong, if anything.
async fn end(committer: Arc<Committer>, due: Vec<Arc<Version>>) -> Option<String> {
    let until = Instant::now() + ATTEMPT;
    let groups: Vec<_> = due
        .into_iter()
        .map(|version| single(expiry(version), until))
        .collect();
    let fates = committer.commit(&groups, until).await;
    // A removal that was lost has shown what is there instead.
    fates.into_iter().find_map(|fate| match fate {
        Fate::Failed(error) => Some(error.to_string()),
        Fate::Done(_) | Fate::Lost(_) => None,
    })
}

fn report(failed: Option<&str>, is_failing: &mut bool) {
    match failed {
        Some(error) if !*is_failing => warn!(%error, "locks that are over cannot be removed; trying on"),
        None if *is_failing => info!("locks that are over are removed again"),
        Some(_) | None => {}
    }
    *is_failing = failed.is_some();
}

/// Puts a version under a lease that lasts.
async fn keep(committer: Arc<Committer>, version: Arc<Version>) {
    let until = Instant::now() + ENGINE_TIMEOUT;
    let group = single(keeping(Arc::clone(&version)), until);
    let fates = committer.commit(&[group], until).await;
    if fates.iter().any(|fate| matches!(fate, Fate::Failed(_))) {
        sleep(AGAIN).await;
        committer.locks.still_thin(version);
    }
}

fn single(step: Step, not_after: Instant) -> Group {
    Group {
        steps: vec![step],
        not_after,
    }
}

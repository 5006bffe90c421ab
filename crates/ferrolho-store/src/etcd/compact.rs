//! Forgetting old history.
//!
//! etcd keeps every version of every key until it is told not to. Unless its operator does that, or others use
//! the cluster too, this server has it forget what is older than the configured time. Several servers do the same
//! work without harm.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::warn;

use super::commit::Committer;
use super::failure::Kind;
use crate::ENGINE_TIMEOUT;

/// How many times within the history that is kept a revision is noted and an old one forgotten.
const STEPS: u32 = 10;

/// Keeps at least `history`, and not much more, until it is ended itself.
pub(super) async fn run(committer: Arc<Committer>, history: Duration) {
    let mut samples = Samples::default();
    let mut is_failing = false;
    loop {
        let until = Instant::now() + ENGINE_TIMEOUT;
        let note = std::slice::from_ref(&committer.keys.note);
        if let Ok(reading) = committer.cluster.read(note, until).await {
            samples.0.push_back((Instant::now(), reading.revision));
        }
        if let Some(revision) = samples.older_than(history) {
            match committer.cluster.compact(revision, until).await {
                // Another server, or the cluster itself, may have been faster.
                Err(failure) if failure.kind != Kind::Compacted => {
                    if !is_failing {
                        warn!(%failure, "etcd's history cannot be compacted; it will grow");
                    }
                    is_failing = true;
                }
                Ok(()) | Err(_) => is_failing = false,
            }
        }
        sleep(history / STEPS).await;
    }
}

/// Revisions and when they were the latest, the oldest first; about as many as there are steps.
#[derive(Default)]
struct Samples(VecDeque<(Instant, i64)>);

impl Samples {
    /// The last revision that was the latest so long ago, if it was not asked for before.
    fn older_than(&mut self, age: Duration) -> Option<i64> {
        let old = self
            .0
            .iter()
            .take_while(|(taken, _)| taken.elapsed() >= age)
            .count();
        self.0.drain(..old).next_back().map(|(_, revision)| revision)
    }
}

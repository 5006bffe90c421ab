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
    // One for each step within the history, and the one that has become too old.
    let mut samples: VecDeque<(Instant, i64)> = VecDeque::new();
    let mut compacted = 0;
    let mut is_failing = false;
    loop {
        let until = Instant::now() + ENGINE_TIMEOUT;
        if let Ok(reading) = committer
            .cluster
            .read(std::slice::from_ref(&committer.keys.note), until)
            .await
        {
            samples.push_back((Instant::now(), reading.revision));
        }
        let mut old = None;
        while let Some((taken, revision)) = samples.front()
            && taken.elapsed() >= history
        {
            old = Some(*revision);
            samples.pop_front();
        }
        if let Some(revision) = old.filter(|revision| *revision > compacted) {
            match committer.cluster.compact(revision, until).await {
                // Another server, or the cluster itself, may have been faster.
                Err(failure) if failure.kind != Kind::Compacted => {
                    if !is_failing {
                        warn!(%failure, "etcd's history cannot be compacted; it will grow");
                    }
                    is_failing = true;
                }
                Ok(()) | Err(_) => {
                    compacted = revision;
                    is_failing = false;
                }
            }
        }
        sleep(history / STEPS).await;
    }
}

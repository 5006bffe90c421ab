//! Following what all servers do.
//!
//! One watch on everything under the prefix, from where the last one ended, so that a broken one loses nothing.
//! Only when etcd has compacted that away is everything read anew, and whoever watches us is told of a gap. A
//! watch on a member that hangs is silent, and so is one with nothing to say: so every second the revision of
//! `note` is read, and a watch that does not bring it is given up.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use etcd_client::{Event as EtcdEvent, WatchResponse};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use super::commit::Committer;
use super::events;
use super::failure::{Failure, Kind};
use super::load::load;
use super::members::ATTEMPT;
use crate::{ENGINE_TIMEOUT, FeedSender};

/// How often the watch is compared with what it should have brought.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// How long a watch may take to bring what is known to be there.
const MAX_LAG: Duration = Duration::from_secs(1);

/// How long it rests before a broken watch is made again; each time in a row twice as long, up to a second.
const PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Follows what happens and tells it to the feed.
pub(super) struct Follower {
    committer: Arc<Committer>,
    feed: FeedSender,
    /// Says that the watch is behind.
    lagging: Notify,
    is_broken: AtomicBool,
}

impl Follower {
    pub(super) fn new(committer: Arc<Committer>, feed: FeedSender) -> Self {
        Self {
            committer,
            feed,
            lagging: Notify::new(),
            is_broken: AtomicBool::new(false),
        }
    }

    /// Whether there is no watch now.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    /// Follows until it is ended itself.
    pub(super) async fn run(&self) {
        let mut pause = PAUSE;
        loop {
            let mut failure = match self.stream().await {
                Err(failure) => failure,
                Ok(never) => match never {},
            };
            if !self.is_broken.swap(true, Ordering::Relaxed) {
                warn!(%failure, "the watch on etcd has broken; making it again");
                pause = PAUSE;
            }
            if failure.kind == Kind::Compacted {
                match self.reload().await {
                    Ok(()) => continue,
                    Err(error) => failure = error,
                }
            }
            debug!(%failure, "there is no watch on etcd yet");
            sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Takes in what one watch brings, until it breaks.
    async fn stream(&self) -> Result<Infallible, Failure> {
        let committer = &self.committer;
        let from = committer.locks.revision() + 1;
        let (mut stream, member) = committer
            .cluster
            .watch(&committer.keys.prefix, from, ENGINE_TIMEOUT)
            .await?;
        loop {
            let response = tokio::select! {
                response = stream.message() => response?,
                () = self.lagging.notified() => {
                    committer.cluster.give_up(member);
                    return Err(Failure::new(Kind::Unknown, "the watch does not bring what is there"));
                }
            };
            let response = response.ok_or_else(|| Failure::new(Kind::Unknown, "etcd ended the watch"))?;
            self.take(&response)?;
            if self.is_broken.swap(false, Ordering::Relaxed) {
                info!("the watch on etcd is back");
            }
        }
    }

    fn take(&self, response: &WatchResponse) -> Result<(), Failure> {
        if let Some(header) = response.header() {
            self.committer.cluster.same_cluster(header)?;
        }
        if response.canceled() {
            let kind = match response.compact_revision() {
                0 => Kind::Unknown,
                _ => Kind::Compacted,
            };
            return Err(Failure::new(
                kind,
                format!("etcd ended the watch: {}", response.cancel_reason()),
            ));
        }
        let revision_of = |event: &EtcdEvent| event.kv().map(etcd_client::KeyValue::mod_revision);
        for of_one_revision in response
            .events()
            .chunk_by(|a, b| revision_of(a) == revision_of(b))
        {
            let Some(revision) = of_one_revision.first().and_then(revision_of) else {
                continue;
            };
            let Committer {
                keys, locks, cluster, ..
            } = &*self.committer;
            let told = events::take(keys, locks, cluster.id(), revision, of_one_revision);
            self.feed.send(told.events);
            if told.is_incomplete {
                self.feed.gap();
            }
            locks.reach(revision);
        }
        Ok(())
    }

    /// Reads everything anew.
    async fn reload(&self) -> Result<(), Failure> {
        let has_missed = load(&self.committer).await?;
        info!(
            has_missed,
            "etcd's history had been compacted; all locks were read anew"
        );
        if has_missed {
            self.feed.gap();
        }
        Ok(())
    }

    /// Compares the watch with what is there, again and again, until it is ended itself.
    pub(super) async fn probe(&self) {
        let locks = &self.committer.locks;
        loop {
            sleep(PROBE_EVERY).await;
            // A failure shows in whatever else is asked of etcd.
            if let Ok(noted) = self.committer.read_noted(Instant::now() + ATTEMPT).await
                && !locks.reached(noted, Instant::now() + MAX_LAG).await
            {
                self.lagging.notify_waiters();
            }
        }
    }
}

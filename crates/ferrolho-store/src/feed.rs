//! The change feed: what an engine tells everybody who watches it.

use std::sync::Arc;

use ferrolho_core::Event;
use tokio::sync::broadcast;

/// How many commits a watcher may lag behind before it is told that it missed something.
const FEED_BACKLOG_COMMITS: usize = 4096;

/// What a feed brings.
#[derive(Clone, Debug)]
pub enum FeedItem {
    /// The events of one commit, in order.
    Events(Arc<[Event]>),
    /// Something may have been missed; what comes next is whole again.
    Gap,
}

/// The engine's end of its feed.
#[derive(Clone, Debug)]
pub struct FeedSender(broadcast::Sender<FeedItem>);

/// A watcher's end of the feed.
#[derive(Debug)]
pub struct Feed(broadcast::Receiver<FeedItem>);

impl Default for FeedSender {
    fn default() -> Self {
        Self(broadcast::Sender::new(FEED_BACKLOG_COMMITS))
    }
}

impl FeedSender {
    /// Tells every watcher of a commit. Never waits for any of them.
    pub fn send(&self, events: Vec<Event>) {
        if !events.is_empty() {
            // An error only means that nobody watches.
            let _ = self.0.send(FeedItem::Events(events.into()));
        }
    }

    /// Tells every watcher that something may have been missed.
    pub fn gap(&self) {
        let _ = self.0.send(FeedItem::Gap);
    }

    /// A new watcher, who sees all that is sent from now on.
    pub fn subscribe(&self) -> Feed {
        Feed(self.0.subscribe())
    }
}

impl Feed {
    /// What comes next, or nothing when the engine has ended. May be cancelled without losing anything.
    pub async fn next(&mut self) -> Option<FeedItem> {
        match self.0.recv().await {
            Ok(item) => Some(item),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(FeedItem::Gap),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

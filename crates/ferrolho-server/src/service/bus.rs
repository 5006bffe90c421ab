//! The last events, for those who watch.
//!
//! One ring holds the last events of the store; every reader remembers how far it has read and pulls from the
//! ring at its own speed. So a reader costs two words, however slow it is, and never slows anybody: one that the
//! ring has overtaken is told so and dropped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferrolho_core::{Event, Position, Resource};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::Reached;

/// The most events of one resource that are told at once.
const HISTORY_MAX_EVENTS: usize = 100;

/// The ring of the last events.
#[derive(Debug)]
pub(super) struct Bus {
    ring: Mutex<Ring>,
    /// The number of the next event; changes wake the readers.
    news: watch::Sender<News>,
    capacity: usize,
    /// The most readers at a time.
    max_readers: usize,
    /// How many readers were dropped since they were too slow.
    dropped: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default)]
struct News {
    next: u64,
    gaps: u64,
    has_ended: bool,
}

#[derive(Debug, Default)]
struct Ring {
    events: VecDeque<Arc<Event>>,
    /// The number of the event behind the last one.
    next: u64,
}

impl Ring {
    /// The number of the oldest event that is there.
    fn first(&self) -> u64 {
        self.next - self.events.len() as u64
    }

    /// The number of the event after the one at this position, if that one is there.
    fn after(&self, position: Position) -> Option<u64> {
        let index = self
            .events
            .binary_search_by_key(&position, |event| event.position)
            .ok()?;
        Some(self.first() + index as u64 + 1)
    }
}

impl Bus {
    pub(super) fn new(capacity: usize, max_readers: usize) -> Self {
        Self {
            ring: Mutex::default(),
            news: watch::Sender::default(),
            capacity: capacity.max(1),
            max_readers,
            dropped: AtomicU64::new(0),
        }
    }

    /// Keeps the events of one commit and wakes the readers.
    pub(super) fn publish(&self, events: &[Event]) {
        let next = {
            let mut ring = self.ring.lock();
            for event in events {
                if ring.events.len() == self.capacity {
                    ring.events.pop_front();
                }
                ring.events.push_back(Arc::new(event.clone()));
                ring.next += 1;
            }
            ring.next
        };
        self.news.send_modify(|news| news.next = next);
    }

    /// Something may have been missed: what was before cannot be followed on.
    pub(super) fn gap(&self) {
        self.ring.lock().events.clear();
        self.news.send_modify(|news| news.gaps += 1);
    }

    /// Ends every subscription.
    pub(super) fn end(&self) {
        self.news.send_modify(|news| news.has_ended = true);
    }

    /// How many readers there are.
    pub(super) fn readers(&self) -> usize {
        self.news.receiver_count()
    }

    /// How many readers were dropped since they were too slow.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// The last events of this resource, the oldest first.
    pub(super) fn history(&self, resource: &Resource) -> Vec<Arc<Event>> {
        let ring = self.ring.lock();
        let of_it = ring
            .events
            .iter()
            .rev()
            .filter(|event| event.resource == *resource);
        let mut events: Vec<_> = of_it.take(HISTORY_MAX_EVENTS).cloned().collect();
        events.reverse();
        events
    }

    /// A reader of what comes after the event with this id, or from now on.
    pub(super) fn subscribe(self: &Arc<Self>, after: Option<&str>) -> Result<Subscription, Reached> {
        // Counted under the lock, so that no two take the last place.
        let ring = self.ring.lock();
        if self.readers() >= self.max_readers {
            return Err(Reached {
                limit: "max-event-readers",
                value: self.max_readers,
            });
        }
        let news = self.news.subscribe();
        let gaps = news.borrow().gaps;
        let resumed = after.map(|id| id.parse().ok().and_then(|position| ring.after(position)));
        Ok(Subscription {
            bus: Arc::clone(self),
            news,
            gaps,
            next: resumed.flatten().unwrap_or(ring.next),
            owes_reset: resumed == Some(None),
            is_over: false,
        })
    }
}

/// What a reader is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// This happened.
    Event(Arc<Event>),
    /// Something may have been missed: look at the locks anew. Events go on from here.
    Reset,
    /// The reader fell so far behind that events are lost to it. Nothing comes after this.
    TooSlow,
    /// The server is stopping. Nothing comes after this.
    End,
}

/// A reader of events.
#[derive(Debug)]
pub struct Subscription {
    bus: Arc<Bus>,
    news: watch::Receiver<News>,
    gaps: u64,
    next: u64,
    owes_reset: bool,
    is_over: bool,
}

impl Subscription {
    /// What comes next. May be cancelled without losing anything.
    pub async fn next(&mut self) -> Told {
        loop {
            if self.is_over {
                return Told::End;
            }
            if std::mem::take(&mut self.owes_reset) {
                return Told::Reset;
            }
            let news = *self.news.borrow_and_update();
            if news.gaps != self.gaps {
                self.gaps = news.gaps;
                self.next = self.next.max(self.bus.ring.lock().first());
                return Told::Reset;
            }
            if let Some(told) = self.take() {
                return told;
            }
            if news.has_ended || self.news.changed().await.is_err() {
                self.is_over = true;
            }
        }
    }

    fn take(&mut self) -> Option<Told> {
        let ring = self.bus.ring.lock();
        if self.next < ring.first() {
            self.is_over = true;
            self.bus.dropped.fetch_add(1, Ordering::Relaxed);
            return Some(Told::TooSlow);
        }
        let index = usize::try_from(self.next - ring.first()).ok()?;
        let event = Arc::clone(ring.events.get(index)?);
        self.next += 1;
        Some(Told::Event(event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrolho_core::{EventKind, FencingToken, Lock, Owner, Timestamp};

    fn event(commit: u64) -> Event {
        let at = Timestamp::from_micros(0);
        let resource = Resource::new("r").unwrap();
        Event {
            position: Position {
                epoch: 1,
                commit,
                index: 0,
            },
            kind: EventKind::Acquired,
            resource: resource.clone(),
            lock: Lock {
                resource,
                owner: Owner::new("a").unwrap(),
                expires_at: at,
                acquired_at: at,
                fencing_token: FencingToken::new(commit.into()).unwrap(),
                metadata: None,
                principal: None,
            },
            at,
            reason: None,
        }
    }

    async fn commits(subscription: &mut Subscription, count: usize) -> Vec<u64> {
        let mut commits = Vec::new();
        for _ in 0..count {
            match subscription.next().await {
                Told::Event(event) => commits.push(event.position.commit),
                other => panic!("{other:?}"),
            }
        }
        commits
    }

    #[tokio::test]
    async fn resumes_exactly_after_a_known_id_and_resets_after_others() {
        let bus = Arc::new(Bus::new(3, 10));
        bus.publish(&[event(1), event(2), event(3), event(4)]);
        let mut known = bus.subscribe(Some("1-2-0")).unwrap();
        assert_eq!(commits(&mut known, 2).await, [3, 4]);
        for unknown in ["1-1-0", "2-3-0", "nonsense", ""] {
            let mut reader = bus.subscribe(Some(unknown)).unwrap();
            assert_eq!(reader.next().await, Told::Reset, "{unknown}");
            assert!(
                tokio::time::timeout(std::time::Duration::ZERO, reader.next())
                    .await
                    .is_err()
            );
        }
    }

    #[tokio::test]
    async fn slow_readers_are_dropped_and_gaps_are_told() {
        let bus = Arc::new(Bus::new(2, 2));
        let mut slow = bus.subscribe(None).unwrap();
        let mut fast = bus.subscribe(None).unwrap();
        assert!(bus.subscribe(None).is_err(), "no room for a third");
        bus.publish(&[event(1)]);
        assert_eq!(commits(&mut fast, 1).await, [1]);
        bus.publish(&[event(2), event(3)]);
        assert_eq!(slow.next().await, Told::TooSlow);
        assert_eq!(slow.next().await, Told::End);
        assert_eq!((bus.readers(), bus.dropped()), (2, 1));
        assert_eq!(commits(&mut fast, 2).await, [2, 3]);
        bus.gap();
        bus.publish(&[event(9)]);
        assert_eq!(fast.next().await, Told::Reset);
        assert_eq!(commits(&mut fast, 1).await, [9]);
        bus.end();
        assert_eq!(fast.next().await, Told::End);
    }
}

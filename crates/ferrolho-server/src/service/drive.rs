//! What moves the queues: attempts of whoever is in front, woken by events and by the clock.
//!
//! A place in front tries when it has just come there, when the feed says that something ended, and when the
//! holder's time should be over. Only the first in line ever tries, so the work per release does not grow with
//! the queue. Two tasks run in the background: one follows the feed, one sleeps until the earliest alarm.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ferrolho_core::{Event, EventKind, Live, Resource};
use ferrolho_store::{Feed, FeedItem, StoreError};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use super::attempt::{Attempted, Failure};
use super::queue::{Granted, Try, Wake};
use super::told::Untold;
use super::{Given, LATEST_START, No, Service, ledger};

/// How soon the first in line tries again after the store did not answer.
pub(super) const RETRY: Duration = Duration::from_millis(250);

/// The shortest time between two looks that only the clock calls for.
const SHORTEST_LOOK: Duration = Duration::from_millis(2);

/// How often the first in line looks on a store that others share, in case that an event was lost.
const SLOW_LOOK: Duration = Duration::from_secs(5);

/// Starts the tasks that run for as long as the service is in use.
pub(super) fn spawn_background(service: &Arc<Service>, feed: Feed) {
    tokio::spawn(follow_feed(Arc::downgrade(service), feed));
    tokio::spawn(keep_time(
        Arc::downgrade(service),
        Arc::clone(&service.timekeeper),
    ));
    if let Some(ledger) = &service.ledger {
        tokio::spawn(ledger::keep(Arc::downgrade(service), Arc::clone(ledger)));
    }
}

async fn follow_feed(service: Weak<Service>, mut feed: Feed) {
    while let Some(item) = feed.next().await {
        let Some(service) = service.upgrade() else {
            return;
        };
        match item {
            FeedItem::Events(events) => {
                service.meters.happened(&events);
                if let Some(ledger) = &service.ledger {
                    ledger.happened(&events);
                }
                service.audit.happened(&events);
                service.bus.publish(&events);
                service.react(&events);
            }
            FeedItem::Gap => {
                service.meters.gap();
                if let Some(ledger) = &service.ledger {
                    ledger.gap();
                }
                service.audit.gap();
                service.bus.gap();
                let contended = service.queues.lock().contended();
                service.poke(&contended);
            }
        }
    }
}

async fn keep_time(service: Weak<Service>, bell: Arc<Notify>) {
    while let Some(awake) = service.upgrade() {
        awake.wake_due();
        let next = awake.queues.lock().next_wake();
        // While this task sleeps it does not keep the service alive.
        drop(awake);
        match next {
            Some(at) => tokio::select! { () = sleep_until(at) => {}, () = bell.notified() => {} },
            None => bell.notified().await,
        }
    }
}

impl Service {
    fn wake_due(self: &Arc<Self>) {
        loop {
            let wake = self.queues.lock().due(Instant::now());
            match wake {
                None => return,
                Some(Wake::Forget(place)) => self.queues.lock().forget(place),
                Some(Wake::Look(resource)) => self.poke(&[resource]),
            }
        }
    }

    /// Acts on the events of one commit: of each resource the last one counts.
    fn react(self: &Arc<Self>, events: &[Event]) {
        let mut last: BTreeMap<&Resource, &Event> = BTreeMap::new();
        {
            let queues = self.queues.lock();
            last.extend(
                events
                    .iter()
                    .filter(|event| queues.anybody_waits(&event.resource))
                    .map(|event| (&event.resource, event)),
            );
        }
        for (resource, event) in last {
            match event.kind {
                EventKind::Acquired | EventKind::Renewed => {
                    let left = event.lock.expires_at.since(event.at);
                    self.look_after(resource, left);
                }
                EventKind::Released | EventKind::Expired | EventKind::Forced => {
                    self.poke(std::slice::from_ref(resource));
                }
            }
        }
    }

    /// Lets the first in line look when the holder's time is over, or sooner on a store that others share.
    fn look_after(&self, resource: &Resource, left: Duration) {
        let at = self.look_at(left);
        self.queues.lock().arm(resource, at);
        self.timekeeper.notify_one();
    }

    fn look_at(&self, left: Duration) -> Instant {
        let left = left.max(SHORTEST_LOOK);
        let is_shared = self.store.traits().is_shared;
        Instant::now()
            + if is_shared {
                left.min(self.chance.longer(SLOW_LOOK))
            } else {
                left
            }
    }

    /// Something has happened to these resources: whoever is in front tries, if anybody waits.
    pub(super) fn poke(self: &Arc<Self>, resources: &[Resource]) {
        let attempts = self.queues.lock().begin_tries(resources, Instant::now());
        for attempt in attempts {
            let service = Arc::clone(self);
            tokio::spawn(async move { service.carry_out(attempt).await });
        }
        self.timekeeper.notify_one();
    }

    async fn carry_out(self: Arc<Self>, attempt: Try) {
        let untold = self.untold.begin(&attempt.grant);
        let not_after = attempt.deadline + LATEST_START;
        match self
            .attempt(&attempt.resources, &attempt.grant, &attempt.origin, not_after)
            .await
        {
            Ok(Attempted::Granted { lives, .. } | Attempted::Repeated(lives)) => {
                self.deliver(attempt, lives, untold).await;
            }
            Ok(Attempted::Held { left, .. }) => self.wait_on(&attempt, left),
            Err(Failure::NotDone(StoreError::TooLate)) => self.give_up(&attempt, No::TooSlow),
            Err(Failure::NotDone(error)) => {
                warn!(%error, "the store is away; those who wait go on waiting");
                self.wait_on(&attempt, self.chance.longer(RETRY));
            }
            Err(Failure::Unknown(error)) => {
                warn!(%error, "the outcome of a waiting caller's attempt is unknown");
                self.give_up(&attempt, No::Unavailable);
            }
        }
    }

    /// Tells the caller of its grant. If everybody has left, the grant is undone; if a newer request of the same
    /// owner came meanwhile, it is granted in place of the older.
    pub(super) async fn deliver(
        self: &Arc<Self>,
        mut made: Try,
        mut lives: Vec<Live>,
        mut untold: Option<Untold>,
    ) {
        loop {
            // Kept while a newer request is tried: others under its key may be told of this grant meanwhile.
            let kept = self.untold.begin(&made.grant);
            let Some(newer) = self.tell_or_undo(&made, &lives, untold.take()).await else {
                return;
            };
            untold = self.untold.begin(&newer.grant);
            let not_after = newer.deadline + LATEST_START;
            match self
                .attempt(&newer.resources, &newer.grant, &newer.origin, not_after)
                .await
            {
                Ok(Attempted::Granted { lives: again, .. } | Attempted::Repeated(again)) => {
                    (made, lives) = (newer, again);
                }
                Ok(Attempted::Held { left, .. }) => return self.wait_on(&newer, left),
                Err(Failure::NotDone(error) | Failure::Unknown(error)) => {
                    warn!(%error, "the store failed between two grants to one owner");
                    self.give_up(&newer, No::Unavailable);
                    return self.undo_given(Given::new(lives, kept)).await;
                }
            }
        }
    }

    /// Tells the caller of its grant, or undoes it when nobody is there. Returns the newer request of the same
    /// owner that is to be granted instead, if one has come.
    async fn tell_or_undo(
        self: &Arc<Self>,
        made: &Try,
        lives: &[Live],
        untold: Option<Untold>,
    ) -> Option<Try> {
        let granted = self.queues.lock().granted(made);
        let given = Given::new(lives.to_vec(), untold);
        let unread = match granted {
            Granted::NewerCaller(newer) => return Some(newer),
            Granted::NobodyLeft => Some(given),
            Granted::Caller(caller) => caller.send(Ok(given)).err().and_then(Result::ok),
        };
        if let Some(given) = unread {
            self.undo_given(given).await;
        }
        None
    }

    /// Undoes a grant whose caller has left, unless somebody was told of it.
    pub(super) async fn undo_given(self: &Arc<Self>, given: Given) {
        let is_ours = given
            .lives
            .first()
            .is_some_and(|live| self.is_nobody_elses(&live.mark));
        // Asked last: whoever may undo a grant must do so, since those who come back for it wait until it is done.
        if is_ours && given.untold.as_ref().is_none_or(Untold::may_undo) {
            self.take_back(given.lives).await;
            if let Some(untold) = given.untold {
                untold.undone();
            }
        }
    }

    /// The attempt came to nothing for now: its place waits on.
    pub(super) fn wait_on(self: &Arc<Self>, attempt: &Try, left: Duration) {
        if self.is_shutting_down() {
            return self.give_up(attempt, No::ShuttingDown);
        }
        let look_at = self.look_at(left);
        let look_now = self.queues.lock().end_try(attempt.place, look_at, Instant::now());
        self.timekeeper.notify_one();
        if look_now {
            self.poke(&attempt.resources);
        }
    }

    /// The attempt came to nothing for good: everybody at its place is told.
    pub(super) fn give_up(self: &Arc<Self>, attempt: &Try, no: No) {
        self.queues.lock().fail(attempt.place, no);
        self.poke(&attempt.resources);
    }
}

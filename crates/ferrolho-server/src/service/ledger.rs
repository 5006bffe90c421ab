//! How many locks each principal has or asks for, so that none takes them all.
//!
//! The feed tells what every server of the store grants and ends; a look at all locks tells where to begin, at the
//! start and after a gap. Neither waits for the other: what the feed has said of a resource since the look began
//! counts, and not what the look finds there. Events come a moment after their commit, and until a look is over
//! some locks are not known: for so long a principal may get some more than its limit. That does no harm, since the
//! limit is there to keep one principal from filling the store.
//!
//! Locks without a principal are not counted: without authentication everybody is the same caller.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ferrolho_core::{Event, EventKind, Holder, Lock, Principal, Resource};
use ferrolho_store::ListQuery;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tracing::debug;

use super::drive::RETRY;
use super::{Reached, Service};

/// How many locks a look reads at a time.
const PAGE_LOCKS: usize = 1_000;

/// The shortest rest between two looks. They rest longer, in proportion to what they take: on a store whose feed is
/// interrupted again and again, most of the time is not theirs.
const REST: Duration = Duration::from_secs(1);

/// How many times as long as a look took the rest after it is.
const REST_FACTOR: u32 = 10;

/// How many resources the feed may speak of during one look; after more it begins anew.
const MAX_TOLD: usize = 100_000;

/// The locks of every principal.
#[derive(Debug)]
pub(super) struct Ledger {
    max_locks: usize,
    state: Mutex<State>,
    /// Rung when a look is called for, or the service has ended.
    bell: Notify,
}

#[derive(Debug)]
struct State {
    claims: HashMap<Principal, HashMap<Resource, Claims>>,
    /// The look that is under way or called for; none when all is known.
    look: Option<Look>,
    looks: u64,
}

#[derive(Debug)]
struct Look {
    number: u64,
    /// What the feed has spoken of since, up to [`MAX_TOLD`].
    told: HashSet<Resource>,
}

/// What one principal has to do with one resource.
#[derive(Debug, Default)]
struct Claims {
    is_held: bool,
    /// How many requests for it are under way.
    asked: usize,
}

impl Ledger {
    /// A ledger that allows each principal so many locks, and knows of none yet.
    pub(super) fn new(max_locks: usize) -> Self {
        let state = State {
            claims: HashMap::new(),
            look: None,
            looks: 0,
        };
        let ledger = Self {
            max_locks,
            state: Mutex::new(state),
            bell: Notify::new(),
        };
        ledger.gap();
        ledger
    }

    /// Lets a request for these locks through, unless its principal would then have, or ask for, too many. What it
    /// has already may always be asked for.
    pub(super) fn admit(
        self: &Arc<Self>,
        holder: &Holder,
        resources: &[Resource],
    ) -> Result<Option<Asked>, Reached> {
        let Some(principal) = &holder.principal else {
            return Ok(None);
        };
        let mut state = self.state.lock();
        let known = state.claims.get(principal);
        let is_new = |resource: &&Resource| known.is_none_or(|claims| !claims.contains_key(*resource));
        let new = resources.iter().filter(is_new).count();
        if new > 0 && known.map_or(0, HashMap::len) + new > self.max_locks {
            return Err(Reached {
                limit: "max-locks-per-principal",
                value: self.max_locks,
            });
        }
        for resource in resources {
            state.change(principal, resource, |claims| claims.asked += 1);
        }
        Ok(Some(Asked {
            ledger: Arc::clone(self),
            principal: principal.clone(),
            resources: resources.to_vec(),
        }))
    }

    /// Notes the events of one commit.
    pub(super) fn happened(&self, events: &[Event]) {
        let mut state = self.state.lock();
        for event in events {
            if let Some(look) = &mut state.look {
                look.told.insert(event.resource.clone());
            }
            let is_held = match event.kind {
                EventKind::Acquired | EventKind::Renewed => true,
                EventKind::Released | EventKind::Expired | EventKind::Forced => false,
            };
            state.note(&event.lock, is_held);
        }
        if state.look.as_ref().is_some_and(|look| look.told.len() > MAX_TOLD) {
            drop(state);
            self.gap();
        }
    }

    /// Something may have been missed: nothing is known but who asks, until all locks have been looked at again.
    pub(super) fn gap(&self) {
        let mut state = self.state.lock();
        state.looks += 1;
        state.look = Some(Look {
            number: state.looks,
            told: HashSet::new(),
        });
        state.claims.retain(|_, claims| {
            claims.retain(|_, claim| {
                claim.is_held = false;
                claim.asked > 0
            });
            !claims.is_empty()
        });
        drop(state);
        self.bell.notify_one();
    }

    /// The service has ended.
    pub(super) fn end(&self) {
        self.bell.notify_one();
    }

    fn wanted(&self) -> Option<u64> {
        self.state.lock().look.as_ref().map(|look| look.number)
    }

    /// Notes what a look has found. Returns whether it goes on: another may have been called for meanwhile.
    fn found<'a>(&self, number: u64, locks: impl Iterator<Item = &'a Lock>) -> bool {
        let mut state = self.state.lock();
        for lock in locks {
            match &state.look {
                Some(look) if look.number == number => {
                    if !look.told.contains(&lock.resource) {
                        state.note(lock, true);
                    }
                }
                _ => return false,
            }
        }
        true
    }

    /// A look has found all that there is.
    fn complete(&self, number: u64) {
        self.state.lock().look.take_if(|look| look.number == number);
    }
}

impl State {
    fn note(&mut self, lock: &Lock, is_held: bool) {
        if let Some(principal) = &lock.principal {
            self.change(principal, &lock.resource, |claims| claims.is_held = is_held);
        }
    }

    /// Changes one entry. What says nothing any more is not kept.
    fn change(&mut self, principal: &Principal, resource: &Resource, change: impl FnOnce(&mut Claims)) {
        let of_principal = self.claims.entry(principal.clone()).or_default();
        match of_principal.entry(resource.clone()) {
            Entry::Vacant(vacant) => {
                let mut claims = Claims::default();
                change(&mut claims);
                if claims.says_something() {
                    vacant.insert(claims);
                }
            }
            Entry::Occupied(mut occupied) => {
                change(occupied.get_mut());
                if !occupied.get().says_something() {
                    occupied.remove();
                }
            }
        }
        if of_principal.is_empty() {
            self.claims.remove(principal);
        }
    }
}

impl Claims {
    fn says_something(&self) -> bool {
        self.is_held || self.asked > 0
    }
}

/// A request that was let through; over when this is dropped.
#[derive(Debug)]
pub(super) struct Asked {
    ledger: Arc<Ledger>,
    principal: Principal,
    resources: Vec<Resource>,
}

impl Drop for Asked {
    fn drop(&mut self) {
        let mut state = self.ledger.state.lock();
        for resource in &self.resources {
            state.change(&self.principal, resource, |claims| claims.asked -= 1);
        }
    }
}

/// Looks at all locks whenever that is called for, for as long as the service is in use.
pub(super) async fn keep(service: Weak<Service>, ledger: Arc<Ledger>) {
    while service.strong_count() > 0 {
        match ledger.wanted() {
            Some(number) => {
                let begun = Instant::now();
                look(&service, &ledger, number).await;
                sleep(REST.max(begun.elapsed() * REST_FACTOR)).await;
            }
            None => ledger.bell.notified().await,
        }
    }
}

async fn look(service: &Weak<Service>, ledger: &Ledger, number: u64) {
    let mut query = ListQuery {
        limit: PAGE_LOCKS,
        ..ListQuery::default()
    };
    while let Some(service) = service.upgrade() {
        match service.store.list(&query).await {
            Ok(page) => {
                if !ledger.found(number, page.locks.iter().map(|live| &live.lock)) {
                    return;
                }
                if !page.more {
                    return ledger.complete(number);
                }
                query.after = page.locks.last().map(|live| live.lock.resource.clone());
            }
            Err(error) => {
                // Whoever asks the store meanwhile warns of it.
                debug!(%error, "the locks of principals cannot be counted yet");
                // While this task sleeps it does not keep the service alive.
                let pause = service.chance.longer(RETRY);
                drop(service);
                sleep(pause).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ferrolho_core::{FencingToken, Owner, Position, Timestamp};

    use super::*;

    fn holder(principal: Option<&str>) -> Holder {
        Holder {
            owner: Owner::new("o").unwrap(),
            principal: principal.map(|name| Principal::new(name).unwrap()),
        }
    }

    fn lock(principal: &str, name: &str) -> Lock {
        let at = Timestamp::from_micros(0);
        Lock {
            resource: Resource::new(name).unwrap(),
            owner: Owner::new("o").unwrap(),
            expires_at: at,
            acquired_at: at,
            fencing_token: FencingToken::new(1).unwrap(),
            metadata: None,
            principal: holder(Some(principal)).principal,
        }
    }

    fn happens(ledger: &Ledger, kind: EventKind, principal: &str, name: &str) {
        let lock = lock(principal, name);
        ledger.happened(&[Event {
            position: Position::default(),
            kind,
            resource: lock.resource.clone(),
            lock,
            at: Timestamp::from_micros(0),
            reason: None,
        }]);
    }

    fn ask(ledger: &Arc<Ledger>, principal: Option<&str>, names: &str) -> Result<Option<Asked>, Reached> {
        let resources: Vec<_> = names
            .split(' ')
            .map(|name| Resource::new(name).unwrap())
            .collect();
        ledger.admit(&holder(principal), &resources)
    }

    fn is_empty(ledger: &Ledger) -> bool {
        ledger.state.lock().claims.is_empty()
    }

    #[test]
    fn what_is_held_and_what_is_asked_for_counts_once() {
        let ledger = Arc::new(Ledger::new(3));
        happens(&ledger, EventKind::Acquired, "p", "a");
        let asked = ask(&ledger, Some("p"), "b c").unwrap();
        assert!(ask(&ledger, Some("p"), "d").is_err());
        // What is there already may be asked for again; a set with one more may not.
        assert!(ask(&ledger, Some("p"), "a b").is_ok());
        assert!(ask(&ledger, Some("p"), "a d").is_err());
        assert!(ask(&ledger, Some("q"), "d").is_ok(), "another principal");
        assert!(ask(&ledger, None, "d e f g").is_ok(), "none");
        happens(&ledger, EventKind::Acquired, "p", "b");
        happens(&ledger, EventKind::Renewed, "p", "b");
        drop(asked);
        assert!(ask(&ledger, Some("p"), "d").is_ok());
        assert!(ask(&ledger, Some("p"), "d e").is_err());
        for (kind, name) in [(EventKind::Released, "a"), (EventKind::Expired, "b")] {
            happens(&ledger, kind, "p", name);
            happens(&ledger, kind, "p", name);
        }
        assert!(is_empty(&ledger));
    }

    #[test]
    fn the_feed_is_newer_than_the_look() {
        let ledger = Arc::new(Ledger::new(1));
        let first = ledger.wanted().unwrap();
        happens(&ledger, EventKind::Released, "p", "a");
        assert!(ledger.found(first, [lock("p", "a"), lock("q", "b")].iter()));
        assert!(ask(&ledger, Some("p"), "c").is_ok(), "a was released since");
        assert!(ask(&ledger, Some("q"), "c").is_err());
        // A gap makes the look worthless that is under way.
        let asked = ask(&ledger, Some("r"), "d").unwrap();
        ledger.gap();
        assert!(!ledger.found(first, [lock("p", "a")].iter()));
        ledger.complete(first);
        let second = ledger.wanted().unwrap();
        assert!(ask(&ledger, Some("q"), "c").is_ok(), "not known yet");
        assert!(ask(&ledger, Some("r"), "e").is_err(), "who asks is known");
        assert!(ledger.found(second, [lock("q", "b")].iter()));
        ledger.complete(second);
        assert_eq!(ledger.wanted(), None);
        assert!(ask(&ledger, Some("q"), "c").is_err());
        drop(asked);
        happens(&ledger, EventKind::Forced, "q", "b");
        assert!(is_empty(&ledger));
    }
}

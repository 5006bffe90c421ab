//! A batch: attempts that are decided one after the other and become true together.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferrolho_core::{
    Change, Event, EventKind, Expected, FencingToken, Grant, Live, Lock, Position, Reason, Resource,
    Timestamp, Write,
};

use super::{Held, Table, TokensUsedUp, next_token};
use crate::Outcome;

/// Decisions that are not durable yet, all made at one moment.
#[derive(Debug)]
pub(crate) struct Batch {
    now: Timestamp,
    /// What the batch makes of each resource that it touches.
    overlay: BTreeMap<Resource, Option<Arc<Held>>>,
    events: Vec<Event>,
    top_token: u64,
    epoch: u64,
    commit: u64,
}

impl Batch {
    /// An empty batch on this table, at this time. Only one batch may be open on a table.
    pub(crate) fn new(table: &Table, now: Timestamp) -> Self {
        Self {
            now,
            overlay: BTreeMap::new(),
            events: Vec::new(),
            top_token: table.top_token,
            epoch: table.epoch,
            commit: table.commits + 1,
        }
    }

    /// Decides an attempt: all of its changes, or none. What is answered is true once the batch is durable.
    pub(crate) fn decide(&mut self, table: &Table, changes: &[Change]) -> Result<Outcome, TokensUsedUp> {
        let current: Vec<_> = changes
            .iter()
            .map(|change| self.look(table, &change.resource).cloned())
            .collect();
        let refs: Vec<_> = current.iter().map(Option::as_ref).collect();
        if let Some(refusal) = refusal(changes, &refs, self.now) {
            return Ok(refusal);
        }
        let tokens = self.draw(changes)?;
        let applied = changes
            .iter()
            .zip(current)
            .zip(tokens)
            .map(|((change, held), token)| self.carry_out(change, held, token))
            .collect();
        Ok(Outcome::Applied(applied))
    }

    /// Removes locks that are over, at most so many. Returns how many it removed.
    pub(crate) fn reap(&mut self, table: &Table, limit: usize) -> usize {
        let mut reaped = 0;
        for held in table.dead(self.now) {
            if reaped == limit {
                break;
            }
            if !self.touches(&held.lock.resource) {
                self.note(EventKind::Expired, held.lock.clone(), None);
                self.overlay.insert(held.lock.resource.clone(), None);
                reaped += 1;
            }
        }
        reaped
    }

    /// The moment at which the batch decides.
    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    /// Whether there is nothing to make durable.
    pub(crate) fn is_empty(&self) -> bool {
        self.overlay.is_empty()
    }

    /// How many locks it makes, changes or removes.
    pub(crate) fn len(&self) -> usize {
        self.overlay.len()
    }

    /// What the batch leaves on each resource that it touched, in the order of their bytes.
    pub(crate) fn writes(&self) -> impl ExactSizeIterator<Item = (&Resource, Option<&Held>)> {
        self.overlay
            .iter()
            .map(|(resource, held)| (resource, held.as_deref()))
    }

    /// Whether the batch touches this resource.
    pub(crate) fn touches(&self, resource: &Resource) -> bool {
        self.overlay.contains_key(resource)
    }

    /// The highest token drawn so far, by this batch or before it.
    pub(crate) fn top_token(&self) -> u64 {
        self.top_token
    }

    /// Makes the batch part of the table, and returns its events in order.
    pub(crate) fn publish(self, table: &mut Table) -> Vec<Event> {
        for (resource, held) in self.overlay {
            table.put(&resource, held);
        }
        table.top_token = self.top_token;
        if !self.events.is_empty() {
            table.commits = self.commit;
        }
        self.events
    }

    fn look<'a>(&'a self, table: &'a Table, resource: &Resource) -> Option<&'a Arc<Held>> {
        match self.overlay.get(resource) {
            Some(held) => held.as_ref(),
            None => table.get(resource),
        }
    }

    /// A token for each of the changes that grants.
    fn draw(&mut self, changes: &[Change]) -> Result<Vec<Option<FencingToken>>, TokensUsedUp> {
        let mut top = self.top_token;
        let tokens = changes
            .iter()
            .map(|change| match change.write {
                Write::Grant(_) => {
                    let token = next_token(top)?;
                    top = token.get();
                    Ok(Some(token))
                }
                Write::Extend(_) | Write::Remove => Ok(None),
            })
            .collect::<Result<_, _>>()?;
        self.top_token = top;
        Ok(tokens)
    }

    fn carry_out(
        &mut self,
        change: &Change,
        before: Option<Arc<Held>>,
        token: Option<FencingToken>,
    ) -> Option<Live> {
        let (before, dead): (Option<_>, Option<_>) = match before {
            Some(held) if held.is_live(self.now) => (Some(held), None),
            over => (None, over),
        };
        if let Some(dead) = &dead {
            self.note(EventKind::Expired, dead.lock.clone(), None);
        }
        let after = match (&change.write, &before, token) {
            (Write::Grant(grant), _, Some(token)) => Some(self.granted(&change.resource, grant, token)),
            (Write::Extend(ttl), Some(held), _) => {
                let mut held = Held::clone(held);
                held.lock.expires_at = self.now.plus(ttl.duration());
                Some(held)
            }
            _ => None,
        };
        for kind in change.event_kinds() {
            match kind {
                EventKind::Acquired | EventKind::Renewed => {
                    if let Some(after) = &after {
                        self.note(*kind, after.lock.clone(), None);
                    }
                }
                EventKind::Released | EventKind::Forced | EventKind::Expired => {
                    if let Some(before) = &before {
                        self.note(*kind, before.lock.clone(), change.reason());
                    }
                }
            }
        }
        let live = after.as_ref().and_then(|held| held.live(self.now));
        if before.is_some() || dead.is_some() || after.is_some() {
            self.overlay.insert(change.resource.clone(), after.map(Arc::new));
        }
        live
    }

    fn granted(&self, resource: &Resource, grant: &Grant, token: FencingToken) -> Held {
        Held {
            lock: Lock {
                resource: resource.clone(),
                owner: grant.holder.owner.clone(),
                expires_at: self.now.plus(grant.ttl.duration()),
                acquired_at: self.now,
                fencing_token: token,
                metadata: grant.metadata.clone(),
                principal: grant.holder.principal.clone(),
            },
            mark: grant.mark.clone(),
        }
    }

    fn note(&mut self, kind: EventKind, lock: Lock, reason: Option<Reason>) {
        self.events.push(Event {
            position: Position {
                epoch: self.epoch,
                commit: self.commit,
                index: u32::try_from(self.events.len()).unwrap_or(u32::MAX),
            },
            kind,
            resource: lock.resource.clone(),
            lock,
            at: self.now,
            reason,
        });
    }
}

/// The answer to changes whose expectations do not all hold on these locks.
pub(super) fn refusal(changes: &[Change], current: &[Option<&Arc<Held>>], now: Timestamp) -> Option<Outcome> {
    let as_expected = changes
        .iter()
        .zip(current)
        .all(|(change, held)| is_as_expected(&change.expected, now, held.map(AsRef::as_ref)));
    let live = |held: Option<&Arc<Held>>| held.and_then(|held| held.live(now));
    (!as_expected).then(|| Outcome::Stale(current.iter().copied().map(live).collect()))
}

fn is_as_expected(expected: &Expected, now: Timestamp, held: Option<&Held>) -> bool {
    let live = held.filter(|held| held.is_live(now)).map(|held| &held.lock);
    match (expected, live) {
        (Expected::Free, live) => live.is_none(),
        (Expected::HeldBy(claim), Some(lock)) => claim.is_true_of(lock),
        (Expected::Token(token), Some(lock)) => *token == lock.fencing_token,
        (Expected::HeldBy(_) | Expected::Token(_), None) => false,
    }
}

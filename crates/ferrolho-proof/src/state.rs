//! What the locks may be like at a point of an order, and what a call makes of that.
//!
//! Who may do what is asked of `ferrolho_core::rules`. What is added here is only what a client cannot see: when
//! exactly a call took effect, the token of a grant that nobody was told of, and that such a grant may be taken back at
//! any time. A lock is over by itself when the clock allows it: not before the earliest end that its call allows, and
//! nobody may see it alive after the latest.

use std::time::Duration;

use ferrolho_core::rules::{self, AcquireDecision, ReleaseResult, RenewResult};
use ferrolho_core::{Claim, FencingToken, Grant, Holder, Live, Lock, Mark, Resource, Timestamp, Ttl};

use crate::group::Op;
use crate::{Answer, Ask, Judge, Moment};

/// The locks of a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) slots: Vec<Slot>,
}

/// One resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Slot {
    pub(crate) held: Option<Held>,
    /// The highest token that was seen so far.
    top: u64,
}

/// A lock, as far as anything is known of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    pub(crate) holder: Holder,
    mark: Mark,
    pub(crate) token: Option<FencingToken>,
    acquired_at: Option<Timestamp>,
    expires_at: Option<Timestamp>,
    /// When the call that made the grant took effect at the latest.
    granted_by: Moment,
    /// Whether somebody was told of the grant; if not, it may be taken back.
    pub(crate) is_told: bool,
    pub(crate) ends: Ends,
}

/// When a lock ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ends {
    pub(crate) earliest: Moment,
    /// Nothing where that is not known.
    pub(crate) latest: Option<Moment>,
}

/// A point of an order: the locks, and for each the moment of the last call that touched it, as early as can be.
///
/// Calls on different resources have nothing to do with each other, so there is no moment for all of them.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub(crate) nows: Vec<Moment>,
    pub(crate) state: State,
}

impl Point {
    /// The beginning: no lock, and no token was ever drawn.
    pub(crate) fn start(resources: usize) -> Self {
        Self {
            nows: vec![Moment::ZERO; resources],
            state: State {
                slots: vec![Slot::default(); resources],
            },
        }
    }

    /// The points that this call may lead to, if it is answered as it was. None when it cannot happen here. The locks
    /// of the slots `alive` are not over yet.
    pub(crate) fn after(&self, op: &Op, alive: &[usize], judge: &Judge) -> Vec<Point> {
        let touched = op.slots.iter().map(|slot| self.nows[*slot]);
        let now = touched.fold(op.call.start, Moment::max);
        if now > op.latest {
            return Vec::new();
        }
        let mut worlds = vec![World {
            now,
            state: self.state.clone(),
        }];
        for slot in &op.slots {
            let may_be_over = !alive.contains(slot);
            worlds = worlds
                .into_iter()
                .flat_map(|world| world.alive_or_over(*slot, may_be_over, op.latest, judge))
                .collect();
        }
        // A later slot may have moved the moment on.
        worlds.retain(|world| op.slots.iter().all(|slot| world.may_be_alive(*slot, judge)));
        let steps = worlds.iter().flat_map(|world| Step { world, op, judge }.take());
        steps.map(|world| self.touched(op, world)).collect()
    }

    /// Whether there is time yet for this call.
    pub(crate) fn is_before_end_of(&self, op: &Op) -> bool {
        op.slots.iter().all(|slot| self.nows[*slot] <= op.latest)
    }

    /// Where an acquire takes a lock that its holder was not told to have already.
    pub(crate) fn taken_by(&self, op: &Op) -> Vec<usize> {
        let grant = match &op.call.ask {
            Ask::Acquire { grant, .. } => grant,
            _ if self.prolonged_until(op).is_some() => return op.slots.clone(),
            _ => return Vec::new(),
        };
        let is_new = |slot: &usize| {
            let held = self.state.slots[*slot].held.as_ref();
            held.is_none_or(|held| !held.is_told || held.holder != grant.holder)
        };
        op.slots.iter().copied().filter(is_new).collect()
    }

    /// Until when the lock that a renewal prolongs lasts without it. (Another renewal makes it shorter.)
    pub(crate) fn prolonged_until(&self, op: &Op) -> Option<Moment> {
        let (Ask::Renew { ttl, .. }, [slot]) = (&op.call.ask, op.slots.as_slice()) else {
            return None;
        };
        let ends = self.state.slots[*slot].held.as_ref()?.ends;
        let now = self.nows[*slot].max(op.call.start);
        let prolongs = now.saturating_add(ttl.duration()) >= ends.earliest;
        ends.latest.filter(|_| prolongs)
    }

    fn touched(&self, op: &Op, world: World) -> Self {
        let mut nows = self.nows.clone();
        for slot in &op.slots {
            nows[*slot] = world.now;
        }
        Self {
            nows,
            state: world.state,
        }
    }
}

/// The locks at the moment of a call.
#[derive(Clone, Debug)]
struct World {
    now: Moment,
    state: State,
}

impl World {
    fn alive_or_over(self, slot: usize, may_be_over: bool, latest: Moment, judge: &Judge) -> Vec<World> {
        let Some(held) = self.state.slots[slot].held.as_ref().filter(|_| may_be_over) else {
            return vec![self];
        };
        let over_at = if held.is_told {
            held.ends.earliest.saturating_sub(judge.early)
        } else {
            self.now
        };
        let mut worlds = Vec::with_capacity(2);
        if over_at <= latest {
            let mut over = self.clone();
            over.now = over.now.max(over_at);
            over.state.slots[slot].held = None;
            worlds.push(over);
        }
        worlds.push(self);
        worlds
    }

    fn may_be_alive(&self, slot: usize, judge: &Judge) -> bool {
        let held = self.state.slots[slot].held.as_ref();
        let latest = held.and_then(|held| held.ends.latest);
        latest.is_none_or(|latest| self.now <= latest.saturating_add(judge.late))
    }
}

/// A call that is about to take effect in a world where it is settled what is alive.
struct Step<'a> {
    world: &'a World,
    op: &'a Op,
    judge: &'a Judge,
}

impl Step<'_> {
    fn take(&self) -> Vec<World> {
        match &self.op.call.ask {
            Ask::Acquire { resources, grant, .. } => self.acquire(resources, grant),
            Ask::Renew { claim, ttl, .. } => self.renew(claim, *ttl),
            Ask::Release { claim, .. } => self.release(claim),
            Ask::Force { .. } => self.force(),
            Ask::Find { .. } => self.find(),
        }
    }

    fn answer(&self) -> &Answer {
        &self.op.call.answer
    }

    fn slot(&self, nth: usize) -> &Slot {
        &self.world.state.slots[self.op.slots[nth]]
    }

    fn unchanged(&self) -> Vec<World> {
        vec![self.world.clone()]
    }

    /// The world with the first of the call's slots like this.
    fn with(&self, slot: Slot) -> Vec<World> {
        let mut world = self.world.clone();
        world.state.slots[self.op.slots[0]] = slot;
        vec![world]
    }

    fn acquire(&self, resources: &[Resource], grant: &Grant) -> Vec<World> {
        let lives: Vec<Option<Live>> = resources
            .iter()
            .enumerate()
            .map(|(nth, resource)| self.slot(nth).held.as_ref().map(|held| held.live(resource, None)))
            .collect();
        match (rules::acquire(&lives, resources, grant), self.answer()) {
            (AcquireDecision::Held(_), Answer::Held) => self.unchanged(),
            (AcquireDecision::Changes(_), Answer::Granted(locks)) => self.granted(grant, locks),
            (AcquireDecision::Changes(_), Answer::Unknown) => self.granted_unheard(grant),
            (AcquireDecision::Changes(_), Answer::Held) if self.op.shares_place => {
                self.granted_unheard(grant)
            }
            (AcquireDecision::Repeat, Answer::Granted(locks)) => self.repeated(locks),
            _ => Vec::new(),
        }
    }

    fn granted(&self, grant: &Grant, locks: &[Lock]) -> Vec<World> {
        let mut world = self.world.clone();
        if locks.len() != self.op.slots.len() {
            return Vec::new();
        }
        for ((nth, resource), lock) in self.op.call.ask.resources().iter().enumerate().zip(locks) {
            let is_right = lock.resource == *resource
                && lock.is_held_by(&grant.holder)
                && lock.expires_at == lock.acquired_at.plus(grant.ttl.duration())
                && lock.fencing_token.get() > self.slot(nth).top;
            let Some(at) = self
                .judge
                .moment(lock.acquired_at, self.world.now, self.op.latest)
            else {
                return Vec::new();
            };
            if !is_right || nth > 0 && at.earliest != world.now {
                return Vec::new();
            }
            world.now = at.earliest;
            world.state.slots[self.op.slots[nth]] = Slot {
                top: lock.fencing_token.get(),
                held: Some(Held {
                    holder: grant.holder.clone(),
                    mark: grant.mark.clone(),
                    token: Some(lock.fencing_token),
                    acquired_at: Some(lock.acquired_at),
                    expires_at: Some(lock.expires_at),
                    granted_by: self.op.latest,
                    is_told: true,
                    ends: at.plus(grant.ttl.duration()),
                }),
            };
        }
        vec![world]
    }

    /// The grant was made, and its caller does not know.
    fn granted_unheard(&self, grant: &Grant) -> Vec<World> {
        let mut world = self.world.clone();
        for slot in &self.op.slots {
            world.state.slots[*slot].held = Some(Held {
                holder: grant.holder.clone(),
                mark: grant.mark.clone(),
                token: None,
                acquired_at: None,
                expires_at: None,
                granted_by: self.op.latest,
                is_told: false,
                ends: self.ends_unseen(grant.ttl),
            });
        }
        vec![world]
    }

    /// The end of a life that began at a moment of which nothing was heard: maybe as soon as the call was sent, for the
    /// search places such a call right before the one that sees it, and it may have come long before.
    fn ends_unseen(&self, ttl: Ttl) -> Ends {
        Ends {
            earliest: self.op.call.start.saturating_add(ttl.duration()),
            latest: None,
        }
    }

    /// The grant was there already, by the same attempt: now somebody is told of it.
    fn repeated(&self, locks: &[Lock]) -> Vec<World> {
        let mut world = self.world.clone();
        if locks.len() != self.op.slots.len() {
            return Vec::new();
        }
        for ((nth, resource), lock) in self.op.call.ask.resources().iter().enumerate().zip(locks) {
            let Some(mut slot) = self.seen(nth, resource, lock) else {
                return Vec::new();
            };
            if let Some(held) = &mut slot.held {
                held.is_told = true;
            }
            world.state.slots[self.op.slots[nth]] = slot;
        }
        vec![world]
    }

    fn renew(&self, claim: &Claim, ttl: Ttl) -> Vec<World> {
        let lives = self.lives(claim);
        let mut points = Vec::new();
        for live in &lives {
            match (rules::renew(live.as_ref(), claim), self.answer()) {
                (RenewResult::NotFound, Answer::NotFound) | (RenewResult::Forbidden, Answer::Forbidden) => {
                    points.extend(self.unchanged());
                }
                (RenewResult::Renewed, Answer::Renewed(lock)) => points.extend(self.renewed(ttl, lock)),
                (RenewResult::Renewed, Answer::Unknown) => {
                    let mut slot = self.slot(0).clone();
                    if let Some(held) = &mut slot.held {
                        held.expires_at = None;
                        held.ends = self.ends_unseen(ttl);
                    }
                    points.extend(self.with(slot));
                }
                _ => {}
            }
        }
        points
    }

    fn renewed(&self, ttl: Ttl, lock: &Lock) -> Vec<World> {
        let mut before = self.slot(0).clone();
        if let Some(held) = &mut before.held {
            held.expires_at = None;
        }
        let life = i64::from(ttl.seconds()) * 1_000_000;
        let begun = Timestamp::from_micros(lock.expires_at.as_micros() - life);
        let [resource] = self.op.call.ask.resources() else {
            return Vec::new();
        };
        let Some(at) = self.judge.moment(begun, self.world.now, self.op.latest) else {
            return Vec::new();
        };
        let Some(mut slot) = before.seen_as(resource, lock) else {
            return Vec::new();
        };
        if let Some(held) = &mut slot.held {
            held.ends = at.plus(ttl.duration());
        }
        let mut worlds = self.with(slot);
        for world in &mut worlds {
            world.now = at.earliest;
        }
        worlds
    }

    fn release(&self, claim: &Claim) -> Vec<World> {
        let lives = self.lives(claim);
        let mut points = Vec::new();
        for live in &lives {
            match (rules::release(live.as_ref(), claim), self.answer()) {
                (ReleaseResult::NotFound, Answer::NotFound)
                | (ReleaseResult::Forbidden, Answer::Forbidden) => {
                    points.extend(self.unchanged());
                }
                (ReleaseResult::Released, Answer::Released | Answer::Unknown) => points.extend(self.freed()),
                _ => {}
            }
        }
        points
    }

    fn force(&self) -> Vec<World> {
        match (&self.slot(0).held, self.answer()) {
            (None, Answer::NotFound) => self.unchanged(),
            (Some(_), Answer::Released | Answer::Unknown) => self.freed(),
            _ => Vec::new(),
        }
    }

    fn freed(&self) -> Vec<World> {
        self.with(Slot {
            held: None,
            ..self.slot(0).clone()
        })
    }

    fn find(&self) -> Vec<World> {
        match (&self.slot(0).held, self.answer()) {
            (None, Answer::NotFound) => self.unchanged(),
            (Some(_), Answer::Found(lock)) => {
                let [resource] = self.op.call.ask.resources() else {
                    return Vec::new();
                };
                self.seen(0, resource, lock)
                    .map_or_else(Vec::new, |slot| self.with(slot))
            }
            _ => Vec::new(),
        }
    }

    /// The lock as the rules may see it: a token that nobody has seen yet may be the one that is claimed, or not.
    fn lives(&self, claim: &Claim) -> Vec<Option<Live>> {
        let [resource] = self.op.call.ask.resources() else {
            return Vec::new();
        };
        let slot = self.slot(0);
        match &slot.held {
            None => vec![None],
            Some(held) if held.token.is_some() || claim.token.is_none() => {
                vec![Some(held.live(resource, None))]
            }
            Some(held) => {
                let claimed = claim.token.filter(|token| token.get() > slot.top);
                let another = FencingToken::new(i128::from(slot.top) + 1).ok();
                let tokens = [claimed, another.filter(|another| Some(*another) != claim.token)];
                let tokens = tokens.into_iter().flatten();
                tokens
                    .map(|token| Some(held.live(resource, Some(token))))
                    .collect()
            }
        }
    }

    /// What is known of a slot once its lock was seen to be this one.
    fn seen(&self, nth: usize, resource: &Resource, lock: &Lock) -> Option<Slot> {
        let mut slot = self.slot(nth).seen_as(resource, lock)?;
        let granted_by = slot.held.as_ref().map(|held| held.granted_by);
        if self.judge.exact(lock.acquired_at) > granted_by {
            return None;
        }
        if let Some(held) = &mut slot.held
            && let Some(end) = self.judge.exact(lock.expires_at)
        {
            // What is written are whole microseconds of the end.
            let is_early = end + Duration::from_micros(1) <= held.ends.earliest;
            if is_early || held.ends.latest.is_some_and(|latest| latest < end) {
                return None;
            }
            held.ends = Ends {
                earliest: end,
                latest: Some(end),
            };
        }
        Some(slot)
    }
}

impl Slot {
    /// The slot, when its lock can be this one. What was not known of it is known then.
    fn seen_as(&self, resource: &Resource, lock: &Lock) -> Option<Slot> {
        let held = self.held.as_ref()?;
        let is_token = match held.token {
            Some(token) => token == lock.fencing_token,
            None => lock.fencing_token.get() > self.top,
        };
        let can_be = lock.resource == *resource
            && lock.is_held_by(&held.holder)
            && is_token
            && held.acquired_at.is_none_or(|at| at == lock.acquired_at)
            && held.expires_at.is_none_or(|at| at == lock.expires_at);
        can_be.then(|| Slot {
            top: lock.fencing_token.get(),
            held: Some(Held {
                token: Some(lock.fencing_token),
                acquired_at: Some(lock.acquired_at),
                expires_at: Some(lock.expires_at),
                ..held.clone()
            }),
        })
    }
}

impl Held {
    /// The lock, for the rules, which know no time. `token` stands for one that nobody has seen yet.
    fn live(&self, resource: &Resource, token: Option<FencingToken>) -> Live {
        let epoch = Timestamp::from_micros(0);
        Live {
            lock: Lock {
                resource: resource.clone(),
                owner: self.holder.owner.clone(),
                expires_at: self.expires_at.unwrap_or(epoch),
                acquired_at: self.acquired_at.unwrap_or(epoch),
                fencing_token: self.token.or(token).unwrap_or(FencingToken::MAX),
                metadata: None,
                principal: self.holder.principal.clone(),
            },
            mark: self.mark.clone(),
            left: Duration::ZERO,
        }
    }
}

impl Ends {
    fn plus(self, span: Duration) -> Self {
        Self {
            earliest: self.earliest.saturating_add(span),
            latest: self.latest.map(|latest| latest.saturating_add(span)),
        }
    }
}

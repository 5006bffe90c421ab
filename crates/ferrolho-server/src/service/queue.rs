//! Who waits for what, in which order.
//!
//! A *place* is one (holder, resources) that wants a lock or a set of them. It stands in the queue of each of its
//! resources under a number that rises with arrival; a place is *in front* when it is the first of each of its
//! queues. Several requests of one holder for the same thing share the oldest's place. A place whose last caller
//! left is kept for [`PLACE_KEPT`], out of the queues, so that who returns in time finds it again.
//!
//! This is plain data behind one mutex, handed the time; it awaits nothing. [`super::drive`] acts on it.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::{Grant, Holder, Resource, Timestamp, Wait};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Limits, No, Reached, Verdict};
use crate::audit::Origin;

/// How long a place is kept after its last caller left.
pub(super) const PLACE_KEPT: Duration = Duration::from_secs(5);

/// For how long one server of several may hand a lock on among its own waiters before it frees it for all.
const HANDOVER_RUN: Duration = Duration::from_secs(1);

/// How long that server's first waiter then stands back.
const STAND_BACK: Duration = Duration::from_millis(50);

/// The number of a place; rises with arrival.
pub(super) type PlaceId = u64;

/// The number of a request.
pub(super) type RequestId = u64;

/// What a place is for. The resources are sorted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PlaceKey {
    pub(super) holder: Holder,
    pub(super) resources: Arc<[Resource]>,
}

impl PlaceKey {
    pub(super) fn new(holder: Holder, resources: &[Resource]) -> Self {
        let mut resources = resources.to_vec();
        resources.sort();
        Self {
            holder,
            resources: resources.into(),
        }
    }
}

/// A caller that stands at a place.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: RequestId,
    pub(super) grant: Grant,
    pub(super) origin: Origin,
    pub(super) wait: Wait,
    pub(super) deadline: Instant,
    pub(super) answer: oneshot::Sender<Verdict>,
}

#[derive(Debug)]
struct Place {
    key: PlaceKey,
    since: Timestamp,
    /// The newest is the last. Empty while the place is away.
    requests: Vec<Request>,
    trying: Trying,
    /// When the place may be forgotten, while it is away.
    kept_until: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trying {
    No,
    /// A grant for it is on its way to the engine.
    Yes,
    /// The same, and something has happened since that calls for another look.
    YesAndAgain,
}

/// The queue of one resource.
#[derive(Debug, Default)]
struct Line {
    /// The places that somebody stands at.
    present: BTreeSet<PlaceId>,
    /// When the hand-overs in a row among the waiters here began, on a store that other servers share.
    handing_over_since: Option<Instant>,
    /// Until when the first place stands back for other servers.
    stand_back_until: Option<Instant>,
    /// When the first place looks again by itself.
    alarm: Option<Instant>,
}

/// What the timekeeper has to do at a certain time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wake {
    /// The first place of this queue looks again.
    Look(Resource),
    /// This place is forgotten, if it still is away.
    Forget(PlaceId),
}

/// An attempt that a place makes now. It must be given back to [`Queues::end_try`] or [`Queues::granted`].
#[derive(Clone, Debug)]
pub(super) struct Try {
    pub(super) place: PlaceId,
    pub(super) request: RequestId,
    pub(super) resources: Arc<[Resource]>,
    pub(super) grant: Grant,
    pub(super) origin: Origin,
    pub(super) deadline: Instant,
}

/// One who waits, for people to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Who.
    pub holder: Holder,
    /// Since when it has had its place.
    pub since: Timestamp,
    /// How long its newest request will wait in all.
    pub wait: Wait,
}

/// All queues of this server.
#[derive(Debug)]
pub(super) struct Queues {
    limits: Limits,
    is_shared: bool,
    next_id: u64,
    waiting: usize,
    places: HashMap<PlaceId, Place>,
    by_key: HashMap<PlaceKey, PlaceId>,
    lines: HashMap<Resource, Line>,
    /// Places that are away, the longest first.
    away: VecDeque<PlaceId>,
    wakes: BTreeSet<(Instant, Wake)>,
}

impl Queues {
    pub(super) fn new(limits: Limits, is_shared: bool) -> Self {
        Self {
            limits,
            is_shared,
            next_id: 0,
            waiting: 0,
            places: HashMap::new(),
            by_key: HashMap::new(),
            lines: HashMap::new(),
            away: VecDeque::new(),
            wakes: BTreeSet::new(),
        }
    }

    /// A new number for a place or a request.
    pub(super) fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// How many requests wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// How many places, queues and alarms there are, all told: nothing, once everybody has gone.
    pub(super) fn footprint(&self) -> usize {
        self.places.len() + self.by_key.len() + self.lines.len() + self.away.len() + self.wakes.len()
    }

    /// Those of the resources that somebody else came for before this holder.
    pub(super) fn waited_for(&self, key: &PlaceKey) -> Vec<Resource> {
        if self.lines.is_empty() {
            return Vec::new();
        }
        let own = self.by_key.get(key).copied().unwrap_or(PlaceId::MAX);
        let others_wait = |resource: &&Resource| {
            self.lines.get(*resource).is_some_and(|queue| {
                let mut before = queue.present.range(..own);
                before.any(|id| {
                    self.places
                        .get(id)
                        .is_some_and(|place| place.key.holder != key.holder)
                })
            })
        };
        key.resources.iter().filter(others_wait).cloned().collect()
    }

    /// Whether anybody waits for this resource.
    pub(super) fn anybody_waits(&self, resource: &Resource) -> bool {
        self.lines
            .get(resource)
            .is_some_and(|queue| !queue.present.is_empty())
    }

    /// The resources that anybody waits for.
    pub(super) fn contended(&self) -> Vec<Resource> {
        self.lines.keys().cloned().collect()
    }

    /// How many wait for each of them.
    pub(super) fn lengths(&self) -> Vec<(Resource, usize)> {
        let length = |(resource, line): (&Resource, &Line)| (resource.clone(), line.present.len());
        self.lines.iter().map(length).collect()
    }

    /// Who waits for this resource, in order.
    pub(super) fn waiters(&self, resource: &Resource) -> Vec<Waiting> {
        let present = self
            .lines
            .get(resource)
            .into_iter()
            .flat_map(|queue| &queue.present);
        let places = present.filter_map(|id| self.places.get(id));
        places
            .filter_map(|place| {
                Some(Waiting {
                    holder: place.key.holder.clone(),
                    since: place.since,
                    wait: place.requests.last()?.wait,
                })
            })
            .collect()
    }

    /// Lets a request stand in line, at the place that its holder has or had, else at the end.
    pub(super) fn enter(
        &mut self,
        key: &PlaceKey,
        request: Request,
        since: Timestamp,
    ) -> Result<PlaceId, Reached> {
        self.check_limits(key)?;
        self.waiting += 1;
        let id = match self.by_key.get(key) {
            Some(id) => *id,
            None => self.new_place(key, since),
        };
        let Some(place) = self.places.get_mut(&id) else {
            return Ok(id);
        };
        place.requests.push(request);
        if let Some(until) = place.kept_until.take() {
            self.wakes.remove(&(until, Wake::Forget(id)));
            self.away.retain(|away| *away != id);
        }
        for resource in key.resources.iter() {
            self.lines.entry(resource.clone()).or_default().present.insert(id);
        }
        Ok(id)
    }

    fn check_limits(&self, key: &PlaceKey) -> Result<(), Reached> {
        if self.waiting >= self.limits.waiters {
            return Err(Reached {
                limit: "max-waiters",
                value: self.limits.waiters,
            });
        }
        let is_full = |resource: &Resource| {
            let present = self.lines.get(resource).map(|queue| &queue.present);
            let requests = present.map(|ids| {
                // Places are nearly always of one request; counting them first spares the sum.
                if ids.len() < self.limits.waiters_per_resource / 2 {
                    return 0;
                }
                ids.iter()
                    .filter_map(|id| self.places.get(id))
                    .map(|place| place.requests.len())
                    .sum()
            });
            requests.unwrap_or(0usize) >= self.limits.waiters_per_resource
        };
        if key.resources.iter().any(is_full) {
            return Err(Reached {
                limit: "max-waiters-per-resource",
                value: self.limits.waiters_per_resource,
            });
        }
        Ok(())
    }

    fn new_place(&mut self, key: &PlaceKey, since: Timestamp) -> PlaceId {
        let id = self.next_id();
        self.by_key.insert(key.clone(), id);
        self.places.insert(
            id,
            Place {
                key: key.clone(),
                since,
                requests: Vec::new(),
                trying: Trying::No,
                kept_until: None,
            },
        );
        id
    }

    /// Takes a request out of line. The last to leave a place leaves it empty, for a while. Returns the
    /// resources whose queue has a new front now.
    pub(super) fn leave(&mut self, id: PlaceId, request: RequestId, now: Instant) -> Vec<Resource> {
        let Some(place) = self.places.get_mut(&id) else {
            return Vec::new();
        };
        let before = place.requests.len();
        place.requests.retain(|waiting| waiting.id != request);
        self.waiting -= before - place.requests.len();
        if !place.requests.is_empty() || place.kept_until.is_some() {
            return Vec::new();
        }
        let until = now + PLACE_KEPT;
        place.kept_until = Some(until);
        let resources = place.key.resources.clone();
        self.wakes.insert((until, Wake::Forget(id)));
        self.away.push_back(id);
        self.stand_aside(id, &resources);
        if self.away.len() > self.limits.waiters
            && let Some(oldest) = self.away.front().copied()
        {
            self.forget(oldest);
        }
        resources.to_vec()
    }

    /// Takes a place out of its queues, and the queues away that nobody stands in.
    fn stand_aside(&mut self, id: PlaceId, resources: &[Resource]) {
        for resource in resources {
            let Some(queue) = self.lines.get_mut(resource) else {
                continue;
            };
            queue.present.remove(&id);
            if queue.present.is_empty() {
                if let Some(at) = queue.alarm.take() {
                    self.wakes.remove(&(at, Wake::Look(resource.clone())));
                }
                self.lines.remove(resource);
            }
        }
    }

    /// Forgets a place that is away.
    pub(super) fn forget(&mut self, id: PlaceId) {
        let Some(until) = self.places.get(&id).and_then(|place| place.kept_until) else {
            return;
        };
        self.wakes.remove(&(until, Wake::Forget(id)));
        self.away.retain(|away| *away != id);
        if let Some(place) = self.places.remove(&id) {
            self.by_key.remove(&place.key);
        }
    }

    /// Something has happened to these resources: the attempts that the first places of their queues should make
    /// now, each once. A place tries only when it is in front of all its queues, and one attempt at a time.
    pub(super) fn begin_tries(&mut self, resources: &[Resource], now: Instant) -> Vec<Try> {
        let mut fronts = BTreeSet::new();
        for resource in resources {
            let Some(line) = self.lines.get_mut(resource) else {
                continue;
            };
            match line.stand_back_until {
                Some(until) if now < until => self.arm(resource, until),
                _ => {
                    line.stand_back_until = None;
                    line.handing_over_since = None;
                    fronts.extend(self.front(resource));
                }
            }
        }
        fronts.into_iter().filter_map(|id| self.begin_try(id)).collect()
    }

    /// The attempt of the one to whom a release of this resource hands it over, if there is one. On a store that
    /// other servers share, a long run of hand-overs is broken for them.
    pub(super) fn heir(&mut self, resource: &Resource, now: Instant) -> Option<Try> {
        let queue = self.lines.get_mut(resource)?;
        let has_run_long = queue
            .handing_over_since
            .is_some_and(|since| now.duration_since(since) >= HANDOVER_RUN);
        if self.is_shared && has_run_long {
            queue.handing_over_since = None;
            queue.stand_back_until = Some(now + STAND_BACK);
            self.arm(resource, now + STAND_BACK);
            return None;
        }
        let heir = self.front(resource).and_then(|id| self.begin_try(id))?;
        if let Some(queue) = self.lines.get_mut(resource) {
            queue.handing_over_since.get_or_insert(now);
        }
        Some(heir)
    }

    /// The first place of this queue, if it is the first of all its queues.
    fn front(&self, resource: &Resource) -> Option<PlaceId> {
        let id = *self.lines.get(resource)?.present.first()?;
        let is_first = |resource: &Resource| {
            self.lines
                .get(resource)
                .is_some_and(|line| line.present.first() == Some(&id))
        };
        self.places
            .get(&id)?
            .key
            .resources
            .iter()
            .all(is_first)
            .then_some(id)
    }

    fn begin_try(&mut self, id: PlaceId) -> Option<Try> {
        let place = self.places.get_mut(&id)?;
        if place.trying != Trying::No {
            place.trying = Trying::YesAndAgain;
            return None;
        }
        let attempt = place.newest_try(id)?;
        place.trying = Trying::Yes;
        Some(attempt)
    }

    /// The attempt failed: the place waits on, and looks again at `look_at` or when something happens. Callers
    /// whose time ran out meanwhile are told so. Returns whether its queues need a look at once.
    pub(super) fn end_try(&mut self, id: PlaceId, look_at: Instant, now: Instant) -> bool {
        let Some(place) = self.places.get_mut(&id) else {
            return false;
        };
        let again = std::mem::replace(&mut place.trying, Trying::No) == Trying::YesAndAgain;
        let resource = place.key.resources.first().cloned();
        let late: Vec<RequestId> = place
            .requests
            .iter()
            .filter(|r| r.deadline <= now)
            .map(|request| request.id)
            .collect();
        for request in late {
            self.answer(id, request, No::TimeIsUp, now);
        }
        if let Some(resource) = resource {
            self.arm(&resource, look_at);
        }
        again
            || self
                .places
                .get(&id)
                .is_none_or(|place| place.kept_until.is_some())
    }

    /// Answers one request and takes it out of line.
    fn answer(&mut self, id: PlaceId, request: RequestId, no: No, now: Instant) {
        let place = self.places.get_mut(&id);
        let found = place.and_then(|place| {
            let index = place.requests.iter().position(|waiting| waiting.id == request)?;
            Some(place.requests.remove(index))
        });
        if let Some(found) = found {
            self.waiting -= 1;
            // Nobody listens any more when the caller has just left; it has its own way out.
            let _ = found.answer.send(Err(no));
            self.leave(id, request, now);
        }
    }

    /// This request's wait is over, maybe before its deadline. Tells whether a grant for its place is on its way:
    /// then the end of that attempt answers it, granted or not.
    pub(super) fn is_answered_by_try(&mut self, id: PlaceId, request: RequestId, now: Instant) -> bool {
        let Some(place) = self
            .places
            .get_mut(&id)
            .filter(|place| place.trying != Trying::No)
        else {
            return false;
        };
        for waiting in place.requests.iter_mut().filter(|waiting| waiting.id == request) {
            waiting.deadline = waiting.deadline.min(now);
        }
        true
    }

    /// The attempt made its grant. If its caller is the newest of its place, the place is over and the caller's
    /// end comes back, to be answered; the others are told that they did not get it.
    pub(super) fn granted(&mut self, made: &Try) -> Granted {
        let Some(place) = self.places.get_mut(&made.place) else {
            return Granted::NobodyLeft;
        };
        match place.requests.last() {
            Some(newest) if newest.id != made.request => {
                place.trying = Trying::Yes;
                place
                    .newest_try(made.place)
                    .map_or(Granted::NobodyLeft, Granted::NewerCaller)
            }
            newest => {
                let is_there = newest.is_some();
                let mut requests = self.remove(made.place);
                let newest = if is_there { requests.pop() } else { None };
                for other in requests {
                    let _ = other.answer.send(Err(No::TimeIsUp));
                }
                newest.map_or(Granted::NobodyLeft, |request| Granted::Caller(request.answer))
            }
        }
    }

    /// The attempt came to nothing that could be waited out: everybody at the place is told so.
    pub(super) fn fail(&mut self, id: PlaceId, no: No) {
        for request in self.remove(id) {
            let _ = request.answer.send(Err(no));
        }
    }

    /// Everybody who waits is told so, but for those whose grant is on its way.
    pub(super) fn dismiss_all(&mut self, no: No) {
        let idle = |(id, place): (&PlaceId, &Place)| (place.trying == Trying::No).then_some(*id);
        let mut idle: Vec<PlaceId> = self.places.iter().filter_map(idle).collect();
        // In the order of their arrival, and not in the map's.
        idle.sort_unstable();
        for id in idle {
            self.fail(id, no);
        }
    }

    /// Removes a place wholly. Returns the requests that stood at it.
    fn remove(&mut self, id: PlaceId) -> Vec<Request> {
        let Some(place) = self.places.remove(&id) else {
            return Vec::new();
        };
        self.by_key.remove(&place.key);
        if let Some(until) = place.kept_until {
            self.wakes.remove(&(until, Wake::Forget(id)));
            self.away.retain(|away| *away != id);
        }
        self.waiting -= place.requests.len();
        self.stand_aside(id, &place.key.resources);
        place.requests
    }

    /// Lets the first place of this queue look again at this time, in place of any other.
    pub(super) fn arm(&mut self, resource: &Resource, at: Instant) {
        if let Some(queue) = self.lines.get_mut(resource) {
            if let Some(old) = queue.alarm.replace(at) {
                self.wakes.remove(&(old, Wake::Look(resource.clone())));
            }
            self.wakes.insert((at, Wake::Look(resource.clone())));
        }
    }

    /// When the timekeeper has to do something next.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.wakes.first().map(|(at, _)| *at)
    }

    /// What the timekeeper has to do now, one thing at a time.
    pub(super) fn due(&mut self, now: Instant) -> Option<Wake> {
        if self.next_wake()? > now {
            return None;
        }
        let (_, wake) = self.wakes.pop_first()?;
        if let Wake::Look(resource) = &wake
            && let Some(queue) = self.lines.get_mut(resource)
        {
            queue.alarm = None;
        }
        Some(wake)
    }
}

/// What became of a grant that an attempt made for a place.
#[derive(Debug)]
pub(super) enum Granted {
    /// This caller is to be told.
    Caller(oneshot::Sender<Verdict>),
    /// A newer request of the same owner came meanwhile: it is to be granted in place of the older.
    NewerCaller(Try),
    /// Everybody has left: the grant is to be undone.
    NobodyLeft,
}

impl Place {
    fn newest_try(&self, id: PlaceId) -> Option<Try> {
        let newest = self.requests.last()?;
        Some(Try {
            place: id,
            request: newest.id,
            resources: self.key.resources.clone(),
            grant: newest.grant.clone(),
            origin: newest.origin.clone(),
            deadline: newest.deadline,
        })
    }
}

//! Histories taken apart: by resource, and by what sets join. Resources that no set joins have nothing to do with each
//! other; of those that one joins, each must still be explained alone.

use std::collections::BTreeMap;
use std::time::Duration;

use ferrolho_core::{FencingToken, Holder, Resource};

use crate::{Answer, Ask, Call, Moment};

/// For how long after its time a request that got no answer may still stand in line, as others see it.
const LINGERS: Duration = Duration::from_secs(30);

/// The calls on resources that sets join, directly or over others.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// How many resources there are.
    pub(crate) resources: usize,
    /// The calls, by their start.
    pub(crate) ops: Vec<Op>,
}

/// A call as the search sees it.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) call: Call,
    /// The places of its resources in the group.
    pub(crate) slots: Vec<usize>,
    /// Whether it need not have happened.
    pub(crate) is_optional: bool,
    /// When it has happened at the latest.
    pub(crate) latest: Moment,
    /// Whether a refusal of this acquire needs no lock in the way: it stands in line, or somebody before it does.
    pub(crate) is_refused_by_line: bool,
    /// Whether it may have been granted though it was refused: two requests of one owner share a place, and the older
    /// may be granted for a moment before the newer is.
    pub(crate) shares_place: bool,
}

/// The calls on each resource alone.
pub(crate) fn alone(calls: &[Call]) -> Vec<Group> {
    let mut by_resource: BTreeMap<&Resource, Vec<Op>> = BTreeMap::new();
    for call in calls.iter().filter(|call| says_something(call)) {
        for (nth, resource) in call.ask.resources().iter().enumerate() {
            by_resource
                .entry(resource)
                .or_default()
                .push(part(call, nth, resource));
        }
    }
    by_resource.into_values().map(|ops| Group::new(1, ops)).collect()
}

/// What a call says of one of its resources.
fn part(call: &Call, nth: usize, resource: &Resource) -> Op {
    let mut op = Op::new(call.clone(), vec![0]);
    if let Ask::Acquire { resources, .. } = &mut op.call.ask
        && resources.len() > 1
    {
        *resources = vec![resource.clone()];
        if let Answer::Granted(locks) = &mut op.call.answer {
            *locks = locks.get(nth).cloned().into_iter().collect();
        }
        // That a set was refused says nothing of any one of its resources, though it may have stood in line for it.
        op.is_refused_by_line = true;
    }
    op
}

/// The calls on resources that sets join, directly or over others.
pub(crate) fn joined(calls: &[Call]) -> Vec<Group> {
    let said: Vec<&Call> = calls.iter().filter(|call| says_something(call)).collect();
    let mut joined = Joined::default();
    for call in &said {
        joined.join(call.ask.resources());
    }
    let mut by_root: BTreeMap<usize, (BTreeMap<Resource, usize>, Vec<Op>)> = BTreeMap::new();
    for call in said {
        let Some(root) = call.ask.resources().first().map(|first| joined.root(first)) else {
            continue;
        };
        let (places, ops) = by_root.entry(root).or_default();
        let mut slots = Vec::new();
        for resource in call.ask.resources() {
            let next = places.len();
            slots.push(*places.entry(resource.clone()).or_insert(next));
        }
        ops.push(Op::new(call.clone(), slots));
    }
    by_root
        .into_values()
        .filter(|(places, _)| places.len() > 1)
        .map(|(places, ops)| Group::new(places.len(), ops))
        .collect()
}

/// A call that was not carried out, or a look without an answer, says nothing.
fn says_something(call: &Call) -> bool {
    match call.answer {
        Answer::NotDone => false,
        Answer::Unknown => !matches!(call.ask, Ask::Find { .. }),
        _ => true,
    }
}

impl Group {
    /// A group of these calls, whose lines are looked at.
    pub(crate) fn new(resources: usize, mut ops: Vec<Op>) -> Self {
        ops.sort_by_key(|op| op.call.start);
        let lines: Vec<(usize, Line)> = ops
            .iter()
            .enumerate()
            .filter_map(|(index, op)| Some((index, Line::of(op)?)))
            .collect();
        for (index, op) in ops.iter_mut().enumerate() {
            let Some(own) = Line::of(op) else { continue };
            let meets = |(_, line): &&(usize, Line)| own.meets(line);
            op.is_refused_by_line |= lines.iter().filter(meets).any(|(_, line)| line.waits);
            let is_twin = |(other, line): &(usize, Line)| *other != index && line.owner == own.owner;
            op.shares_place = own.waits && lines.iter().filter(meets).any(is_twin);
        }
        Self { resources, ops }
    }

    /// The moments at which calls were answered, in order.
    pub(crate) fn ends(&self) -> Vec<Moment> {
        let answered = self.ops.iter().filter(|op| !op.is_optional);
        let mut ends: Vec<Moment> = answered.map(|op| op.latest).collect();
        ends.sort_unstable();
        ends
    }

    /// As it looked at this moment: what was not answered yet is open, and what had not begun is not there.
    pub(crate) fn until(&self, moment: Moment) -> Self {
        let begun = self.ops.iter().filter(|op| op.call.start <= moment);
        let seen = begun.filter_map(|op| {
            if op.is_optional || op.latest <= moment {
                return Some(op.clone());
            }
            let call = Call {
                answer: Answer::Unknown,
                end: None,
                ..op.call.clone()
            };
            says_something(&call).then(|| Op::new(call, op.slots.clone()))
        });
        Self::new(self.resources, seen.collect())
    }
}

impl Op {
    fn new(call: Call, slots: Vec<usize>) -> Self {
        let is_unheard_renewal = call.answer == Answer::Unknown && matches!(call.ask, Ask::Renew { .. });
        Self {
            slots,
            is_optional: call.answer == Answer::Unknown,
            // A renewal may be seen by its end alone, long after others have looked at the lock for other reasons; the
            // search places it right before that.
            latest: call.end.filter(|_| !is_unheard_renewal).unwrap_or(Moment::MAX),
            is_refused_by_line: false,
            shares_place: false,
            call,
        }
    }
}

impl Op {
    /// Whether it must have its place in the order. What was refused because of a line says nothing of the lock.
    pub(crate) fn has_to_come(&self) -> bool {
        let says_nothing = self.call.answer == Answer::Held && self.is_refused_by_line;
        !self.is_optional && !says_nothing
    }

    /// Whether it need not have happened: nobody knows, or it may have been granted though it was refused.
    pub(crate) fn may_come(&self) -> bool {
        self.is_optional || !self.has_to_come() && self.shares_place
    }

    /// Whether both are about the same resource.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.slots.iter().any(|slot| other.slots.contains(slot))
    }

    /// The token that the lock of this slot was seen to have.
    pub(crate) fn token(&self, slot: usize) -> Option<FencingToken> {
        let nth = self.slots.iter().position(|own| *own == slot)?;
        match (&self.call.answer, &self.call.ask) {
            (Answer::Granted(locks), _) => Some(locks.get(nth)?.fencing_token),
            (Answer::Renewed(lock) | Answer::Found(lock), _) => Some(lock.fencing_token),
            (Answer::Released, Ask::Release { claim, .. }) => claim.token,
            _ => None,
        }
    }
}

/// An acquire, as others in the same queues see it.
struct Line {
    slots: Vec<usize>,
    owner: Holder,
    waits: bool,
    from: Moment,
    to: Moment,
}

impl Line {
    fn of(op: &Op) -> Option<Self> {
        let Ask::Acquire { grant, wait, .. } = &op.call.ask else {
            return None;
        };
        let lingers = op.call.start + wait.duration() + LINGERS;
        Some(Self {
            slots: op.slots.clone(),
            owner: grant.holder.clone(),
            waits: !wait.is_none(),
            from: op.call.start,
            to: if op.is_optional {
                lingers.min(op.latest)
            } else {
                op.latest
            },
        })
    }

    fn meets(&self, other: &Self) -> bool {
        self.from <= other.to
            && other.from <= self.to
            && self.slots.iter().any(|slot| other.slots.contains(slot))
    }
}

/// Sets of resources that grow together.
#[derive(Default)]
struct Joined {
    numbers: BTreeMap<Resource, usize>,
    /// Of each resource another one of its group; itself for one of them.
    parents: Vec<usize>,
}

impl Joined {
    fn number(&mut self, resource: &Resource) -> usize {
        let next = self.parents.len();
        let number = *self.numbers.entry(resource.clone()).or_insert(next);
        if number == next {
            self.parents.push(next);
        }
        number
    }

    fn root(&mut self, resource: &Resource) -> usize {
        let mut number = self.number(resource);
        while self.parents[number] != number {
            number = self.parents[number];
        }
        number
    }

    fn join(&mut self, resources: &[Resource]) {
        let mut roots = resources
            .iter()
            .map(|resource| self.root(resource))
            .collect::<Vec<_>>();
        let Some(first) = roots.pop() else { return };
        for root in roots {
            self.parents[root] = first;
        }
    }
}

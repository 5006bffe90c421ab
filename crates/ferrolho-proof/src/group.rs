//! Histories taken apart: resources that no set joins have nothing to do with each other.

use std::collections::BTreeMap;
use std::time::Duration;

use ferrolho_core::Resource;

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

/// Takes a history apart.
pub(crate) fn groups(calls: &[Call]) -> Vec<Group> {
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
            op.is_refused_by_line = lines.iter().filter(meets).any(|(_, line)| line.waits);
            let is_twin = |(other, line): &(usize, Line)| *other != index && line.owner == own.owner;
            op.shares_place = own.waits && lines.iter().filter(meets).any(is_twin);
        }
        Self { resources, ops }
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
        Self {
            slots,
            is_optional: call.answer == Answer::Unknown,
            latest: call.end.unwrap_or(Moment::MAX),
            is_refused_by_line: false,
            shares_place: false,
            call,
        }
    }
}

/// An acquire, as others in the same queues see it.
struct Line {
    slots: Vec<usize>,
    owner: ferrolho_core::Holder,
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

//! Why a history has no explanation, as short as it can be said.

use std::fmt;

use crate::group::{Group, Op};
use crate::search::{Found, search};
use crate::state::Point;
use crate::{Answer, Call, Judge};

/// How many calls before the one that cannot be explained are shown.
const SHOWN_CALLS: usize = 24;

/// What part of the whole effort may be spent on seeing whether one call can be left out.
const SHORTENING_EFFORT: usize = 100;

/// A history that no order explains: the shortest beginning of it, without the looks and refusals that it does not
/// take.
#[derive(Debug)]
pub struct Refutation {
    /// What is needed to see it. The last to end is the answer that cannot be.
    pub calls: Vec<Call>,
    /// What the locks could be before that answer, in words.
    pub before: Vec<String>,
}

/// Shortens a group that has no order.
pub(crate) fn refute(group: &Group, judge: &Judge) -> Refutation {
    let mut shortest = shortest_beginning(group, judge);
    let quick = Judge {
        effort_points: judge.effort_points / SHORTENING_EFFORT,
        ..*judge
    };
    leave_out(&mut shortest, &quick);
    let before = match search(&shortest, judge) {
        Found::None(ends) => ends.iter().map(|point| describe(point, &shortest)).collect(),
        Found::Order { .. } | Found::TooMuch => Vec::new(),
    };
    let mut calls: Vec<Call> = shortest.ops.into_iter().map(|op| op.call).collect();
    calls.sort_by_key(|call| call.end.unwrap_or(call.start));
    Refutation { calls, before }
}

fn has_no_order(group: &Group, judge: &Judge) -> bool {
    matches!(search(group, judge), Found::None(_))
}

/// A beginning without an order makes every longer one have none, so the shortest is found by halves.
fn shortest_beginning(group: &Group, judge: &Judge) -> Group {
    let ends = group.ends();
    let first = ends.partition_point(|end| !has_no_order(&group.until(*end), judge));
    ends.get(first)
        .map_or_else(|| group.clone(), |end| group.until(*end))
}

/// Leaves out looks and refusals, which change nothing, in pieces and then one by one, as long as no order appears.
fn leave_out(group: &mut Group, judge: &Judge) {
    let mut piece = group.ops.len();
    while piece > 0 {
        let mut to = group.ops.len();
        while to > 0 {
            let from = to.saturating_sub(piece);
            let stays = |(index, op): &(usize, &Op)| !(from..to).contains(index) || changes(op);
            let kept: Vec<Op> = group
                .ops
                .iter()
                .enumerate()
                .filter(stays)
                .map(|(_, op)| op.clone())
                .collect();
            // Their lines stay as they were judged: whoever stood in line did, though it is not shown.
            let shorter = Group {
                resources: group.resources,
                ops: kept,
            };
            if shorter.ops.len() < group.ops.len() && has_no_order(&shorter, judge) {
                *group = shorter;
            }
            to = from.min(group.ops.len());
        }
        piece /= 2;
    }
}

fn changes(op: &Op) -> bool {
    !matches!(
        op.call.answer,
        Answer::Held | Answer::NotFound | Answer::Forbidden | Answer::Found(_)
    )
}

fn describe(point: &Point, group: &Group) -> String {
    let mut names = vec!["?"; group.resources];
    for op in &group.ops {
        for (slot, resource) in op.slots.iter().zip(op.call.ask.resources()) {
            names[*slot] = resource.as_str();
        }
    }
    let locks = names
        .iter()
        .zip(&point.state.slots)
        .map(|(name, slot)| match &slot.held {
            None => format!("{name} is free"),
            Some(held) => {
                let token = held
                    .token
                    .map_or_else(String::new, |token| format!(" with {token}"));
                let told = if held.is_told { "" } else { ", told nobody" };
                let ends = held.ends.earliest.as_secs_f64();
                format!(
                    "{} has {name}{token}, not over before {ends:.6}{told}",
                    held.holder.owner
                )
            }
        });
    locks.collect::<Vec<_>>().join("; ")
}

impl fmt::Display for Refutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = self.calls.len().saturating_sub(SHOWN_CALLS);
        writeln!(f, "no order explains these calls, of which the last cannot be:")?;
        if hidden > 0 {
            writeln!(f, "  ({hidden} earlier ones)")?;
        }
        for call in self.calls.iter().skip(hidden) {
            writeln!(f, "  {call}")?;
        }
        writeln!(f, "before it the locks could only be like this:")?;
        self.before.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

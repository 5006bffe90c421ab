//! The search for an order: Wing and Gong's, with Lowe's memory of what was tried.
//!
//! A call may come next when no other call that is still missing ended before it began. Calls without an answer may
//! come at any later time, or never. Of two ways to the same set of calls and the same locks the one that is there
//! earlier can do whatever the other can, so the later one is not followed. (Sources: Wing and Gong, "Testing and
//! verifying concurrent objects", 1993; Lowe, "Testing for linearizability", 2017.)

use std::collections::HashMap;

use crate::group::{Group, Op};
use crate::state::{Point, State};
use crate::{Judge, Moment};

/// What a search comes to.
#[derive(Debug)]
pub(crate) enum Found {
    /// An order that explains all answers.
    Order {
        /// How many points were looked at.
        points: usize,
    },
    /// The effort was used up.
    TooMuch,
    /// There is none. The longest orders end in these points.
    None(Vec<Point>),
}

/// Which calls have taken effect.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Taken(Box<[u64]>);

impl Taken {
    fn none(ops: usize) -> Self {
        Self(vec![0; ops.div_ceil(64)].into())
    }

    fn has(&self, index: usize) -> bool {
        self.0[index / 64] & (1 << (index % 64)) != 0
    }

    fn with(&self, index: usize) -> Self {
        let mut more = self.clone();
        more.0[index / 64] |= 1 << (index % 64);
        more
    }
}

struct Config {
    taken: Taken,
    /// How many of those that were answered.
    answered: usize,
    /// All those that were answered before this one are taken.
    first: usize,
    point: Point,
}

/// How many of the points are kept that the longest orders end in.
const ENDS_KEPT: usize = 8;

/// Looks for an order of the group's calls that explains their answers.
pub(crate) fn search(group: &Group, judge: &Judge) -> Found {
    let ops = &group.ops;
    let wanted = ops.iter().filter(|op| !op.is_optional).count();
    let optional: Vec<usize> = (0..ops.len()).filter(|index| ops[*index].is_optional).collect();
    let mut stack = vec![Config {
        taken: Taken::none(ops.len()),
        answered: 0,
        first: 0,
        point: Point::start(group.resources),
    }];
    let mut seen: HashMap<(Taken, State), Moment> = HashMap::new();
    let (mut longest, mut ends) = (0, Vec::new());
    let mut points = 0;
    while let Some(config) = stack.pop() {
        if config.answered == wanted {
            return Found::Order { points };
        }
        points += 1;
        if points > judge.effort_points {
            return Found::TooMuch;
        }
        if config.answered > longest {
            (longest, ends) = (config.answered, Vec::new());
        }
        if config.answered == longest && ends.len() < ENDS_KEPT {
            ends.push(config.point.clone());
        }
        let next = candidates(ops, &optional, &config);
        // The last that is pushed is tried first: answered calls before others, and the first to end before the rest.
        for index in next.into_iter().rev() {
            for point in config.point.after(&ops[index], judge).into_iter().rev() {
                let follower = config.followed_by(ops, index, point);
                let key = (follower.taken.clone(), follower.point.state.clone());
                let now = follower.point.now;
                match seen.get(&key) {
                    Some(earlier) if *earlier <= now => continue,
                    _ => seen.insert(key, now),
                };
                stack.push(follower);
            }
        }
    }
    Found::None(ends)
}

/// The calls that may come next, the most promising first.
fn candidates(ops: &[Op], optional: &[usize], config: &Config) -> Vec<usize> {
    let mut horizon = Moment::MAX;
    let mut next = Vec::new();
    for (index, op) in ops.iter().enumerate().skip(config.first) {
        if op.call.start > horizon {
            break;
        }
        if !op.is_optional && !config.taken.has(index) {
            horizon = horizon.min(op.latest);
            next.push(index);
        }
    }
    next.sort_by_key(|index| ops[*index].latest);
    let may_come = |index: &&usize| {
        let op = &ops[**index];
        op.call.start <= horizon && config.point.now <= op.latest && !config.taken.has(**index)
    };
    next.extend(optional.iter().filter(may_come));
    next
}

impl Config {
    fn followed_by(&self, ops: &[Op], index: usize, point: Point) -> Self {
        let taken = self.taken.with(index);
        let is_open = |index: &usize| !ops[*index].is_optional && !taken.has(*index);
        Self {
            answered: self.answered + usize::from(!ops[index].is_optional),
            first: (self.first..ops.len()).find(is_open).unwrap_or(ops.len()),
            point,
            taken,
        }
    }
}

//! The search for an order: Wing and Gong's, with Lowe's memory of what was tried.
//!
//! A call may come next when no other call on its resources that is still missing ended before it began, or saw a lower
//! token, for tokens only rise. It is enough to look at the calls on one resource, and on those that sets join with it just then: whatever else happens has
//! nothing to do with them. Calls without an answer may come at any later time, or never; one is only tried right
//! before a call that sees what it did. Of two ways to the same set of calls and the same locks the one that is there
//! earlier can do whatever the other can, so the later one is not followed.
//! (Sources: Wing and Gong, "Testing and verifying concurrent objects", 1993; Herlihy and Wing, "Linearizability",
//! 1990, on its locality; Lowe, "Testing for linearizability", 2017.)

use std::collections::HashMap;

use ferrolho_core::FencingToken;

use crate::group::{Group, Op};
use crate::state::{Point, State};
use crate::{Answer, Ask, Judge, Moment};

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

/// How many of the points are kept that the longest orders end in.
const ENDS_KEPT: usize = 8;

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

/// A beginning of an order.
#[derive(Clone)]
struct Beginning {
    taken: Taken,
    /// How many of those that were answered.
    answered: usize,
    /// For each slot how many of its answered calls are taken without a hole: by their start, and by their token.
    firsts: Vec<(usize, usize)>,
    /// Calls without an answer that were taken just now: the next one must see what they did.
    unseen: Vec<Unseen>,
    point: Point,
}

/// A call without an answer that nobody has seen the effect of.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Unseen {
    call: usize,
    /// Where it took a lock that the next call must see. (In place of one that its holder had, it is seen by that one's
    /// end.)
    taken: Vec<usize>,
    /// Where it is a renewal, until when the lock would have lasted without it.
    renewed: Option<Moment>,
}

/// What is the same throughout a search.
struct Search<'a> {
    ops: &'a [Op],
    judge: &'a Judge,
    /// The answered calls on each slot, by their start.
    answered: Vec<Vec<usize>>,
    /// Those of them that saw a token, by it.
    by_token: Vec<Vec<(FencingToken, usize)>>,
    /// Those that may come or not, each with the one before it that asks for the very same.
    open: Vec<(usize, Option<usize>)>,
}

/// Looks for an order of the group's calls that explains their answers.
pub(crate) fn search(group: &Group, judge: &Judge) -> Found {
    let ops = &group.ops;
    let on = |slot| {
        let is_on = move |index: &usize| ops[*index].has_to_come() && ops[*index].slots.contains(&slot);
        (0..ops.len()).filter(is_on)
    };
    let by_token = |slot| {
        let mut seen: Vec<_> = on(slot)
            .filter_map(|index| Some((ops[index].token(slot)?, index)))
            .collect();
        seen.sort_unstable();
        seen
    };
    let search = Search {
        ops,
        judge,
        answered: (0..group.resources).map(|slot| on(slot).collect()).collect(),
        by_token: (0..group.resources).map(by_token).collect(),
        open: open_calls(ops),
    };
    let wanted = ops.iter().filter(|op| op.has_to_come()).count();
    let mut stack = vec![Beginning {
        taken: Taken::none(ops.len()),
        answered: 0,
        firsts: vec![(0, 0); group.resources],
        unseen: Vec::new(),
        point: Point::start(group.resources),
    }];
    let mut seen: HashMap<(Taken, Vec<Unseen>, State), Vec<Moment>> = HashMap::new();
    let (mut longest, mut ends) = (0, Vec::new());
    let mut points = 0;
    while let Some(beginning) = stack.pop() {
        if beginning.answered == wanted {
            return Found::Order { points };
        }
        points += 1;
        if points > judge.effort_points {
            return Found::TooMuch;
        }
        if beginning.answered > longest {
            (longest, ends) = (beginning.answered, Vec::new());
        }
        if beginning.answered == longest && beginning.unseen.is_empty() && ends.len() < ENDS_KEPT {
            ends.push(beginning.point.clone());
        }
        // The last that is pushed is tried first.
        for follower in search.followers(&beginning).into_iter().rev() {
            let key = (
                follower.taken.clone(),
                follower.unseen.clone(),
                follower.point.state.clone(),
            );
            let nows = &follower.point.nows;
            let is_late =
                |earlier: &Vec<Moment>| earlier.iter().zip(nows).all(|(earlier, now)| earlier <= now);
            if !seen.get(&key).is_some_and(is_late) {
                seen.insert(key, nows.clone());
                stack.push(follower);
            }
        }
    }
    Found::None(ends)
}

/// The answered calls on a slot that may come next, and what bounds them: the first end and the lowest token among
/// those that are missing.
struct Front {
    calls: Vec<usize>,
    horizon: Moment,
    token: Option<FencingToken>,
}

impl Search<'_> {
    /// The beginnings that are one call longer, the most promising first.
    fn followers(&self, beginning: &Beginning) -> Vec<Beginning> {
        let fronts: Vec<Front> = (0..self.answered.len())
            .map(|slot| self.front(slot, beginning))
            .collect();
        let is_too_late = |index: &usize| !beginning.point.is_before_end_of(&self.ops[*index]);
        if fronts.iter().flat_map(|front| &front.calls).any(is_too_late) {
            return Vec::new();
        }
        let slots = self.smallest_cluster(&fronts, beginning);
        let may_be_next = |index: &usize| {
            let op = &self.ops[*index];
            let is_before_all = |slot: &usize| {
                let front = &fronts[*slot];
                op.call.start <= front.horizon
                    && (op.token(*slot).zip(front.token)).is_none_or(|(token, lowest)| token <= lowest)
            };
            op.slots.iter().all(is_before_all) && self.sees_the_unseen(op, &fronts, beginning)
        };
        let mut next: Vec<usize> = slots
            .iter()
            .flat_map(|slot| &fronts[*slot].calls)
            .copied()
            .collect();
        next.sort_by_key(|index| (self.ops[*index].latest, *index));
        next.dedup();
        let is_open_here = |index: &usize| self.ops[*index].slots.iter().any(|slot| slots.contains(slot));
        next.extend(self.open_now(beginning).filter(is_open_here));
        next.retain(may_be_next);
        next.into_iter()
            .flat_map(|index| self.taking(beginning, index))
            .collect()
    }

    fn front(&self, slot: usize, beginning: &Beginning) -> Front {
        let (by_start, by_token) = beginning.firsts[slot];
        let mut front = Front {
            calls: Vec::new(),
            horizon: Moment::MAX,
            token: self.by_token[slot].get(by_token).map(|(token, _)| *token),
        };
        for index in &self.answered[slot][by_start..] {
            let op = &self.ops[*index];
            if op.call.start > front.horizon {
                break;
            }
            if !beginning.taken.has(*index) {
                front.horizon = front.horizon.min(op.latest);
                front.calls.push(*index);
            }
        }
        front
    }

    /// The slots whose calls are looked at now: as few as can be, and those where a call ended first.
    fn smallest_cluster(&self, fronts: &[Front], beginning: &Beginning) -> Vec<usize> {
        if !beginning.unseen.is_empty() {
            let unseen = beginning.unseen.iter();
            let slots = unseen.flat_map(|unseen| &self.ops[unseen.call].slots).copied();
            return self.cluster(slots.collect(), fronts, beginning);
        }
        (0..fronts.len())
            .filter(|slot| !fronts[*slot].calls.is_empty())
            .map(|slot| self.cluster(vec![slot], fronts, beginning))
            .min_by_key(|slots| {
                let horizon = slots.iter().map(|slot| fronts[*slot].horizon).min();
                (horizon, slots.len())
            })
            .unwrap_or_default()
    }

    /// These slots, and those that calls which may come next join with them.
    fn cluster(&self, mut slots: Vec<usize>, fronts: &[Front], beginning: &Beginning) -> Vec<usize> {
        let mut done = 0;
        while let Some(slot) = slots.get(done).copied() {
            done += 1;
            let horizon = fronts[slot].horizon;
            let is_open_here = |index: &usize| {
                let op = &self.ops[*index];
                op.slots.contains(&slot) && op.call.start <= horizon
            };
            let open = self.open_now(beginning).filter(is_open_here);
            for index in fronts[slot].calls.iter().copied().chain(open) {
                for joined in &self.ops[index].slots {
                    if !slots.contains(joined) {
                        slots.push(*joined);
                    }
                }
            }
        }
        slots
    }

    /// Whether a call that comes next sees what those before it did that nobody has seen yet. A call without an answer
    /// need not, if a set waits that will see all of them.
    fn sees_the_unseen(&self, op: &Op, fronts: &[Front], beginning: &Beginning) -> bool {
        let unseen = || beginning.unseen.iter().map(|unseen| &self.ops[unseen.call]);
        if !op.may_come() {
            return unseen().all(|unseen| unseen.meets(op));
        }
        let mut waiting = fronts
            .iter()
            .flat_map(|front| &front.calls)
            .map(|index| &self.ops[*index]);
        beginning.unseen.is_empty()
            || unseen().any(|unseen| unseen.meets(op))
            || waiting.any(|set| set.meets(op) && unseen().all(|unseen| unseen.meets(set)))
    }

    /// The calls without an answer that may come now. Of several that ask for the very same, the oldest comes first: it
    /// can do what the others can, and has the least time.
    fn open_now(&self, beginning: &Beginning) -> impl Iterator<Item = usize> {
        let may_come = |index: usize| beginning.may_take(index, &self.ops[index]);
        let is_next =
            move |(index, twin): &&(usize, Option<usize>)| may_come(*index) && !twin.is_some_and(may_come);
        self.open.iter().filter(is_next).map(|(index, _)| *index)
    }

    fn taking(&self, beginning: &Beginning, index: usize) -> Vec<Beginning> {
        let op = &self.ops[index];
        let seen = beginning
            .unseen
            .iter()
            .filter(|unseen| self.ops[unseen.call].meets(op));
        let alive: Vec<usize> = seen.clone().flat_map(|unseen| &unseen.taken).copied().collect();
        let points = beginning.point.after(op, &alive, self.judge);
        let renewed = seen.clone().filter_map(|unseen| unseen.renewed).max();
        let mut unseen = Vec::new();
        if op.may_come() {
            let is_still_unseen = |unseen: &&Unseen| !self.ops[unseen.call].meets(op);
            unseen.extend(beginning.unseen.iter().filter(is_still_unseen).cloned());
            unseen.push(Unseen {
                call: index,
                taken: beginning.point.taken_by(op),
                renewed: beginning.point.prolonged_until(op),
            });
        }
        let needs_renewal = |point: &Point| {
            let shows_end = matches!(op.call.answer, Answer::Found(_));
            let after = |until| op.slots.iter().any(|slot| point.nows[*slot] > until);
            op.may_come() || shows_end || renewed.is_none_or(after)
        };
        let taken = beginning.taken.with(index);
        let mut firsts = beginning.firsts.clone();
        for slot in &op.slots {
            let (by_start, by_token) = &mut firsts[*slot];
            let calls = &self.answered[*slot];
            while calls.get(*by_start).is_some_and(|index| taken.has(*index)) {
                *by_start += 1;
            }
            let calls = &self.by_token[*slot];
            while calls.get(*by_token).is_some_and(|(_, index)| taken.has(*index)) {
                *by_token += 1;
            }
        }
        points
            .into_iter()
            .filter(needs_renewal)
            .map(|point| Beginning {
                taken: taken.clone(),
                answered: beginning.answered + usize::from(op.has_to_come()),
                firsts: firsts.clone(),
                unseen: unseen.clone(),
                point,
            })
            .collect()
    }
}

/// Those that may come or not.
fn open_calls(ops: &[Op]) -> Vec<(usize, Option<usize>)> {
    let mut last: HashMap<String, usize> = HashMap::new();
    let open = ops.iter().enumerate().filter(|(_, op)| op.may_come());
    open.map(|(index, op)| {
        // Without a key every acquire has a mark of its own.
        let ask = match &op.call.ask {
            Ask::Acquire { grant, .. } => format!("{} {}", op.call.ask, grant.mark),
            other => other.to_string(),
        };
        (index, last.insert(ask, index))
    })
    .collect()
}

impl Beginning {
    /// Whether this call without an answer may still be taken.
    fn may_take(&self, index: usize, op: &Op) -> bool {
        !self.taken.has(index) && self.point.is_before_end_of(op)
    }
}

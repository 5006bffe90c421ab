//! What a history is judged by.

use std::time::Duration;

use ferrolho_core::Timestamp;

use crate::explain::{Refutation, refute};
use crate::group::{Group, alone, joined};
use crate::search::{Found, search};
use crate::state::Ends;
use crate::{Answer, Ask, Call, Moment};

/// By how many answers the beginnings grow that are looked at.
const STEP_ANSWERS: usize = 100;

/// How a history is judged.
#[derive(Clone, Copy, Debug)]
pub struct Judge {
    /// What the store's clock showed at the history's start, where the record was made on that very clock: then the
    /// times in the answers are moments of the history. Nothing where the clocks are different ones, which run alike.
    pub store_clock_at_start: Option<Timestamp>,
    /// How much earlier than its lifetime allows a lock may be over. For clocks that are not read at the same moment.
    pub early: Duration,
    /// For how long after its end a lock may still be seen.
    pub late: Duration,
    /// How long after its wait is over a call without an answer may still be carried out; for ever when nothing bounds it.
    pub unheard: Option<Duration>,
    /// How many points of orders are looked at for one group of resources before it counts as undecided.
    pub effort_points: usize,
}

/// What a history turns out to be.
#[derive(Debug)]
pub enum Verdict {
    /// Some order of the calls explains all the answers.
    Explained {
        /// How many points of orders were looked at.
        points: usize,
    },
    /// The effort that was allowed did not suffice to tell.
    Undecided {
        /// How many groups of resources are undecided.
        groups: usize,
    },
    /// No order explains the answers.
    Refuted(Box<Refutation>),
}

impl Judge {
    /// Whether some order of these calls explains all the answers: for each resource alone, which nearly every fault
    /// shows in the shortest way, and then for those together that sets join.
    pub fn check(&self, calls: &[Call]) -> Verdict {
        let calls: Vec<Call> = calls.iter().map(|call| self.bounded(call)).collect();
        let (mut points, mut undecided) = (0, 0);
        for group in alone(&calls).into_iter().chain(joined(&calls)) {
            for beginning in beginnings(&group) {
                match search(&beginning, self) {
                    Found::Order { points: looked_at } => points += looked_at,
                    Found::None(_) => return Verdict::Refuted(Box::new(refute(&beginning, self))),
                    Found::TooMuch => {
                        undecided += 1;
                        break;
                    }
                }
            }
        }
        match undecided {
            0 => Verdict::Explained { points },
            groups => Verdict::Undecided { groups },
        }
    }

    /// The call, with the latest moment at which it can be carried out.
    fn bounded(&self, call: &Call) -> Call {
        let mut call = call.clone();
        if let (Answer::Unknown, Some(unheard)) = (&call.answer, self.unheard) {
            let wait = match &call.ask {
                Ask::Acquire { wait, .. } => wait.duration(),
                _ => Duration::ZERO,
            };
            let bound = call.start + wait + unheard;
            call.end = Some(call.end.map_or(bound, |end| end.min(bound)));
        }
        call
    }

    /// The moment of the history at which the store's clock shows this, where that can be said.
    pub(crate) fn exact(&self, at: Timestamp) -> Option<Moment> {
        let start = self.store_clock_at_start?;
        Some(at.since(start))
    }

    /// The moment of an act that the store's clock puts here: exactly, or anywhere within these bounds. Nothing when it
    /// lies outside of them.
    pub(crate) fn moment(&self, at: Timestamp, earliest: Moment, latest: Moment) -> Option<Ends> {
        // What the service writes are whole microseconds of what it read.
        let is_within = |exact: Moment| exact <= latest && earliest < exact + Duration::from_micros(1);
        let Some(exact) = self.exact(at) else {
            return Some(Ends {
                earliest,
                latest: (latest < Moment::MAX).then_some(latest),
            });
        };
        is_within(exact).then_some(Ends {
            earliest: exact.max(earliest),
            latest: Some(exact),
        })
    }
}

/// Longer and longer beginnings of the group, and then all of it: the more calls follow a fault, the more there is to
/// try behind it, all of it in vain.
fn beginnings(group: &Group) -> impl Iterator<Item = Group> {
    let ends = group.ends().into_iter().skip(STEP_ANSWERS).step_by(STEP_ANSWERS);
    ends.map(|end| group.until(end)).chain([group.clone()])
}

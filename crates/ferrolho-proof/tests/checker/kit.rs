//! Short words for histories. Times are seconds; the store's clock is that of the history.

use std::time::Duration;

use ferrolho_core::{Claim, FencingToken, Grant, Holder, Lock, Mark, Owner, Resource, Timestamp, Ttl, Wait};
use ferrolho_proof::{Answer, Ask, Call, Judge, Verdict};

const START_MICROS: i64 = 1_800_000_000_000_000;

pub(crate) const JUDGE: Judge = Judge {
    store_clock_at_start: None,
    early: Duration::ZERO,
    late: Duration::ZERO,
    unheard: None,
    effort_points: 100_000,
};

pub(crate) fn on_one_clock() -> Judge {
    Judge {
        store_clock_at_start: Some(Timestamp::from_micros(START_MICROS)),
        ..JUDGE
    }
}

pub(crate) fn at(seconds: f64) -> Timestamp {
    Timestamp::from_micros(START_MICROS).plus(Duration::from_secs_f64(seconds))
}

pub(crate) fn resource(name: &str) -> Resource {
    Resource::new(name).unwrap()
}

fn holder(owner: &str) -> Holder {
    Holder {
        owner: Owner::new(owner).unwrap(),
        principal: None,
    }
}

fn claim(owner: &str, token: Option<i128>) -> Claim {
    Claim {
        holder: holder(owner),
        token: token.map(|token| FencingToken::new(token).unwrap()),
    }
}

fn ttl(seconds: u32) -> Ttl {
    Ttl::new(seconds.into(), Ttl::MAX).unwrap()
}

/// The lock `name` of `owner`, granted and over at these times.
pub(crate) fn lock(name: &str, owner: &str, token: i128, from: f64, to: f64) -> Lock {
    Lock {
        resource: resource(name),
        owner: Owner::new(owner).unwrap(),
        expires_at: at(to),
        acquired_at: at(from),
        fencing_token: FencingToken::new(token).unwrap(),
        metadata: None,
        principal: None,
    }
}

/// A history under construction.
#[derive(Default)]
pub(crate) struct History(Vec<Call>);

/// When a call was sent, and when it was answered.
pub(crate) type During = (f64, f64);

impl History {
    pub(crate) fn add(mut self, during: During, ask: Ask, answer: Answer) -> Self {
        let end = (answer != Answer::Unknown).then_some(Duration::from_secs_f64(during.1));
        self.0.push(Call {
            client: format!("c{}", self.0.len()),
            ask,
            answer,
            start: Duration::from_secs_f64(during.0),
            end,
        });
        self
    }

    pub(crate) fn acquire(
        self,
        during: During,
        names: &str,
        owner: &str,
        seconds: u32,
        answer: Answer,
    ) -> Self {
        self.acquire_waiting(during, names, owner, seconds, 0, answer)
    }

    pub(crate) fn acquire_waiting(
        self,
        during: During,
        names: &str,
        owner: &str,
        seconds: u32,
        wait: i128,
        answer: Answer,
    ) -> Self {
        let mark = Mark::Random(self.0.len() as u64);
        self.add(during, ask_acquire(names, owner, seconds, wait, mark), answer)
    }

    pub(crate) fn acquire_by_key(
        self,
        during: During,
        names: &str,
        owner: &str,
        seconds: u32,
        key: &str,
        answer: Answer,
    ) -> Self {
        let mark = Mark::from_key(key).unwrap();
        self.add(during, ask_acquire(names, owner, seconds, 0, mark), answer)
    }

    /// A grant of one lock that is made at once: the call is answered when it was sent.
    pub(crate) fn granted(self, when: f64, name: &str, owner: &str, seconds: u32, token: i128) -> Self {
        let granted = lock(name, owner, token, when, when + f64::from(seconds));
        self.acquire((when, when), name, owner, seconds, Answer::Granted(vec![granted]))
    }

    pub(crate) fn renew(self, during: During, name: &str, owner: &str, seconds: u32, answer: Answer) -> Self {
        let ask = Ask::Renew {
            resource: resource(name),
            claim: claim(owner, None),
            ttl: ttl(seconds),
        };
        self.add(during, ask, answer)
    }

    pub(crate) fn release(
        self,
        during: During,
        name: &str,
        owner: &str,
        token: Option<i128>,
        answer: Answer,
    ) -> Self {
        let ask = Ask::Release {
            resource: resource(name),
            claim: claim(owner, token),
        };
        self.add(during, ask, answer)
    }

    pub(crate) fn find(self, during: During, name: &str, found: Option<Lock>) -> Self {
        let ask = Ask::Find {
            resource: resource(name),
        };
        self.add(during, ask, found.map_or(Answer::NotFound, Answer::Found))
    }

    pub(crate) fn force(self, during: During, name: &str, answer: Answer) -> Self {
        let ask = Ask::Force {
            resource: resource(name),
        };
        self.add(during, ask, answer)
    }

    /// From this moment on nothing that is open can happen.
    pub(crate) fn cut(mut self, when: f64) -> Self {
        for call in self.0.iter_mut().filter(|call| call.end.is_none()) {
            call.end = Some(Duration::from_secs_f64(when));
        }
        self
    }

    pub(crate) fn explained_by(self, judge: &Judge) -> Self {
        let verdict = judge.check(&self.0);
        assert!(matches!(verdict, Verdict::Explained { .. }), "{verdict:#?}");
        self
    }

    pub(crate) fn explained(self) -> Self {
        self.explained_by(&JUDGE).explained_by(&on_one_clock())
    }

    /// No order explains it; what is shown of it.
    pub(crate) fn refuted_by(self, judge: &Judge) -> String {
        match judge.check(&self.0) {
            Verdict::Refuted(refutation) => refutation.to_string(),
            other => panic!("{other:?}"),
        }
    }

    /// No order explains it, whatever is known of the clocks.
    pub(crate) fn refuted(self) -> String {
        let calls = self.0.clone();
        let shown = self.refuted_by(&JUDGE);
        Self(calls).refuted_by(&on_one_clock());
        shown
    }

    pub(crate) fn calls(self) -> Vec<Call> {
        self.0
    }
}

fn ask_acquire(names: &str, owner: &str, seconds: u32, wait: i128, mark: Mark) -> Ask {
    Ask::Acquire {
        resources: names.split(' ').map(resource).collect(),
        grant: Grant {
            holder: holder(owner),
            ttl: ttl(seconds),
            metadata: None,
            mark,
        },
        wait: Wait::new(wait).unwrap(),
    }
}

//! The model: a map of locks, a clock that is moved by hand, and the pure rules. It knows no engine.

use std::collections::BTreeMap;
use std::time::Duration;

use ferrolho_core::rules::{self, AcquireDecision, ReleaseResult, RenewResult};
use ferrolho_core::{
    Change, Claim, Expected, FencingToken, Grant, Holder, Live, Lock, Mark, Owner, Principal, Resource,
    Timestamp, Ttl, Write,
};
use proptest::prelude::*;
use proptest_state_machine::ReferenceStateMachine;

/// Few names and few holders, so that they meet.
const NAMES: [&str; 3] = ["r", "r/s", "t"];
const HOLDERS: [(&str, Option<&str>); 3] = [("a", None), ("b", None), ("a", Some("p"))];

/// When every model's time begins.
pub(crate) fn start() -> Timestamp {
    Timestamp::from_micros(1_800_000_000_000_000)
}

/// Which grant a caller names.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Named {
    Any,
    /// The live one, if there is any.
    Current,
    /// One that is over.
    Former,
}

/// What somebody does.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Acquire {
        names: Vec<Resource>,
        grant: Grant,
    },
    Release {
        name: Resource,
        holder: Holder,
        named: Named,
    },
    /// A release that passes the lock on.
    HandOver {
        name: Resource,
        holder: Holder,
        to: Grant,
    },
    Renew {
        name: Resource,
        holder: Holder,
        named: Named,
        ttl: Ttl,
    },
    /// A swap that no rule has looked at.
    Guess {
        change: Change,
    },
    Advance(Duration),
    /// The wall clock is set.
    SetWall(i64),
    /// The server is stopped and started, on the same machine or after the machine was.
    Restart {
        with_machine: bool,
    },
}

/// What the caller is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Nothing,
    Granted,
    Repeated,
    Held,
    Release(ReleaseResult),
    Renew(RenewResult),
    Swapped(bool),
}

/// The state of the model. Its tokens count from 1 without gaps; an engine's only have to rise.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) now: Timestamp,
    wall: Timestamp,
    locks: BTreeMap<Resource, (Lock, Mark)>,
    grants: u64,
    former: BTreeMap<Resource, FencingToken>,
    /// What the last step was answered.
    pub(crate) answer: Answer,
}

impl Model {
    /// The live lock on a resource.
    pub(crate) fn find(&self, name: &Resource) -> Option<Live> {
        let (lock, mark) = self.locks.get(name)?;
        (self.now < lock.expires_at).then(|| Live {
            lock: lock.clone(),
            mark: mark.clone(),
            left: lock.expires_at.since(self.now),
        })
    }

    /// All live locks, in order.
    pub(crate) fn live(&self) -> Vec<Live> {
        self.locks.keys().filter_map(|name| self.find(name)).collect()
    }

    /// The token that a caller names, by the model's count.
    pub(crate) fn token(&self, name: &Resource, named: Named) -> Option<FencingToken> {
        match named {
            Named::Any => None,
            Named::Current => self.find(name).map(|live| live.lock.fencing_token),
            Named::Former => self.former.get(name).copied(),
        }
    }

    fn claim(&self, name: &Resource, holder: &Holder, named: Named) -> Claim {
        Claim {
            holder: holder.clone(),
            token: self.token(name, named),
        }
    }

    fn is_so(&self, name: &Resource, expected: &Expected) -> bool {
        match (expected, self.find(name)) {
            (Expected::Free, live) => live.is_none(),
            (Expected::HeldBy(claim), Some(live)) => claim.is_true_of(&live.lock),
            (Expected::Token(token), Some(live)) => *token == live.lock.fencing_token,
            (_, None) => false,
        }
    }

    fn write(&mut self, name: &Resource, write: &Write) {
        match write {
            Write::Grant(grant) => {
                self.grants += 1;
                let lock = Lock {
                    resource: name.clone(),
                    owner: grant.holder.owner.clone(),
                    expires_at: self.now.plus(grant.ttl.duration()),
                    acquired_at: self.now,
                    fencing_token: FencingToken::new(self.grants.into()).unwrap(),
                    metadata: grant.metadata.clone(),
                    principal: grant.holder.principal.clone(),
                };
                let former = self.locks.insert(name.clone(), (lock, grant.mark.clone()));
                if let Some((lock, _)) = former {
                    self.former.insert(name.clone(), lock.fencing_token);
                }
            }
            Write::Extend(ttl) => {
                if let Some((lock, _)) = self.locks.get_mut(name) {
                    lock.expires_at = self.now.plus(ttl.duration());
                }
            }
            Write::Remove => {
                if let Some((lock, _)) = self.locks.remove(name) {
                    self.former.insert(name.clone(), lock.fencing_token);
                }
            }
        }
    }

    fn acquire(&mut self, names: &[Resource], grant: &Grant) -> Answer {
        let current: Vec<_> = names.iter().map(|name| self.find(name)).collect();
        match rules::acquire(&current, names, grant) {
            AcquireDecision::Held(_) => Answer::Held,
            AcquireDecision::Repeat => Answer::Repeated,
            AcquireDecision::Changes(changes) => {
                for change in &changes {
                    assert!(self.is_so(&change.resource, &change.expected));
                    self.write(&change.resource, &change.write);
                }
                Answer::Granted
            }
        }
    }

    fn carry_out(&mut self, step: &Step) -> Answer {
        match step {
            Step::Acquire { names, grant } => return self.acquire(names, grant),
            Step::Release { name, holder, named } => {
                let claim = self.claim(name, holder, *named);
                let result = rules::release(self.find(name).as_ref(), &claim);
                if result == ReleaseResult::Released {
                    self.write(name, &Write::Remove);
                }
                return Answer::Release(result);
            }
            Step::HandOver { name, holder, to } => {
                let claim = self.claim(name, holder, Named::Any);
                let result = rules::release(self.find(name).as_ref(), &claim);
                if result == ReleaseResult::Released {
                    self.write(name, &Write::Grant(to.clone()));
                }
                return Answer::Release(result);
            }
            Step::Renew {
                name,
                holder,
                named,
                ttl,
            } => {
                let claim = self.claim(name, holder, *named);
                let result = rules::renew(self.find(name).as_ref(), &claim);
                if result == RenewResult::Renewed {
                    self.write(name, &Write::Extend(*ttl));
                }
                return Answer::Renew(result);
            }
            Step::Guess { change } => {
                let is_so = self.is_so(&change.resource, &change.expected);
                if is_so {
                    self.write(&change.resource, &change.write);
                }
                return Answer::Swapped(is_so);
            }
            Step::Advance(span) => {
                self.now = self.now.plus(*span);
                self.wall = self.wall.plus(*span);
            }
            Step::SetWall(micros) => {
                self.wall = Timestamp::from_micros(self.wall.as_micros() + micros);
            }
            Step::Restart { with_machine: true } => self.now = self.now.max(self.wall),
            Step::Restart { with_machine: false } => {}
        }
        Answer::Nothing
    }
}

fn name() -> impl Strategy<Value = Resource> {
    prop::sample::select(&NAMES[..]).prop_map(|name| Resource::new(name).unwrap())
}

fn holder() -> impl Strategy<Value = Holder> {
    prop::sample::select(&HOLDERS[..]).prop_map(|(owner, principal)| Holder {
        owner: Owner::new(owner).unwrap(),
        principal: principal.map(|name| Principal::new(name).unwrap()),
    })
}

fn ttl() -> impl Strategy<Value = Ttl> {
    (1..=3_i128).prop_map(|seconds| Ttl::new(seconds, Ttl::MAX).unwrap())
}

/// Few marks, so that a request is repeated now and then.
fn grant() -> impl Strategy<Value = Grant> {
    (holder(), ttl(), 0..4_u64).prop_map(|(holder, ttl, mark)| Grant {
        holder,
        ttl,
        metadata: None,
        mark: Mark::Random(mark),
    })
}

fn named() -> impl Strategy<Value = Named> {
    prop_oneof![Just(Named::Any), Just(Named::Current), Just(Named::Former)]
}

fn guess() -> impl Strategy<Value = Step> {
    let expected = prop_oneof![
        Just(Expected::Free),
        holder().prop_map(|holder| Expected::HeldBy(Claim { holder, token: None })),
    ];
    let write = prop_oneof![
        grant().prop_map(Write::Grant),
        ttl().prop_map(Write::Extend),
        Just(Write::Remove)
    ];
    (name(), expected, write)
        // Nobody extends or removes what he expects not to be there.
        .prop_filter("makes no sense", |(_, expected, write)| {
            *expected != Expected::Free || matches!(write, Write::Grant(_))
        })
        .prop_map(|(resource, expected, write)| Step::Guess {
            change: Change {
                resource,
                expected,
                write,
                cause: ferrolho_core::Cause::Acquire,
            },
        })
}

/// Times that often hit the very end of a lock.
fn span() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::from_secs(1)),
        Just(Duration::from_millis(500)),
        Just(Duration::from_micros(999_999)),
        Just(Duration::from_micros(1)),
    ]
}

fn fresh() -> BoxedStrategy<Model> {
    Just(Model {
        now: start(),
        wall: start(),
        locks: BTreeMap::new(),
        grants: 0,
        former: BTreeMap::new(),
        answer: Answer::Nothing,
    })
    .boxed()
}

fn step() -> BoxedStrategy<Step> {
    let names = prop::sample::subsequence(&NAMES[..], 1..=NAMES.len()).prop_map(|names| {
        names
            .into_iter()
            .map(|name| Resource::new(name).unwrap())
            .collect()
    });
    prop_oneof![
        6 => (names, grant()).prop_map(|(names, grant)| Step::Acquire { names, grant }),
        3 => (name(), holder(), named())
            .prop_map(|(name, holder, named)| Step::Release { name, holder, named }),
        2 => (name(), holder(), grant())
            .prop_map(|(name, holder, to)| Step::HandOver { name, holder, to }),
        3 => (name(), holder(), named(), ttl())
            .prop_map(|(name, holder, named, ttl)| Step::Renew { name, holder, named, ttl }),
        2 => guess(),
        5 => span().prop_map(Step::Advance),
        1 => prop::sample::select(vec![-3_600_000_000, -1, 1, 3_600_000_000]).prop_map(Step::SetWall),
    ]
    .boxed()
}

fn carried_out(mut model: Model, step: &Step) -> Model {
    model.answer = model.carry_out(step);
    model
}

/// Histories of an engine that keeps its locks over a restart.
pub(crate) struct WithRestarts;

impl ReferenceStateMachine for WithRestarts {
    type State = Model;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Model> {
        fresh()
    }

    fn transitions(_: &Model) -> BoxedStrategy<Step> {
        let restart = any::<bool>().prop_map(|with_machine| Step::Restart { with_machine });
        prop_oneof![20 => step(), 1 => restart].boxed()
    }

    fn apply(model: Model, step: &Step) -> Model {
        carried_out(model, step)
    }
}

/// Histories of one that forgets.
pub(crate) struct WithoutRestarts;

impl ReferenceStateMachine for WithoutRestarts {
    type State = Model;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Model> {
        fresh()
    }

    fn transitions(_: &Model) -> BoxedStrategy<Step> {
        step()
    }

    fn apply(model: Model, step: &Step) -> Model {
        carried_out(model, step)
    }
}

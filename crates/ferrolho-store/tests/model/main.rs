//! Random histories on the engines of this process, against a plain model and the pure rules.
//!
//! Every step is carried out on the model and on an engine whose clock is moved by the same hand, so answers, ends
//! and what is left must be equal to the microsecond. Tokens must rise with every grant, and the feed must tell a
//! history that could have happened. A failure prints the seed that repeats it.
#![expect(clippy::unwrap_used, reason = "a test: what does not hold is a panic")]

mod reference;

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::rules::{self, AcquireDecision, ReleaseResult, RenewResult};
use ferrolho_core::{
    Cause, Change, Claim, Event, EventKind, Expected, FencingToken, Live, Lock, Resource, Timestamp, Write,
};
use ferrolho_store::clock::{Clock, SteppedTime};
use ferrolho_store::conformance::kit::{apply, attempt};
use ferrolho_store::{Feed, FeedItem, ListQuery, MemoryStore, Outcome, SqliteStore, Store};
use proptest::test_runner::Config;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
use reference::{Answer, Model, Named, Step, WithRestarts, WithoutRestarts};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// An engine that the model can be compared with.
trait Kind {
    /// The histories that it is put through.
    type Histories: ReferenceStateMachine<State = Model, Transition = Step>;

    fn open(path: PathBuf, time: Arc<SteppedTime>) -> Arc<dyn Store>;
}

struct Memory;

impl Kind for Memory {
    type Histories = WithoutRestarts;

    fn open(_: PathBuf, time: Arc<SteppedTime>) -> Arc<dyn Store> {
        Arc::new(MemoryStore::new(Clock::new(time)))
    }
}

struct Sqlite;

impl Kind for Sqlite {
    type Histories = WithRestarts;

    fn open(path: PathBuf, time: Arc<SteppedTime>) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open_with(&path, time).unwrap())
    }
}

/// An engine and what is known of it.
struct Subject<K> {
    runtime: Runtime,
    directory: TempDir,
    time: Arc<SteppedTime>,
    store: Arc<dyn Store>,
    history: History,
    /// The engine's token of each of the model's.
    tokens: BTreeMap<FencingToken, FencingToken>,
    kind: PhantomData<K>,
}

/// What the feed has told.
struct History {
    feed: Feed,
    held: BTreeMap<Resource, Lock>,
}

impl History {
    /// Takes in what has been told by now. It must fit what was told before: nobody gets a lock that another
    /// holds, and a lock ends once, as it last was.
    async fn read(&mut self, now: Timestamp) {
        while let Ok(Some(item)) = tokio::time::timeout(Duration::ZERO, self.feed.next()).await {
            let FeedItem::Events(events) = item else {
                unreachable!("nothing was missed");
            };
            for event in events.iter() {
                self.take(event, now);
            }
        }
    }

    fn take(&mut self, event: &Event, now: Timestamp) {
        let before = match event.kind {
            EventKind::Acquired | EventKind::Renewed => {
                self.held.insert(event.resource.clone(), event.lock.clone())
            }
            EventKind::Released | EventKind::Expired | EventKind::Forced => self.held.remove(&event.resource),
        };
        assert!(event.at <= now);
        match (event.kind, before) {
            (EventKind::Acquired, None) => {}
            (EventKind::Acquired, Some(before)) => {
                assert!(
                    before.is_held_by(&event.lock.holder()),
                    "{before:?} then {event:?}"
                );
                assert!(before.fencing_token < event.lock.fencing_token);
            }
            (EventKind::Renewed, Some(before)) => {
                assert_eq!(before.fencing_token, event.lock.fencing_token);
            }
            (EventKind::Released | EventKind::Forced, Some(before)) => assert_eq!(before, event.lock),
            (EventKind::Expired, Some(before)) => {
                assert_eq!(before, event.lock);
                assert!(before.expires_at <= event.at);
            }
            (_, None) => unreachable!("{event:?} of a lock that was not there"),
        }
    }
}

impl<K: Kind> Subject<K> {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let directory = TempDir::new().unwrap();
        let time = SteppedTime::starting_at(reference::start());
        let entered = runtime.enter();
        let store = K::open(directory.path().join("x.db"), Arc::clone(&time));
        drop(entered);
        let history = History {
            feed: store.changes(),
            held: BTreeMap::new(),
        };
        Self {
            runtime,
            directory,
            time,
            store,
            history,
            tokens: BTreeMap::new(),
            kind: PhantomData,
        }
    }

    fn restart(&mut self, now: Timestamp, with_machine: bool) {
        self.runtime.block_on(self.store.close());
        self.runtime.block_on(self.history.read(now));
        if with_machine {
            self.time.reboot();
        }
        self.store = K::open(self.directory.path().join("x.db"), Arc::clone(&self.time));
        // What ended unseen is told by the new feed.
        self.history.feed = self.store.changes();
    }

    /// The model's token, as the engine counts.
    fn token(&self, model: Option<FencingToken>) -> Option<FencingToken> {
        model.map(|token| self.tokens[&token])
    }

    fn find(&self, name: &Resource) -> Option<Live> {
        self.runtime.block_on(self.store.find(name)).unwrap()
    }

    /// Carries out changes that must succeed.
    fn must(&self, changes: Vec<Change>) {
        let outcome = self.runtime.block_on(self.store.apply(attempt(changes))).unwrap();
        assert!(matches!(outcome, Outcome::Applied(_)), "{outcome:?}");
    }

    fn release(&self, name: &Resource, claim: &Claim, write: Write) -> Answer {
        let result = rules::release(self.find(name).as_ref(), claim);
        if result == ReleaseResult::Released {
            let change = rules::release_change(name, claim);
            self.must(vec![Change { write, ..change }]);
        }
        Answer::Release(result)
    }

    /// Does what the service does: look, ask the rules, act. `before` is the model before the step.
    fn carry_out(&mut self, before: &Model, step: Step) -> Answer {
        let claim = |name: &Resource, holder, named| Claim {
            holder,
            token: self.token(before.token(name, named)),
        };
        match step {
            Step::Acquire { names, grant } => {
                let current: Vec<_> = names.iter().map(|name| self.find(name)).collect();
                match rules::acquire(&current, &names, &grant) {
                    AcquireDecision::Held(_) => Answer::Held,
                    AcquireDecision::Repeat => Answer::Repeated,
                    AcquireDecision::Changes(changes) => {
                        self.must(changes);
                        Answer::Granted
                    }
                }
            }
            Step::Release { name, holder, named } => {
                self.release(&name, &claim(&name, holder, named), Write::Remove)
            }
            Step::HandOver { name, holder, to } => {
                self.release(&name, &claim(&name, holder, Named::Any), Write::Grant(to))
            }
            Step::Renew {
                name,
                holder,
                named,
                ttl,
            } => {
                let claim = claim(&name, holder, named);
                let result = rules::renew(self.find(&name).as_ref(), &claim);
                if result == RenewResult::Renewed {
                    self.must(vec![rules::renew_change(&name, &claim, ttl)]);
                }
                Answer::Renew(result)
            }
            Step::Guess { change } => {
                let expected = change.expected.clone();
                let cause = if matches!(expected, Expected::Free) {
                    Cause::Acquire
                } else {
                    Cause::Release
                };
                let cause = if matches!(change.write, Write::Extend(_)) {
                    Cause::Renew
                } else {
                    cause
                };
                let change = Change { cause, ..change };
                Answer::Swapped(self.runtime.block_on(apply(&self.store, change)).is_ok())
            }
            Step::Advance(span) => {
                self.time.advance(span);
                Answer::Nothing
            }
            Step::SetWall(micros) => {
                self.time.step_wall_micros(micros);
                Answer::Nothing
            }
            Step::Restart { with_machine } => {
                self.restart(before.now, with_machine);
                Answer::Nothing
            }
        }
    }

    /// The engine has the model's locks, to the microsecond; tokens that the model has drawn anew are above all
    /// others.
    fn compare(&mut self, model: &Model) {
        let expected = model.live();
        let all = ListQuery {
            limit: 100,
            ..ListQuery::default()
        };
        let page = self.runtime.block_on(self.store.list(&all)).unwrap();
        assert_eq!(page.locks.len(), expected.len(), "{page:?}\n{expected:?}");
        let mut fresh: Vec<_> = expected
            .iter()
            .zip(&page.locks)
            .map(|(expected, found)| (expected.lock.fencing_token, found.lock.fencing_token))
            .filter(|(of_model, _)| !self.tokens.contains_key(of_model))
            .collect();
        fresh.sort_unstable();
        for (of_model, of_engine) in fresh {
            let above_all = self.tokens.values().max().is_none_or(|last| *last < of_engine);
            assert!(above_all, "{of_engine} after {:?}", self.tokens);
            self.tokens.insert(of_model, of_engine);
        }
        for (expected, found) in expected.into_iter().zip(page.locks) {
            let mut lock = expected.lock;
            lock.fencing_token = self.tokens[&lock.fencing_token];
            let expected = Live { lock, ..expected };
            assert_eq!(found, expected);
            assert_eq!(self.find(&expected.lock.resource), Some(expected));
        }
        self.runtime.block_on(self.history.read(model.now));
    }
}

/// A state machine test of one kind of engine. The subject keeps the model as it was before each step.
struct Compared<K>(PhantomData<K>);

impl<K: Kind + 'static> StateMachineTest for Compared<K> {
    type SystemUnderTest = (Subject<K>, Model);
    type Reference = K::Histories;

    fn init_test(model: &Model) -> Self::SystemUnderTest {
        (Subject::new(), model.clone())
    }

    fn apply(
        (mut subject, before): Self::SystemUnderTest,
        model: &Model,
        step: Step,
    ) -> Self::SystemUnderTest {
        let answer = subject.carry_out(&before, step);
        assert_eq!(answer, model.answer);
        subject.compare(model);
        (subject, model.clone())
    }
}

prop_state_machine! {
    #![proptest_config(Config { cases: 200, ..Config::default() })]
    #[test]
    fn memory_behaves_as_the_model(sequential 1..40 => Compared<Memory>);
}

prop_state_machine! {
    #![proptest_config(Config { cases: 40, ..Config::default() })]
    #[test]
    fn sqlite_behaves_as_the_model(sequential 1..40 => Compared<Sqlite>);
}

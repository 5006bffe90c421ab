//! Faults that lock services have really had, each in a store of its own or in a client: see [`Mutation`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ferrolho_core::{Cause, Change, Expected, FencingToken, Live, Resource, Write};
use ferrolho_store::{
    Attempt, EngineTraits, Feed, Health, ListQuery, MemoryStore, Outcome, Page, Store, StoreError,
};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::{Instant, sleep};

/// What is wrong in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// Nothing.
    None,
    /// The store removes a lock for whoever asks.
    ReleaseWithoutOwnerCheck,
    /// The store takes a lock for over one second before its end.
    ExpiryOneSecondEarly,
    /// The store draws a grant's token when it is asked, and not in the order of its commits.
    TokenOutsideTheCommit,
    /// The store answers before what it did is safe; a crash loses it.
    ReplyBeforeTheSync,
    /// The store looks whether a lock is free, and then writes whatever has become of it meanwhile. (The seed's way.)
    ReadThenUpdate,
    /// A grant whose caller has left stays.
    HandOverToTheDeparted,
    /// At the end of a life the lock is removed if it still has its token, which a renewed one has too.
    RemovalByToken,
    /// Clients count the lifetime from when the answer came.
    BeliefFromTheAnswer,
}

/// The memory engine with one of these faults.
pub(crate) struct MutantStore {
    engine: Arc<MemoryStore>,
    mutation: Mutation,
    dice: Mutex<StdRng>,
    tokens: Mutex<Tokens>,
    /// Grants that were answered and are not safe yet.
    unsafe_grants: Arc<Mutex<Vec<(Resource, FencingToken)>>>,
}

/// Tokens that were drawn outside of the commit, and those that the engine knows.
#[derive(Default)]
struct Tokens {
    drawn: u64,
    shown: HashMap<FencingToken, FencingToken>,
    real: HashMap<FencingToken, FencingToken>,
}

/// How long the store that answers too early takes to make its work safe.
const SYNC: Duration = Duration::from_millis(400);

impl MutantStore {
    pub(crate) fn new(engine: Arc<MemoryStore>, mutation: Mutation, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            engine,
            mutation,
            dice: Mutex::new(StdRng::seed_from_u64(seed)),
            tokens: Mutex::default(),
            unsafe_grants: Arc::default(),
        })
    }

    /// The machine of the store loses its power: what is not safe is lost.
    pub(crate) async fn lose_power(&self) {
        let lost = std::mem::take(&mut *self.unsafe_grants.lock().unwrap());
        for (resource, token) in lost {
            self.remove(&resource, token).await;
        }
    }

    async fn remove(&self, resource: &Resource, token: FencingToken) {
        // A lock that has gone meanwhile is not lost.
        let _outcome = self.engine.apply(now(vec![removal(resource, token)])).await;
    }

    fn pause(&self, most_millis: u64) -> Duration {
        Duration::from_micros(self.dice.lock().unwrap().random_range(0..most_millis * 1_000))
    }

    /// The change as this store understands it.
    async fn misread(&self, mut change: Change) -> Result<Change, StoreError> {
        let current = self.engine.find(&change.resource).await?;
        let any =
            |live: Option<Live>| live.map_or(Expected::Free, |live| Expected::Token(live.lock.fencing_token));
        match (self.mutation, &change.expected) {
            (Mutation::ReleaseWithoutOwnerCheck, Expected::HeldBy(_)) if change.write == Write::Remove => {
                change.expected = any(current);
            }
            (Mutation::ExpiryOneSecondEarly, Expected::Free)
                if current
                    .as_ref()
                    .is_some_and(|live| live.left <= Duration::from_secs(1)) =>
            {
                change.expected = any(current);
            }
            (Mutation::ReadThenUpdate, Expected::Free) if current.is_none() => {
                sleep(self.pause(5)).await;
                change.expected = any(self.engine.find(&change.resource).await?);
            }
            _ => {}
        }
        Ok(change)
    }

    /// What the store does behind the caller's back once it has made this.
    fn follow_up(&self, change: &Change, made: &Live) {
        let Write::Grant(grant) = &change.write else {
            return;
        };
        let (resource, token) = (change.resource.clone(), made.lock.fencing_token);
        match self.mutation {
            Mutation::ReplyBeforeTheSync => {
                let grants = Arc::clone(&self.unsafe_grants);
                grants.lock().unwrap().push((resource, token));
                tokio::spawn(async move {
                    sleep(SYNC).await;
                    grants.lock().unwrap().retain(|(_, synced)| *synced != token);
                });
            }
            Mutation::RemovalByToken => {
                let (engine, life) = (Arc::clone(&self.engine), grant.ttl.duration());
                tokio::spawn(async move {
                    sleep(life).await;
                    // A lock with another token is not meant.
                    let _outcome = engine.apply(now(vec![removal(&resource, token)])).await;
                });
            }
            _ => {}
        }
    }
}

fn now(changes: Vec<Change>) -> Attempt {
    Attempt {
        changes,
        not_after: Instant::now(),
    }
}

fn removal(resource: &Resource, token: FencingToken) -> Change {
    Change {
        resource: resource.clone(),
        expected: Expected::Token(token),
        write: Write::Remove,
        cause: Cause::Release,
    }
}

impl Tokens {
    fn draw(&mut self) -> FencingToken {
        self.drawn += 1;
        FencingToken::new(self.drawn.into()).unwrap()
    }

    fn show(&self, mut live: Live) -> Live {
        let token = &mut live.lock.fencing_token;
        *token = self.shown.get(token).copied().unwrap_or(*token);
        live
    }

    fn real(&self, token: FencingToken) -> FencingToken {
        self.real.get(&token).copied().unwrap_or(token)
    }

    /// The change with the engine's own tokens.
    fn translate(&self, mut change: Change) -> Change {
        match &mut change.expected {
            Expected::Token(token) => *token = self.real(*token),
            Expected::HeldBy(claim) => claim.token = claim.token.map(|token| self.real(token)),
            Expected::Free => {}
        }
        change
    }
}

#[async_trait]
impl Store for MutantStore {
    async fn find(&self, resource: &Resource) -> Result<Option<Live>, StoreError> {
        let found = self.engine.find(resource).await?;
        Ok(match self.mutation {
            Mutation::ExpiryOneSecondEarly => found.filter(|live| live.left > Duration::from_secs(1)),
            Mutation::TokenOutsideTheCommit => found.map(|live| self.tokens.lock().unwrap().show(live)),
            _ => found,
        })
    }

    async fn apply(&self, attempt: Attempt) -> Result<Outcome, StoreError> {
        let Attempt { changes, not_after } = attempt;
        let is_undo = |change: &Change| change.cause == Cause::Undo && change.write == Write::Remove;
        if self.mutation == Mutation::HandOverToTheDeparted && changes.iter().all(is_undo) {
            return Ok(Outcome::Applied(vec![None; changes.len()]));
        }
        let drawn: Vec<FencingToken> = changes
            .iter()
            .map(|_| self.tokens.lock().unwrap().draw())
            .collect();
        if self.mutation == Mutation::TokenOutsideTheCommit {
            sleep(self.pause(500)).await;
        }
        let mut misread = Vec::with_capacity(changes.len());
        for change in changes {
            let change = self.tokens.lock().unwrap().translate(change);
            misread.push(self.misread(change).await?);
        }
        let outcome = self
            .engine
            .apply(Attempt {
                changes: misread.clone(),
                not_after,
            })
            .await?;
        let mut tokens = self.tokens.lock().unwrap();
        Ok(match outcome {
            Outcome::Stale(lives) => Outcome::Stale(
                lives
                    .into_iter()
                    .map(|live| live.map(|live| tokens.show(live)))
                    .collect(),
            ),
            Outcome::Applied(lives) => {
                for ((change, live), drawn) in misread.iter().zip(&lives).zip(drawn) {
                    let Some(live) = live else { continue };
                    self.follow_up(change, live);
                    if self.mutation == Mutation::TokenOutsideTheCommit
                        && matches!(change.write, Write::Grant(_))
                    {
                        tokens.shown.insert(live.lock.fencing_token, drawn);
                        tokens.real.insert(drawn, live.lock.fencing_token);
                    }
                }
                Outcome::Applied(
                    lives
                        .into_iter()
                        .map(|live| live.map(|live| tokens.show(live)))
                        .collect(),
                )
            }
        })
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.engine.list(query).await
    }

    fn changes(&self) -> Feed {
        self.engine.changes()
    }

    async fn check(&self) -> Result<Health, StoreError> {
        self.engine.check().await
    }

    fn traits(&self) -> EngineTraits {
        self.engine.traits()
    }

    async fn close(&self) {}
}

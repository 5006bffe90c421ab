//! etcd: several servers on one cluster (cargo feature `etcd`).
//!
//! One key for each lock, and every write compares the revision that it rests on, so etcd's consensus decides
//! who gets a lock. What this server knows of the locks ([`known`], [`table`]) is fed by a watch ([`watch`],
//! [`events`]) and serves guesses, timers and lists. An act ([`acts`]) on a guess is planned ([`plan`]), queued with
//! others ([`batch`]) and committed in one transaction ([`commit`], [`draft`], [`fates`], [`space`]). Lives are
//! measured by the servers' own boot-time clocks and end by committed removals ([`life`]); leases are only a net
//! below ([`leases`]). No answer comes from memory: refusals and "there is none" come from a transaction or a
//! linearizable read too.
//!
//! etcd's clocks and the servers' wall clocks decide nothing. `acquired_at` and `expires_at` are the wall clock
//! of the server that wrote, for people.

mod acts;
mod batch;
mod commit;
mod compact;
mod config;
mod draft;
mod events;
mod failure;
mod fates;
mod keys;
mod known;
mod leases;
mod life;
mod load;
mod members;
mod plan;
mod record;
mod requests;
mod space;
mod table;
#[cfg(test)]
mod tests;
mod tokens;
mod watch;

use std::sync::Arc;

use async_trait::async_trait;
use ferrolho_core::{Change, Live, Resource};
use tokio::time::Instant;

use self::acts::live;
use self::batch::{Flight, MAX_FLIGHTS, Reply};
use self::commit::{Committer, MAX_BATCH_CHANGES};
use self::failure::Failure;
use self::keys::Keys;
use self::known::Locks;
use self::members::{ATTEMPT, Members};
use self::record::Me;
use self::requests::Cluster;
use self::watch::Follower;
use crate::batch::{Bounds, Works};
use crate::clock::Moment;
use crate::{
    Attempt, CommitMeter, ENGINE_TIMEOUT, EngineTraits, Feed, FeedSender, Health, ListQuery, Outcome, Page,
    Store, StoreError,
};

pub use self::config::{EtcdConfig, EtcdUrlError};
pub use self::members::TlsFileError;
pub(crate) use self::tokens::lift_tokens;

/// How often an attempt is planned again because others were faster, before it is given up as undone.
const MAX_ROUNDS: usize = 32;

/// Why a store on etcd does not open.
#[derive(Debug, thiserror::Error)]
pub enum EtcdOpenError {
    /// A file of its TLS cannot be read.
    #[error(transparent)]
    Tls(#[from] TlsFileError),
    /// No member answers, or it refuses this client.
    #[error("the etcd cluster cannot be used: {0}")]
    NoAnswer(String),
}

/// Locks in an etcd cluster.
pub struct EtcdStore {
    committer: Arc<Committer>,
    follower: Arc<Follower>,
    feed: FeedSender,
    works: Works<Reply>,
}

impl EtcdStore {
    /// Opens the store: reads all locks, and from then on follows what all servers do.
    pub async fn open(config: &EtcdConfig) -> Result<Self, EtcdOpenError> {
        let me = Me {
            number: rand::random(),
            started: Moment::now(),
        };
        let cluster = Arc::new(Cluster::new(Members::new(config)?));
        let locks = Arc::new(Locks::new(me));
        let committer = Arc::new(Committer::new(cluster, Keys::new(&config.prefix), locks, me));
        load::load(&committer)
            .await
            .map_err(|failure| EtcdOpenError::NoAnswer(failure.to_string()))?;
        let feed = FeedSender::default();
        let follower = Arc::new(Follower::new(Arc::clone(&committer), feed.clone()));
        let flights = (0..MAX_FLIGHTS).map(|_| Flight(Arc::clone(&committer))).collect();
        let works = Works::start(
            flights,
            Bounds {
                max_changes: MAX_BATCH_CHANGES,
                eager_flights: MAX_FLIGHTS,
            },
        );
        works.spawn(life::run(Arc::clone(&committer)));
        let (prober, runner) = (Arc::clone(&follower), Arc::clone(&follower));
        works.spawn(async move { prober.probe().await });
        works.spawn(async move { runner.run().await });
        if let Some(history) = config.history {
            works.spawn(compact::run(Arc::clone(&committer), history));
        }
        Ok(Self {
            committer,
            follower,
            feed,
            works,
        })
    }
}

#[async_trait]
impl Store for EtcdStore {
    async fn find(&self, resource: &Resource) -> Result<Option<Live>, StoreError> {
        self.works.check_open()?;
        let until = Instant::now() + ENGINE_TIMEOUT;
        loop {
            let found = self.read(&[resource], until).await?;
            if !self.end_overdue(&found, until).await? {
                return Ok(live(&found).into_iter().next().flatten());
            }
        }
    }

    async fn apply(&self, attempt: Attempt) -> Result<Outcome, StoreError> {
        let changes: Arc<[Change]> = attempt.changes.into();
        for _ in 0..MAX_ROUNDS {
            if Instant::now() > attempt.not_after {
                return Err(StoreError::TooLate);
            }
            if let Some(outcome) = self.round(&changes, attempt.not_after).await? {
                return Ok(outcome);
            }
        }
        Err(StoreError::unavailable("too many others change the same locks"))
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.works.check_open()?;
        let locks = &self.committer.locks;
        let until = Instant::now() + ENGINE_TIMEOUT;
        let noted = self.committer.read_noted(until).await.map_err(Failure::of_read)?;
        if !locks.reached(noted, until).await {
            return Err(StoreError::unavailable("the watch on etcd is behind"));
        }
        loop {
            let mut page = self.scan(query).await;
            let overdue: Vec<_> = page.iter().cloned().map(Some).collect();
            if self.end_overdue(&overdue, until).await? {
                continue;
            }
            let more = page.len() > query.limit;
            page.truncate(query.limit);
            let now = Moment::now();
            let locks = page.iter().map(|seen| seen.live(now)).collect();
            return Ok(Page { locks, more });
        }
    }

    fn changes(&self) -> Feed {
        self.feed.subscribe()
    }

    async fn check(&self) -> Result<Health, StoreError> {
        self.works.check_open()?;
        let Committer { locks, cluster, .. } = &*self.committer;
        let until = Instant::now() + ENGINE_TIMEOUT;
        let noted = self.committer.read_noted(until).await.map_err(Failure::of_read)?;
        let complaints = cluster.complaints(until).await.map_err(Failure::of_read)?;
        if let Some(alarm) = complaints.iter().find(|complaint| complaint.contains("alarm:")) {
            return Err(StoreError::unavailable(format!(
                "etcd has raised an alarm: {alarm}"
            )));
        }
        let mut warnings = complaints;
        if self.follower.is_broken() {
            warnings.push("there is no watch on etcd: releases elsewhere wake nobody here".into());
        } else if !locks.reached(noted, Instant::now() + ATTEMPT).await {
            warnings.push("the watch on etcd is behind".into());
        }
        Ok(Health {
            warnings,
            clock_ahead_micros: None,
            live_locks: u64::try_from(locks.count()).ok(),
        })
    }

    fn traits(&self) -> EngineTraits {
        EngineTraits {
            name: "etcd",
            looking_is_free: false,
            is_shared: true,
        }
    }

    fn commits(&self) -> Option<Arc<CommitMeter>> {
        Some(Arc::clone(&self.committer.meter))
    }

    async fn close(&self) {
        self.works.close().await;
    }
}

//! PostgreSQL: several servers on one database.
//!
//! The seed's table and one row beside it, whose row lock is the order of all commits: tokens are drawn from it, and
//! the clock is read once it is held. What decides is in functions of the database (`sql/`), so that a batch of
//! changes is one statement, one round trip and one commit ([`batch`], [`database`]). Each call says what the
//! database's clock should show ([`clock`]). Dead locks are cleared by every server ([`ends`]). Notifications are the
//! change feed ([`listener`]). A connection that does not answer in time is thrown away ([`link`]).

mod batch;
mod clock;
mod columns;
mod config;
mod database;
mod ends;
mod failure;
mod link;
mod listener;
mod rows;
mod setup;
mod tls;

use std::sync::Arc;

use async_trait::async_trait;
use ferrolho_core::{Live, Resource};
use tokio::time::{Instant, timeout};

use self::batch::{BOUNDS, Flight, MAX_FLIGHTS, Reply};
use self::database::Database;
use self::ends::Ends;
use self::failure::Failure;
use self::link::{Door, Link};
use self::listener::{Listener, Place};
use crate::batch::Works;
use crate::clock::wall_now;
use crate::{
    Attempt, CommitMeter, ENGINE_TIMEOUT, EngineTraits, Feed, FeedSender, Health, Lift, ListQuery, Outcome,
    Page, Store, StoreError,
};

pub use self::config::{PostgresConfig, PostgresUrlError};
pub use self::tls::RootFileError;

/// A difference of clocks that an operator should know of, in microseconds.
const NOTABLE_MICROS: i64 = 1_000_000;

/// Why a store on PostgreSQL does not open. Each message is one line without secrets.
#[derive(Debug, thiserror::Error)]
pub enum PostgresOpenError {
    /// A file of its TLS is of no use.
    #[error(transparent)]
    Root(#[from] RootFileError),
    /// The database does not answer, or refuses this client.
    #[error("the PostgreSQL database cannot be used: {0}")]
    NoAnswer(String),
    /// It follows another server.
    #[error("the PostgreSQL server is a standby, where nothing can be written; name the primary")]
    Standby,
    /// It keeps texts in another form.
    #[error(
        "the database has the encoding {0}; locks need one with UTF8: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
    )]
    Encoding(String),
    /// A newer ferrolho has changed the tables.
    #[error("the tables are of version {0}, from a newer ferrolho; use that one")]
    TooNew(i32),
    /// Tables or functions are not there, and this user may not make them.
    #[error(
        "this user may not make the tables and functions: it needs CREATE on the schema {0}, which must exist; or start ferrolho once as a user who may"
    )]
    MayNotCreate(String),
    /// Somebody else's table has the name.
    #[error(
        "the table distributed_locks in the schema {schema} is none that ferrolho can take over: {why}; name another schema with ?schema="
    )]
    Foreign {
        /// Where it is.
        schema: String,
        /// What is wrong with it.
        why: String,
    },
    /// The tables cannot be made.
    #[error("the tables cannot be made: {0}")]
    NoTables(String),
}

/// Locks in a PostgreSQL database.
pub struct PostgresStore {
    database: Arc<Database>,
    listener: Arc<Listener>,
    feed: FeedSender,
    meter: Arc<CommitMeter>,
    works: Works<Reply>,
}

impl PostgresStore {
    /// Opens the store, and makes its tables where there are none. Must be called within a tokio runtime.
    pub async fn open(config: &PostgresConfig) -> Result<Self, PostgresOpenError> {
        let door = Door::new(&config.session)?;
        let listen = Door::new(config.listen.as_ref().unwrap_or(&config.session))?;
        setup::set_up(config, &door).await?;
        let until = Instant::now() + ENGINE_TIMEOUT;
        let no_answer = |failure: Failure| PostgresOpenError::NoAnswer(failure.to_string());
        let (database, pulse) = Database::new(config, &door, until).await.map_err(no_answer)?;
        let (database, ends) = (Arc::new(database), Arc::new(Ends::default()));
        let (feed, meter) = (FeedSender::default(), Arc::new(CommitMeter::default()));
        let place = Place {
            epoch: pulse.epoch,
            commits: pulse.commits,
        };
        let (heard, told) = (Arc::clone(&ends), feed.clone());
        let listener = Arc::new(Listener::new(Arc::clone(&database), listen, heard, told, place));
        let flight = |link| Flight {
            link,
            database: Arc::clone(&database),
            ends: Arc::clone(&ends),
            meter: Arc::clone(&meter),
        };
        let flights: Vec<Flight> = (0..MAX_FLIGHTS)
            .map(|_| flight(Link::new(door.clone())))
            .collect();
        let clearing = Link::new(door);
        for link in flights.iter().map(|flight| &flight.link).chain([&clearing]) {
            link.session(until).await.map_err(no_answer)?;
        }
        let works = Works::start(flights, BOUNDS);
        let follower = Arc::clone(&listener);
        works.spawn(async move { follower.run().await });
        // Who watches from the first moment should miss nothing. If it cannot be heard now it will be later.
        let _ = timeout(ENGINE_TIMEOUT, listener.tried()).await;
        works.spawn(ends::clear(Arc::clone(&database), ends, clearing));
        Ok(Self {
            database,
            listener,
            feed,
            meter,
            works,
        })
    }
}

/// Lifts the tokens of this database. Returns a number that every further token is above.
pub(crate) async fn lift_tokens(config: &PostgresConfig, lift: Lift) -> Result<u64, PostgresOpenError> {
    let door = Door::new(&config.session)?;
    setup::set_up(config, &door).await?;
    setup::lift(config, &door, lift).await
}

#[async_trait]
impl Store for PostgresStore {
    async fn find(&self, resource: &Resource) -> Result<Option<Live>, StoreError> {
        self.works.check_open()?;
        let until = Instant::now() + ENGINE_TIMEOUT;
        self.database
            .find(resource, until)
            .await
            .map_err(Failure::of_read)
    }

    async fn apply(&self, attempt: Attempt) -> Result<Outcome, StoreError> {
        self.works
            .submit(attempt.changes.into(), attempt.not_after)
            .await?
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.works.check_open()?;
        let until = Instant::now() + ENGINE_TIMEOUT;
        let mut locks = self.database.list(query, until).await.map_err(Failure::of_read)?;
        let more = locks.len() > query.limit;
        locks.truncate(query.limit);
        Ok(Page { locks, more })
    }

    fn changes(&self) -> Feed {
        self.feed.subscribe()
    }

    async fn check(&self) -> Result<Health, StoreError> {
        self.works.check_open()?;
        let until = Instant::now() + ENGINE_TIMEOUT;
        let pulse = self.database.pulse(until).await.map_err(Failure::of_read)?;
        let ahead = pulse.clock - pulse.skew - wall_now().as_micros();
        let mut warnings = Vec::new();
        if self.listener.is_deaf() {
            warnings.push(
                "the database is not heard: releases elsewhere wake those who wait here only slowly".into(),
            );
        }
        if pulse.skew.abs() > NOTABLE_MICROS {
            warnings.push(format!(
                "the database's clock was stepped by {} seconds; locks keep their lives",
                pulse.skew / NOTABLE_MICROS
            ));
        }
        if ahead.abs() > NOTABLE_MICROS {
            warnings.push("the store's clock and this machine's differ by more than a second".into());
        }
        Ok(Health {
            warnings,
            clock_ahead_micros: Some(ahead),
            live_locks: self.database.count(until).await.map_err(Failure::of_read)?,
        })
    }

    fn traits(&self) -> EngineTraits {
        EngineTraits {
            name: "postgres",
            looking_is_free: false,
            is_shared: true,
        }
    }

    fn commits(&self) -> Option<Arc<CommitMeter>> {
        Some(Arc::clone(&self.meter))
    }

    async fn close(&self) {
        self.works.close().await;
        self.database.close();
    }
}

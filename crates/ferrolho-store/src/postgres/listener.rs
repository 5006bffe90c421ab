//! What the database notifies of, as the change feed.
//!
//! Every commit that changed anything has a number, without gaps, and one notification for each of its events. What
//! is sent while nobody listens is lost, so a number that is missing is a gap. A probe compares the numbers with the
//! database's. That a connection hears is not believed before it has heard: over a pooler in transaction mode `LISTEN`
//! goes well and nothing ever comes. There the probe finds every change, a little late, as a gap.

use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::{Event, EventKind, Position, Reason, Timestamp};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::database::Database;
use super::ends::Ends;
use super::failure::Failure;
use super::link::Door;
use super::rows::Fields;
use crate::{ENGINE_TIMEOUT, FeedSender};

/// Between the fields of a notification.
const SEPARATOR: char = '\u{1f}';

/// What a listener sends to itself to see whether it hears; others pass it over.
const SIGN: &str = "";

/// How often what was heard is compared with what there is, and within what time a connection must have heard its sign.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// How long it rests before a lost connection is made again.
const PAUSE: Duration = Duration::from_millis(200);

/// After what time a connection that hears nothing is made again.
const DEAF_FOR: Duration = Duration::from_mins(1);

/// Follows what happens and tells it to the feed.
pub(super) struct Listener {
    database: Arc<Database>,
    door: Door,
    ends: Arc<Ends>,
    feed: FeedSender,
    /// Up to where everything was told, or a gap was.
    told: Mutex<Place>,
    hearing: watch::Sender<Hearing>,
}

/// Whether it hears what other servers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hearing {
    /// That is not known yet.
    Untried,
    Hears,
    /// It looks for changes instead.
    Deaf,
}

/// A place in a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) epoch: u64,
    pub(super) commits: u64,
}

/// The events of a commit that have come so far.
struct Commit {
    number: u64,
    events: Vec<Event>,
}

impl Listener {
    pub(super) fn new(
        database: Arc<Database>,
        door: Door,
        ends: Arc<Ends>,
        feed: FeedSender,
        place: Place,
    ) -> Self {
        Self {
            database,
            door,
            ends,
            feed,
            told: Mutex::new(place),
            hearing: watch::Sender::new(Hearing::Untried),
        }
    }

    /// Whether changes on other servers are not heard of now.
    pub(super) fn is_deaf(&self) -> bool {
        *self.hearing.borrow() != Hearing::Hears
    }

    /// Waits until it is known whether it hears.
    pub(super) async fn tried(&self) {
        // It is never dropped while this waits for it.
        let _ = self
            .hearing
            .subscribe()
            .wait_for(|hearing| *hearing != Hearing::Untried)
            .await;
    }

    /// Listens until it is ended itself.
    pub(super) async fn run(&self) {
        loop {
            let failure = match self.listen().await {
                Err(failure) => failure,
                Ok(never) => match never {},
            };
            self.is_found_deaf(&failure);
            sleep(PAUSE).await;
        }
    }

    async fn listen(&self) -> Result<std::convert::Infallible, Failure> {
        let until = Instant::now() + ENGINE_TIMEOUT;
        let epoch = self.database.pulse(until).await?.epoch;
        let (session, mut notifications) = self.door.open_listening(until).await?;
        let channel = channel(epoch);
        timeout(
            ENGINE_TIMEOUT,
            session.client.batch_execute(&format!("LISTEN {channel}")),
        )
        .await
        .map_err(|_| Failure::Away("the database does not answer".into()))?
        .map_err(|error| Failure::of_call(&error))?;
        // Listening has begun: what came before was missed.
        self.look(epoch).await?;
        self.database
            .notify(&channel, SIGN, Instant::now() + ENGINE_TIMEOUT)
            .await?;
        let begun = Instant::now();
        let mut commit = None;
        let mut is_behind = false;
        loop {
            match timeout(PROBE_EVERY, notifications.recv()).await {
                Ok(Some(notification)) => {
                    if self.hearing.send_replace(Hearing::Hears) != Hearing::Hears {
                        info!("the database is heard");
                    }
                    is_behind = false;
                    if notification.payload() != SIGN {
                        self.heard(epoch, notification.payload(), &mut commit)?;
                    }
                }
                Ok(None) => return Err(Failure::Away("the connection has ended".into())),
                Err(_) if self.is_deaf() => {
                    let why = "changes are not notified; behind a pooler, name a direct connection with --store-listen";
                    self.is_found_deaf(&Failure::Away(why.into()));
                    if begun.elapsed() >= DEAF_FOR {
                        return Err(Failure::Away(why.into()));
                    }
                    self.look(epoch).await?;
                }
                Err(_) => is_behind = self.probe(epoch, is_behind).await?,
            }
        }
    }

    fn is_found_deaf(&self, failure: &Failure) {
        if self.hearing.send_replace(Hearing::Deaf) != Hearing::Deaf {
            warn!(%failure, "the database is not heard; looking every second, and listening again");
        }
    }

    /// Finds out how far the database has come. What happened until then and was not told is a gap.
    async fn look(&self, epoch: u64) -> Result<(), Failure> {
        let now = self.place(epoch).await?;
        if std::mem::replace(&mut *self.told.lock(), now) != now {
            self.feed.gap();
        }
        Ok(())
    }

    /// Nothing was heard for a while. Twice in a row behind the database, something is wrong.
    async fn probe(&self, epoch: u64, was_behind: bool) -> Result<bool, Failure> {
        let is_behind = self.place(epoch).await?.commits > self.told.lock().commits;
        if is_behind && was_behind {
            return Err(Failure::Away("notifications do not come any more".into()));
        }
        Ok(is_behind)
    }

    /// Where the database is in this history.
    async fn place(&self, epoch: u64) -> Result<Place, Failure> {
        let pulse = self.database.pulse(Instant::now() + ENGINE_TIMEOUT).await?;
        if pulse.epoch != epoch {
            return Err(Failure::Away("the database has another history now".into()));
        }
        let commits = pulse.commits;
        Ok(Place { epoch, commits })
    }

    fn heard(&self, epoch: u64, payload: &str, commit: &mut Option<Commit>) -> Result<(), Failure> {
        let odd = || Failure::Away("a notification that is none of ours".into());
        let told = *self.told.lock();
        let (number, index, count, event) = read(payload).ok_or_else(odd)?;
        if number <= told.commits {
            // It was counted when listening began.
            return Ok(());
        }
        let current = match commit {
            Some(current) if current.number == number => current,
            _ if number == told.commits + 1 => commit.insert(Commit {
                number,
                events: Vec::with_capacity(count),
            }),
            _ => return Err(Failure::Away("a notification is missing".into())),
        };
        if index != current.events.len() {
            return Err(Failure::Away("a notification is missing".into()));
        }
        let position = Position {
            epoch,
            commit: number,
            index: u32::try_from(index).map_err(|_| odd())?,
        };
        current.events.push(event.at(position).ok_or_else(odd)?);
        if current.events.len() == count {
            let events = commit.take().map(|commit| commit.events).unwrap_or_default();
            for event in &events {
                if matches!(event.kind, EventKind::Acquired | EventKind::Renewed) {
                    self.ends.lock_ends_in(event.lock.expires_at.since(event.at));
                }
            }
            self.told.lock().commits = number;
            self.feed.send(events);
        }
        Ok(())
    }
}

fn channel(epoch: u64) -> String {
    format!("ferrolho_{epoch}")
}

/// An event as it travels.
struct Travelling<'a> {
    kind: EventKind,
    at: Timestamp,
    fields: Fields<'a>,
    reason: &'a str,
}

/// The number of a commit, the place of an event in it, how many it has, and the event.
fn read(payload: &str) -> Option<(u64, usize, usize, Travelling<'_>)> {
    // The metadata comes last, and may have separators in it.
    let mut parts = payload.splitn(13, SEPARATOR);
    let number = parts.next()?.parse().ok()?;
    let index = parts.next()?.parse().ok()?;
    let count = parts.next()?.parse().ok()?;
    let named = parts.next()?;
    let kind = EventKind::ALL.into_iter().find(|kind| kind.as_str() == named)?;
    let at = Timestamp::from_micros(parts.next()?.parse().ok()?);
    let token = parts.next()?.parse().ok()?;
    let acquired_at = Timestamp::from_micros(parts.next()?.parse().ok()?);
    let expires_at = Timestamp::from_micros(parts.next()?.parse().ok()?);
    let (resource, owner, principal) = (parts.next()?, parts.next()?, parts.next()?);
    let reason = parts.next()?;
    let fields = Fields {
        resource,
        owner,
        principal,
        metadata: parts.next()?,
        token,
        acquired_at,
        expires_at,
    };
    let event = Travelling {
        kind,
        at,
        fields,
        reason,
    };
    Some((number, index, count, event))
}

impl Travelling<'_> {
    fn at(&self, position: Position) -> Option<Event> {
        let lock = self.fields.lock().ok()?;
        Some(Event {
            position,
            kind: self.kind,
            resource: lock.resource.clone(),
            lock,
            at: self.at,
            reason: Reason::new(self.reason).ok(),
        })
    }
}

//! What the database notifies of, as the change feed.
//!
//! Every commit that changed anything has a number, without gaps, and one notification for each of its events. What
//! is sent while nobody listens is lost, so a number that is missing is a gap. A probe compares the numbers with the
//! database's: over a pooler that nobody can listen through it finds every change late, as a gap.

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

/// How often what was heard is compared with what there is.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// How long it rests before a lost connection is made again.
const PAUSE: Duration = Duration::from_millis(200);

/// Follows what happens and tells it to the feed.
pub(super) struct Listener {
    database: Arc<Database>,
    door: Door,
    ends: Arc<Ends>,
    feed: FeedSender,
    /// Up to where everything was told, or a gap was.
    told: Mutex<Place>,
    /// Whether it hears what other servers do.
    hears: watch::Sender<bool>,
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
            hears: watch::Sender::new(false),
        }
    }

    /// Whether changes on other servers are not heard of now.
    pub(super) fn is_deaf(&self) -> bool {
        !*self.hears.borrow()
    }

    /// Waits until it hears what other servers do.
    pub(super) async fn hears(&self) {
        // It is never dropped while this waits for it.
        let _ = self.hears.subscribe().wait_for(|hears| *hears).await;
    }

    /// Listens until it is ended itself.
    pub(super) async fn run(&self) {
        let mut is_said = false;
        loop {
            let failure = match self.listen().await {
                Err(failure) => failure,
                Ok(never) => match never {},
            };
            if self.hears.send_replace(false) || !is_said {
                is_said = true;
                warn!(%failure, "the database is not heard; listening again");
            }
            sleep(PAUSE).await;
        }
    }

    async fn listen(&self) -> Result<std::convert::Infallible, Failure> {
        let until = Instant::now() + ENGINE_TIMEOUT;
        let epoch = self.database.pulse(until).await?.epoch;
        let (session, mut notifications) = self.door.open_listening(until).await?;
        let channel = format!("LISTEN ferrolho_{epoch}");
        timeout(ENGINE_TIMEOUT, session.client.batch_execute(&channel))
            .await
            .map_err(|_| Failure::Away("the database does not answer".into()))?
            .map_err(|error| Failure::of_call(&error))?;
        self.catch_up(epoch).await?;
        let mut commit = None;
        let mut is_behind = false;
        loop {
            match timeout(PROBE_EVERY, notifications.recv()).await {
                Ok(Some(notification)) => {
                    is_behind = false;
                    self.heard(epoch, notification.payload(), &mut commit)?;
                }
                Ok(None) => return Err(Failure::Away("the connection has ended".into())),
                Err(_) => is_behind = self.probe(epoch, is_behind).await?,
            }
        }
    }

    /// Listening has begun: what came before was missed.
    async fn catch_up(&self, epoch: u64) -> Result<(), Failure> {
        let pulse = self.database.pulse(Instant::now() + ENGINE_TIMEOUT).await?;
        let now = Place {
            epoch,
            commits: pulse.commits,
        };
        if pulse.epoch != epoch {
            return Err(Failure::Away("the database has another history now".into()));
        }
        if std::mem::replace(&mut *self.told.lock(), now) != now {
            self.feed.gap();
        }
        if !self.hears.send_replace(true) {
            info!("the database is heard");
        }
        Ok(())
    }

    /// Nothing was heard for a while. Twice in a row behind the database, something is wrong.
    async fn probe(&self, epoch: u64, was_behind: bool) -> Result<bool, Failure> {
        let pulse = self.database.pulse(Instant::now() + ENGINE_TIMEOUT).await?;
        let told = *self.told.lock();
        let is_behind = pulse.epoch != epoch || pulse.commits > told.commits;
        if is_behind && was_behind {
            return Err(Failure::Away(
                "changes are not notified; behind a pooler, name a direct connection with --store-listen"
                    .into(),
            ));
        }
        Ok(is_behind)
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

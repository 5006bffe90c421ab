//! A watcher: it reads the events of all locks, and must miss nothing in silence.
//!
//! From one reset to the next the events of a lock must make a history: no end of a grant that did not begin, no
//! grant over another that has not ended, tokens that rise. And every grant that a keeper was told of must be among
//! them, unless a reset has come since it was asked for.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use ferrolho_client::{Client, Error, Event, EventKind, Events, Notice};
use tokio::time::{sleep, timeout};

use super::connect;
use crate::run::Run;

/// How long after the last fault the stream may take to bring what has happened.
const CATCH_UP: Duration = Duration::from_secs(30);

/// The lock that the watcher takes at the end: when its event is there, all events before it are.
const MARKER: &str = "marker";

pub(super) async fn live(run: &Run) {
    let Some(client) = connect(run, "the watcher", &run.routes) else {
        return;
    };
    let mut watcher = Watcher {
        run,
        last_id: None,
        locks: HashMap::new(),
        grants: HashSet::new(),
        last_reset: None,
    };
    let mut stream = client.events("", None);
    while !run.is_over() {
        watcher.read(&client, &mut stream).await;
    }
    watcher.finish(&client, &mut stream).await;
}

struct Watcher<'a> {
    run: &'a Run,
    last_id: Option<String>,
    locks: HashMap<String, Seen>,
    /// Grants of keepers that were seen, by name and token.
    grants: HashSet<(String, u64)>,
    last_reset: Option<Instant>,
}

/// What the events say of a lock.
#[derive(Clone, Debug)]
struct Seen {
    /// The highest token so far.
    token: u64,
    owner: String,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held,
    Free,
    /// Something may have been missed.
    Unknown,
}

impl Watcher<'_> {
    /// Takes in the next notice, if one comes soon.
    async fn read(&mut self, client: &Client, stream: &mut Events) {
        let Ok(notice) = timeout(Duration::from_millis(200), stream.next()).await else {
            return;
        };
        match notice {
            Some(Ok(Notice::Event { id, event })) => {
                self.last_id = id.or(self.last_id.take());
                self.take(&event);
            }
            Some(Ok(Notice::Reset)) => {
                self.run.court.count("resets of the event stream");
                self.run.court.note("WATCHER reset");
                self.last_reset = Some(Instant::now());
                for seen in self.locks.values_mut() {
                    seen.state = State::Unknown;
                }
            }
            Some(Err(Error::Unreachable(_))) | None => {
                sleep(Duration::from_millis(100)).await;
                *stream = client.events("", self.last_id.clone());
            }
            Some(Err(error)) => {
                self.run
                    .court
                    .accuse(&format!("CLIENT the event stream ended: {error}"));
            }
        }
    }

    fn take(&mut self, event: &Event) {
        let court = &self.run.court;
        court.count("events");
        let name = event.resource.as_str();
        let token = event.lock.fencing_token.get();
        let owner = event.lock.owner.as_str();
        let before = self.locks.get(name).cloned();
        let is_known = |state| before.as_ref().is_some_and(|seen| seen.state == state);
        let is_same = before.as_ref().is_some_and(|seen| seen.token == token);
        let fits = match event.kind {
            // An owner may be granted again what it has.
            EventKind::Acquired => {
                let is_above = before.as_ref().is_none_or(|seen| token > seen.token);
                let is_owners = before.as_ref().is_some_and(|seen| seen.owner == owner);
                is_above && (!is_known(State::Held) || is_owners)
            }
            // A lock that was not seen before was there before the stream, or since the reset.
            EventKind::Renewed | EventKind::Released | EventKind::Expired | EventKind::Forced => {
                before.is_none() || is_known(State::Unknown) || is_known(State::Held) && is_same
            }
        };
        if !fits {
            court.accuse(&format!(
                "EVENTS {:?} {name} {owner} {token} after {before:?}",
                event.kind
            ));
        }
        if event.kind == EventKind::Acquired && name.starts_with("kept-") {
            self.grants.insert((name.to_owned(), token));
        }
        let state = match event.kind {
            EventKind::Acquired | EventKind::Renewed => State::Held,
            EventKind::Released | EventKind::Expired | EventKind::Forced => State::Free,
        };
        let seen = Seen {
            token,
            owner: owner.to_owned(),
            state,
        };
        self.locks.insert(name.to_owned(), seen);
    }

    /// Reads on until everything has come that had happened when the run was over, and judges what has not.
    async fn finish(mut self, client: &Client, stream: &mut Events) {
        let over = Instant::now();
        // The client itself finds out after 40 s that a connection has died in silence.
        *stream = client.events("", self.last_id.clone());
        let expected = self.run.told_to_keepers();
        let marked = async {
            let guard = client.lock(MARKER)?.wait(CATCH_UP).acquire().await?;
            let token = guard.fencing_token().get();
            guard.release().await.map(|()| token)
        };
        let token = match marked.await {
            Ok(token) => token,
            Err(error) => {
                return self
                    .run
                    .court
                    .accuse(&format!("CLIENT the watcher's marker: {error}"));
            }
        };
        let has_come = |watcher: &Self| {
            watcher.locks.get(MARKER).is_some_and(|seen| seen.token >= token)
                || watcher.last_reset.is_some_and(|reset| reset > over)
        };
        while !has_come(&self) {
            if over.elapsed() > CATCH_UP {
                return self
                    .run
                    .court
                    .accuse(&format!("EVENTS stopped: nothing new within {CATCH_UP:?}"));
            }
            self.read(client, stream).await;
        }
        self.run
            .court
            .time("catching up of the event stream", over.elapsed());
        for (name, token, sent) in expected {
            let is_excused = self.last_reset.is_some_and(|reset| reset >= sent);
            let has_come = self.grants.contains(&(name.clone(), token));
            if has_come {
                self.run.court.count("acknowledged grants among the events");
            } else if !is_excused {
                self.run.court.accuse(&format!(
                    "EVENTS the grant of {name} with token {token} was missed in silence"
                ));
            }
        }
    }
}

//! What everybody in a run shares.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::court::Court;
use crate::http::{Answer, Caller, Request, Silence};
use crate::pulse::Pulse;
use crate::weather::Weather;
use crate::witness::Witness;

/// How much longer than its wait an answer may take while all is calm.
const CALM_LIMIT: Duration = Duration::from_secs(6);

/// How long after a stall the pulse must have shown it.
const PULSE_SHOWS: Duration = Duration::from_secs(1);

/// How much longer than its wait a client listens for an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(7);

/// A way to a server, through one of its cables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) server: usize,
    pub(crate) address: SocketAddr,
}

#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) court: Court,
    pub(crate) witness: Witness,
    pub(crate) weather: Weather,
    pub(crate) pulse: Pulse,
    pub(crate) routes: Vec<Route>,
    /// The run's seed, from which each client has its own.
    pub(crate) seed: u64,
    is_over: AtomicBool,
    /// Grants that keepers were told of: name, token, and when they were asked for.
    told_to_keepers: Mutex<Vec<(String, u64, Instant)>>,
}

impl Run {
    pub(crate) fn new(folder: &Path, pulse: Pulse, routes: Vec<Route>, seed: u64) -> Self {
        Self {
            pulse,
            court: Court::new(folder),
            witness: Witness::default(),
            weather: Weather::default(),
            routes,
            seed,
            is_over: AtomicBool::new(false),
            told_to_keepers: Mutex::default(),
        }
    }

    /// Whether clients should come to an end.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Notes a grant that a keeper was told of.
    pub(crate) fn keeper_was_told(&self, name: &str, token: u64, sent: Instant) {
        self.keepers().push((name.to_owned(), token, sent));
    }

    /// All grants so far that keepers were told of.
    pub(crate) fn told_to_keepers(&self) -> Vec<(String, u64, Instant)> {
        self.keepers().clone()
    }

    fn keepers(&self) -> MutexGuard<'_, Vec<(String, u64, Instant)>> {
        self.told_to_keepers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// A client that speaks HTTP by itself, over one route.
#[derive(Debug)]
pub(crate) struct Voice<'a> {
    pub(crate) run: &'a Run,
    pub(crate) name: String,
    route: Route,
    caller: Caller,
}

/// What a request came to.
#[derive(Debug)]
pub(crate) enum Heard {
    /// An answer of the contract, other than 503.
    Answer(Answer),
    /// Certainly not carried out.
    Nothing,
    /// Carried out or not, now or later.
    Unknown,
}

impl<'a> Voice<'a> {
    pub(crate) fn new(run: &'a Run, name: String, route: Route) -> Self {
        Self {
            run,
            name,
            route,
            caller: Caller::new(route.address),
        }
    }

    pub(crate) fn go_to(&mut self, route: Route) {
        self.route = route;
        self.caller = Caller::new(route.address);
    }

    pub(crate) fn hang_up(&mut self) {
        self.caller.hang_up();
    }

    /// Asks. `wait` is how long the server was asked to wait.
    pub(crate) async fn ask(&mut self, request: &Request, wait: Duration) -> Heard {
        let court = &self.run.court;
        let what = format!("{} {} {}", self.name, request.method, request.path);
        let body = request.body.as_ref().map(ToString::to_string).unwrap_or_default();
        let since = self.caller.connected_since();
        let sent = Instant::now();
        court.count("requests");
        court.note(&format!("{what} > {body} to {}", self.route.server));
        let heard = self.caller.call(request, wait + PATIENCE).await;
        let took = sent.elapsed();
        if took > wait + CALM_LIMIT {
            // A stall shows in the pulse a little later.
            tokio::time::sleep(PULSE_SHOWS).await;
        }
        let is_calm = self.run.weather.is_calm_since(self.route.server, since)
            && self.run.pulse.stalled_since(since).is_zero();
        if is_calm {
            court.count("requests while calm");
            court.time("answer beyond its wait while calm", took.saturating_sub(wait));
            if took > wait + CALM_LIMIT {
                court.accuse(&format!(
                    "LATE {what} waited {wait:?} and took {took:?}: {heard:?}"
                ));
            }
        }
        match heard {
            Ok(answer) => {
                court.note(&format!("{what} < {} {}", answer.status, answer.body));
                self.judge(&what, answer)
            }
            Err(Silence::NotSent) => {
                court.count("not sent");
                court.note(&format!("{what} < not sent"));
                Heard::Nothing
            }
            Err(silence) => {
                court.count("no answer");
                court.note(&format!("{what} < {silence:?}"));
                if is_calm && let Silence::Broken(cause) = silence {
                    court.accuse(&format!(
                        "BROKEN {what}: the connection ended though all was calm: {cause}"
                    ));
                }
                Heard::Unknown
            }
        }
    }

    fn judge(&self, what: &str, answer: Answer) -> Heard {
        match answer.status {
            200 | 204 | 403 | 404 => Heard::Answer(answer),
            503 => {
                self.run.court.count("503");
                Heard::Unknown
            }
            status => {
                let body = &answer.body;
                self.run
                    .court
                    .accuse(&format!("STATUS {what} was answered {status} {body}"));
                Heard::Unknown
            }
        }
    }
}

//! What the HTTP face counts: requests, their time, problems, connections.
//!
//! Everything is counted in a place that was there before the request came: the table of endpoints, methods and
//! statuses has one size, whatever callers send, and counting takes no lock and no memory.

use std::sync::atomic::{AtomicU64, Ordering};

use ferrolho_core::Timestamp;
use ferrolho_store::clock;
use ferrolho_store::meter::{Histogram, SPAN_BOUNDS_MICROS, Tally};
use hyper::{Method, StatusCode};
use tokio::time::Instant;

use super::problem::Code;
use super::route::Endpoint;

/// The methods that are told apart; the last stands for all others.
pub(super) const METHODS: [&str; 5] = ["GET", "HEAD", "POST", "DELETE", "other"];

/// The statuses that are told apart.
const STATUSES: [u16; 16] = [
    200, 204, 400, 401, 403, 404, 405, 408, 409, 413, 414, 422, 429, 431, 500, 503,
];

/// The place for all other statuses.
const OTHER_STATUS: usize = STATUSES.len();

/// What is counted of the requests to one endpoint by one method.
#[derive(Debug)]
pub(super) struct RequestMeter {
    statuses: Tally<{ OTHER_STATUS + 1 }>,
    /// From the head of the request to the head of the answer.
    pub(super) micros: Histogram,
    /// How many callers hung up before their answer.
    pub(super) abandoned: AtomicU64,
}

impl RequestMeter {
    fn new() -> Self {
        Self {
            statuses: Tally::default(),
            micros: Histogram::new(SPAN_BOUNDS_MICROS),
            abandoned: AtomicU64::new(0),
        }
    }

    /// Whether any request has come here.
    pub(super) fn was_asked(&self) -> bool {
        self.statuses.counts().into_iter().any(|count| count > 0)
            || self.abandoned.load(Ordering::Relaxed) > 0
    }

    /// The statuses that were answered, each with how often.
    pub(super) fn statuses(&self) -> impl Iterator<Item = (String, u64)> {
        let name = |kind: usize| STATUSES.get(kind).map_or("other".to_owned(), u16::to_string);
        self.statuses
            .counts()
            .into_iter()
            .enumerate()
            .filter(|(_, count)| *count > 0)
            .map(move |(kind, count)| (name(kind), count))
    }
}

/// What is counted.
#[derive(Debug)]
pub(super) struct HttpMeters {
    /// For each endpoint, for each method.
    requests: Box<[[RequestMeter; METHODS.len()]]>,
    problems: Tally<{ Code::ALL.len() }>,
    begun: AtomicU64,
    ended: AtomicU64,
    opened: AtomicU64,
    closed: AtomicU64,
    started: Timestamp,
}

impl Default for HttpMeters {
    fn default() -> Self {
        let of_methods = |_: Endpoint| std::array::from_fn(|_| RequestMeter::new());
        Self {
            requests: Endpoint::ALL.into_iter().map(of_methods).collect(),
            problems: Tally::default(),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            opened: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            started: clock::wall_now(),
        }
    }
}

impl HttpMeters {
    /// A request has arrived.
    pub(super) fn begin(&self, endpoint: Endpoint, method: &Method, arrived: Instant) -> Counted<'_> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        let method = match *method {
            Method::GET => 0,
            Method::HEAD => 1,
            Method::POST => 2,
            Method::DELETE => 3,
            _ => METHODS.len() - 1,
        };
        Counted {
            meters: self,
            request: &self.requests[endpoint as usize][method],
            arrived,
            status: None,
        }
    }

    pub(super) fn problem(&self, code: Code) {
        self.problems.add(code as usize);
    }

    pub(super) fn connection_opened(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn connection_closed(&self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }

    /// Every endpoint and method, with what was counted of it.
    pub(super) fn requests(&self) -> impl Iterator<Item = (Endpoint, &'static str, &RequestMeter)> {
        let rows = Endpoint::ALL.into_iter().zip(&self.requests);
        rows.flat_map(|(endpoint, meters)| {
            let of_endpoint = METHODS.into_iter().zip(meters);
            of_endpoint.map(move |(method, meter)| (endpoint, method, meter))
        })
    }

    /// How often each problem was the answer.
    pub(super) fn problems(&self) -> impl Iterator<Item = (Code, u64)> {
        Code::ALL.into_iter().zip(self.problems.counts())
    }

    /// When this began, in seconds since 1970.
    pub(super) fn started_at(&self) -> i64 {
        self.started.as_micros() / 1_000_000
    }

    /// How many requests are being answered.
    pub(super) fn in_flight(&self) -> u64 {
        let ended = self.ended.load(Ordering::Relaxed);
        self.begun.load(Ordering::Relaxed).saturating_sub(ended)
    }

    /// How many connections there have been, and how many are open.
    pub(super) fn connections(&self) -> (u64, u64) {
        let closed = self.closed.load(Ordering::Relaxed);
        let opened = self.opened.load(Ordering::Relaxed);
        (opened, opened.saturating_sub(closed))
    }
}

/// A request that is being counted. Dropped without an answer, it counts as abandoned by its caller.
pub(super) struct Counted<'a> {
    meters: &'a HttpMeters,
    request: &'a RequestMeter,
    arrived: Instant,
    status: Option<StatusCode>,
}

impl Counted<'_> {
    /// The answer is ready.
    pub(super) fn answered(mut self, status: StatusCode) {
        self.status = Some(status);
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.meters.ended.fetch_add(1, Ordering::Relaxed);
        match self.status {
            Some(status) => {
                let kind = STATUSES.binary_search(&status.as_u16()).unwrap_or(OTHER_STATUS);
                self.request.statuses.add(kind);
                self.request.micros.observe_micros(self.arrived.elapsed());
            }
            None => {
                self.request.abandoned.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_ends_in_one_place_of_a_table_that_does_not_grow() {
        let meters = HttpMeters::default();
        let places = meters.requests().count();
        for number in 0..1_000 {
            let method = Method::from_bytes(format!("M{number}").as_bytes()).unwrap();
            let status = StatusCode::from_u16(100 + number % 900).unwrap();
            meters
                .begin(Endpoint::Unknown, &method, Instant::now())
                .answered(status);
        }
        drop(meters.begin(Endpoint::Lock, &Method::POST, Instant::now()));
        assert_eq!(meters.requests().count(), places);
        assert_eq!(meters.in_flight(), 0);
        let asked: Vec<_> = meters
            .requests()
            .filter(|(_, _, meter)| meter.statuses().next().is_some())
            .collect();
        let [(Endpoint::Unknown, "other", meter)] = asked[..] else {
            panic!("{asked:?}");
        };
        assert_eq!(meter.statuses().map(|(_, count)| count).sum::<u64>(), 1_000);
        assert_eq!(meter.statuses().count(), STATUSES.len() + 1);
        let abandoned: u64 = meters
            .requests()
            .map(|(_, _, meter)| meter.abandoned.load(Ordering::Relaxed))
            .sum();
        assert_eq!(abandoned, 1);
    }

    #[test]
    fn problems_are_numbered_as_they_are_listed() {
        for (number, code) in Code::ALL.into_iter().enumerate() {
            assert_eq!(code as usize, number);
        }
        assert!(STATUSES.is_sorted());
    }
}

//! What the service counts of its work, for those who watch over it.
//!
//! Plain counters that only ever grow; `crate::metrics` shows them. What can be asked when somebody wants to know,
//! such as how many wait, is not kept here.

use std::sync::atomic::{AtomicU64, Ordering};

use ferrolho_core::rules::ReleaseResult;
use ferrolho_core::{Event, EventKind};
use ferrolho_store::meter::{Histogram, SPAN_BOUNDS_MICROS, Tally};
use tokio::time::Instant;

use super::{Acquired, Refusal, Renewal};

/// How acquires, renewals and releases end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Granted,
    Held,
    Done,
    NotFound,
    Forbidden,
    Unavailable,
    TooSlow,
    ShuttingDown,
    TooManyWaiters,
    LimitReached,
}

/// How many kinds of ends there are.
const ENDS: usize = End::LimitReached as usize + 1;

/// How an acquire can end.
pub(crate) const ACQUIRE_ENDS: [End; 7] = [
    End::Granted,
    End::Held,
    End::Unavailable,
    End::TooSlow,
    End::ShuttingDown,
    End::TooManyWaiters,
    End::LimitReached,
];

/// How a renewal or a release can end.
pub(crate) const CHANGE_ENDS: [End; 5] = [
    End::Done,
    End::NotFound,
    End::Forbidden,
    End::Unavailable,
    End::TooSlow,
];

impl End {
    /// Its name in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Held => "held",
            Self::Done => "done",
            Self::NotFound => "not-found",
            Self::Forbidden => "forbidden",
            Self::Unavailable => "unavailable",
            Self::TooSlow => "too-slow",
            Self::ShuttingDown => "shutting-down",
            Self::TooManyWaiters => "too-many-waiters",
            Self::LimitReached => "limit-reached",
        }
    }
}

/// Counts ends of one kind of request.
#[derive(Debug, Default)]
pub(crate) struct Ends(Tally<ENDS>);

impl Ends {
    fn add(&self, end: End) {
        self.0.add(end as usize);
    }

    /// How often a request ended so.
    pub(crate) fn count(&self, end: End) -> u64 {
        self.0.counts()[end as usize]
    }
}

/// How waits end, by number.
pub(crate) const WAIT_ENDS: [&str; 4] = ["granted", "held", "refused", "left"];

/// The number of the end of a wait in [`WAIT_ENDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitEnd {
    Granted,
    /// The time was up.
    Held,
    /// The server or the store could not go on.
    Refused,
    /// The caller hung up.
    Left,
}

/// What is counted.
#[derive(Debug)]
pub(crate) struct Meters {
    pub(crate) acquires: Ends,
    pub(crate) renewals: Ends,
    pub(crate) releases: Ends,
    pub(crate) waits: [Histogram; WAIT_ENDS.len()],
    /// From the release to the moment at which the next holder's answer is on its way.
    pub(crate) hand_overs: Histogram,
    /// Grants that were taken back, since nobody was there to be told.
    pub(crate) undone: AtomicU64,
    /// Events of the store, from all its servers.
    pub(crate) events: Tally<{ EventKind::ALL.len() }>,
    /// How often the feed said that something may have been missed.
    pub(crate) gaps: AtomicU64,
}

impl Default for Meters {
    fn default() -> Self {
        let spans = || Histogram::new(SPAN_BOUNDS_MICROS);
        Self {
            acquires: Ends::default(),
            renewals: Ends::default(),
            releases: Ends::default(),
            waits: std::array::from_fn(|_| spans()),
            hand_overs: spans(),
            undone: AtomicU64::new(0),
            events: Tally::default(),
            gaps: AtomicU64::new(0),
        }
    }
}

impl Meters {
    pub(super) fn acquired(&self, end: &Result<Acquired, Refusal>) {
        let end = match end {
            Ok(Acquired::Granted(_)) => End::Granted,
            Ok(Acquired::Held { .. }) => End::Held,
            Err(refusal) => End::from(*refusal),
        };
        self.acquires.add(end);
    }

    pub(super) fn renewed(&self, end: &Result<Renewal, Refusal>) {
        let end = match end {
            Ok(Renewal::Renewed(_)) => End::Done,
            Ok(Renewal::NotFound) => End::NotFound,
            Ok(Renewal::Forbidden) => End::Forbidden,
            Err(refusal) => End::from(*refusal),
        };
        self.renewals.add(end);
    }

    pub(super) fn released(&self, end: &Result<ReleaseResult, Refusal>) {
        let end = match end {
            Ok(ReleaseResult::Released) => End::Done,
            Ok(ReleaseResult::NotFound) => End::NotFound,
            Ok(ReleaseResult::Forbidden) => End::Forbidden,
            Err(refusal) => End::from(*refusal),
        };
        self.releases.add(end);
    }

    pub(super) fn waited(&self, end: WaitEnd, since: Instant) {
        self.waits[end as usize].observe_micros(since.elapsed());
    }

    pub(super) fn took_back(&self, grants: usize) {
        let grants = u64::try_from(grants).unwrap_or(u64::MAX);
        self.undone.fetch_add(grants, Ordering::Relaxed);
    }

    pub(super) fn happened(&self, events: &[Event]) {
        for event in events {
            self.events.add(event.kind as usize);
        }
    }

    pub(super) fn gap(&self) {
        self.gaps.fetch_add(1, Ordering::Relaxed);
    }
}

impl From<Refusal> for End {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::TooManyWaiters(_) => Self::TooManyWaiters,
            Refusal::LimitReached(_) => Self::LimitReached,
            Refusal::Unavailable => Self::Unavailable,
            Refusal::TooSlow => Self::TooSlow,
            Refusal::ShuttingDown => Self::ShuttingDown,
        }
    }
}

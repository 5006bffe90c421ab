//! The families of metrics, section by section. Their names are a promise to dashboards and alerts.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferrolho_core::EventKind;
use ferrolho_store::Health;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::page::{NONE, Page};
use super::process;
use crate::http::Inner;
use crate::service::{ACQUIRE_ENDS, CHANGE_ENDS, End, Ends, FAILURES, WAIT_ENDS};

/// What the page shows.
pub(super) struct Snapshot {
    pub(super) inner: Arc<Inner>,
    /// What the store said of itself; nothing when it did not answer.
    pub(super) health: Option<Health>,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").finish_non_exhaustive()
    }
}

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page(encoder);
        self.server(&mut page)?;
        self.requests(&mut page)?;
        self.locks(&mut page)?;
        self.waiting(&mut page)?;
        self.events(&mut page)?;
        self.store(&mut page)?;
        self.commits(&mut page)?;
        self.audit(&mut page)?;
        process::write(&mut page)
    }
}

impl Snapshot {
    fn server(&self, page: &mut Page<'_>) -> fmt::Result {
        let labels = [
            ("version", env!("CARGO_PKG_VERSION")),
            ("store", self.inner.service.engine_name()),
        ];
        page.info(
            "ferrolho_build_info",
            "Which version this is, and on which store.",
            &labels,
        )?;
        page.gauge(
            "process_start_time_seconds",
            "When this process started, in seconds since 1970.",
            Some(self.inner.meters.started_at()),
        )
    }

    fn audit(&self, page: &mut Page<'_>) -> fmt::Result {
        let counts = self.inner.service.audit().counts();
        page.counter(
            "ferrolho_audit_lines",
            "Lines noted for the audit trail.",
            counts.noted,
        )?;
        page.counter(
            "ferrolho_audit_lines_lost",
            "Lines of the audit trail that found no room.",
            counts.lost,
        )?;
        page.gauge(
            "ferrolho_audit_failing",
            "Whether the audit trail cannot be written now: 1 or 0.",
            Some(u64::from(counts.is_failing)),
        )
    }

    fn requests(&self, page: &mut Page<'_>) -> fmt::Result {
        let meters = &self.inner.meters;
        let asked = || meters.requests().filter(|(_, _, meter)| meter.was_asked());
        let labels = |route: &'static str, method: &'static str| [("route", route), ("method", method)];
        page.counters(
            "ferrolho_http_requests",
            "Requests answered, by route, method and status.",
            asked().flat_map(|(endpoint, method, meter)| {
                let route = endpoint.template();
                meter.statuses().map(move |(status, count)| {
                    let labels = [
                        ("route", route.to_owned()),
                        ("method", method.to_owned()),
                        ("status", status),
                    ];
                    (labels, count)
                })
            }),
        )?;
        page.spans(
            "ferrolho_http_request_duration_seconds",
            "From the head of a request to the head of its answer. An acquire that waits takes as long as it waits.",
            asked().map(|(endpoint, method, meter)| {
                (labels(endpoint.template(), method), meter.micros.counts())
            }),
        )?;
        page.counters(
            "ferrolho_http_requests_abandoned",
            "Requests whose caller hung up before the answer.",
            asked().map(|(endpoint, method, meter)| {
                let abandoned = meter.abandoned.load(Ordering::Relaxed);
                (labels(endpoint.template(), method), abandoned)
            }),
        )?;
        page.counters(
            "ferrolho_http_problems",
            "Answers that were problems, by code.",
            meters
                .problems()
                .map(|(code, count)| ([("code", code.as_str())], count)),
        )?;
        page.gauge(
            "ferrolho_http_requests_in_flight",
            "Requests that are being answered, waiting ones too.",
            Some(meters.in_flight()),
        )?;
        let (opened, open) = meters.connections();
        page.counter("ferrolho_http_connections", "Connections taken.", opened)?;
        page.gauge(
            "ferrolho_http_connections_open",
            "Connections that are open.",
            Some(open),
        )
    }

    fn locks(&self, page: &mut Page<'_>) -> fmt::Result {
        let meters = self.inner.service.meters();
        page.counters(
            "ferrolho_acquires",
            "Requests for a lock or a set of locks, by how they ended.",
            ends(&meters.acquires, &ACQUIRE_ENDS),
        )?;
        page.counters(
            "ferrolho_renewals",
            "Renewals of a lock, by how they ended.",
            ends(&meters.renewals, &CHANGE_ENDS),
        )?;
        page.counters(
            "ferrolho_releases",
            "Releases of a lock, by how they ended.",
            ends(&meters.releases, &CHANGE_ENDS),
        )?;
        page.counter(
            "ferrolho_grants_undone",
            "Grants that were taken back, since their caller had left before it was told.",
            meters.undone.load(Ordering::Relaxed),
        )?;
        page.gauge(
            "ferrolho_live_locks",
            "Locks that are held on this store, whichever server granted them.",
            self.health.as_ref().and_then(|health| health.live_locks),
        )
    }

    fn waiting(&self, page: &mut Page<'_>) -> fmt::Result {
        let meters = self.inner.service.meters();
        page.gauge(
            "ferrolho_waiters",
            "Requests that wait for a lock on this server.",
            Some(self.inner.service.waiting()),
        )?;
        let waits = WAIT_ENDS.into_iter().zip(&meters.waits);
        page.spans(
            "ferrolho_wait_duration_seconds",
            "How long requests stood in line, by how that ended.",
            waits.map(|(end, meter)| ([("outcome", end)], meter.counts())),
        )?;
        page.spans(
            "ferrolho_hand_over_duration_seconds",
            "From a release to the moment at which the next holder's answer is on its way.",
            [(NONE, meters.hand_overs.counts())],
        )
    }

    fn events(&self, page: &mut Page<'_>) -> fmt::Result {
        let meters = self.inner.service.meters();
        let kinds = EventKind::ALL
            .map(EventKind::as_str)
            .into_iter()
            .zip(meters.events.counts());
        page.counters(
            "ferrolho_events",
            "What happened to locks, by kind. On a store that several servers share, each counts all of it.",
            kinds.map(|(kind, count)| ([("kind", kind)], count)),
        )?;
        page.counter(
            "ferrolho_event_gaps",
            "How often events may have been missed, such as after a reconnection to the store.",
            meters.gaps.load(Ordering::Relaxed),
        )?;
        let (readers, dropped) = self.inner.service.event_readers();
        page.gauge(
            "ferrolho_event_readers",
            "Readers of the event stream.",
            Some(readers),
        )?;
        page.counter(
            "ferrolho_event_readers_dropped",
            "Readers that were dropped, since they fell too far behind.",
            dropped,
        )
    }

    fn store(&self, page: &mut Page<'_>) -> fmt::Result {
        let meter = self.inner.service.store_meter();
        page.gauge(
            "ferrolho_store_up",
            "Whether the store answers: 1 or 0.",
            Some(u32::from(self.health.is_some())),
        )?;
        let health = self.health.as_ref();
        page.gauge(
            "ferrolho_store_warnings",
            "Things that are not as they should be; /readyz says which.",
            health.map(|health| health.warnings.len()),
        )?;
        page.gauge(
            "ferrolho_store_clock_ahead_seconds",
            "How far the clock that locks are judged by is ahead of this machine's wall clock (negative: behind).",
            health.and_then(|health| health.clock_ahead_micros).map(seconds),
        )?;
        page.spans(
            "ferrolho_store_operation_duration_seconds",
            "How long the store took to answer, its queue included.",
            meter
                .operations()
                .map(|(operation, meter)| ([("operation", operation)], meter.micros.counts())),
        )?;
        page.counters(
            "ferrolho_store_errors",
            "Answers that the store did not give, by operation and kind: unavailable (nothing was done), unknown \
             (it may have been done), too-late (its turn came too late).",
            meter.operations().flat_map(|(operation, meter)| {
                let kinds = FAILURES.into_iter().zip(meter.failures.counts());
                kinds.map(move |(kind, count)| ([("operation", operation), ("kind", kind)], count))
            }),
        )
    }

    fn commits(&self, page: &mut Page<'_>) -> fmt::Result {
        let Some(meter) = self.inner.service.commits() else {
            return Ok(());
        };
        page.spans(
            "ferrolho_store_commit_duration_seconds",
            "How long commits took, with what they waited for: the disk, or the cluster.",
            [(NONE, meter.micros.counts())],
        )?;
        page.sizes(
            "ferrolho_store_commit_changes",
            "How many locks each commit made, changed or removed.",
            meter.changes.counts(),
        )?;
        page.counter(
            "ferrolho_store_commits_failed",
            "Commits that did not succeed, or not for certain.",
            meter.failed.load(Ordering::Relaxed),
        )
    }
}

/// The rows of a counter of ends.
fn ends<'a>(
    counted: &'a Ends,
    ends: &'a [End],
) -> impl Iterator<Item = ([(&'static str, &'static str); 1], u64)> {
    ends.iter()
        .map(|end| ([("outcome", end.name())], counted.count(*end)))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a microsecond is lost from 285 years on"
)]
fn seconds(micros: i64) -> f64 {
    micros as f64 / 1e6
}

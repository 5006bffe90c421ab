//! The operations, one row for each endpoint and method: what they are for, take and answer.
//!
//! A test holds this table against the routes, so an endpoint cannot come or go without its row.

use crate::http::problem::Code;
use crate::http::route::Endpoint;

/// What can be asked of one endpoint by one method.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) endpoint: Endpoint,
    pub(super) method: &'static str,
    /// The handler's name.
    pub(super) id: &'static str,
    pub(super) group: &'static str,
    pub(super) summary: &'static str,
    pub(super) description: &'static str,
    pub(super) parameters: &'static [Parameter],
    /// The schema of the request's body.
    pub(super) body: Option<&'static str>,
    pub(super) answer: Answer,
    /// Problems besides those that everything can be answered with.
    pub(super) problems: &'static [Code],
}

/// What an operation answers when all is well.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// 200 with JSON of this schema.
    Json(&'static str),
    /// 200 with a text of this type.
    Text(&'static str),
    /// 204.
    Nothing,
}

/// A parameter in the query or a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parameter {
    FailIfHeld,
    IdempotencyKey,
    Owner,
    FencingToken,
    Prefix,
    OfOwner,
    Limit,
    Cursor,
    LastEventId,
}

const LOCKS: &str = "One lock";
const MANY: &str = "Many locks";
const RUNNING: &str = "Running it";
const PAGES: &str = "Pages";

/// Problems of an operation that takes a lock.
const TAKING: &[Code] = &[
    Code::Held,
    Code::TooManyWaiters,
    Code::TooSlow,
    Code::ShuttingDown,
];
/// Problems of an operation on a lock that must be the caller's.
const OWN: &[Code] = &[Code::NotFound, Code::Forbidden, Code::TooSlow];

const DESCRIPTION_OF_ACQUIRE: &str = "Free or expired: granted. Held by the same owner: granted again, at once, \
    with a new token. Held by another: `acquired` is false, which is an answer and not an error; `Retry-After` says \
    when the holder's time is over. With `wait_seconds` the answer comes the moment the lock is the caller's, in order \
    of arrival, or when the time is up. The lifetime runs from the grant.";

const ACQUIRE: Operation = Operation {
    endpoint: Endpoint::Lock,
    method: "post",
    id: "post_lock",
    group: LOCKS,
    summary: "Acquire a lock",
    description: DESCRIPTION_OF_ACQUIRE,
    parameters: &[Parameter::FailIfHeld, Parameter::IdempotencyKey],
    body: Some("AcquireBody"),
    answer: Answer::Json("AcquireAnswer"),
    problems: TAKING,
};

const READ: Operation = Operation {
    endpoint: Endpoint::Lock,
    method: "get",
    id: "get_lock",
    group: LOCKS,
    summary: "Read a lock",
    description: "The live lock, with its holder, its end and its fencing token.",
    parameters: &[],
    body: None,
    answer: Answer::Json("Lock"),
    problems: &[Code::NotFound],
};

const RELEASE: Operation = Operation {
    endpoint: Endpoint::Lock,
    method: "delete",
    id: "delete_lock",
    group: LOCKS,
    summary: "Release a lock",
    description: "Gives the lock back; whoever waits for it first is granted it in the same commit. The owner stands \
        in the body, or in the query for clients and proxies that cannot send a body with DELETE. With \
        `fencing_token` only that grant is released.",
    parameters: &[Parameter::Owner, Parameter::FencingToken],
    body: Some("ReleaseBody"),
    answer: Answer::Nothing,
    problems: OWN,
};

const RELEASE_BY_POST: Operation = Operation {
    endpoint: Endpoint::Release,
    method: "post",
    id: "release_lock",
    summary: "Release a lock, by POST",
    description: "The same as DELETE of the lock.",
    ..RELEASE
};

const RENEW: Operation = Operation {
    endpoint: Endpoint::Renew,
    method: "post",
    id: "renew_lock",
    group: LOCKS,
    summary: "Move the end of a lock",
    description: "Sets the end to now and `ttl_seconds`, exactly: it may shorten. Keeps the token. An expired lock \
        belongs to nobody: acquire it again.",
    parameters: &[],
    body: Some("RenewBody"),
    answer: Answer::Json("Lock"),
    problems: OWN,
};

const FORCE_RELEASE: Operation = Operation {
    endpoint: Endpoint::ForceRelease,
    method: "post",
    id: "force_release_lock",
    group: LOCKS,
    summary: "Take a lock away",
    description: "For administrators. The reason is in the event; the next token is higher, as always. With a \
        `fencing_token` only that grant is taken away, and not one that came after it.",
    parameters: &[],
    body: Some("ForceReleaseBody"),
    answer: Answer::Nothing,
    problems: OWN,
};

const WAITERS: Operation = Operation {
    endpoint: Endpoint::Waiters,
    method: "get",
    id: "get_waiters",
    group: LOCKS,
    summary: "See who waits for a lock",
    description: "Those who wait on the server that is asked, in order.",
    parameters: &[],
    body: None,
    answer: Answer::Json("WaiterList"),
    problems: &[],
};

const LOCK_EVENTS: Operation = Operation {
    endpoint: Endpoint::LockEvents,
    method: "get",
    id: "get_lock_events",
    group: LOCKS,
    summary: "See what happened to a lock of late",
    description: "At most the last 100 of its events that the server that is asked remembers, the oldest first. Their \
        ids are those of `GET /events`.",
    parameters: &[],
    body: None,
    answer: Answer::Json("EventList"),
    problems: &[],
};

const LINES: Operation = Operation {
    endpoint: Endpoint::Lines,
    method: "get",
    id: "get_waiters_of_all",
    group: MANY,
    summary: "See for which locks anybody waits",
    description: "How many owners wait for each, on the server that is asked.",
    parameters: &[],
    body: None,
    answer: Answer::Json("LineList"),
    problems: &[],
};

const ACQUIRE_SET: Operation = Operation {
    endpoint: Endpoint::Locks,
    method: "post",
    id: "post_locks",
    group: MANY,
    summary: "Acquire several locks, all or none",
    description: "As for one lock. A set that waits holds nothing while it waits, so sets cannot block each other for \
        ever. When it is refused, `resources` names those that others hold or wait for.",
    parameters: &[Parameter::FailIfHeld, Parameter::IdempotencyKey],
    body: Some("AcquireSetBody"),
    answer: Answer::Json("AcquireSetAnswer"),
    problems: TAKING,
};

const LIST: Operation = Operation {
    endpoint: Endpoint::Locks,
    method: "get",
    id: "get_locks",
    group: MANY,
    summary: "List locks",
    description: "A page of live locks, ordered by the bytes of their names.",
    parameters: &[
        Parameter::Prefix,
        Parameter::OfOwner,
        Parameter::Limit,
        Parameter::Cursor,
    ],
    body: None,
    answer: Answer::Json("LockList"),
    problems: &[],
};

const RENEW_OWNER: Operation = Operation {
    endpoint: Endpoint::RenewOwner,
    method: "post",
    id: "renew_owner",
    group: MANY,
    summary: "Renew all locks of an owner",
    description: "One heartbeat for all that an owner holds; each lock stands on its own.",
    parameters: &[],
    body: Some("RenewOwnerBody"),
    answer: Answer::Json("RenewedLocks"),
    problems: &[Code::NotFound, Code::TooSlow],
};

const RELEASE_OWNER: Operation = Operation {
    endpoint: Endpoint::Owner,
    method: "delete",
    id: "delete_owner",
    group: MANY,
    summary: "Release all locks of an owner",
    description: "Gives back all that an owner holds; each lock stands on its own.",
    parameters: &[],
    body: None,
    answer: Answer::Json("ReleasedLocks"),
    problems: &[Code::NotFound, Code::TooSlow],
};

const EVENTS: Operation = Operation {
    endpoint: Endpoint::Events,
    method: "get",
    id: "get_events",
    group: MANY,
    summary: "Watch locks",
    description: "Server-sent events, in commit order, from every server of the store: `data` is an Event. Every event \
        has an opaque `id`; a reader that comes back with `Last-Event-ID` goes on right after it. An event `reset` says \
        that something may have been missed, an event `dropped` that the reader fell too far behind.",
    parameters: &[Parameter::Prefix, Parameter::LastEventId],
    body: None,
    answer: Answer::Text("text/event-stream"),
    problems: &[],
};

const WHO_AM_I: Operation = Operation {
    endpoint: Endpoint::WhoAmI,
    method: "get",
    id: "get_whoami",
    group: RUNNING,
    summary: "As whom does the server know the caller?",
    description: "The caller's principal and what it may do. Without authentication there is no principal.",
    parameters: &[],
    body: None,
    answer: Answer::Json("WhoAmI"),
    problems: &[],
};

const HEALTHZ: Operation = Operation {
    endpoint: Endpoint::Healthz,
    method: "get",
    id: "get_healthz",
    group: RUNNING,
    summary: "Is the process alive?",
    description: "Answers as long as the process does.",
    parameters: &[],
    body: None,
    answer: Answer::Json("Alive"),
    problems: &[],
};

const READYZ: Operation = Operation {
    endpoint: Endpoint::Readyz,
    method: "get",
    id: "get_readyz",
    group: RUNNING,
    summary: "Can it do its work?",
    description: "200 while the store answers and the server is not stopping, with warnings for an operator.",
    parameters: &[],
    body: None,
    answer: Answer::Json("Ready"),
    problems: &[Code::ShuttingDown],
};

const METRICS: Operation = Operation {
    endpoint: Endpoint::Metrics,
    method: "get",
    id: "get_metrics",
    group: RUNNING,
    summary: "Metrics for Prometheus",
    description: "The text format 0.0.4. With `--metrics-listen` it is on that address instead. With authentication it \
        is for those who may read all names.",
    parameters: &[],
    body: None,
    answer: Answer::Text("text/plain"),
    problems: &[],
};

const OPENAPI: Operation = Operation {
    endpoint: Endpoint::OpenApi,
    method: "get",
    id: "get_openapi",
    group: RUNNING,
    summary: "This description",
    description: "OpenAPI 3.1.",
    parameters: &[],
    body: None,
    answer: Answer::Json("Description"),
    problems: &[],
};

const DOCS: Operation = Operation {
    endpoint: Endpoint::Docs,
    method: "get",
    id: "get_docs",
    group: PAGES,
    summary: "This description, for people",
    description: "A page that needs nothing from elsewhere.",
    parameters: &[],
    body: None,
    answer: Answer::Text("text/html"),
    problems: &[],
};

const PROBLEMS: Operation = Operation {
    endpoint: Endpoint::Problems,
    method: "get",
    id: "get_problems",
    summary: "All kinds of problems",
    description: "A page with each code and what it means.",
    ..DOCS
};

const PROBLEM: Operation = Operation {
    endpoint: Endpoint::ProblemPage,
    method: "get",
    id: "get_problem",
    summary: "One kind of problem",
    description: "A page with what it means and what to do. The `type` of every problem leads here.",
    ..DOCS
};

const DASHBOARD: Operation = Operation {
    endpoint: Endpoint::Dashboard,
    method: "get",
    id: "get_dashboard",
    summary: "The dashboard",
    description: "A page that shows who holds what, live.",
    ..DOCS
};

const ASSET: Operation = Operation {
    endpoint: Endpoint::Asset,
    method: "get",
    id: "get_asset",
    summary: "A file of the dashboard",
    description: "Its style and its scripts.",
    answer: Answer::Text("text/*"),
    ..DOCS
};

/// All of them, in the order of the page.
pub(super) const ALL: &[Operation] = &[
    ACQUIRE,
    READ,
    RENEW,
    RELEASE,
    RELEASE_BY_POST,
    FORCE_RELEASE,
    WAITERS,
    LOCK_EVENTS,
    ACQUIRE_SET,
    LIST,
    LINES,
    RENEW_OWNER,
    RELEASE_OWNER,
    EVENTS,
    WHO_AM_I,
    HEALTHZ,
    READYZ,
    METRICS,
    OPENAPI,
    DOCS,
    PROBLEMS,
    PROBLEM,
    DASHBOARD,
    ASSET,
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_route_and_method_has_its_operation_and_no_other() {
        let mut routes = BTreeSet::new();
        for endpoint in Endpoint::ALL.into_iter().filter(|e| *e != Endpoint::Unknown) {
            // HEAD is GET without a body, everywhere.
            for method in endpoint.allow().split(", ").filter(|m| *m != "HEAD") {
                routes.insert((endpoint.template(), method.to_lowercase()));
            }
        }
        let described: BTreeSet<_> = ALL
            .iter()
            .map(|operation| (operation.endpoint.template(), operation.method.to_owned()))
            .collect();
        assert_eq!(described, routes);
        assert_eq!(described.len(), ALL.len());
        let ids: BTreeSet<_> = ALL.iter().map(|operation| operation.id).collect();
        assert_eq!(ids.len(), ALL.len());
    }
}

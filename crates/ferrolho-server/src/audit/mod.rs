//! The audit trail: who took, lost and was refused what, a line for each, for those who must account for it.
//!
//! What changes a lock is noted by the server that had the store carry it out, with the request that asked for it
//! ([`Origin`]), whether or not its caller was still there to hear of it. Locks that end by themselves are noted from
//! the store's feed, so on a store that several servers share by each of them. Refusals of right are noted where
//! requests are answered. [`mod@line`] is the form, [`trail`] the way to the file.
//!
//! Renewals are not noted: they change neither who holds a lock nor its token, and would be most of the lines.

mod line;
mod trail;

use std::net::SocketAddr;
use std::sync::Arc;

use ferrolho_core::{
    Cause, Event, EventKind, FencingToken, Grant, Holder, Live, Owner, Principal, Reason, Resource,
};

use line::What;
use trail::{Trail, Urgency};

pub(crate) use line::Outcome;
pub(crate) use trail::TrailCounts;
pub use trail::{AuditError, Destination};

/// The audit trail of a server, if it keeps one.
#[derive(Clone, Debug, Default)]
pub struct Audit(Option<Arc<Trail>>);

/// Which request something was done for, as far as the trail wants to know. Nothing when there is no trail, or no
/// request.
#[derive(Clone, Debug, Default)]
pub struct Origin(Option<Arc<Asker>>);

#[derive(Debug)]
struct Asker {
    request_id: String,
    source: SocketAddr,
    principal: Option<Principal>,
}

/// The end of a lock before its time, as the trail tells it.
#[derive(Clone, Debug)]
pub(crate) struct Ended<'a> {
    pub(crate) resource: &'a Resource,
    pub(crate) holder: &'a Holder,
    pub(crate) token: Option<FencingToken>,
    pub(crate) cause: &'a Cause,
}

/// What a refused request was about, as far as it is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) resource: Option<Resource>,
    pub(crate) owner: Option<Owner>,
    pub(crate) token: Option<FencingToken>,
}

/// A request that was refused for want of a right.
#[derive(Clone, Debug)]
pub(crate) struct Refused<'a> {
    pub(crate) asked: &'a Asked,
    pub(crate) principal: Option<&'a Principal>,
    pub(crate) method: &'a str,
    pub(crate) route: &'static str,
    pub(crate) status: u16,
    pub(crate) code: &'static str,
}

impl Audit {
    /// Begins a trail there.
    pub fn start(destination: Destination) -> Result<Self, AuditError> {
        let audit = Self(Some(Trail::start(destination)?));
        audit.change("started", || What {
            version: Some(env!("CARGO_PKG_VERSION")),
            ..What::default()
        });
        Ok(audit)
    }

    /// Whether a trail is kept.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// The request with this id from this address.
    pub(crate) fn origin(
        &self,
        request_id: &str,
        source: SocketAddr,
        principal: Option<Principal>,
    ) -> Origin {
        Origin(self.0.as_ref().map(|_| {
            Arc::new(Asker {
                request_id: request_id.to_owned(),
                source,
                principal,
            })
        }))
    }

    /// Locks were granted. `is_new` says of each whether its owner did not hold it before.
    pub(crate) fn granted(&self, origin: &Origin, lives: &[Live], is_new: &[bool]) {
        for (live, is_new) in lives.iter().zip(is_new) {
            self.change("acquired", || What {
                outcome: Some(Outcome::Done),
                expires_at: Some(live.lock.expires_at),
                again: (!is_new).then_some(true),
                ..What::of(&live.lock).asked_in(origin)
            });
        }
    }

    /// Locks may have been granted.
    pub(crate) fn granted_perhaps(&self, origin: &Origin, resources: &[Resource], grant: &Grant) {
        for resource in resources {
            self.change("acquired", || What {
                outcome: Some(Outcome::Unknown),
                resource: Some(resource),
                owner: Some(&grant.holder.owner),
                principal: grant.holder.principal.as_ref(),
                ..What::default().asked_in(origin)
            });
        }
    }

    /// A lock was given back or taken away, or may have been.
    pub(crate) fn ended(&self, origin: &Origin, ended: &Ended<'_>, outcome: Outcome) {
        let event = match ended.cause {
            Cause::Force(_) => EventKind::Forced,
            Cause::Acquire | Cause::Release | Cause::Renew | Cause::Undo => EventKind::Released,
        };
        let reason = ended.cause.reason();
        self.change(event.as_str(), || {
            let what = What {
                outcome: Some(outcome),
                resource: Some(ended.resource),
                owner: Some(&ended.holder.owner),
                principal: ended.holder.principal.as_ref(),
                fencing_token: ended.token,
                reason: reason.as_ref().map(Reason::as_str),
                ..What::default()
            };
            what.asked_in(origin)
        });
    }

    /// Something happened to locks, here or on another server: those that ended by themselves are noted.
    pub(crate) fn happened(&self, events: &[Event]) {
        for event in events.iter().filter(|event| event.kind == EventKind::Expired) {
            self.change(event.kind.as_str(), || What {
                outcome: Some(Outcome::Done),
                expires_at: Some(event.lock.expires_at),
                ..What::of(&event.lock)
            });
        }
    }

    /// Locks may have ended by themselves without a line.
    pub(crate) fn gap(&self) {
        self.change("gap", || What {
            reason: Some("the store's feed was interrupted: locks may have expired without a line"),
            ..What::default()
        });
    }

    /// A request was refused.
    pub(crate) fn refused(&self, origin: &Origin, refused: &Refused<'_>) {
        self.note("refused", Urgency::Refusal, || {
            let what = What {
                outcome: Some(Outcome::Refused),
                resource: refused.asked.resource.as_ref(),
                owner: refused.asked.owner.as_ref(),
                principal: refused.principal,
                fencing_token: refused.asked.token,
                method: Some(refused.method),
                route: Some(refused.route),
                status: Some(refused.status),
                code: Some(refused.code),
                ..What::default()
            };
            what.asked_in(origin)
        });
    }

    /// Has the file opened anew, after it was moved away.
    pub fn reopen(&self) {
        if let Some(trail) = &self.0 {
            trail.reopen();
        }
    }

    /// Writes what has been noted, and ends the trail. Blocks for a while at most.
    pub fn close(&self) {
        self.change("stopped", What::default);
        if let Some(trail) = &self.0 {
            trail.close();
        }
    }

    /// How the trail is; nothing but zeros when there is none.
    pub(crate) fn counts(&self) -> TrailCounts {
        self.0.as_ref().map(|trail| trail.counts()).unwrap_or_default()
    }

    fn change<'a>(&self, event: &'static str, what: impl FnOnce() -> What<'a>) {
        self.note(event, Urgency::Change, what);
    }

    fn note<'a>(&self, event: &'static str, urgency: Urgency, what: impl FnOnce() -> What<'a>) {
        if let Some(trail) = &self.0 {
            trail.note(&what().line(event), urgency);
        }
    }
}

//! What an error of etcd means.
//!
//! Everything rests on one question: can the request have been carried out? Only what etcd refuses before it
//! proposes a request, and a connection that was never made, are a certain no. A time-out, a broken connection
//! and "request timed out, possibly due to previous leader failure" are not.

use std::error::Error;
use std::fmt;

use etcd_client::Error as EtcdError;
use tonic::{Code, ConnectError, Status};

use crate::StoreError;

/// Why a request to etcd got no answer.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) kind: Kind,
    cause: String,
}

/// What follows from a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing was done; another member, or the same one later, may do it.
    Refused,
    /// Nothing was done, and the member does not know this client any more: it has to sign in again.
    SignIn,
    /// Nothing was done, and no member will do it.
    Denied,
    /// Nothing was done: a lease that the request names has ended.
    NoLease,
    /// etcd is out of space. Mostly nothing was done, but the very transaction that reaches the limit is carried
    /// out and answered with this all the same.
    NoSpace,
    /// What was asked for is not in etcd's history any more, or is too large to be sent.
    Compacted,
    /// The request may have been carried out, or still be.
    Unknown,
    /// The answer came from another cluster than those before, or from an earlier time. What was asked of it may
    /// have been carried out there.
    Foreign,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)
    }
}

impl Error for Failure {}

impl Failure {
    pub(super) fn new(kind: Kind, cause: impl Into<String>) -> Self {
        Self {
            kind,
            cause: cause.into(),
        }
    }

    /// The failure of a request that got no answer in time.
    pub(super) fn timeout(member: &str) -> Self {
        Self::new(
            Kind::Unknown,
            format!("etcd member {member} did not answer in time"),
        )
    }

    /// For a request that changes nothing.
    pub(super) fn of_read(self) -> StoreError {
        StoreError::unavailable(self)
    }

    /// For a request that changes something.
    pub(super) fn of_write(&self) -> StoreError {
        match self.kind {
            Kind::Unknown | Kind::NoSpace | Kind::Foreign => StoreError::unknown(self.cause.clone()),
            Kind::Refused | Kind::SignIn | Kind::Denied | Kind::NoLease | Kind::Compacted => {
                StoreError::unavailable(self.cause.clone())
            }
        }
    }
}

impl From<EtcdError> for Failure {
    fn from(error: EtcdError) -> Self {
        let kind = match &error {
            EtcdError::GRpcStatus(status) => kind_of(status),
            EtcdError::InvalidArgs(_) | EtcdError::InvalidUri(_) | EtcdError::InvalidMetadataValue(_) => {
                Kind::Denied
            }
            _ => Kind::Unknown,
        };
        let cause = match &error {
            EtcdError::GRpcStatus(status) => with_reason(status),
            other => other.to_string(),
        };
        Self { kind, cause }
    }
}

fn kind_of(status: &Status) -> Kind {
    if was_never_connected(status) {
        return Kind::Refused;
    }
    let message = status.message();
    match status.code() {
        Code::NotFound if message.contains("requested lease not found") => Kind::NoLease,
        Code::ResourceExhausted if message.contains("database space exceeded") => Kind::NoSpace,
        Code::ResourceExhausted if message.contains("too many requests") => Kind::Refused,
        Code::Unavailable if message == "etcdserver: no leader" => Kind::Refused,
        Code::OutOfRange => Kind::Compacted,
        Code::Unauthenticated => Kind::SignIn,
        Code::InvalidArgument if message.contains("revision in header is old") => Kind::SignIn,
        Code::InvalidArgument | Code::FailedPrecondition | Code::PermissionDenied | Code::Unimplemented => {
            Kind::Denied
        }
        _ => Kind::Unknown,
    }
}

fn was_never_connected(status: &Status) -> bool {
    sources(status).any(<dyn Error>::is::<ConnectError>)
}

/// What lies below an error, one reason behind the other.
fn sources(status: &Status) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(status.source(), |&error| error.source())
}

/// The message and the innermost reason, which says more than "transport error".
fn with_reason(status: &Status) -> String {
    let message = status.message();
    let innermost = sources(status).last();
    match innermost.map(ToString::to_string) {
        Some(reason) if !message.contains(&reason) => format!("etcd: {message}: {reason}"),
        _ => format!("etcd: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: Code, message: &str) -> Kind {
        Failure::from(EtcdError::GRpcStatus(Status::new(code, message))).kind
    }

    #[test]
    fn only_what_was_certainly_not_done_says_so() {
        assert_eq!(kind(Code::Unavailable, "etcdserver: no leader"), Kind::Refused);
        assert_eq!(
            kind(Code::NotFound, "etcdserver: requested lease not found"),
            Kind::NoLease
        );
        assert_eq!(
            kind(
                Code::ResourceExhausted,
                "etcdserver: mvcc: database space exceeded"
            ),
            Kind::NoSpace
        );
        assert_eq!(
            kind(Code::Unauthenticated, "etcdserver: invalid auth token"),
            Kind::SignIn
        );
        for doubtful in [
            "etcdserver: request timed out, possibly due to previous leader failure",
            "etcdserver: leader changed",
            "etcdserver: server stopped",
            "error reading a body from connection",
        ] {
            assert_eq!(kind(Code::Unavailable, doubtful), Kind::Unknown, "{doubtful}");
        }
        assert_eq!(kind(Code::Unknown, "transport error"), Kind::Unknown);
        assert_eq!(kind(Code::ResourceExhausted, "something else"), Kind::Unknown);
    }

    #[test]
    fn doubt_about_a_write_is_never_called_unavailable() {
        for kind in [Kind::Unknown, Kind::NoSpace, Kind::Foreign] {
            assert!(matches!(
                Failure::new(kind, "x").of_write(),
                StoreError::Unknown(_)
            ));
        }
        assert!(matches!(
            Failure::new(Kind::Unknown, "x").of_read(),
            StoreError::Unavailable(_)
        ));
    }
}

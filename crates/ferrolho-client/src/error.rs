//! What can go wrong, by what a caller can do about it.

use std::time::Duration;

use ferrolho_core::wire::Problem;
use ferrolho_core::{Invalid, Resource};

/// Why a call did not do what was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value that no server would take. Nothing was sent.
    #[error("{0}")]
    Invalid(#[from] Invalid),
    /// Others hold these, or wait for them before us. Try again later.
    #[error("held by another owner: {}", list(.resources))]
    Held {
        /// Which.
        resources: Vec<Resource>,
        /// When it may pay to try again, if the server said so.
        retry_after: Option<Duration>,
    },
    /// There is no such lock, or it has expired.
    #[error("there is no such lock")]
    NotFound,
    /// The lock is there, and it is another's: another owner's, or another grant's.
    #[error("the lock belongs to another owner or grant")]
    NotOwner,
    /// The lock was lost before this call.
    #[error("{0}")]
    Lost(#[from] Loss),
    /// No server gave an answer. Whether a change was made is unknown unless the call says otherwise.
    #[error("no server answered: {0}")]
    Unreachable(String),
    /// The server understood and refuses: no right, a value beyond its limits.
    #[error("the server refuses ({}): {}", .0.code, describe(.0))]
    Refused(Box<Problem>),
    /// What came back is not an answer of a ferrolho server.
    #[error("not an answer of a ferrolho server: {0}")]
    Protocol(String),
    /// The client cannot be set up as asked.
    #[error("cannot set up the client: {0}")]
    Setup(String),
}

/// How a lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// It could not be renewed in time, so that nothing is certain any more.
    #[error("the lock is lost: it could not be renewed in time")]
    NotRenewed,
    /// The server says that this grant is over: forced, released in its name, expired, or taken by another.
    #[error("the lock is lost: the server says that it is no longer ours")]
    Taken,
    /// Its guard gave it back, or let go of it.
    #[error("the lock was released")]
    Released,
}

fn list(resources: &[Resource]) -> String {
    let names: Vec<&str> = resources.iter().map(Resource::as_str).collect();
    names.join(", ")
}

/// What a problem says, with every wrong field.
fn describe(problem: &Problem) -> String {
    if problem.errors.is_empty() {
        return problem.detail.clone();
    }
    let fields: Vec<String> = problem
        .errors
        .iter()
        .map(|error| format!("{}: {}", error.field, error.message))
        .collect();
    fields.join("; ")
}

//! What can go wrong with a call, by what is known of its outcome.

use tokio_postgres::error::{Severity, SqlState};

use crate::StoreError;

/// Why a call has no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Failure {
    /// Nothing was done, and it may go well the next time: it fell victim to others.
    #[error("{0}")]
    Again(String),
    /// Nothing was done.
    #[error("{0}")]
    Away(String),
    /// It may have been done.
    #[error("{0}")]
    Unknown(String),
}

impl Failure {
    /// A call failed with this. What the database refuses is not done; when a session ends, nobody knows.
    pub(super) fn of_call(error: &tokio_postgres::Error) -> Self {
        let Some(refusal) = error.as_db_error() else {
            return Self::Unknown(said(error));
        };
        let is_refusal = refusal.parsed_severity() == Some(Severity::Error);
        if !is_refusal {
            return Self::Unknown(said(error));
        }
        let victims = [
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
        ];
        if victims.contains(refusal.code()) {
            Self::Again(said(error))
        } else {
            Self::Away(said(error))
        }
    }

    /// The same, for a call that changes nothing.
    pub(super) fn of_read(self) -> StoreError {
        match self {
            Self::Again(what) | Self::Away(what) | Self::Unknown(what) => StoreError::unavailable(what),
        }
    }

    pub(super) fn of_write(self) -> StoreError {
        match self {
            Self::Again(what) | Self::Away(what) => StoreError::unavailable(what),
            Self::Unknown(what) => StoreError::unknown(what),
        }
    }
}

/// What an error says. The library says only "db error" where the database has said more.
pub(super) fn said(error: &tokio_postgres::Error) -> String {
    use std::error::Error as _;
    match (error.as_db_error(), error.source()) {
        (Some(refusal), _) => format!("{} ({})", refusal.message(), refusal.code().code()),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

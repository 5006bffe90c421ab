//! Lifting fencing tokens, after a store was restored from a back-up.
//!
//! A restored store has forgotten which tokens it gave out since the back-up was taken, and would give them out again.
//! No engine can notice that by itself when all of it was taken back. One step, the same for every store, sees to it
//! that every further token is above all that can have been given out. Locks that live keep their tokens.

use ferrolho_core::FencingToken;

#[cfg(feature = "etcd")]
use crate::etcd;
use crate::{OpenError, StoreUrl, postgres, sqlite};

/// How far tokens are to be lifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lift {
    /// By so many, from where the store is now: more than were given out since the back-up.
    By(u64),
    /// Above this one, the highest that is known to have been given out. Nothing when they are above it already.
    Above(FencingToken),
}

impl Lift {
    /// Where a counter goes that is at `now`. The counter's own limit is the engine's to keep.
    pub(crate) fn target(self, now: u64) -> u64 {
        match self {
            Self::By(count) => now.saturating_add(count),
            Self::Above(token) => now.max(token.get()),
        }
    }
}

/// Why tokens were not lifted. Each message is one line without secrets.
#[derive(Debug, thiserror::Error)]
pub enum LiftError {
    /// Tokens of this store rise over restarts by themselves, and there is nothing to restore.
    #[error("the memory store has nothing to restore")]
    Memory,
    /// There is no such file; a new one would be of no use to anybody.
    #[error("{}: there is no such file", .0.display())]
    NoFile(std::path::PathBuf),
    /// The store does not open, or does not let them be lifted.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// Lifts the tokens of this store. Returns a number that every further token is above.
///
/// No server may have a SQLite file open; servers on a shared store take it up by themselves.
pub async fn lift_tokens(url: &StoreUrl, lift: Lift) -> Result<u64, LiftError> {
    match url {
        StoreUrl::Memory => Err(LiftError::Memory),
        StoreUrl::Sqlite(path) if !path.exists() => Err(LiftError::NoFile(path.clone())),
        StoreUrl::Sqlite(path) => {
            let path = path.clone();
            let lifting = tokio::task::spawn_blocking(move || sqlite::lift_tokens(&path, lift));
            let lifted = lifting.await.map_err(|_| OpenError::CutShort)?;
            Ok(lifted.map_err(OpenError::from)?)
        }
        StoreUrl::Postgres(config) => {
            let lifted = postgres::lift_tokens(config, lift).await;
            Ok(lifted.map_err(OpenError::from)?)
        }
        #[cfg(feature = "etcd")]
        StoreUrl::Etcd(config) => {
            let lifted = etcd::lift_tokens(config, lift).await;
            Ok(lifted.map_err(OpenError::from)?)
        }
    }
}

//! Work under a lock: acquire, work, release, in one call.

use crate::request::LockRequest;
use crate::set::Hold;
use crate::{Error, Loss};

/// How work under a lock failed.
#[derive(Debug, thiserror::Error)]
pub enum WorkError<E> {
    /// The work's own error. It comes first, whatever happened to the lock.
    #[error(transparent)]
    Work(E),
    /// The lock was lost before the work was done. The work was stopped, or its result is not to be trusted:
    /// somebody else may have been at it too.
    #[error("{0}")]
    Lost(Loss),
    /// The lock was not acquired, and the work was not begun.
    #[error("{0}")]
    NotAcquired(Error),
}

impl<G: Hold> LockRequest<G> {
    /// Acquires, does the work, and releases.
    ///
    /// When the lock is lost the work is stopped where it awaits next: its future is dropped. A result is
    /// accepted only if the lock was held to the end, also when the work blocked its thread and the loss could
    /// not stop it. The work's own error is returned whatever happened to the lock; that a release failed is
    /// logged, and the lock ends by itself.
    pub async fn with_lock<T, E>(
        &self,
        work: impl AsyncFnOnce(&G) -> Result<T, E>,
    ) -> Result<T, WorkError<E>> {
        let guard = self.acquire().await.map_err(WorkError::NotAcquired)?;
        let result = tokio::select! {
            biased;
            result = work(&guard) => result.map_err(WorkError::Work),
            loss = guard.lost() => Err(WorkError::Lost(loss)),
        };
        let released = guard.release().await;
        match (result, released) {
            (Ok(_), Err(Error::Lost(loss))) => Err(WorkError::Lost(loss)),
            (result, Err(error)) => {
                if !matches!(error, Error::Lost(_)) {
                    tracing::warn!("the lock was not released: {error}");
                }
                result
            }
            (result, Ok(())) => result,
        }
    }
}

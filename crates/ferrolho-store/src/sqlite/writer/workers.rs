//! Whether the runtime that the attempts come from has anything to spare.

use tokio::runtime::{Handle, RuntimeMetrics};

/// The workers of the runtime in which the store was opened.
#[derive(Debug)]
pub(super) struct Workers {
    /// None if it was opened outside of any.
    metrics: Option<RuntimeMetrics>,
    /// How often they had paused, all together, when last asked.
    pauses: u64,
}

impl Workers {
    pub(super) fn here() -> Self {
        Self {
            metrics: Handle::try_current().ok().map(|runtime| runtime.metrics()),
            pauses: 0,
        }
    }

    /// Whether none of them has been without work since this was last asked: all they can do is being done.
    pub(super) fn are_saturated(&mut self) -> bool {
        let Some(metrics) = &self.metrics else {
            return false;
        };
        let workers = 0..metrics.num_workers();
        let pauses = workers.map(|worker| metrics.worker_park_count(worker)).sum();
        std::mem::replace(&mut self.pauses, pauses) == pauses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn workers_are_saturated_until_they_wait_for_something() {
        let mut workers = Workers::here();
        workers.are_saturated();
        assert!(workers.are_saturated());
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        assert!(!workers.are_saturated());
        assert!(workers.are_saturated());
    }

    #[test]
    fn without_a_runtime_nobody_is_saturated() {
        assert!(!Workers::here().are_saturated());
    }
}

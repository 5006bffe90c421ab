//! The client's own thread.
//!
//! Everything that the client does on the network happens on one thread with a small runtime of its own. The
//! caller's scheduler may be blocked by the work, may be single-threaded, or may end: renewals go on, losses are
//! noticed, and a dropped guard is still released. It also keeps all connections in one place, where nothing
//! that the caller does can stall them.
//!
//! Whatever runs here keeps what it works with alive, the engine too, so the thread ends when the client and all
//! of its guards are gone and what they left to do in the background is done.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::Error;

/// A handle on the thread, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Engine {
    runtime: Handle,
    background: TaskTracker,
    stop: CancellationToken,
}

impl Engine {
    /// Starts the thread.
    pub(crate) fn start() -> Result<Self, Error> {
        let setup = |error: std::io::Error| Error::Setup(format!("its thread does not start: {error}"));
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(setup)?;
        let engine = Self {
            runtime: runtime.handle().clone(),
            background: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        // A closed tracker still takes tasks; it is then that waiting for it ends.
        engine.background.close();
        let stop = engine.stop.clone();
        thread::Builder::new()
            .name("ferrolho".to_owned())
            .spawn(move || runtime.block_on(stop.cancelled()))
            .map_err(setup)?;
        Ok(engine)
    }

    /// Carries this out on the thread. It ends when the answer is no longer waited for.
    pub(crate) fn carry_out<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Answer<T> {
        Answer(self.runtime.spawn(work))
    }

    /// Carries this out on the thread, whether or not anybody waits for it.
    pub(crate) fn in_background(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.background.spawn_on(work, &self.runtime);
    }

    /// Waits until nothing is being done in the background.
    pub(crate) async fn idle(&self) {
        self.background.wait().await;
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// What the thread will answer. Dropping it ends the work.
#[derive(Debug)]
pub(crate) struct Answer<T>(JoinHandle<T>);

impl<T> Future for Answer<T> {
    /// An error when the work panicked.
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(context)
            .map(|answer| answer.map_err(|_| Error::Setup("its thread failed".to_owned())))
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

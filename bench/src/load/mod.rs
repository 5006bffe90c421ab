//! The load generator: clients that do what a script says, on few threads, and count what comes back.
//!
//! One run connects its clients, takes them to the beginning of their cycle, lets them work for a while uncounted,
//! counts for a while, and gives everything back. Servers' processor time is read at both ends of the counted window
//! by the thread that started the run, which does nothing else.

mod client;
mod crowd;
mod pace;
mod relay;
mod script;
mod tally;

use std::net::SocketAddr;
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

pub(crate) use crowd::Crowd;
pub(crate) use relay::relay;
pub(crate) use script::{QUEUE, Scenario, WAIT};
pub(crate) use tally::Tally;

use script::Script;
use tally::Window;

use crate::wire::Dialect;

/// Where a server is and how it is spoken to.
pub(crate) struct Endpoint<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) dialect: &'a (dyn Fn() -> Box<dyn Dialect> + Sync),
}

/// How a run is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) script: Script,
    /// The run's number, another one for each.
    pub(crate) run: u32,
    pub(crate) clients: u32,
    /// Cycles a second that begin at fixed times; none: each begins when one ends.
    pub(crate) rate: Option<f64>,
    pub(crate) warm_up: Duration,
    pub(crate) measure: Duration,
    pub(crate) threads: u32,
}

/// Carries out a run. `at` is called when the window starts (with `false`) and when it ends (with `true`).
pub(crate) fn run(endpoint: &Endpoint<'_>, plan: &Plan, mut at: impl FnMut(bool)) -> Result<(Tally, Window)> {
    // Hand-overs are timed between clients, so all of those are in one thread.
    let threads = if plan.script.handovers {
        1
    } else {
        plan.threads.clamp(1, plan.clients.max(1))
    };
    let gathered = Barrier::new(threads as usize + 1);
    let timed = Barrier::new(threads as usize + 1);
    let window = OnceLock::new();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (gathered, timed, window) = (&gathered, &timed, &window);
                scope.spawn(move || {
                    let first = plan.clients * thread / threads;
                    let end = plan.clients * (thread + 1) / threads;
                    let crowd = Crowd::gather(endpoint, plan.script, plan.run, first..end);
                    gathered.wait();
                    timed.wait();
                    let mut crowd = crowd?;
                    let window = *window.get().ok_or_else(|| anyhow!("no window"))?;
                    let mut tally = Tally::new();
                    let rate = plan.rate.map(|rate| rate / f64::from(threads));
                    crowd.work(window, rate, &mut tally)?;
                    // What went wrong in the window says more than what that led to.
                    if tally.errors == 0 {
                        crowd.disperse()?;
                    }
                    anyhow::Ok(tally)
                })
            })
            .collect();
        gathered.wait();
        let start = Instant::now() + plan.warm_up;
        let window = *window.get_or_init(|| Window {
            start,
            end: start + plan.measure,
        });
        timed.wait();
        sleep_until(window.start);
        at(false);
        sleep_until(window.end);
        at(true);
        let mut sum = Tally::new();
        for worker in workers {
            let tally = worker
                .join()
                .map_err(|_| anyhow!("a thread of the load generator panicked"))??;
            sum.add(&tally);
        }
        Ok((sum, window))
    })
}

fn sleep_until(instant: Instant) {
    std::thread::sleep(instant.saturating_duration_since(Instant::now()));
}

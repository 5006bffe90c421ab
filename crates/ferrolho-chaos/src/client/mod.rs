//! The clients: rivals for a few locks, keepers of locks of their own, users of the client library, and a watcher.

mod guarded;
mod keeper;
mod rival;
mod watcher;

use std::sync::Arc;

use ferrolho_client::{Client, ClientBuilder};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::task::JoinHandle;

use crate::run::{Route, Run};

/// How many locks all rivals and guards fight for.
const HOT_LOCKS: usize = 16;

/// Starts so many clients, and the watcher.
pub(crate) fn start(run: &Arc<Run>, count: usize) -> Vec<JoinHandle<()>> {
    let shared = Arc::clone(run);
    let watcher = tokio::spawn(async move { watcher::live(&shared).await });
    (0..count)
        .map(|number| {
            let run = Arc::clone(run);
            let dice =
                StdRng::seed_from_u64(run.seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            // Of eight: three rivals, two keepers, three guards.
            match number % 8 {
                0..3 => tokio::spawn(async move { rival::live(&run, number, dice).await }),
                3..5 => tokio::spawn(async move { keeper::live(&run, number, dice).await }),
                _ => tokio::spawn(async move { guarded::live(&run, number, dice).await }),
            }
        })
        .chain([watcher])
        .collect()
}

/// The names of all hot locks.
pub(crate) fn hot_locks() -> impl Iterator<Item = String> {
    (0..HOT_LOCKS).map(|number| format!("hot-{number}"))
}

/// One lock, or now and then two or three of them.
fn some_hot_locks(dice: &mut StdRng) -> Vec<String> {
    let count = if dice.random_bool(0.15) {
        dice.random_range(2..=3)
    } else {
        1
    };
    let mut names: Vec<String> = Vec::new();
    while names.len() < count {
        let name = format!("hot-{}", dice.random_range(0..HOT_LOCKS));
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// A client of the library, which knows the servers by these routes. That none can be made is a violation.
fn connect<'r>(run: &Run, who: &str, routes: impl IntoIterator<Item = &'r Route>) -> Option<Client> {
    let addresses: Vec<String> = routes
        .into_iter()
        .map(|route| format!("http://{}", route.address))
        .collect();
    let made = Client::builder()
        .url(&addresses.join(","))
        .and_then(ClientBuilder::build);
    made.inspect_err(|error| run.court.accuse(&format!("CLIENT {who} cannot be made: {error}")))
        .ok()
}

fn any_route(run: &Run, dice: &mut StdRng) -> Route {
    run.routes[dice.random_range(0..run.routes.len())]
}

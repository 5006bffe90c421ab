//! Storms: callers that wait, repeat under their key, leave and come back, over a store that fails at random, in
//! paused time. Whoever was told of a grant has it, alone, until its lifetime is over or it gives it back.
//!
//! A failure names its seed. (The service itself adds some chance of its own to its pauses.)

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrolho_core::rules::ReleaseResult;
use ferrolho_core::{Claim, Lock};
use ferrolho_server::audit::{Audit, Origin};
use ferrolho_server::service::{Acquired, Limits, ReleaseRequest, Service};
use ferrolho_store::Store;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::{Instant, sleep, timeout};

use crate::faults::{Fault, Faulty};
use crate::support::*;

/// How many storms there are in a normal run; another number with this variable.
const SEEDS: u64 = 300;
const SEEDS_VARIABLE: &str = "FERROLHO_STORMS";

const CALLERS: usize = 6;
const ROUNDS: usize = 8;
const NAMES: [&str; 3] = ["x", "y", "z"];

#[test]
fn whoever_was_told_of_a_grant_has_it_alone() {
    let seeds = std::env::var(SEEDS_VARIABLE).map_or(SEEDS, |number| number.parse().unwrap());
    for seed in 0..seeds {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        if let Err(what) = runtime.block_on(storm(seed)) {
            panic!("seed {seed}: {what}");
        }
    }
}

async fn storm(seed: u64) -> Result<(), String> {
    let mut dice = StdRng::seed_from_u64(seed);
    // Every third store is one that others share, where looking costs as much as trying.
    let store = Faulty::new(seed % 3 == 2);
    let service = Service::start(
        Arc::clone(&store) as Arc<dyn Store>,
        Limits::default(),
        Audit::default(),
    );
    let scene = Arc::new(Scene {
        service: Arc::clone(&service),
        inside: Mutex::default(),
    });
    let callers: Vec<_> = (0..CALLERS)
        .map(|number| {
            let scene = Arc::clone(&scene);
            let dice = StdRng::seed_from_u64(dice.random());
            tokio::spawn(async move { scene.live(number, dice).await })
        })
        .collect();
    let weather = tokio::spawn(weather(Arc::clone(&store), StdRng::seed_from_u64(dice.random())));
    for caller in callers {
        caller.await.map_err(|error| error.to_string())??;
    }
    weather.abort();
    store.set_away(false);
    // The longest lifetime, and for how long a lost attempt is watched for.
    sleep(Duration::from_mins(1)).await;
    for name in NAMES {
        if let Some(owner) = owner_of(&service, name).await {
            return Err(format!("{owner} still has {name}"));
        }
    }
    match service.footprint() {
        0 => Ok(()),
        left => Err(format!(
            "{left} places, queues, alarms or untold grants are left behind"
        )),
    }
}

/// Faults for the next attempts, and times in which nothing answers.
async fn weather(store: Arc<Faulty>, mut dice: StdRng) {
    loop {
        sleep(Duration::from_millis(dice.random_range(0..1500))).await;
        let late = Duration::from_millis(dice.random_range(0..5000));
        match dice.random_range(0..6) {
            0 => store.next(&[Fault::Refused]),
            1 => store.next(&[Fault::AnswerLost]),
            2 | 3 => store.next(&[Fault::RequestLost]),
            4 => store.next(&[Fault::CarriedOutAfter(late)]),
            _ => {
                store.set_away(true);
                sleep(late).await;
                store.set_away(false);
            }
        }
    }
}

struct Scene {
    service: Arc<Service>,
    /// Who is certain to have which lock, and until when.
    inside: Mutex<HashMap<String, (String, Instant)>>,
}

impl Scene {
    async fn live(&self, number: usize, mut dice: StdRng) -> Result<(), String> {
        for round in 0..ROUNDS {
            sleep(Duration::from_millis(dice.random_range(0..500))).await;
            let owner = format!("{number}.{round}");
            let names = some_names(&mut dice);
            let ttl = dice.random_range(2..=8);
            let first_asked = Instant::now();
            let Some(locks) = self.acquire(&owner, &names, ttl, &mut dice).await else {
                continue;
            };
            let end = first_asked + Duration::from_secs(ttl);
            if Instant::now() < end {
                self.hold(&owner, &locks, end, &mut dice).await?;
            }
        }
        Ok(())
    }

    /// Asks, and under a key asks again where the outcome is unknown or it has hung up.
    async fn acquire(&self, owner: &str, names: &str, ttl: u64, dice: &mut StdRng) -> Option<Vec<Lock>> {
        let wait = dice.random_range(0..=4);
        let has_key = dice.random_bool(0.7);
        for _ in 0..4 {
            let mut asked = request(owner, names, ttl.into(), wait);
            if has_key {
                asked = keyed(owner, asked);
            }
            let patience = if dice.random_bool(0.2) {
                Duration::from_millis(dice.random_range(0..2500))
            } else {
                Duration::from_mins(10)
            };
            match timeout(patience, self.service.acquire(asked)).await {
                Ok(Ok(Acquired::Granted(locks))) => return Some(locks),
                Ok(Err(_)) | Err(_) if has_key => {}
                Ok(Ok(Acquired::Held { .. }) | Err(_)) | Err(_) => return None,
            }
            sleep(Duration::from_millis(dice.random_range(0..1500))).await;
        }
        None
    }

    async fn hold(&self, owner: &str, locks: &[Lock], end: Instant, dice: &mut StdRng) -> Result<(), String> {
        for lock in locks {
            let mut inside = self.inside.lock().unwrap();
            let before = inside.insert(lock.resource.to_string(), (owner.to_owned(), end));
            if let Some((other, until)) = before
                && until > Instant::now()
            {
                return Err(format!("{owner} and {other} both have {}", lock.resource));
            }
        }
        for _ in 0..dice.random_range(0..4) {
            sleep(Duration::from_millis(dice.random_range(0..1200))).await;
            for lock in locks {
                // No answer says nothing.
                let Ok(found) = self.service.find(&lock.resource).await else {
                    continue;
                };
                let is_there = found
                    .as_ref()
                    .is_some_and(|found| found.fencing_token == lock.fencing_token);
                if !is_there && Instant::now() < end {
                    return Err(format!("{owner} was told of {lock:?}, and there is {found:?}"));
                }
            }
        }
        for lock in locks {
            self.inside.lock().unwrap().remove(lock.resource.as_str());
            if dice.random_bool(0.1) {
                continue;
            }
            let released = self.service.release(ReleaseRequest {
                resource: lock.resource.clone(),
                claim: Claim {
                    holder: holder(owner),
                    token: Some(lock.fencing_token),
                },
                arrived: Instant::now(),
                origin: Origin::default(),
            });
            let released = released.await;
            if matches!(released, Ok(ReleaseResult::NotFound | ReleaseResult::Forbidden))
                && Instant::now() < end
            {
                return Err(format!(
                    "{owner} was told of {lock:?}, and its release says {released:?}"
                ));
            }
        }
        Ok(())
    }
}

fn some_names(dice: &mut StdRng) -> String {
    let first = dice.random_range(0..NAMES.len());
    if dice.random_bool(0.7) {
        return NAMES[first].to_owned();
    }
    let second = (first + dice.random_range(1..NAMES.len())) % NAMES.len();
    format!("{} {}", NAMES[first], NAMES[second])
}

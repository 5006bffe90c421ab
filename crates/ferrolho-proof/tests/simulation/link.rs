//! What lies between a service and its store: delays, errors, lost requests and answers; and its end, when the server
//! is killed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ferrolho_core::{Live, Resource};
use ferrolho_store::{Attempt, EngineTraits, Feed, Health, ListQuery, Outcome, Page, Store, StoreError};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::watch;
use tokio::time::sleep;

/// How often what goes wrong, and how long things take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    /// The chance of each call to meet a fault.
    pub(crate) fault: f64,
    /// The longest delay on the way, in milliseconds.
    pub(crate) delay_millis: u64,
}

impl Weather {
    pub(crate) const CALM: Self = Self {
        fault: 0.0,
        delay_millis: 2,
    };
}

pub(crate) struct Link {
    store: Arc<dyn Store>,
    traits: EngineTraits,
    dice: Mutex<StdRng>,
    weather: Mutex<Weather>,
    is_away: AtomicBool,
    killed: watch::Sender<bool>,
}

impl Link {
    pub(crate) fn new(store: Arc<dyn Store>, traits: EngineTraits, weather: Weather, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            store,
            traits,
            dice: Mutex::new(StdRng::seed_from_u64(seed)),
            weather: Mutex::new(weather),
            is_away: AtomicBool::new(false),
            killed: watch::Sender::new(false),
        })
    }

    pub(crate) fn set_weather(&self, weather: Weather) {
        *self.weather.lock().unwrap() = weather;
    }

    pub(crate) fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::Relaxed);
    }

    /// Kills the server: it is answered no more, and nothing that it asks for from now on is done.
    pub(crate) fn kill(&self) {
        self.killed.send_replace(true);
    }

    /// Resolves when the server is killed.
    pub(crate) async fn killed(&self) {
        // The sender lives as long as this does.
        let mut killed = self.killed.subscribe();
        let _killed = killed.wait_for(|killed| *killed).await;
    }

    fn roll(&self) -> (Option<Fault>, Duration, Duration) {
        let mut dice = self.dice.lock().unwrap();
        let weather = *self.weather.lock().unwrap();
        let mut delay = || Duration::from_micros(dice.random_range(0..=weather.delay_millis * 1_000));
        let (there, back) = (delay(), delay());
        let fault = dice
            .random_bool(weather.fault)
            .then(|| match dice.random_range(0..4) {
                0 => Fault::Refused,
                1 => Fault::AnswerLost,
                2 => Fault::RequestLost,
                _ => Fault::CarriedOutAfter(Duration::from_millis(dice.random_range(0..5_000))),
            });
        (fault, there, back)
    }

    fn look(&self) -> Result<(), StoreError> {
        if self.is_away.load(Ordering::Relaxed) {
            Err(StoreError::unavailable("away"))
        } else {
            Ok(())
        }
    }

    /// Nothing reaches a server that is dead.
    async fn unless_killed(&self) {
        if *self.killed.borrow() {
            std::future::pending::<()>().await;
        }
    }
}

/// What happens to an attempt.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// It is not carried out.
    Refused,
    /// It is carried out, and the answer is lost.
    AnswerLost,
    /// It is lost, or seems so.
    RequestLost,
    /// It seems lost, and is carried out this much later.
    CarriedOutAfter(Duration),
}

#[async_trait]
impl Store for Link {
    async fn find(&self, resource: &Resource) -> Result<Option<Live>, StoreError> {
        self.unless_killed().await;
        self.look()?;
        let (_, there, back) = self.roll();
        sleep(there).await;
        let found = self.store.find(resource).await;
        sleep(back).await;
        self.unless_killed().await;
        found
    }

    async fn apply(&self, attempt: Attempt) -> Result<Outcome, StoreError> {
        self.unless_killed().await;
        self.look()?;
        let (fault, there, back) = self.roll();
        sleep(there).await;
        let outcome = match fault {
            None => self.store.apply(attempt).await,
            Some(Fault::Refused) => Err(StoreError::unavailable("refused")),
            Some(Fault::AnswerLost) => {
                self.store.apply(attempt).await?;
                Err(StoreError::unknown("answer lost"))
            }
            Some(Fault::RequestLost) => Err(StoreError::unknown("request lost")),
            Some(Fault::CarriedOutAfter(span)) => {
                let store = Arc::clone(&self.store);
                tokio::spawn(async move {
                    sleep(span).await;
                    // Nobody hears of it.
                    let _outcome = store.apply(attempt).await;
                });
                Err(StoreError::unknown("late"))
            }
        };
        sleep(back).await;
        self.unless_killed().await;
        outcome
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.unless_killed().await;
        self.look()?;
        self.store.list(query).await
    }

    fn changes(&self) -> Feed {
        self.store.changes()
    }

    async fn check(&self) -> Result<Health, StoreError> {
        self.look()?;
        self.store.check().await
    }

    fn traits(&self) -> EngineTraits {
        self.traits
    }

    async fn close(&self) {}
}

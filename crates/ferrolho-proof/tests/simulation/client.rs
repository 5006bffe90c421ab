//! Clients: they ask in every way there is, lose messages, lose patience, pause, and believe in a lock for no longer
//! than the rules of the client's belief allow (design: from before the request was sent, ending a thousandth early; an
//! answer that may have waited is renewed once before it is believed).

use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::rules::ReleaseResult;
use ferrolho_core::{Claim, Grant, Holder, Lock, Mark, Owner, Reason, Resource, Ttl, Wait};
use ferrolho_proof::{Answer, Ask, Moment};
use ferrolho_server::audit::Origin;
use ferrolho_server::service::{
    AcquireRequest, Acquired, ForceRequest, Refusal, ReleaseRequest, RenewRequest, Renewal, Service,
};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::{Instant, sleep};

use crate::mutant::Mutation;
use crate::world::{NAMES, Server, World, resource};

const ROUNDS: usize = 6;

/// What part of a lifetime is believed in.
const BELIEVED: f64 = 0.999;

pub(crate) struct Client {
    world: Arc<World>,
    number: usize,
    /// After a call whose outcome it does not know it takes a new name, as a careful program does.
    incarnation: u32,
    dice: StdRng,
}

/// A lock that a client believes in.
#[derive(Clone)]
struct Believed {
    lock: Lock,
    ttl: Ttl,
    until: Moment,
}

impl Client {
    pub(crate) fn new(world: Arc<World>, number: usize, seed: u64) -> Self {
        Self {
            world,
            number,
            incarnation: 0,
            dice: StdRng::seed_from_u64(seed),
        }
    }

    pub(crate) async fn live(mut self) {
        for _ in 0..ROUNDS {
            self.pause(700).await;
            match self.dice.random_range(0..10) {
                0 => self.meddle().await,
                1 => {
                    let resource = self.any_name();
                    self.call(Ask::Find { resource }).await;
                }
                2 => self.ask_twice().await,
                _ => self.hold().await,
            }
        }
    }

    async fn pause(&mut self, most_millis: u64) {
        let span = Duration::from_millis(self.dice.random_range(0..most_millis));
        sleep(span).await;
    }

    fn name(&self) -> String {
        format!("{}.{}", self.number, self.incarnation)
    }

    fn holder(&self) -> Holder {
        Holder {
            owner: Owner::new(&self.name()).unwrap(),
            principal: None,
        }
    }

    fn any_name(&mut self) -> Resource {
        resource(NAMES[self.dice.random_range(0..NAMES.len())])
    }

    fn any_ttl(&mut self) -> Ttl {
        let seconds = if self.world.nature.is_patient {
            600
        } else {
            self.dice.random_range(1..=8)
        };
        Ttl::new(seconds, Ttl::MAX).unwrap()
    }

    /// Asks for what is another's, or takes it away.
    async fn meddle(&mut self) {
        let resource = self.any_name();
        if self.world.nature.forces && self.dice.random_bool(0.5) {
            self.call(Ask::Force { resource }).await;
            return;
        }
        let claim = Claim {
            holder: self.holder(),
            token: None,
        };
        let ask = if self.dice.random_bool(0.5) {
            Ask::Release { resource, claim }
        } else {
            let ttl = self.any_ttl();
            Ask::Renew { resource, claim, ttl }
        };
        if self.call(ask).await == Answer::Unknown {
            // It may yet hit a later grant of this name.
            self.incarnation += 1;
        }
    }

    fn acquire(&mut self, key: Option<&str>) -> Ask {
        let mut resources = vec![self.any_name()];
        let another = self.any_name();
        if self.dice.random_bool(0.3) && another != resources[0] {
            resources.push(another);
        }
        let wait = if self.dice.random_bool(0.7) {
            self.dice.random_range(1..=4)
        } else {
            0
        };
        Ask::Acquire {
            resources,
            grant: Grant {
                holder: self.holder(),
                ttl: self.any_ttl(),
                metadata: None,
                mark: key.map_or(Mark::Random(0), |key| Mark::from_key(key).unwrap()),
            },
            wait: Wait::new(wait).unwrap(),
        }
    }

    /// Two requests of one owner at once, which share a place. It then has the newer grant.
    async fn ask_twice(&mut self) {
        let ask = self.acquire(None);
        let mut twin = Self::new(Arc::clone(&self.world), self.number, self.dice.random());
        twin.incarnation = self.incarnation;
        let (first, second) = tokio::join!(self.call(ask.clone()), twin.call(ask.clone()));
        let is_clear = first != Answer::Unknown && second != Answer::Unknown;
        let grants = [first, second].into_iter().filter_map(|answer| match answer {
            Answer::Granted(locks) => Some(locks),
            _ => None,
        });
        let newest = grants.max_by_key(|locks| locks.first().map(|lock| lock.fencing_token));
        if let (Some(locks), Ask::Acquire { grant, .. }) = (newest, ask) {
            if is_clear {
                self.confirm(locks, grant.ttl).await;
            } else {
                // The other request may come yet and take the place of this grant.
                for lock in locks {
                    self.give_back(&lock).await;
                }
            }
        }
        self.incarnation += 1;
    }

    /// Takes a lock or two; under a key it asks again where it does not know.
    async fn hold(&mut self) {
        let key = format!("k{:x}", self.dice.random::<u32>());
        let has_key = self.dice.random_bool(0.6);
        let ask = self.acquire(has_key.then_some(key.as_str()));
        let Ask::Acquire { grant, wait, .. } = ask.clone() else {
            return;
        };
        for attempt in 0..3 {
            let sent = self.world.now();
            match self.call(ask.clone()).await {
                Answer::Granted(locks) if attempt == 0 && wait.is_none() => {
                    let believed = self.believe(locks, grant.ttl, sent);
                    return self.work(believed).await;
                }
                Answer::Granted(locks) => {
                    self.confirm(locks, grant.ttl).await;
                    break;
                }
                Answer::Unknown if has_key => self.pause(1_500).await,
                Answer::Unknown => break,
                _ if attempt == 0 => return,
                _ => break,
            }
        }
        // An attempt without an answer may come yet, and take the place of a later grant of this name.
        self.incarnation += 1;
    }

    fn believe(&self, locks: Vec<Lock>, ttl: Ttl, sent: Moment) -> Vec<Believed> {
        let from = match self.world.nature.mutation {
            Mutation::BeliefFromTheAnswer => self.world.now(),
            _ => sent,
        };
        let until = from + ttl.duration().mul_f64(BELIEVED);
        locks
            .into_iter()
            .map(|lock| Believed { lock, ttl, until })
            .collect()
    }

    /// The answer may have waited, so each lock is renewed once before it is believed in.
    async fn confirm(&mut self, locks: Vec<Lock>, ttl: Ttl) {
        let mut believed = Vec::new();
        for lock in locks {
            let sent = self.world.now();
            if let Answer::Renewed(lock) = self.call(renewal(&lock, ttl)).await {
                believed.extend(self.believe(vec![lock], ttl, sent));
            }
        }
        self.work(believed).await;
    }

    async fn work(&mut self, mut believed: Vec<Believed>) {
        believed.retain(|held| self.enter(held));
        for _ in 0..self.dice.random_range(0..4) {
            // Now and then it is paused for longer than any lifetime.
            let most = if self.dice.random_bool(0.1) { 12_000 } else { 1_000 };
            self.pause(most).await;
            for held in &mut believed {
                self.look_after(held).await;
            }
        }
        for held in believed {
            self.leave(&held);
            if self.world.nature.is_patient || self.dice.random_bool(0.9) {
                self.give_back(&held.lock).await;
            }
        }
    }

    /// Renews, if it still believes.
    async fn look_after(&mut self, held: &mut Believed) {
        let sent = self.world.now();
        if sent >= held.until {
            return;
        }
        match self.call(renewal(&held.lock, held.ttl)).await {
            Answer::Renewed(lock) => {
                if let Some(renewed) = self.believe(vec![lock], held.ttl, sent).pop()
                    && self.world.now() < held.until
                {
                    *held = renewed;
                    self.enter(held);
                }
            }
            Answer::NotFound | Answer::Forbidden
                if self.world.now() < held.until && !self.world.nature.forces =>
            {
                self.world
                    .accuse("client", &format!("{} believes in {:?}", self.name(), held.lock));
            }
            _ => {}
        }
    }

    fn enter(&self, held: &Believed) -> bool {
        let (world, lock) = (&self.world, &held.lock);
        let now = world.now();
        if now >= held.until {
            return false;
        }
        if !world.nature.forces {
            let mut witness = world.witness.lock().unwrap();
            let entered = witness.enter(now, &lock.resource, &self.name(), lock.fencing_token, held.until);
            drop(witness);
            if let Err(broken) = entered {
                world.accuse("witness", &broken.to_string());
            }
        }
        true
    }

    fn leave(&self, held: &Believed) {
        let mut witness = self.world.witness.lock().unwrap();
        witness.leave(&held.lock.resource, held.lock.fencing_token);
    }

    /// Releases, and where it does not know whether that was heard, again.
    async fn give_back(&mut self, lock: &Lock) {
        for _ in 0..5 {
            let ask = Ask::Release {
                resource: lock.resource.clone(),
                claim: Claim {
                    holder: lock.holder(),
                    token: Some(lock.fencing_token),
                },
            };
            if self.call(ask).await != Answer::Unknown {
                return;
            }
            self.pause(2_000).await;
        }
    }

    /// One call over the network, as far as this client hears of it.
    async fn call(&mut self, ask: Ask) -> Answer {
        let server = self.world.any_server(&mut self.dice);
        let open = self.world.recorder.begin(&self.name(), ask.clone());
        let faults = if self.world.nature.has_faults() { 0.05 } else { 0.0 };
        let there = Duration::from_micros(self.dice.random_range(0..self.world.nature.network_micros()));
        let back = Duration::from_micros(self.dice.random_range(0..self.world.nature.network_micros()));
        let fate = self.dice.random::<f64>();
        let patience = if self.dice.random_bool(0.1) {
            Duration::from_millis(self.dice.random_range(0..3_000))
        } else {
            Duration::from_mins(10)
        };
        if fate < faults {
            // It comes late, and nobody is there any more to hear the answer.
            let (world, late) = (
                Arc::clone(&self.world),
                Duration::from_millis(self.dice.random_range(0..4_000)),
            );
            tokio::spawn(async move {
                sleep(late).await;
                let ended =
                    tokio::time::timeout(Duration::from_millis(1), serve(&world, &server, &ask)).await;
                drop(ended);
            });
            sleep(Duration::from_millis(500)).await;
            return Answer::Unknown;
        }
        sleep(there).await;
        let answer = tokio::select! {
            biased;
            () = server.link.killed() => Answer::Unknown,
            answer = serve(&self.world, &server, &ask) => answer,
            // It hangs up.
            () = sleep(patience) => Answer::Unknown,
        };
        if fate < 2.0 * faults {
            // The answer is lost.
            return Answer::Unknown;
        }
        sleep(back).await;
        open.answered(answer.clone());
        answer
    }
}

fn renewal(lock: &Lock, ttl: Ttl) -> Ask {
    Ask::Renew {
        resource: lock.resource.clone(),
        claim: Claim {
            holder: lock.holder(),
            token: Some(lock.fencing_token),
        },
        ttl,
    }
}

/// What a server does with a request, and what it believes to have answered.
async fn serve(world: &World, server: &Server, ask: &Ask) -> Answer {
    let answer = ask_service(&server.service, ask)
        .await
        .unwrap_or_else(|refusal| match refusal {
            Refusal::TooManyWaiters(_) | Refusal::LimitReached(_) => Answer::NotDone,
            Refusal::Unavailable | Refusal::TooSlow | Refusal::ShuttingDown => Answer::Unknown,
        });
    if let Answer::Granted(locks) = &answer {
        let told = locks
            .iter()
            .map(|lock| (lock.resource.clone(), lock.owner.clone()));
        world.told.lock().unwrap().extend(told);
    }
    answer
}

async fn ask_service(service: &Arc<Service>, ask: &Ask) -> Result<Answer, Refusal> {
    let arrived = Instant::now();
    let origin = Origin::default();
    Ok(match ask.clone() {
        Ask::Acquire {
            resources,
            grant,
            wait,
        } => {
            let request = AcquireRequest {
                resources,
                holder: grant.holder,
                ttl: grant.ttl,
                wait,
                metadata: None,
                key: Some(grant.mark).filter(|mark| matches!(mark, Mark::Key(_))),
                arrived,
                origin,
            };
            match service.acquire(request).await? {
                Acquired::Granted(locks) => Answer::Granted(locks),
                Acquired::Held { .. } => Answer::Held,
            }
        }
        Ask::Renew { resource, claim, ttl } => {
            let request = RenewRequest {
                resource,
                claim,
                ttl,
                arrived,
            };
            match service.renew(request).await? {
                Renewal::Renewed(lock) => Answer::Renewed(lock),
                Renewal::NotFound => Answer::NotFound,
                Renewal::Forbidden => Answer::Forbidden,
            }
        }
        Ask::Release { resource, claim } => released(
            service
                .release(ReleaseRequest {
                    resource,
                    claim,
                    arrived,
                    origin,
                })
                .await?,
        ),
        Ask::Force { resource } => {
            let reason = Reason::new("it is in the way").unwrap();
            let request = ForceRequest {
                resource,
                token: None,
                reason,
                arrived,
                origin,
            };
            released(service.force_release(request).await?)
        }
        Ask::Find { resource } => service
            .find(&resource)
            .await?
            .map_or(Answer::NotFound, Answer::Found),
    })
}

fn released(result: ReleaseResult) -> Answer {
    match result {
        ReleaseResult::Released => Answer::Released,
        ReleaseResult::NotFound => Answer::NotFound,
        ReleaseResult::Forbidden => Answer::Forbidden,
    }
}

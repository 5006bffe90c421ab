//! A world: an engine, servers, clients and weather, all from one seed; and the verdict on it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrolho_core::{Owner, Resource, Timestamp};
use ferrolho_proof::{Judge, Moment, Recorder, Verdict, Witness, at_micros};
use ferrolho_server::audit::Audit;
use ferrolho_server::service::{Chance, Limits, Service};
use ferrolho_store::clock::{Clock, TokioTime};
use ferrolho_store::{EngineTraits, ListQuery, MemoryStore, Store};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::{Instant, sleep};

use crate::client::Client;
use crate::link::{Link, Weather};
use crate::mutant::{MutantStore, Mutation};

const CLIENTS: usize = 6;
pub(crate) const NAMES: [&str; 3] = ["x", "y", "z"];
const START_MICROS: i64 = 1_800_000_000_000_000;

/// The longest that anything takes to come to an end once all clients are done: the longest lifetime of hasty worlds,
/// and for how long a lost attempt is watched for.
const AFTERWARDS: Duration = Duration::from_mins(1);

/// A message may be 4 s late, a request may begin 5 s after its wait, and its attempt may take 5 s more to the store; with
/// what is delayed on the way.
const UNHEARD: Duration = Duration::from_secs(16);

/// What is allowed for each group of locks; a world takes some hundreds.
const EFFORT_POINTS: usize = 200_000;

/// What kind of world it is.
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches that have nothing to do with each other"
)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nature {
    seed: u64,
    pub(crate) mutation: Mutation,
    servers: usize,
    /// The engine is one that several servers share.
    is_shared: bool,
    weather: Weather,
    /// Servers are killed, and the store loses its power.
    kills: bool,
    /// Locks live so long that only a release ends them.
    pub(crate) is_patient: bool,
    /// An administrator takes locks away; then nobody can be certain to hold one.
    pub(crate) forces: bool,
}

impl Nature {
    pub(crate) fn of(seed: u64) -> Self {
        let mut dice = StdRng::seed_from_u64(seed);
        let weather = match dice.random_range(0..3) {
            0 => Weather::CALM,
            1 => Weather {
                fault: 0.05,
                delay_millis: 20,
            },
            _ => Weather {
                fault: 0.2,
                delay_millis: 500,
            },
        };
        let servers = dice.random_range(1..=3);
        Self {
            seed: dice.random(),
            mutation: Mutation::None,
            servers,
            is_shared: servers > 1 || dice.random_bool(0.2),
            weather,
            kills: dice.random_bool(0.3),
            is_patient: dice.random_bool(0.3),
            forces: dice.random_bool(0.1),
        }
    }

    /// With this fault.
    pub(crate) fn with(self, mutation: Mutation) -> Self {
        Self { mutation, ..self }
    }

    /// With what a fault needs to show at all.
    pub(crate) fn in_which_shows(mut self, mutation: Mutation) -> Self {
        match mutation {
            // Where looking is free, the service looks before it asks for a release.
            Mutation::ReleaseWithoutOwnerCheck => self.is_shared = true,
            Mutation::ReplyBeforeTheSync => self.kills = true,
            Mutation::HandOverToTheDeparted => {
                (self.servers, self.is_shared) = (1, false);
                (self.kills, self.is_patient) = (false, true);
            }
            _ => {}
        }
        self
    }

    pub(crate) fn has_faults(&self) -> bool {
        self.weather.fault > 0.0
    }

    /// The longest delay between a client and a server, in microseconds.
    pub(crate) fn network_micros(&self) -> u64 {
        1_000 * self.weather.delay_millis
    }

    /// Whether nothing that was granted to nobody may stay: a server that is killed cannot take it back, and on a
    /// shared engine one server does not know whether another has told of it (`docs/guarantees.md`, Keys).
    fn leaves_nothing(&self) -> bool {
        !self.is_shared && !self.kills
    }
}

/// A server that clients can reach.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) service: Arc<Service>,
    pub(crate) link: Arc<Link>,
}

pub(crate) struct World {
    pub(crate) nature: Nature,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) witness: Mutex<Witness>,
    broken: Mutex<Vec<String>>,
    servers: Mutex<Vec<Server>>,
    /// Who was told to have which lock, as far as the server knows. (If such an owner is granted its lock again and does
    /// not hear of it, the grant stays, since the owner may rely on the lock.)
    pub(crate) told: Mutex<BTreeSet<(Resource, Owner)>>,
    store: Arc<MutantStore>,
    dice: Mutex<StdRng>,
    start: Instant,
}

/// What a world came to.
pub(crate) struct Course {
    /// All that happened, line by line.
    pub(crate) trace: String,
    pub(crate) calls: usize,
    /// What is wrong, if anything is, and who saw it.
    pub(crate) verdict: Result<(), String>,
}

/// Runs a world to its end.
pub(crate) fn run(nature: Nature) -> Course {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(live(nature))
}

async fn live(nature: Nature) -> Course {
    let world = World::new(nature);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| tokio::spawn(Client::new(Arc::clone(&world), number, world.seed()).live()))
        .collect();
    let weather = tokio::spawn(weather(Arc::clone(&world), StdRng::seed_from_u64(world.seed())));
    for client in clients {
        client.await.unwrap();
    }
    weather.abort();
    for server in world.servers() {
        server.link.set_away(false);
        server.link.set_weather(Weather::CALM);
    }
    sleep(AFTERWARDS).await;
    world.look_for_leftovers().await;
    world.course()
}

/// Times in which nothing answers, servers that are killed, and power that is lost.
async fn weather(world: Arc<World>, mut dice: StdRng) {
    loop {
        sleep(Duration::from_millis(dice.random_range(0..4_000))).await;
        let number = dice.random_range(0..world.nature.servers);
        let server = world.server(number);
        if world.nature.weather.fault > 0.0 && dice.random_bool(0.3) {
            server.link.set_away(true);
            sleep(Duration::from_millis(dice.random_range(0..5_000))).await;
            server.link.set_away(false);
        }
        if world.nature.kills {
            if dice.random_bool(0.3) {
                world.store.lose_power().await;
            }
            server.link.kill();
            let another = world.new_server();
            world.servers.lock().unwrap()[number] = another;
        }
    }
}

impl World {
    fn new(nature: Nature) -> Arc<Self> {
        let start = Instant::now();
        let mut dice = StdRng::seed_from_u64(nature.seed);
        let time = TokioTime::starting_at(Timestamp::from_micros(START_MICROS));
        let engine = Arc::new(MemoryStore::new(Clock::new(Arc::new(time))));
        let world = Arc::new(Self {
            nature,
            recorder: Recorder::new(move || at_micros(start.elapsed())),
            witness: Mutex::default(),
            broken: Mutex::default(),
            servers: Mutex::default(),
            told: Mutex::default(),
            store: MutantStore::new(engine, nature.mutation, dice.random()),
            dice: Mutex::new(dice),
            start,
        });
        for _ in 0..nature.servers {
            let server = world.new_server();
            world.servers.lock().unwrap().push(server);
        }
        world
    }

    /// A seed for a part of this world.
    fn seed(&self) -> u64 {
        self.dice.lock().unwrap().random()
    }

    fn new_server(&self) -> Server {
        let traits = EngineTraits {
            name: "simulated",
            // As with the engines that there are.
            looking_is_free: !self.nature.is_shared,
            is_shared: self.nature.is_shared,
        };
        let store = Arc::clone(&self.store) as Arc<dyn Store>;
        let link = Link::new(store, traits, self.nature.weather, self.seed());
        let service = Service::start_with(
            Arc::clone(&link) as Arc<dyn Store>,
            Limits::default(),
            Audit::default(),
            Chance::from_seed(self.seed()),
        );
        Server { service, link }
    }

    fn servers(&self) -> Vec<Server> {
        self.servers.lock().unwrap().clone()
    }

    fn server(&self, number: usize) -> Server {
        self.servers.lock().unwrap()[number].clone()
    }

    pub(crate) fn any_server(&self, dice: &mut StdRng) -> Server {
        self.server(dice.random_range(0..self.nature.servers))
    }

    pub(crate) fn now(&self) -> Moment {
        at_micros(self.start.elapsed())
    }

    pub(crate) fn accuse(&self, who: &str, what: &str) {
        let line = format!("{who} at {:.6}: {what}", self.now().as_secs_f64());
        self.broken.lock().unwrap().push(line);
    }

    /// When all is over nobody may stand in line, and no lock may be left that nobody was told of.
    async fn look_for_leftovers(&self) {
        for server in self.servers() {
            match server.service.footprint() {
                0 => {}
                left => self.accuse(
                    "leftovers",
                    &format!("{left} places, queues, alarms or untold grants"),
                ),
            }
        }
        if !self.nature.leaves_nothing() {
            return;
        }
        let everything = ListQuery {
            limit: NAMES.len(),
            ..ListQuery::default()
        };
        for live in self.store.list(&everything).await.unwrap().locks {
            let lock = live.lock;
            let held = (lock.resource.clone(), lock.owner.clone());
            if !self.told.lock().unwrap().contains(&held) {
                let what = format!("{} has {}, and nobody was told", lock.owner, lock.resource);
                self.accuse("leftovers", &what);
            }
        }
    }

    fn course(&self) -> Course {
        let calls = self.recorder.calls();
        let mut trace = format!("{:?}\n", self.nature);
        for call in &calls {
            let _ = writeln!(trace, "{call}");
        }
        let broken = self.broken.lock().unwrap().join("\n");
        trace.push_str(&broken);
        let judge = Judge {
            store_clock_at_start: Some(Timestamp::from_micros(START_MICROS)),
            early: Duration::ZERO,
            late: Duration::ZERO,
            unheard: Some(UNHEARD),
            effort_points: EFFORT_POINTS,
        };
        let verdict = if broken.is_empty() {
            match judge.check(&calls) {
                Verdict::Explained { .. } => Ok(()),
                Verdict::Undecided { groups } => Err(format!("undecided: {groups} groups of locks")),
                Verdict::Refuted(refutation) => Err(format!("checker: {refutation}")),
            }
        } else {
            Err(broken)
        };
        Course {
            calls: calls.len(),
            trace,
            verdict,
        }
    }
}

pub(crate) fn resource(name: &str) -> Resource {
    Resource::new(name).unwrap()
}

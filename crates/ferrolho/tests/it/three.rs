//! Three servers of one store, in three time zones and with clocks that are minutes and hours apart, and 64 clients who
//! ask any of them: a log outside the service judges that one at a time is inside, with a token above all before.
//! (Cases: rows 22, 23.)

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ferrolho_core::{FencingToken, Resource};
use ferrolho_proof::Witness;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;

#[cfg(feature = "etcd")]
use crate::support::on_etcd;
use crate::support::{
    Answer, Case, Lock, OnStore, Request, Server, acquire_waiting, elsewhere, lock_path, on_postgres,
};

const CLIENTS: u64 = 64;
const NAMES: u64 = 4;

/// How many grants are looked at.
const GRANTS: usize = 1_000;

/// How long the lock of a client who dies with it lasts, and anybody else's, in seconds.
const SHORT: u32 = 1;
const LONG: u32 = 30;

/// The servers; none when Debian's faketime is not installed.
struct Three(Vec<Server>);

impl OnStore for Three {
    fn on_store(store: &str) -> Self {
        let places = [
            ("Asia/Tokyo", 0),
            ("America/Lima", 120),
            ("Europe/Lisbon", -3_600),
        ];
        let servers = places.map(|(zone, seconds)| elsewhere(store, zone, seconds));
        Self(servers.into_iter().flatten().collect())
    }
}

const CASES: &[Case<Three>] = &[
    ("all_see_the_same_lock", all_see_the_same_lock),
    ("one_at_a_time_is_inside", one_at_a_time_is_inside),
];

#[test]
fn postgres() {
    on_postgres(CASES);
}

#[cfg(feature = "etcd")]
#[test]
fn etcd() {
    on_etcd(CASES);
}

fn all_see_the_same_lock(Three(servers): &Three) {
    for (here, server) in servers.iter().enumerate() {
        let lock = server.acquire("r", "a", 60).granted();
        assert_eq!(lock.life(), Duration::from_mins(1));
        for (there, other) in servers.iter().enumerate() {
            assert_eq!(other.find("r").lock(), lock, "{here} {there}");
            other.acquire("r", "b", 60).refused();
        }
        let next = &servers[(here + 1) % servers.len()];
        let renewed = next.renew("r", "a", 60).lock();
        assert_eq!(renewed.fencing_token, lock.fencing_token);
        // By whichever clock: for the whole time anew.
        let asked = Instant::now();
        next.renew("r", "a", 2).lock();
        while server.find("r").status != 404 {
            thread::sleep(Duration::from_millis(20));
        }
        assert!(asked.elapsed() >= Duration::from_secs(2));
        assert!(asked.elapsed() < Duration::from_secs(30));
    }
}

/// What is outside the service.
struct Outside {
    start: Instant,
    witness: Mutex<Witness>,
    grants: AtomicUsize,
    broken: Mutex<Vec<String>>,
}

impl Outside {
    fn is_over(&self) -> bool {
        self.grants.load(Ordering::Relaxed) >= GRANTS || !self.broken.lock().unwrap().is_empty()
    }
}

fn one_at_a_time_is_inside(Three(servers): &Three) {
    if servers.is_empty() {
        return;
    }
    let seed: u64 = rand::random();
    let outside = Outside {
        start: Instant::now(),
        witness: Mutex::default(),
        grants: AtomicUsize::new(0),
        broken: Mutex::default(),
    };
    let outside = &outside;
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let dice = StdRng::seed_from_u64(seed.wrapping_add(number));
            let mut client = Client {
                outside,
                number,
                lives: 0,
                dice,
                servers,
            };
            scope.spawn(move || {
                while !outside.is_over() {
                    client.turn();
                }
            });
        }
    });
    let broken = outside.broken.lock().unwrap();
    assert!(broken.is_empty(), "seed {seed}: {broken:?}");
}

struct Client<'a> {
    outside: &'a Outside,
    number: u64,
    /// How often it has died. One that dies comes again under another name.
    lives: u32,
    dice: StdRng,
    servers: &'a [Server],
}

impl Client<'_> {
    fn name(&self) -> String {
        format!("client-{}-{}", self.number, self.lives)
    }

    /// Asks any of the servers, as each call does.
    fn call(&mut self, request: &Request) -> Answer {
        let any = self.dice.random_range(0..self.servers.len());
        self.servers[any].call(request)
    }

    /// Waits for a lock, goes in, and leaves; now and then it renews, and now and then it dies with the lock.
    fn turn(&mut self) {
        let name = format!("r{}", self.dice.random_range(0..NAMES));
        let dies = self.dice.random_bool(0.02);
        let ttl = if dies { SHORT } else { LONG };
        let asked = self.outside.start.elapsed();
        let answer = self.call(&acquire_waiting(&name, &self.name(), ttl, 5));
        if !answer.is_granted() {
            return;
        }
        let lock = answer.granted();
        self.outside.grants.fetch_add(1, Ordering::Relaxed);
        self.is_inside(&lock, asked + Duration::from_secs(ttl.into()));
        if self.dice.random_bool(0.2) {
            let asked = self.outside.start.elapsed();
            let body = json!({"owner": self.name(), "ttl_seconds": ttl, "fencing_token": lock.fencing_token});
            let answer = self.call(&Request::post(&format!("{}/renew", lock_path(&name))).json(&body));
            if answer.status == 200 {
                self.is_inside(&lock, asked + Duration::from_secs(ttl.into()));
            }
        }
        if dies {
            self.lives += 1;
        } else {
            let token = FencingToken::new(lock.fencing_token.into()).unwrap();
            let resource = Resource::new(&name).unwrap();
            self.outside.witness.lock().unwrap().leave(&resource, token);
            let body = json!({"owner": self.name(), "fencing_token": lock.fencing_token});
            self.call(&Request::delete(&lock_path(&name)).json(&body)).done();
        }
    }

    /// Goes in, or stays in, as long as it is certain to hold the lock.
    fn is_inside(&self, lock: &Lock, certain_until: Duration) {
        let resource = Resource::new(&lock.resource).unwrap();
        let token = FencingToken::new(lock.fencing_token.into()).unwrap();
        let mut witness = self.outside.witness.lock().unwrap();
        let now = self.outside.start.elapsed();
        if now < certain_until
            && let Err(broken) = witness.enter(now, &resource, &self.name(), token, certain_until)
        {
            self.outside.broken.lock().unwrap().push(broken.to_string());
        }
    }
}

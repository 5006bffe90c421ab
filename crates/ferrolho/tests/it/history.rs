//! Everything that clients are told has an explanation: some order of their calls in which the rules give just these
//! answers, through hang-ups and `kill -9`; and a witness outside never sees two who hold one lock.
//!
//! Clients ask for few locks in every way there is and write down each call; `ferrolho-proof` judges. A failure prints
//! the calls that cannot be, and the seed that the clients threw their dice with.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ferrolho_core::wire::{
    AcquireAnswer, AcquireBody, AcquireSetAnswer, AcquireSetBody, ReleaseBody, RenewBody,
};
use ferrolho_core::{Claim, Grant, Holder, Lock, Mark, Owner, Resource, Ttl, Wait};
use ferrolho_proof::{Answer, Ask, Judge, Moment, Recorder, Verdict, Witness, at_micros};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rustix::process::Signal;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::support::{self, Connection, Pair, Request, Server, lock_path, on_every_shared_engine, until};

const CLIENTS: u64 = 6;
const NAMES: [&str; 4] = ["w", "x", "y", "z"];

/// How many answers are taken between two kills.
const ANSWERS: usize = 200;
const KILLS: usize = 6;

/// The server's clock and that of this process run alike, and both round to microseconds.
const ROUNDING: Duration = Duration::from_millis(1);

/// What is allowed for each group of locks; a run of this size takes some thousands.
const EFFORT_POINTS: usize = 300_000;

#[test]
fn all_answers_are_explained_through_kills() {
    judged_through_kills(&mut Server::start()).unwrap();
}

/// Memory forgets every lock when it is killed: if that is not seen, nothing would be.
#[test]
fn an_engine_that_forgets_is_found_out() {
    let wrong = judged_through_kills(&mut Server::memory()).unwrap_err();
    assert!(!wrong.contains("undecided"), "{wrong}");
}

fn judged_through_kills(server: &mut Server) -> Result<(), String> {
    let crowd = Crowd::new(&[server.addr], ROUNDING);
    crowd.run(|| {
        for _ in 0..KILLS {
            crowd.take_answers(ANSWERS);
            server.kill();
            // One server has the store, so with it everything is over that it had not answered.
            crowd.recorder.cut();
            server.start_again();
            *crowd.servers.lock().unwrap() = vec![server.addr];
        }
        crowd.take_answers(ANSWERS);
    });
    crowd.judged()
}

on_every_shared_engine!(all_answers_of_two_servers_are_explained);

fn all_answers_of_two_servers_are_explained((one, two): &Pair) {
    // An engine that several servers share may take up to half a second to see to the end of a life.
    let crowd = Crowd::new(&[one.addr, two.addr], Duration::from_millis(500));
    crowd.run(|| {
        crowd.take_answers(2 * ANSWERS);
        one.signal(Signal::KILL);
        *crowd.servers.lock().unwrap() = vec![two.addr];
        crowd.take_answers(2 * ANSWERS);
    });
    crowd.judged().unwrap();
}

/// Clients, and what they have seen.
struct Crowd {
    recorder: Arc<Recorder>,
    witness: Mutex<Witness>,
    /// What is wrong for certain.
    broken: Mutex<Vec<String>>,
    servers: Mutex<Vec<SocketAddr>>,
    start: Instant,
    answers: AtomicUsize,
    is_over: AtomicBool,
    /// For how long after its end a lock may still be seen.
    late: Duration,
    seed: u64,
}

impl Crowd {
    fn new(servers: &[SocketAddr], late: Duration) -> Self {
        let start = Instant::now();
        Self {
            recorder: Recorder::new(move || at_micros(start.elapsed())),
            witness: Mutex::default(),
            broken: Mutex::default(),
            servers: Mutex::new(servers.to_vec()),
            start,
            answers: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            late,
            seed: rand::random(),
        }
    }

    fn now(&self) -> Moment {
        at_micros(self.start.elapsed())
    }

    /// Lets the clients work while something happens.
    fn run(&self, happens: impl FnOnce()) {
        thread::scope(|scope| {
            for number in 0..CLIENTS {
                scope.spawn(move || Client::new(self, number).live());
            }
            happens();
            self.is_over.store(true, Ordering::Relaxed);
        });
    }

    /// Waits until the clients have been answered so many times more.
    fn take_answers(&self, count: usize) {
        let wanted = self.answers.load(Ordering::Relaxed) + count;
        until("the clients are answered", || {
            self.answers.load(Ordering::Relaxed) >= wanted
        });
    }

    /// What is wrong, with the seed and what shows it.
    fn judged(&self) -> Result<(), String> {
        let judge = Judge {
            store_clock_at_start: None,
            early: ROUNDING,
            late: self.late,
            unheard: None,
            effort_points: EFFORT_POINTS,
        };
        let broken = self.broken.lock().unwrap().join("\n");
        let wrong = match judge.check(&self.recorder.calls()) {
            Verdict::Explained { .. } if broken.is_empty() => return Ok(()),
            Verdict::Explained { .. } => String::new(),
            Verdict::Undecided { groups } => format!("{groups} groups of locks are undecided"),
            Verdict::Refuted(refutation) => refutation.to_string(),
        };
        Err(format!("seed {}: {broken}\n{wrong}", self.seed))
    }
}

/// One client. After a call whose outcome it does not know it takes a new name, as a careful program does.
struct Client<'a> {
    crowd: &'a Crowd,
    number: u64,
    incarnation: u32,
    dice: StdRng,
    connection: Option<(SocketAddr, Connection)>,
}

/// A lock that a client was told of.
struct Held {
    lock: Lock,
    ttl: u32,
    /// Until when the client is certain.
    until: Moment,
}

impl<'a> Client<'a> {
    fn new(crowd: &'a Crowd, number: u64) -> Self {
        Self {
            crowd,
            number,
            incarnation: 0,
            dice: StdRng::seed_from_u64(crowd.seed.wrapping_add(number)),
            connection: None,
        }
    }

    fn live(mut self) {
        while !self.crowd.is_over.load(Ordering::Relaxed) {
            match self.dice.random_range(0..10) {
                0 => self.meddle(),
                1..3 => {
                    let resource = self.any_name();
                    self.call(&Ask::Find { resource });
                }
                _ => self.hold(),
            }
        }
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
        Resource::new(NAMES[self.dice.random_range(0..NAMES.len())]).unwrap()
    }

    /// Asks for what is another's.
    fn meddle(&mut self) {
        let resource = self.any_name();
        let claim = Claim {
            holder: self.holder(),
            token: None,
        };
        let ttl = ttl(self.dice.random_range(1..=5));
        let ask = if self.dice.random_bool(0.5) {
            Ask::Release { resource, claim }
        } else {
            Ask::Renew { resource, claim, ttl }
        };
        self.call(&ask);
    }

    /// Takes a lock or two, renews, and gives back most of them.
    fn hold(&mut self) {
        let mut resources = vec![self.any_name()];
        let another = self.any_name();
        if self.dice.random_bool(0.1) && another != resources[0] {
            resources.push(another);
        }
        let seconds = self.dice.random_range(1..=3);
        let key = format!("{:x}", self.dice.random::<u64>());
        let has_key = self.dice.random_bool(0.5);
        let wait = if self.dice.random_bool(0.6) {
            self.dice.random_range(1..=2)
        } else {
            0
        };
        let ask = Ask::Acquire {
            resources,
            grant: Grant {
                holder: self.holder(),
                ttl: ttl(seconds),
                metadata: None,
                mark: if has_key {
                    Mark::from_key(&key).unwrap()
                } else {
                    Mark::Random(0)
                },
            },
            wait: Wait::new(wait).unwrap(),
        };
        let mut sent = self.crowd.now();
        let mut answer = self.call(&ask);
        if answer == Answer::Unknown && has_key {
            sent = self.crowd.now();
            answer = self.call(&ask);
        }
        match answer {
            Answer::Granted(locks) if wait == 0 && !has_key => self.work(locks, seconds, sent),
            Answer::Granted(locks) => self.confirm(locks, seconds),
            Answer::Unknown => self.incarnation += 1,
            _ => {}
        }
    }

    /// The answer may have waited, so it is renewed once before it is relied on.
    fn confirm(&mut self, locks: Vec<Lock>, seconds: u32) {
        let sent = self.crowd.now();
        for lock in &locks {
            if !matches!(self.call(&Self::renewal(lock, seconds)), Answer::Renewed(_)) {
                return;
            }
        }
        self.work(locks, seconds, sent);
    }

    fn work(&mut self, locks: Vec<Lock>, seconds: u32, sent: Moment) {
        let until = sent + Duration::from_secs(seconds.into());
        let mut held: Vec<Held> = locks
            .into_iter()
            .map(|lock| Held {
                lock,
                ttl: seconds,
                until,
            })
            .collect();
        held.retain(|held| self.enter(held));
        for held in &mut held {
            if self.dice.random_bool(0.4) {
                self.renew(held);
            }
            if self.dice.random_bool(0.3) {
                let resource = held.lock.resource.clone();
                self.call(&Ask::Find { resource });
            }
        }
        for Held { lock, .. } in held {
            // Whoever has left is not inside, whether it gives the lock back or not.
            let mut witness = self.crowd.witness.lock().unwrap();
            witness.leave(&lock.resource, lock.fencing_token);
            drop(witness);
            if self.dice.random_bool(0.9) {
                self.give_back(&lock);
            }
        }
    }

    fn renewal(lock: &Lock, seconds: u32) -> Ask {
        Ask::Renew {
            resource: lock.resource.clone(),
            claim: Claim {
                holder: lock.holder(),
                token: Some(lock.fencing_token),
            },
            ttl: ttl(seconds),
        }
    }

    fn renew(&mut self, held: &mut Held) {
        let sent = self.crowd.now();
        match self.call(&Self::renewal(&held.lock, held.ttl)) {
            Answer::Renewed(_) => {
                held.until = sent + Duration::from_secs(held.ttl.into());
                self.enter(held);
            }
            Answer::NotFound | Answer::Forbidden if self.crowd.now() < held.until => {
                let what = format!("{} is certain of {:?}, and it is gone", self.name(), held.lock);
                self.crowd.broken.lock().unwrap().push(what);
            }
            _ => {}
        }
    }

    /// Goes in, if it still is certain.
    fn enter(&self, held: &Held) -> bool {
        let mut witness = self.crowd.witness.lock().unwrap();
        let now = self.crowd.now();
        if now >= held.until {
            return false;
        }
        let (lock, client) = (&held.lock, self.name());
        if let Err(broken) = witness.enter(now, &lock.resource, &client, lock.fencing_token, held.until) {
            self.crowd.broken.lock().unwrap().push(broken.to_string());
        }
        true
    }

    fn give_back(&mut self, lock: &Lock) {
        let claim = Claim {
            holder: lock.holder(),
            token: Some(lock.fencing_token),
        };
        let resource = lock.resource.clone();
        self.call(&Ask::Release { resource, claim });
    }

    /// One call, on the connection that it has or on a new one. Now and then it hangs up before the answer.
    fn call(&mut self, ask: &Ask) -> Answer {
        let address = {
            let servers = self.crowd.servers.lock().unwrap();
            servers[self.dice.random_range(0..servers.len())]
        };
        let request = request(ask);
        let open = self.crowd.recorder.begin(&self.name(), ask.clone());
        let hangs_up = self.dice.random_bool(0.03);
        let answer = match self.ask(address, &request, hangs_up) {
            Ok(Some(answer)) => read(ask, &answer),
            Ok(None) => Answer::Unknown,
            Err(_) => {
                // The server is being killed or started: nothing was sent.
                thread::sleep(Duration::from_millis(5));
                Answer::NotDone
            }
        };
        if !matches!(answer, Answer::Unknown | Answer::NotDone) {
            self.crowd.answers.fetch_add(1, Ordering::Relaxed);
        }
        open.answered(answer.clone());
        answer
    }

    /// The answer, or nothing where none came; an error when nothing was sent, since there is nobody to send it to.
    fn ask(
        &mut self,
        address: SocketAddr,
        request: &Request,
        hangs_up: bool,
    ) -> io::Result<Option<support::Answer>> {
        let mut connection = match self.connection.take() {
            Some((to, connection)) if to == address => connection,
            _ => Connection::try_to(address)?,
        };
        if connection.try_send(request).is_err() || hangs_up {
            return Ok(None);
        }
        let answer = connection.try_answer().ok();
        if answer.is_some() {
            self.connection = Some((address, connection));
        }
        Ok(answer)
    }
}

fn ttl(seconds: u32) -> Ttl {
    Ttl::new(seconds.into(), Ttl::MAX).unwrap()
}

/// What goes over the wire.
fn request(ask: &Ask) -> Request {
    fn json(request: Request, body: &impl Serialize) -> Request {
        request.json(&serde_json::to_value(body).unwrap())
    }
    match ask {
        Ask::Acquire {
            resources,
            grant,
            wait,
        } => {
            let acquire = AcquireBody {
                owner: grant.holder.owner.clone(),
                ttl_seconds: grant.ttl.seconds(),
                wait_seconds: Some(wait.seconds()),
                metadata: None,
            };
            let request = match resources.as_slice() {
                [one] => json(Request::post(&lock_path(one.as_str())), &acquire),
                several => {
                    let resources = several.to_vec();
                    json(Request::post("/locks"), &AcquireSetBody { resources, acquire })
                }
            };
            match &grant.mark {
                Mark::Key(key) => request.header("idempotency-key", key),
                Mark::Random(_) => request,
            }
        }
        Ask::Renew { resource, claim, ttl } => {
            let body = RenewBody {
                owner: claim.holder.owner.clone(),
                ttl_seconds: ttl.seconds(),
                fencing_token: claim.token,
            };
            json(
                Request::post(&format!("{}/renew", lock_path(resource.as_str()))),
                &body,
            )
        }
        Ask::Release { resource, claim } => {
            let body = ReleaseBody {
                owner: claim.holder.owner.clone(),
                fencing_token: claim.token,
            };
            json(Request::delete(&lock_path(resource.as_str())), &body)
        }
        Ask::Force { .. } => panic!("it takes an administrator"),
        Ask::Find { resource } => Request::get(&lock_path(resource.as_str())),
    }
}

/// What an answer says.
fn read(ask: &Ask, answer: &support::Answer) -> Answer {
    match (answer.status, ask) {
        (200, Ask::Acquire { resources, .. }) if resources.len() == 1 => {
            let answer: AcquireAnswer = body(answer);
            answer
                .lock
                .map_or(Answer::Held, |lock| Answer::Granted(vec![lock]))
        }
        (200, Ask::Acquire { .. }) => {
            let answer: AcquireSetAnswer = body(answer);
            answer.locks.map_or(Answer::Held, Answer::Granted)
        }
        (200, Ask::Renew { .. }) => Answer::Renewed(body(answer)),
        (200, _) => Answer::Found(body(answer)),
        (204, _) => Answer::Released,
        (403, _) => Answer::Forbidden,
        (404, _) => Answer::NotFound,
        (503, _) => Answer::Unknown,
        (status, _) => panic!("{ask} is answered {status}: {}", answer.text()),
    }
}

fn body<T: DeserializeOwned>(answer: &support::Answer) -> T {
    serde_json::from_slice(&answer.body).unwrap()
}

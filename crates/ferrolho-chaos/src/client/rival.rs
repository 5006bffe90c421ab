//! Rivals: they want the same few locks, in every way that the API offers, and leave in every way.
//!
//! After anything whose outcome it does not know a rival takes a new name, as a careful program does: a request of
//! its old name that comes late would fence off its own newer grant.

use std::time::{Duration, Instant};

use rand::Rng as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{any_route, some_hot_locks};
use crate::http::Request;
use crate::run::{Heard, Run, Voice};
use crate::witness::{Certainty, Told};

pub(super) async fn live(run: &Run, number: usize, mut dice: StdRng) {
    let mut rival = Rival {
        voice: Voice::new(run, format!("rival-{number}.0"), any_route(run, &mut dice)),
        number,
        incarnation: 0,
        asked: 0,
    };
    while !run.is_over() {
        rival.round(&mut dice).await;
        sleep(Duration::from_millis(dice.random_range(5..80))).await;
    }
}

struct Rival<'a> {
    voice: Voice<'a>,
    number: usize,
    incarnation: u32,
    /// How many locks it has asked for, for its keys.
    asked: u32,
}

/// What a rival asks for.
struct Wish {
    names: Vec<String>,
    ttl: Duration,
    wait: Duration,
}

/// Locks that a rival was granted.
struct Grant {
    locks: Vec<(String, u64)>,
    ttl: Duration,
    /// The lifetime has not begun before this.
    from: Instant,
}

impl Grant {
    fn is_certain(&self) -> bool {
        Instant::now() < self.from + self.ttl
    }
}

impl Rival<'_> {
    async fn round(&mut self, dice: &mut StdRng) {
        if dice.random_bool(0.1) {
            let route = any_route(self.voice.run, dice);
            self.voice.go_to(route);
        }
        let wish = Wish {
            names: some_hot_locks(dice),
            ttl: Duration::from_secs(dice.random_range(2..=6)),
            wait: Duration::from_secs(if dice.random_bool(0.3) {
                0
            } else {
                dice.random_range(1..=6)
            }),
        };
        let Some(mut grant) = self.acquire(&wish, dice).await else {
            return;
        };
        if !grant.is_certain() && !self.renew(&mut grant).await {
            return;
        }
        if self.enter(&grant) {
            self.work(&mut grant, dice).await;
        }
    }

    async fn acquire(&mut self, wish: &Wish, dice: &mut StdRng) -> Option<Grant> {
        let court = &self.voice.run.court;
        self.asked += 1;
        let mut request = acquire_request(wish, &self.voice.name);
        request.key = dice
            .random_bool(0.5)
            .then(|| format!("{}-{}", self.voice.name, self.asked));
        let sent = Instant::now();
        if wish.wait > Duration::ZERO && dice.random_bool(0.05) {
            // It loses patience and hangs up.
            let patience = Duration::from_millis(dice.random_range(1..1500));
            let heard = tokio::time::timeout(patience, self.voice.ask(&request, wish.wait)).await;
            self.voice.hang_up();
            self.new_name();
            if heard.is_err() {
                court.count("hung up while waiting");
            }
            return None;
        }
        let mut heard = self.voice.ask(&request, wish.wait).await;
        let mut is_repeat = false;
        if matches!(heard, Heard::Unknown) && request.key.is_some() {
            court.count("repeated under its key");
            is_repeat = true;
            heard = self.voice.ask(&request, wish.wait).await;
        }
        let Heard::Answer(answer) = heard else {
            self.new_name();
            return None;
        };
        if answer.body["acquired"] == json!(false) {
            court.count("refused");
            if !is_repeat && sent.elapsed() + Duration::from_millis(20) < wish.wait {
                let took = sent.elapsed();
                court.accuse(&format!(
                    "EARLY {} was refused after {took:?}: {request:?}",
                    self.voice.name
                ));
            }
            return None;
        }
        let Some(locks) = granted(&answer.body, &wish.names) else {
            court.accuse(&format!(
                "ANSWER {} to {request:?}: {}",
                answer.status, answer.body
            ));
            self.new_name();
            return None;
        };
        court.count("grants");
        if sent.elapsed() > Duration::from_millis(100) && wish.wait > Duration::ZERO {
            court.count("grants after waiting");
        }
        for (name, token) in &locks {
            self.voice
                .run
                .witness
                .told(court, self.told(name, *token, sent), is_repeat);
        }
        Some(Grant {
            locks,
            ttl: wish.ttl,
            from: sent,
        })
    }

    fn told<'a>(&'a self, resource: &'a str, token: u64, sent: Instant) -> Told<'a> {
        Told {
            resource,
            client: &self.voice.name,
            token,
            sent,
        }
    }

    /// Enters all places of the grant, or none.
    fn enter(&self, grant: &Grant) -> bool {
        let run = self.voice.run;
        let until = grant.from + grant.ttl;
        for (entered, (name, token)) in grant.locks.iter().enumerate() {
            let told = self.told(name, *token, grant.from);
            if !run.witness.enter(&run.court, told, Certainty::Until(until)) {
                for (name, token) in &grant.locks[..entered] {
                    run.witness.leave(name, *token);
                }
                return false;
            }
        }
        true
    }

    /// Works inside, and leaves.
    async fn work(&mut self, grant: &mut Grant, dice: &mut StdRng) {
        let run = self.voice.run;
        for _ in 0..dice.random_range(0..3) {
            sleep(Duration::from_millis(dice.random_range(1..120))).await;
            let goes_on = match dice.random_range(0..3) {
                0 => self.look(grant).await,
                1 => self.renew(grant).await,
                _ => true,
            };
            if !goes_on {
                break;
            }
        }
        for (name, token) in &grant.locks {
            run.witness.leave(name, *token);
        }
        if dice.random_bool(0.05) {
            run.court.count("left to expire");
            self.new_name();
        } else {
            self.release(grant).await;
        }
    }

    /// Sees its own lock, if it looks.
    async fn look(&mut self, grant: &Grant) -> bool {
        for (name, token) in &grant.locks {
            let heard = self
                .voice
                .ask(&Request::get(format!("/locks/{name}")), Duration::ZERO)
                .await;
            let Heard::Answer(answer) = heard else { continue };
            let is_mine = answer.status == 200 && answer.body["fencing_token"] == json!(token);
            if !is_mine && grant.is_certain() {
                self.lost(name, *token, "GET", &answer.body);
                return false;
            }
        }
        true
    }

    /// Renews. Says whether all of the grant is certain.
    async fn renew(&mut self, grant: &mut Grant) -> bool {
        let run = self.voice.run;
        let sent = Instant::now();
        for (name, token) in &grant.locks {
            let body = json!({
                "owner": self.voice.name, "ttl_seconds": grant.ttl.as_secs(), "fencing_token": token,
            });
            let request = Request::post(format!("/locks/{name}/renew"), body);
            match self.voice.ask(&request, Duration::ZERO).await {
                Heard::Answer(answer) if answer.status == 200 => {
                    run.court.count("renewals");
                    run.witness.prolong(name, *token, sent + grant.ttl);
                }
                Heard::Answer(answer) => {
                    if grant.is_certain() {
                        self.lost(name, *token, "a renewal", &answer.body);
                    }
                    return false;
                }
                // The end may have moved, but only to a later time.
                Heard::Nothing | Heard::Unknown => return grant.is_certain(),
            }
        }
        grant.from = sent;
        grant.is_certain()
    }

    async fn release(&mut self, grant: &Grant) {
        let mut is_certain = true;
        for (name, token) in &grant.locks {
            let body = json!({"owner": self.voice.name, "fencing_token": token});
            let request = Request::delete(format!("/locks/{name}"), body);
            match self.voice.ask(&request, Duration::ZERO).await {
                Heard::Answer(answer) if answer.status == 204 => self.voice.run.court.count("releases"),
                Heard::Answer(answer) => {
                    if grant.is_certain() {
                        self.lost(name, *token, "a release", &answer.body);
                    }
                }
                Heard::Nothing | Heard::Unknown => is_certain = false,
            }
        }
        if !is_certain {
            self.new_name();
        }
    }

    fn lost(&self, name: &str, token: u64, how: &str, body: &Value) {
        self.voice.run.court.accuse(&format!(
            "LOST {} holds {name} with token {token} for certain, and {how} says {body}",
            self.voice.name
        ));
    }

    fn new_name(&mut self) {
        self.incarnation += 1;
        self.voice.name = format!("rival-{}.{}", self.number, self.incarnation);
    }
}

fn acquire_request(wish: &Wish, owner: &str) -> Request {
    let mut body = json!({"owner": owner, "ttl_seconds": wish.ttl.as_secs()});
    if wish.wait > Duration::ZERO {
        body["wait_seconds"] = json!(wish.wait.as_secs());
    }
    match &wish.names[..] {
        [name] => Request::post(format!("/locks/{name}"), body),
        names => {
            body["resources"] = json!(names);
            Request::post("/locks".to_owned(), body)
        }
    }
}

/// The locks of an answer, if it grants just those.
fn granted(body: &Value, names: &[String]) -> Option<Vec<(String, u64)>> {
    let locks = match &body["lock"] {
        Value::Null => body["locks"].as_array()?.clone(),
        lock => vec![lock.clone()],
    };
    let mut granted: Vec<(String, u64)> = locks
        .iter()
        .map(|lock| {
            Some((
                lock["resource"].as_str()?.to_owned(),
                lock["fencing_token"].as_u64()?,
            ))
        })
        .collect::<Option<_>>()?;
    let mut wanted = names.to_vec();
    wanted.sort();
    granted.sort();
    granted
        .iter()
        .map(|(name, _)| name)
        .eq(&wanted)
        .then_some(granted)
}

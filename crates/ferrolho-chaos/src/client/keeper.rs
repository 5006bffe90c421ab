//! Keepers: each takes locks under names that nobody else uses, with long lifetimes, and comes back to see that
//! what was acknowledged is still so: granted locks are there with their tokens, released ones are not.
//!
//! A name whose last change has an unknown outcome is given up for good. So that a keeper does not give up all that
//! it holds to one server that is away, it changes nothing while it hears nothing: it goes on looking.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rand::Rng as _;
use rand::rngs::StdRng;
use serde_json::json;
use tokio::time::sleep;

use super::any_route;
use crate::http::Request;
use crate::run::{Heard, Run, Voice};

/// The lifetime of a keeper's locks. The judgement counts on it being far longer than any fault.
const TTL: Duration = Duration::from_mins(10);

/// The lifetime after a renewal.
const RENEWED_TTL: Duration = Duration::from_mins(15);

/// How many locks a keeper has at most.
const HELD_MAX: usize = 20;

/// How many released names it goes on looking at.
const RELEASED_MAX: usize = 30;

/// How many names it looks at in the end that it was not told about.
const UNTOLD_MAX: usize = 100;

pub(super) async fn live(run: &Run, number: usize, mut dice: StdRng) {
    let name = format!("keeper-{number}");
    let mut keeper = Keeper {
        voice: Voice::new(run, name, any_route(run, &mut dice)),
        number,
        names: 0,
        held: Vec::new(),
        released: Vec::new(),
        untold: VecDeque::new(),
        hears: true,
    };
    while !run.is_over() {
        if dice.random_bool(0.1) {
            let route = any_route(run, &mut dice);
            keeper.voice.go_to(route);
        }
        keeper.act(&mut dice).await;
        sleep(Duration::from_millis(dice.random_range(5..60))).await;
    }
    keeper.finish().await;
}

struct Keeper<'a> {
    voice: Voice<'a>,
    number: usize,
    /// How many names it has used.
    names: u32,
    held: Vec<Kept>,
    released: Vec<Kept>,
    /// Names that were asked for without an answer, the last of them.
    untold: VecDeque<String>,
    /// Whether its last request was answered.
    hears: bool,
}

/// What was acknowledged last of a name: its grant, or the end of it.
#[derive(Clone, Debug)]
struct Kept {
    name: String,
    token: u64,
    /// Before the first request for it.
    since: Instant,
}

impl Keeper<'_> {
    async fn act(&mut self, dice: &mut StdRng) {
        let some = |count: usize, dice: &mut StdRng| (count > 0).then(|| dice.random_range(0..count));
        let held = some(self.held.len(), dice);
        let released = some(self.released.len(), dice);
        let is_full = self.held.len() >= HELD_MAX;
        match (dice.random_range(0..10), held, released) {
            (_, Some(at), _) if !self.hears => self.look(at).await,
            (0..3, _, _) if !is_full => self.take_new().await,
            (3..5, Some(at), _) => self.look(at).await,
            (5, Some(at), _) => self.renew(at).await,
            (6, _, Some(at)) => self.look_at_released(at).await,
            (7, _, Some(at)) if !is_full => self.take_again(at).await,
            (8.., Some(at), _) => self.release(at).await,
            (_, Some(at), _) if is_full => self.release(at).await,
            _ => {}
        }
    }

    async fn take_new(&mut self) {
        self.names += 1;
        let name = format!("kept-{}-{}", self.number, self.names);
        self.take(name, 0).await;
    }

    async fn take_again(&mut self, at: usize) {
        let Kept { name, token, .. } = self.released.swap_remove(at);
        self.take(name, token).await;
    }

    /// Takes a lock that nobody has, whose tokens so far were at most `above`.
    async fn take(&mut self, name: String, above: u64) {
        let since = Instant::now();
        let body =
            json!({"owner": self.voice.name, "ttl_seconds": TTL.as_secs(), "metadata": {"kept": name}});
        let Some(answer) = self.ask(&Request::post(format!("/locks/{name}"), body)).await else {
            self.untold.push_back(name);
            if self.untold.len() > UNTOLD_MAX {
                self.untold.pop_front();
            }
            return;
        };
        let court = &self.voice.run.court;
        let lock = &answer.body["lock"];
        match lock["fencing_token"].as_u64() {
            Some(token) if token > above => {
                court.count("grants");
                court.count("grants kept");
                self.voice.run.keeper_was_told(&name, token, since);
                self.held.push(Kept { name, token, since });
            }
            Some(token) => court.accuse(&format!("TOKEN of {name} is {token} after {above}")),
            None => court.accuse(&format!(
                "REFUSED {name}, which nobody has: {} {}",
                answer.status, answer.body
            )),
        }
    }

    async fn look(&mut self, at: usize) {
        let kept = self.held[at].clone();
        if let Some(answer) = self.ask(&Request::get(format!("/locks/{}", kept.name))).await {
            let is_mine = answer.body["fencing_token"] == json!(kept.token)
                && answer.body["owner"] == json!(self.voice.name)
                && answer.body["metadata"] == json!({"kept": kept.name});
            self.expect(is_mine, "LOST", &kept, answer.status, &answer.body.to_string());
        }
    }

    async fn renew(&mut self, at: usize) {
        let kept = self.held[at].clone();
        let body = json!({
            "owner": self.voice.name, "ttl_seconds": RENEWED_TTL.as_secs(), "fencing_token": kept.token,
        });
        if let Some(answer) = self
            .ask(&Request::post(format!("/locks/{}/renew", kept.name), body))
            .await
        {
            let is_mine = answer.body["fencing_token"] == json!(kept.token);
            self.expect(is_mine, "LOST", &kept, answer.status, &answer.body.to_string());
            self.voice.run.court.count("renewals");
        }
    }

    async fn release(&mut self, at: usize) {
        let kept = self.held.swap_remove(at);
        let body = json!({"owner": self.voice.name, "fencing_token": kept.token});
        // On silence the name is given up.
        if let Some(answer) = self
            .ask(&Request::delete(format!("/locks/{}", kept.name), body))
            .await
        {
            self.expect(
                answer.status == 204,
                "LOST",
                &kept,
                answer.status,
                &answer.body.to_string(),
            );
            self.voice.run.court.count("releases");
            if self.released.len() == RELEASED_MAX {
                self.released.remove(0);
            }
            self.released.push(kept);
        }
    }

    async fn look_at_released(&mut self, at: usize) {
        let kept = self.released[at].clone();
        if let Some(answer) = self.ask(&Request::get(format!("/locks/{}", kept.name))).await {
            self.expect(
                answer.status == 404,
                "UNDONE",
                &kept,
                answer.status,
                &answer.body.to_string(),
            );
        }
    }

    /// Everything that is known, once more; then all is given back.
    async fn finish(&mut self) {
        for at in 0..self.held.len() {
            self.look(at).await;
        }
        for at in 0..self.released.len() {
            self.look_at_released(at).await;
        }
        while !self.held.is_empty() {
            self.release(0).await;
        }
        // A grant of which nobody was told is taken back, unless the server was killed before it could: for people.
        for name in std::mem::take(&mut self.untold) {
            if let Some(answer) = self.ask(&Request::get(format!("/locks/{name}"))).await {
                let what = if answer.status == 404 {
                    "grants without an answer: not there at the end"
                } else {
                    "grants without an answer: there at the end"
                };
                self.voice.run.court.count(what);
            }
        }
        let everything = Request {
            method: "DELETE",
            path: format!("/owners/{}", self.voice.name),
            key: None,
            body: None,
        };
        self.ask(&everything).await;
    }

    async fn ask(&mut self, request: &Request) -> Option<crate::http::Answer> {
        let answer = match self.voice.ask(request, Duration::ZERO).await {
            Heard::Answer(answer) => Some(answer),
            Heard::Nothing | Heard::Unknown => None,
        };
        self.hears = answer.is_some();
        answer
    }

    fn expect(&self, is_so: bool, charge: &str, kept: &Kept, status: u16, body: &str) {
        if is_so {
            self.voice.run.court.count("acknowledged states seen again");
            return;
        }
        let Kept { name, token, since } = kept;
        let age = since.elapsed();
        self.voice.run.court.accuse(&format!(
            "{charge} {name} of {} with token {token}, {age:?} after it was asked for: {status} {body}",
            self.voice.name
        ));
    }
}

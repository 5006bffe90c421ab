//! The locks, by the contract's rules, as short as can be.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, RETRY_AFTER};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

use super::{Act, Fault, Happened, Seen, Shared};

#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) owner: String,
    pub(super) token: u64,
    pub(super) key: Option<String>,
    pub(super) ends: Instant,
    pub(super) metadata: Option<Value>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) locks: HashMap<String, Held>,
    pub(super) queues: HashMap<String, VecDeque<u64>>,
    pub(super) tickets: u64,
    pub(super) tokens: u64,
    pub(super) faults: Vec<(Act, usize, Fault)>,
    pub(super) cut_off: Option<String>,
    pub(super) seen: Vec<Seen>,
    pub(super) happened: Vec<Happened>,
    pub(super) connections: usize,
}

/// What a grant is to be like.
pub(super) struct Wish {
    pub(super) owner: String,
    pub(super) key: Option<String>,
    pub(super) ttl: Duration,
    pub(super) metadata: Option<Value>,
}

/// A request, as far as the rules are concerned.
pub(super) struct Ask {
    pub(super) act: Act,
    pub(super) name: String,
    pub(super) body: Value,
    pub(super) key: Option<String>,
    /// As it came, to be passed on.
    pub(super) head: Parts,
    pub(super) bytes: Bytes,
}

pub(super) async fn carry_out(shared: &Arc<Shared>, ask: &Ask) -> Response<Full<Bytes>> {
    let owner = ask.body["owner"].as_str().unwrap_or(&ask.name).to_owned();
    let ttl = Duration::from_secs(ask.body["ttl_seconds"].as_u64().unwrap_or(1));
    match ask.act {
        Act::Acquire => acquire(shared, ask, &owner, ttl).await,
        Act::Find => {
            let mut state = shared.state.lock().unwrap();
            match state.live(&ask.name).cloned() {
                Some(held) => respond(200, &lock(&ask.name, &held).to_string()),
                None => problem(404, "not-found"),
            }
        }
        Act::Renew | Act::Release => {
            let mut state = shared.state.lock().unwrap();
            let token = ask.body["fencing_token"].as_u64();
            let Some(held) = state.live(&ask.name) else {
                return problem(404, "not-found");
            };
            if held.owner != owner || token.is_some_and(|token| token != held.token) {
                return problem(403, "forbidden");
            }
            if ask.act == Act::Renew {
                held.ends = Instant::now() + ttl;
                return respond(200, &lock(&ask.name, held).to_string());
            }
            let held = state.locks.remove(&ask.name).unwrap();
            state.note(&held);
            shared.changed.notify_waiters();
            respond(204, "")
        }
        Act::RenewOwner => {
            let mut state = shared.state.lock().unwrap();
            let now = Instant::now();
            let mut locks = Vec::new();
            for (name, held) in &mut state.locks {
                if held.owner == owner && held.ends > now {
                    held.ends = now + ttl;
                    locks.push(lock(name, held));
                }
            }
            if locks.is_empty() {
                return problem(404, "not-found");
            }
            respond(200, &json!({ "locks": locks }).to_string())
        }
        Act::Other => problem(404, "no-such-route"),
    }
}

async fn acquire(shared: &Arc<Shared>, ask: &Ask, owner: &str, ttl: Duration) -> Response<Full<Bytes>> {
    let wait = Duration::from_secs(ask.body["wait_seconds"].as_u64().unwrap_or(0));
    let until = Instant::now() + wait;
    let set = ask.body["resources"].as_array();
    let names: Vec<String> = match set {
        Some(names) => names
            .iter()
            .map(|name| name.as_str().unwrap().to_owned())
            .collect(),
        None => vec![ask.name.clone()],
    };
    let place = Place::take(shared, &names);
    let wish = Wish {
        owner: owner.to_owned(),
        key: ask.key.clone(),
        ttl,
        metadata: ask.body.get("metadata").cloned(),
    };
    loop {
        let changed = shared.changed.notified();
        let (next, held) = {
            let mut state = shared.state.lock().unwrap();
            if let Some(locks) = state.try_acquire(&names, &wish, place.ticket) {
                let body = if set.is_some() {
                    json!({"acquired": true, "locks": locks})
                } else {
                    json!({"acquired": true, "lock": locks[0]})
                };
                return respond(200, &body.to_string());
            }
            let held: Vec<String> = names
                .iter()
                .filter(|name| state.live(name).is_some())
                .cloned()
                .collect();
            let next = names
                .iter()
                .filter_map(|name| state.live(name).cloned())
                .map(|held| held.ends)
                .min();
            (next.unwrap_or(until), held)
        };
        let now = Instant::now();
        if now >= until {
            let body = if set.is_some() {
                json!({"acquired": false, "resources": held})
            } else {
                json!({"acquired": false, "resource": ask.name})
            };
            return respond(200, &body.to_string());
        }
        tokio::select! {
            () = changed => {}
            () = tokio::time::sleep_until(next.min(until).into()) => {}
        }
    }
}

/// A place in the queue of each name; left when the request ends.
struct Place {
    shared: Arc<Shared>,
    names: Vec<String>,
    ticket: u64,
}

impl Place {
    fn take(shared: &Arc<Shared>, names: &[String]) -> Self {
        let mut state = shared.state.lock().unwrap();
        state.tickets += 1;
        let ticket = state.tickets;
        for name in names {
            state.queues.entry(name.clone()).or_default().push_back(ticket);
        }
        Self {
            shared: Arc::clone(shared),
            names: names.to_vec(),
            ticket,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock().unwrap();
        for name in &self.names {
            if let Some(queue) = state.queues.get_mut(name) {
                queue.retain(|ticket| *ticket != self.ticket);
            }
        }
        drop(state);
        self.shared.changed.notify_waiters();
    }
}

impl State {
    pub(super) fn next_fault(&mut self, act: Act) -> Option<Fault> {
        let (_, times, fault) = self
            .faults
            .iter_mut()
            .find(|(on, times, _)| *on == act && *times > 0)?;
        *times -= 1;
        Some(fault.clone())
    }

    fn live(&mut self, name: &str) -> Option<&mut Held> {
        let now = Instant::now();
        self.locks.get_mut(name).filter(|held| held.ends > now)
    }

    fn try_acquire(&mut self, names: &[String], wish: &Wish, ticket: u64) -> Option<Vec<Value>> {
        for name in names {
            let is_first = self.queues.get(name).and_then(VecDeque::front) == Some(&ticket);
            let is_open = match self.live(name) {
                Some(held) => held.owner == wish.owner,
                None => is_first,
            };
            if !is_open {
                return None;
            }
        }
        let locks = names.iter().map(|name| {
            let repeat = self
                .live(name)
                .filter(|held| wish.key.is_some() && held.key == wish.key)
                .cloned();
            let held = repeat.unwrap_or_else(|| self.grant(name, wish));
            lock(name, &held)
        });
        Some(locks.collect())
    }

    pub(super) fn grant(&mut self, name: &str, wish: &Wish) -> Held {
        self.tokens += 1;
        let held = Held {
            owner: wish.owner.clone(),
            token: self.tokens,
            key: wish.key.clone(),
            ends: Instant::now() + wish.ttl,
            metadata: wish.metadata.clone(),
        };
        self.note(&held);
        self.locks.insert(name.to_owned(), held.clone());
        held
    }

    fn note(&mut self, held: &Held) {
        self.happened.push(Happened {
            at: Instant::now(),
            owner: held.owner.clone(),
            token: held.token,
        });
    }
}

fn lock(name: &str, held: &Held) -> Value {
    // The client decides nothing by these: they are for people.
    let time = "2026-12-01T05:02:15.000000Z";
    let mut lock = json!({
        "resource": name, "owner": held.owner, "fencing_token": held.token,
        "acquired_at": time, "expires_at": time,
    });
    if let Some(metadata) = &held.metadata {
        lock["metadata"] = metadata.clone();
    }
    lock
}

pub(crate) fn problem_body(status: u16, code: &str) -> String {
    json!({
        "type": format!("/problems/{code}"), "title": code, "status": status, "detail": code,
        "instance": "/", "code": code, "request_id": "1",
    })
    .to_string()
}

fn problem(status: u16, code: &str) -> Response<Full<Bytes>> {
    respond(status, &problem_body(status, code))
}

pub(super) fn respond(status: u16, body: &str) -> Response<Full<Bytes>> {
    let response = Response::builder()
        .status(StatusCode::from_u16(status).unwrap())
        .header(CONTENT_TYPE, "application/json")
        .header(RETRY_AFTER, "1");
    response.body(Full::new(Bytes::from(body.to_owned()))).unwrap()
}

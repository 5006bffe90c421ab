//! The algorithm, as small as it can be said.
//!
//! A store of two locks with one counter of tokens; a commit is one step. Servers keep lines and forget nothing while
//! they live. Messages may take any time and get lost. Clients believe, pause, hang up and write to the resource that a
//! lock guards. Time is only this: a belief ends before the life of its lock can.

use std::collections::BTreeSet;

use stateright::{Model, Property};

/// What is left out of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    BeliefFromTheAnswer,
    TokenBeforeCommit,
    NoFence,
    WakesOwnServerOnly,
    LooksBeforeStanding,
    DepartedKeep,
    SetsOneByOne,
}

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) servers: usize,
    /// Which locks each client wants, as bits.
    pub(crate) wants: Vec<u8>,
    /// How many tokens are drawn at the most.
    pub(crate) grants_max: u8,
    /// How many messages get lost at the most.
    pub(crate) losses_max: u8,
    pub(crate) flaw: Flaw,
}

const LOCKS: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Grant {
    client: usize,
    token: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Client {
    /// Has not asked yet.
    New,
    /// Waits for the answer of this server.
    Asks {
        server: usize,
    },
    Believes {
        token: u8,
    },
    /// Stands still, and thinks that it believes.
    Paused {
        token: u8,
    },
    /// Has hung up before an answer came.
    Left,
    /// Has given back or lost what it had.
    Gone,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Message {
    Ask {
        client: usize,
        server: usize,
    },
    /// The answer of a server, for locks that it was granted.
    Granted {
        grant: Grant,
        server: usize,
    },
    Release {
        grant: Grant,
        server: usize,
    },
    /// Something has ended: the feed tells this server. Never lost: a gap makes it look as well.
    Ended {
        server: usize,
    },
    /// A token that was drawn for a client before its commit. (A flaw.)
    Drawn {
        grant: Grant,
        server: usize,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    locks: [Option<Grant>; LOCKS],
    top: u8,
    clients: Vec<Client>,
    /// Who stands in line at each server, in order.
    lines: Vec<Vec<usize>>,
    messages: BTreeSet<Message>,
    losses: u8,
    /// The highest token that the resource of each lock has taken.
    highest: [u8; LOCKS],
    took_an_older_token: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Ask {
        client: usize,
        server: usize,
    },
    Deliver(Message),
    Lose(Message),
    /// A server sees that one who stands in line has hung up.
    SeeHangUp {
        client: usize,
        server: usize,
    },
    HangUp(usize),
    Write(usize),
    GiveBack {
        client: usize,
        server: usize,
    },
    Pause(usize),
    /// It looks at its clock, and may find its belief over.
    WakeUp(usize),
    EndBelief(usize),
    EndOfLife(usize),
}

impl World {
    fn wants(&self, client: usize) -> impl Iterator<Item = usize> {
        let wants = self.wants[client];
        (0..LOCKS).filter(move |lock| wants & (1 << lock) != 0)
    }

    /// A commit: grants all that the first in this server's line wants, if all of it is free.
    fn grant_first(&self, state: &mut State, server: usize) {
        let Some(client) = state.lines[server].first().copied() else {
            return;
        };
        if self.flaw == Flaw::SetsOneByOne {
            self.grant_one(state, client, server);
            return;
        }
        let is_free = self.wants(client).all(|lock| state.locks[lock].is_none());
        if is_free && state.top < self.grants_max {
            state.lines[server].remove(0);
            state.top += 1;
            let grant = Grant {
                client,
                token: state.top,
            };
            if self.flaw == Flaw::TokenBeforeCommit {
                state.messages.insert(Message::Drawn { grant, server });
                return;
            }
            self.commit(state, grant, server);
        }
    }

    fn commit(&self, state: &mut State, grant: Grant, server: usize) {
        for lock in self.wants(grant.client) {
            state.locks[lock] = Some(grant);
        }
        state.messages.insert(Message::Granted { grant, server });
    }

    /// Takes the next lock of a set and keeps it while it waits for the rest, the last of them first for every other
    /// client. (A flaw.)
    fn grant_one(&self, state: &mut State, client: usize, server: usize) {
        let mut wanted: Vec<usize> = self.wants(client).collect();
        if client % 2 == 1 {
            wanted.reverse();
        }
        let has = |state: &State, lock: usize| state.locks[lock].is_some_and(|grant| grant.client == client);
        let next = wanted.iter().find(|lock| !has(state, **lock)).copied();
        if let Some(lock) = next
            && state.locks[lock].is_none()
            && state.top < self.grants_max
        {
            state.top += 1;
            let token = state.top;
            state.locks[lock] = Some(Grant { client, token });
            // Whoever comes next takes its first before this one comes to its second.
            state.messages.insert(Message::Ended { server });
        }
        if wanted.iter().all(|lock| has(state, *lock)) {
            state.lines[server].remove(0);
            let token = state.top;
            self.commit(state, Grant { client, token }, server);
        }
    }

    /// A commit: ends the locks of a grant, and hands them on to the first who waits at this server; every other server
    /// hears of it.
    fn end(&self, state: &mut State, grant: Grant, server: usize) {
        let mut has_ended = false;
        for lock in &mut state.locks {
            has_ended |= lock.take_if(|held| *held == grant).is_some();
        }
        if has_ended {
            self.grant_first(state, server);
            self.tell(state, server);
        }
    }

    fn tell(&self, state: &mut State, by: usize) {
        for server in 0..self.servers {
            if self.flaw != Flaw::WakesOwnServerOnly || server == by {
                state.messages.insert(Message::Ended { server });
            }
        }
    }

    fn deliver(&self, state: &mut State, message: &Message) {
        match *message {
            Message::Ask { client, server } => {
                let caller_is_there = state.clients[client] == Client::Asks { server };
                if !caller_is_there || state.lines[server].contains(&client) {
                    return;
                }
                if self.flaw == Flaw::LooksBeforeStanding
                    && self.wants(client).any(|lock| state.locks[lock].is_some())
                {
                    // It has looked, and stands in line only some time later.
                    let late = Message::Drawn {
                        grant: Grant { client, token: 0 },
                        server,
                    };
                    state.messages.insert(late);
                    return;
                }
                state.lines[server].push(client);
                self.grant_first(state, server);
            }
            Message::Granted { grant, server } => {
                if state.clients[grant.client] == (Client::Asks { server }) {
                    // The belief counts from before the request was sent: it may be over when the answer comes.
                    let is_in_time = self.has_all(state, grant) || self.flaw == Flaw::BeliefFromTheAnswer;
                    state.clients[grant.client] = if is_in_time {
                        Client::Believes { token: grant.token }
                    } else {
                        Client::Gone
                    };
                } else if self.flaw != Flaw::DepartedKeep {
                    // Its caller has left: it is undone as by a release.
                    self.end(state, grant, server);
                }
            }
            Message::Release { grant, server } => self.end(state, grant, server),
            Message::Ended { server } => self.grant_first(state, server),
            Message::Drawn { grant, server } if grant.token == 0 => {
                if state.clients[grant.client] == (Client::Asks { server }) {
                    state.lines[server].push(grant.client);
                }
            }
            Message::Drawn { grant, server } => {
                if self.wants(grant.client).all(|lock| state.locks[lock].is_none()) {
                    self.commit(state, grant, server);
                } else {
                    state.lines[server].insert(0, grant.client);
                }
            }
        }
    }

    fn has_all(&self, state: &State, grant: Grant) -> bool {
        self.wants(grant.client)
            .all(|lock| state.locks[lock] == Some(grant))
    }

    /// Whether the life of this grant may be over: whoever believes in it has ended its belief before.
    fn may_be_over(&self, state: &State, grant: Grant) -> bool {
        let believes = state.clients[grant.client] == Client::Believes { token: grant.token };
        self.flaw == Flaw::BeliefFromTheAnswer || !believes
    }

    fn write(&self, state: &mut State, client: usize) {
        let (Client::Believes { token } | Client::Paused { token }) = state.clients[client] else {
            return;
        };
        for lock in self.wants(client) {
            let highest = &mut state.highest[lock];
            if token >= *highest {
                *highest = token;
            } else if self.flaw == Flaw::NoFence || matches!(state.clients[client], Client::Believes { .. }) {
                // One who is awake and believes must never meet the fence.
                state.took_an_older_token = true;
            }
        }
    }
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            locks: [None; LOCKS],
            top: 0,
            clients: vec![Client::New; self.wants.len()],
            lines: vec![Vec::new(); self.servers],
            messages: BTreeSet::new(),
            losses: 0,
            highest: [0; LOCKS],
            took_an_older_token: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (client, is) in state.clients.iter().enumerate() {
            match *is {
                Client::New => {
                    // By symmetry each client has a server of its own to ask first.
                    let server = client % self.servers;
                    actions.push(Action::Ask { client, server });
                }
                Client::Asks { .. } => actions.push(Action::HangUp(client)),
                Client::Believes { .. } => {
                    let server = (client + 1) % self.servers;
                    actions.extend([
                        Action::Write(client),
                        Action::GiveBack { client, server },
                        Action::Pause(client),
                        Action::EndBelief(client),
                    ]);
                }
                Client::Paused { .. } => actions.extend([Action::Write(client), Action::WakeUp(client)]),
                Client::Left | Client::Gone => {}
            }
        }
        for (server, line) in state.lines.iter().enumerate() {
            let has_left = |client: &&usize| matches!(state.clients[**client], Client::Left | Client::Gone);
            for client in line.iter().filter(has_left) {
                let client = *client;
                actions.push(Action::SeeHangUp { client, server });
            }
        }
        for message in &state.messages {
            actions.push(Action::Deliver(message.clone()));
            if state.losses < self.losses_max && state.may_lose(message) {
                actions.push(Action::Lose(message.clone()));
            }
        }
        for (lock, held) in state.locks.iter().enumerate() {
            if held.is_some_and(|grant| self.may_be_over(state, grant)) {
                actions.push(Action::EndOfLife(lock));
            }
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Ask { client, server } => {
                state.clients[client] = Client::Asks { server };
                state.messages.insert(Message::Ask { client, server });
            }
            Action::Deliver(message) => {
                state.messages.remove(&message);
                self.deliver(&mut state, &message);
            }
            Action::Lose(message) => {
                state.messages.remove(&message);
                state.losses += 1;
                // The caller sees its connection end, and so does the server.
                if let Message::Ask { client, .. } = message {
                    state.clients[client] = Client::Left;
                }
                if let Message::Granted { grant, .. } = message {
                    // The server believes that it was told: the lock ends by itself.
                    state.clients[grant.client] = Client::Gone;
                }
            }
            Action::SeeHangUp { client, server } => {
                state.lines[server].retain(|waiting| *waiting != client);
                self.grant_first(&mut state, server);
            }
            Action::HangUp(client) => state.clients[client] = Client::Left,
            Action::EndBelief(client) => state.clients[client] = Client::Gone,
            Action::Write(client) => self.write(&mut state, client),
            Action::GiveBack { client, server } => {
                let Client::Believes { token } = state.clients[client] else {
                    return None;
                };
                let grant = Grant { client, token };
                state.clients[client] = Client::Gone;
                state.messages.insert(Message::Release { grant, server });
            }
            Action::Pause(client) => {
                let Client::Believes { token } = state.clients[client] else {
                    return None;
                };
                state.clients[client] = Client::Paused { token };
            }
            Action::WakeUp(client) => {
                let Client::Paused { token } = state.clients[client] else {
                    return None;
                };
                let still = self.has_all(&state, Grant { client, token });
                state.clients[client] = if still {
                    Client::Believes { token }
                } else {
                    Client::Gone
                };
            }
            Action::EndOfLife(lock) => {
                let grant = state.locks[lock].take()?;
                // All locks of a set have one life here.
                for other in &mut state.locks {
                    other.take_if(|held| *held == grant);
                }
                self.tell(&mut state, 0);
            }
        }
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(super::EXCLUSION, |world: &World, state: &State| {
                (0..LOCKS).all(|lock| {
                    let believes = |client: &usize| {
                        matches!(state.clients[*client], Client::Believes { .. })
                            && world.wants(*client).any(|wanted| wanted == lock)
                    };
                    (0..state.clients.len()).filter(believes).count() <= 1
                })
            }),
            Property::always(super::TOKENS, |_: &World, state: &State| {
                !state.took_an_older_token
            }),
            Property::always(super::WAKE_UP, |world: &World, state: &State| {
                // Where nothing is under way and tokens are left, nobody waits for what nobody makes use of.
                let is_still = state.messages.is_empty() && state.top < world.grants_max;
                let is_unused = |lock: usize| state.locks[lock].is_none_or(|grant| state.waits(grant.client));
                let waits_in_vain = |line: &Vec<usize>| {
                    let first = line.first().filter(|client| state.waits(**client));
                    first.is_some_and(|client| world.wants(*client).all(is_unused))
                };
                !(is_still && state.lines.iter().any(waits_in_vain))
            }),
            Property::always(super::NOBODYS, |_: &World, state: &State| {
                // Where nothing is under way, nobody has a lock who had left before the answer.
                let has_left = |grant: &Grant| state.clients[grant.client] == Client::Left;
                !(state.messages.is_empty() && state.locks.iter().flatten().any(has_left))
            }),
        ]
    }
}

impl State {
    /// What goes over the network may get lost; an answer only to one who still waits for it, else the server sees that
    /// nobody is there.
    fn may_lose(&self, message: &Message) -> bool {
        match *message {
            Message::Ask { .. } | Message::Release { .. } => true,
            Message::Granted { grant, server } => self.clients[grant.client] == Client::Asks { server },
            Message::Ended { .. } | Message::Drawn { .. } => false,
        }
    }

    /// Whether this client is there and waits.
    fn waits(&self, client: usize) -> bool {
        matches!(self.clients[client], Client::Asks { .. })
            && self.lines.iter().flatten().any(|waiting| *waiting == client)
    }
}

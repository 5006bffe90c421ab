//! The clients of one thread, driven by one epoll. Each has one request under way at most.
//!
//! In a closed loop a client begins its next cycle as soon as one ends. In an open loop cycles begin at fixed times;
//! when no client is free then, the cycle begins late but is measured from when it should have begun, so a server
//! that stalls is charged for all that it kept waiting (no coordinated omission).

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;

use super::Endpoint;
use super::client::{Client, Identity, shared_name};
use super::pace::Pace;
use super::script::{KEEPER, Script, Step};
use super::tally::{Tally, Window};

/// How many events are taken at a time.
const EVENTS: usize = 256;
/// When no client at all has had an answer for so long, the run has failed.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// The event of the timer of an open loop.
const TIMER: u64 = u64::MAX;
/// The number of the client who holds the shared lock.
const KEEPER_NUMBER: u32 = 99_999;

/// The clients of one thread.
pub(crate) struct Crowd {
    epoll: OwnedFd,
    clients: Vec<Client>,
    script: Script,
    /// Who holds the shared lock meanwhile.
    keeper: Option<Box<Crowd>>,
    /// Clients that wait for the next cycle of an open loop.
    idle: Vec<usize>,
    /// When the shared lock was given up last.
    released: Option<Instant>,
}

/// One pass of all clients over the same steps.
struct Pass<'a> {
    steps: &'a [Step],
    /// Repeated until the window ends.
    window: Option<Window>,
    /// With fixed beginnings.
    pace: Option<Pace>,
    tally: &'a mut Tally,
}

impl Crowd {
    /// Connects the clients with these numbers and takes them up to their cycle.
    pub(crate) fn gather(
        endpoint: &Endpoint<'_>,
        script: Script,
        run: u32,
        numbers: Range<u32>,
    ) -> Result<Self> {
        let keeper = if script.keeper && numbers.start == 0 {
            let number = KEEPER_NUMBER..KEEPER_NUMBER + 1;
            Some(Box::new(Self::gather(endpoint, KEEPER, run, number)?))
        } else {
            None
        };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut clients = Vec::with_capacity(numbers.len());
        for number in numbers {
            let identity = Identity {
                run,
                client: number,
                names: script.names,
            };
            let client = Client::connect(endpoint.address, (endpoint.dialect)(), identity)?;
            let data = EventData::new_u64(clients.len() as u64);
            epoll::add(&epoll, client.stream(), data, EventFlags::IN)?;
            clients.push(client);
        }
        let idle = Vec::with_capacity(clients.len());
        let mut crowd = Self {
            epoll,
            clients,
            script,
            keeper,
            idle,
            released: None,
        };
        crowd.once(script.before)?;
        Ok(crowd)
    }

    /// Repeats the cycle until the window ends, and then until every client has ended its cycle.
    pub(crate) fn work(&mut self, window: Window, rate: Option<f64>, tally: &mut Tally) -> Result<()> {
        let pace = rate.map(|rate| Pace::new(&self.epoll, rate, TIMER)).transpose()?;
        let steps = self.script.cycle;
        self.drive(Pass {
            steps,
            window: Some(window),
            pace,
            tally,
        })
    }

    /// Has every client ask, without waiting for answers.
    pub(crate) fn ask(&mut self, step: Step) -> Result<()> {
        self.clients.iter_mut().try_for_each(|client| client.send(step))
    }

    /// The name of the lock that all clients of a run share.
    pub(crate) fn shared_name(run: u32) -> String {
        shared_name(run)
    }

    /// Gives back what the clients hold.
    pub(crate) fn disperse(mut self) -> Result<()> {
        self.once(self.script.after)?;
        self.keeper.map_or(Ok(()), |keeper| keeper.disperse())
    }

    fn once(&mut self, steps: &[Step]) -> Result<()> {
        let mut tally = Tally::new();
        self.drive(Pass {
            steps,
            window: None,
            pace: None,
            tally: &mut tally,
        })?;
        tally.complaint.map_or(Ok(()), |complaint| bail!("{complaint}"))
    }

    fn drive(&mut self, mut pass: Pass<'_>) -> Result<()> {
        let Some(first) = pass.steps.first().copied() else {
            return Ok(());
        };
        let mut answered = Instant::now();
        let mut busy = 0;
        self.idle.clear();
        if pass.pace.is_some() {
            self.idle.extend(0..self.clients.len());
        } else {
            busy = self.clients.len();
            for client in &mut self.clients {
                client.begin(answered);
                client.send(first)?;
            }
        }
        let mut events = Vec::with_capacity(EVENTS);
        let wait = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        loop {
            busy += self.begin_due(&mut pass)?;
            if busy == 0 && pass.is_over() {
                return Ok(());
            }
            events.clear();
            epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&wait),
            )?;
            for event in &events {
                let data = event.data;
                if data.u64() == TIMER {
                    pass.pace.iter().for_each(Pace::wake);
                } else {
                    answered = Instant::now();
                    busy -= usize::from(self.attend(usize::try_from(data.u64())?, &mut pass, answered)?);
                }
            }
            if busy > 0 && answered.elapsed() > PATIENCE {
                bail!("{busy} clients had no answer within {} s", PATIENCE.as_secs());
            }
        }
    }

    /// Begins the cycles of an open loop whose time has come. How many.
    fn begin_due(&mut self, pass: &mut Pass<'_>) -> Result<usize> {
        let (Some(pace), Some(window), Some(first)) =
            (&mut pass.pace, pass.window, pass.steps.first().copied())
        else {
            return Ok(0);
        };
        let now = Instant::now();
        let mut begun = 0;
        while pace.next() <= now.min(window.end) {
            match self.idle.pop() {
                Some(index) => {
                    let client = self.clients.get_mut(index).context("no such client")?;
                    client.begin(pace.next());
                    client.send(first)?;
                    begun += 1;
                }
                None if now >= window.end => pass.tally.missed += 1,
                None => break,
            }
            pace.take();
        }
        Ok(begun)
    }

    /// Looks after a client that has heard something. Whether it now has nothing more to do.
    fn attend(&mut self, index: usize, pass: &mut Pass<'_>, now: Instant) -> Result<bool> {
        let client = self.clients.get_mut(index).context("no such client")?;
        let Some(answer) = client.receive()? else {
            return Ok(false);
        };
        let step = pass.steps.get(client.step).context("an answer to nothing")?;
        let right = answer == step.expect;
        if !right {
            let said = client.complaint.take().unwrap_or_default();
            pass.tally
                .complain(|| format!("{:?} was answered {answer:?} {said:?}", step.ask));
        }
        if right && self.script.handovers && client.step == 0 {
            let released = self.released.replace(now);
            if let (Some(released), Some(window)) = (released, pass.window)
                && window.has(now)
            {
                pass.tally.record(now - released);
            }
        }
        client.step += 1;
        if let Some(next) = pass.steps.get(client.step).copied().filter(|_| right) {
            client.send(next)?;
            return Ok(false);
        }
        let Some(window) = pass.window else {
            return Ok(true);
        };
        let counted = match &pass.pace {
            // All that should have begun in the window counts, also what ended later.
            Some(_) => window.has(client.started),
            None => window.has(now),
        };
        if counted && right && !self.script.handovers {
            pass.tally.record(now - client.started);
        }
        if pass.pace.is_some() {
            self.idle.push(index);
            return Ok(true);
        }
        let Some(first) = pass.steps.first().copied().filter(|_| now < window.end) else {
            return Ok(true);
        };
        client.begin(now);
        client.send(first)?;
        Ok(false)
    }
}

impl Pass<'_> {
    fn is_over(&self) -> bool {
        match (self.window, &self.pace) {
            (Some(window), Some(_)) => Instant::now() >= window.end,
            _ => true,
        }
    }
}

//! The storm: in random order everything is broken that can be, one or two things at a time, and after each the
//! service must heal by itself.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::Result;
use ferrolho_testkit::Proxy;
use rand::Rng as _;
use rand::rngs::StdRng;
use serde_json::json;
use tokio::task::block_in_place;
use tokio::time::sleep;

use crate::engine::{CableFault, Engine, Intrusion, break_cable};
use crate::fault::{Fault, Mending};
use crate::http::{Caller, Request};
use crate::run::Run;
use crate::server::{Server, State};

/// How soon after the end of a fault every server must grant and release again.
pub(crate) const HEAL_LIMIT: Duration = Duration::from_secs(20);

/// How long a fault lasts, in milliseconds.
const FAULT_MILLIS: Range<u64> = 50..4500;

/// How long there is peace between faults, in milliseconds.
const PEACE_MILLIS: Range<u64> = 200..2500;

/// How far a wall clock is stepped, in seconds.
const STEPS: [i64; 8] = [2, -2, 30, -30, 3600, -3600, 86_400, -86_400];

/// Everything that can be broken.
#[derive(Debug)]
pub(crate) struct Storm {
    pub(crate) engine: Engine,
    pub(crate) servers: Vec<Server>,
    /// Between clients and each server.
    pub(crate) cables: Vec<Vec<Proxy>>,
    pub(crate) dice: StdRng,
    /// Members of the cluster that are down or stopped.
    members_away: Vec<usize>,
    database_is_away: bool,
    disk_is_full: bool,
    probes: u64,
}

impl Storm {
    pub(crate) fn new(engine: Engine, servers: Vec<Server>, cables: Vec<Vec<Proxy>>, dice: StdRng) -> Self {
        Self {
            engine,
            servers,
            cables,
            dice,
            members_away: Vec::new(),
            database_is_away: false,
            disk_is_full: false,
            probes: 0,
        }
    }

    /// Breaks and mends until the time is over.
    pub(crate) async fn rage(&mut self, run: &Run, until: Instant) -> Result<()> {
        while Instant::now() < until {
            self.pause(PEACE_MILLIS).await;
            let mut mendings = Vec::new();
            let count = if self.dice.random_bool(0.25) { 2 } else { 1 };
            for _ in 0..count {
                mendings.extend(self.break_something(run).await?);
                self.pause(FAULT_MILLIS).await;
            }
            // Servers last: what they need to start may be broken too.
            mendings.sort_by_key(|mending| matches!(mending, Mending::Start(_)));
            for mending in mendings {
                self.mend(run, mending).await?;
            }
            self.heal(run).await?;
        }
        Ok(())
    }

    async fn pause(&mut self, millis: Range<u64>) {
        sleep(Duration::from_millis(self.dice.random_range(millis))).await;
    }

    /// Waits until every server grants and releases again. What counts is the time from when the engine itself does
    /// its work again.
    async fn heal(&mut self, run: &Run) -> Result<()> {
        let mended = Instant::now();
        block_in_place(|| self.engine.wait_until_up());
        run.court.time("recovery of the engine itself", mended.elapsed());
        let begun = Instant::now();
        for server in 0..self.servers.len() {
            if let Some(how) = self.servers[server].died()? {
                run.court.accuse(&format!("DIED {how}"));
                self.mend(run, Mending::Start(server)).await?;
            }
            let mut caller = Caller::new(self.servers[server].address);
            loop {
                self.probes += 1;
                let Err(answer) = try_out(&mut caller, &format!("probe-{}", self.probes)).await else {
                    break;
                };
                if run.pulse.awake_since(begun) > HEAL_LIMIT {
                    run.court
                        .accuse(&format!("SICK server {server} after {HEAL_LIMIT:?}: {answer}"));
                    break;
                }
                sleep(Duration::from_millis(20)).await;
            }
        }
        run.court.time("healing after a fault", begun.elapsed());
        run.court
            .note(&format!("STORM healed after {:?}", begun.elapsed()));
        run.weather.clear();
        Ok(())
    }

    /// What can be broken now.
    fn choices(&self) -> Vec<Fault> {
        if matches!(self.engine, Engine::Memory) {
            return vec![Fault::Kill];
        }
        let mut choices = vec![Fault::Kill, Fault::Kill, Fault::Stop, Fault::Pause, Fault::Pause];
        choices.extend(CableFault::ALL.map(Fault::Cable));
        if self.servers.iter().any(Server::has_false_clock) {
            choices.extend([Fault::ClockStep, Fault::ClockStep]);
        }
        match &self.engine {
            Engine::Memory => {}
            Engine::Sqlite(volume) => {
                choices.extend([Intrusion::Reads, Intrusion::Writes].map(Fault::Intrusion));
                if volume.can_be_filled() && !self.disk_is_full {
                    choices.extend([Fault::FullDisk, Fault::FullDisk]);
                }
            }
            Engine::Postgres { .. } => {
                choices.extend(CableFault::ALL.map(Fault::EngineCable));
                if !self.database_is_away {
                    choices.extend([Fault::DatabaseRestart, Fault::DatabaseCrash]);
                    choices.extend([Fault::SessionsEnded, Fault::SessionsEnded]);
                }
            }
            Engine::Etcd { .. } => {
                choices.extend(CableFault::ALL.map(Fault::EngineCable));
                choices.push(Fault::Compaction);
                if self.members_away.is_empty() {
                    choices.push(Fault::MajorityKilled);
                    choices.extend([Fault::LeaderKilled, Fault::LeaderKilled, Fault::LeaderPaused]);
                    choices.extend([Fault::LeaderPaused, Fault::MemberKilled, Fault::ClusterRestart]);
                }
            }
        }
        choices
    }

    /// Breaks something. Nothing when what was chosen is broken already.
    async fn break_something(&mut self, run: &Run) -> Result<Option<Mending>> {
        let choices = self.choices();
        let fault = choices[self.dice.random_range(0..choices.len())];
        let server = self.dice.random_range(0..self.servers.len());
        let is_running = self.servers[server].state() == State::Running;
        if matches!(fault, Fault::Kill | Fault::Stop | Fault::Pause) && !is_running {
            return Ok(None);
        }
        let reach = fault.reach(server);
        run.weather.begin(reach);
        run.court.count(fault.name());
        run.court.count("faults");
        run.court.note(&format!("STORM {fault:?} {reach:?}"));
        self.inflict(run, fault, server).await.map(Some)
    }

    async fn inflict(&mut self, run: &Run, fault: Fault, server: usize) -> Result<Mending> {
        Ok(match fault {
            Fault::Kill => {
                self.servers[server].kill()?;
                Mending::Start(server)
            }
            Fault::Stop => {
                if let Err(how) = self.servers[server].stop(&run.pulse).await {
                    run.court.accuse(&format!("STOP {how}"));
                }
                Mending::Start(server)
            }
            Fault::Pause => {
                self.servers[server].pause()?;
                Mending::Resume(server)
            }
            Fault::Cable(how) => {
                let cable = self.dice.random_range(0..self.cables[server].len());
                break_cable(&self.cables[server][cable], how);
                Mending::HealCable { server, cable }
            }
            Fault::ClockStep => {
                let seconds = STEPS[self.dice.random_range(0..STEPS.len())];
                self.servers[server].set_clock(seconds)?;
                Mending::None
            }
            Fault::EngineCable(how) => {
                let cables = self.engine.cables(server);
                // One of them, or all.
                let all = cables.len();
                let one = self.dice.random_range(0..=all);
                for (at, cable) in cables.into_iter().enumerate() {
                    if at == one || one == all {
                        break_cable(cable, how);
                    }
                }
                Mending::HealEngineCables(server)
            }
            fault => self.break_engine(run, fault)?,
        })
    }

    fn break_engine(&mut self, run: &Run, fault: Fault) -> Result<Mending> {
        Ok(match (&mut self.engine, fault) {
            (Engine::Memory, _) => Mending::None,
            (Engine::Sqlite(volume), Fault::Intrusion(how)) => match block_in_place(|| volume.intrude(how)) {
                Ok(database) => Mending::EndIntrusion(database),
                // The disk may be full.
                Err(cause) => {
                    run.court.note(&format!("STORM no intrusion: {cause}"));
                    Mending::None
                }
            },
            (Engine::Sqlite(volume), _) => {
                volume.fill()?;
                self.disk_is_full = true;
                Mending::FreeDisk
            }
            (engine @ Engine::Postgres { .. }, Fault::SessionsEnded) => {
                block_in_place(|| engine.end_sessions());
                Mending::None
            }
            (Engine::Postgres { server, .. }, fault) => {
                self.database_is_away = true;
                block_in_place(|| match fault {
                    Fault::DatabaseCrash => server.crash(),
                    _ => server.stop(),
                });
                Mending::BootDatabase
            }
            (engine @ Engine::Etcd { .. }, Fault::Compaction) => {
                if let Err(cause) = block_in_place(|| engine.compact()) {
                    run.court.note(&format!("STORM no compaction: {cause}"));
                }
                Mending::None
            }
            (Engine::Etcd { cluster, .. }, fault) => {
                let (members, is_pause) = match fault {
                    Fault::LeaderPaused => (vec![block_in_place(|| cluster.leader())], true),
                    Fault::LeaderKilled => (vec![block_in_place(|| cluster.leader())], false),
                    Fault::MajorityKilled => ((1..cluster.count()).collect(), false),
                    Fault::ClusterRestart => ((0..cluster.count()).collect(), false),
                    _ => (vec![self.dice.random_range(0..cluster.count())], false),
                };
                self.members_away.clone_from(&members);
                if let ([member], true) = (&members[..], is_pause) {
                    cluster.pause(*member);
                    Mending::ResumeMember(*member)
                } else {
                    block_in_place(|| members.iter().for_each(|member| cluster.kill(*member)));
                    Mending::BootMembers(members)
                }
            }
        })
    }

    async fn mend(&mut self, run: &Run, mending: Mending) -> Result<()> {
        run.court.note(&format!("STORM mending {mending:?}"));
        match mending {
            Mending::None => {}
            Mending::Start(server) => {
                let begun = Instant::now();
                if let Err(how) = self.servers[server].start(&run.pulse, HEAL_LIMIT).await {
                    run.court.accuse(&format!("START {how}"));
                }
                run.court.time("start of a server", begun.elapsed());
            }
            Mending::Resume(server) => self.servers[server].resume()?,
            Mending::HealCable { server, cable } => self.cables[server][cable].heal(),
            Mending::HealEngineCables(server) => {
                self.engine.cables(server).into_iter().for_each(Proxy::heal);
            }
            Mending::FreeDisk => {
                if let Engine::Sqlite(volume) = &self.engine {
                    volume.free()?;
                }
                self.disk_is_full = false;
            }
            Mending::EndIntrusion(database) => drop(database),
            Mending::BootDatabase => {
                if let Engine::Postgres { server, .. } = &mut self.engine {
                    block_in_place(|| server.boot());
                }
                self.database_is_away = false;
            }
            Mending::BootMembers(members) => {
                if let Engine::Etcd { cluster, .. } = &mut self.engine {
                    block_in_place(|| members.iter().for_each(|member| cluster.boot(*member)));
                }
                self.members_away.clear();
            }
            Mending::ResumeMember(member) => {
                if let Engine::Etcd { cluster, .. } = &self.engine {
                    cluster.resume(member);
                }
                self.members_away.clear();
            }
        }
        Ok(())
    }
}

/// Grants and releases once.
async fn try_out(caller: &mut Caller, probe: &str) -> Result<(), String> {
    let limit = Duration::from_secs(4);
    let path = format!("/locks/{probe}");
    let body = json!({"owner": "probe", "ttl_seconds": 5});
    let requests = [
        (Request::post(path.clone(), body), 200),
        (Request::delete(path, json!({"owner": "probe"})), 204),
    ];
    for (request, status) in requests {
        match caller.call(&request, limit).await {
            Ok(answer) if answer.status == status => {}
            other => return Err(format!("{other:?}")),
        }
    }
    Ok(())
}

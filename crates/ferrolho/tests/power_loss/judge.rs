//! Opens what a power cut leaves, with the real engine, and compares it with what callers were told.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use ferrolho_core::{Cause, Change, Expected, Holder, Lock, Mark, Owner, Resource, Timestamp, Ttl, Write};
use ferrolho_store::clock::{HostTime, TimeSource};
use ferrolho_store::{Attempt, ListQuery, Outcome, SqliteStore, Store};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use tokio::time::Instant;

use crate::disk::{Disk, Image, Survival, lay_out};
use crate::load::{Act, Asked, Grant};
use crate::record::Record;
use crate::trace::{CallerId, Event};

/// How many disks are opened at a time.
const WORKERS: usize = 2;

/// More locks than there are.
const ALL_LOCKS: usize = 1_000_000;

/// A request that has arrived at the server, and whether its answer had begun to leave.
#[derive(Clone, Debug)]
pub(crate) struct Fact {
    asked: Asked,
    is_answered: bool,
}

/// What a power cut left, and what was known then.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) image: Image,
    pub(crate) facts: Vec<Fact>,
    /// When the power was cut, for whoever reads of a failure.
    pub(crate) when: String,
}

/// Puts disks together and judges them.
pub(crate) struct Judge<'a> {
    record: &'a Record,
    /// When each request arrived and when its answer began to leave, as numbers of events.
    times: Vec<(usize, Option<usize>)>,
}

impl<'a> Judge<'a> {
    pub(crate) fn new(record: &'a Record) -> Self {
        let mut received: HashMap<CallerId, Vec<usize>> = HashMap::new();
        let mut answered: HashMap<CallerId, Vec<usize>> = HashMap::new();
        for (at, event) in record.events.iter().enumerate() {
            match event {
                Event::Received { caller } => {
                    let requests = received.entry(*caller).or_default();
                    let answers = answered.get(caller).map_or(0, Vec::len);
                    // Of a request that comes in several parts the first counts.
                    if requests.len() == answers {
                        requests.push(at);
                    }
                }
                Event::Answered { caller } => answered.entry(*caller).or_default().push(at),
                _ => {}
            }
        }
        let time = |times: &HashMap<CallerId, Vec<usize>>, asked: &Asked| {
            times
                .get(&asked.caller)
                .and_then(|times| times.get(asked.nth))
                .copied()
        };
        let never = record.events.len();
        let times = record
            .asked
            .iter()
            .map(|asked| {
                let answer = time(&answered, asked);
                assert!(
                    answer.is_some() || !asked.act.is_answered(),
                    "an answer is not in the record: {asked:?}"
                );
                (time(&received, asked).unwrap_or(never), answer)
            })
            .collect();
        Self { record, times }
    }

    /// Cuts the power so many times, and says what was wrong afterwards.
    pub(crate) fn try_disks(&self, count: usize, seed: u64) -> Vec<String> {
        let (sender, cases) = mpsc::sync_channel::<Case>(WORKERS);
        let cases = Mutex::new(cases);
        let findings = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..WORKERS {
                scope.spawn(|| {
                    loop {
                        let case = cases.lock().unwrap().recv();
                        let Ok(case) = case else { return };
                        if let Err(finding) = case.judge() {
                            findings.lock().unwrap().push(format!("{}: {finding}", case.when));
                        }
                    }
                });
            }
            self.each_disk(count, seed, |case| sender.send(case).unwrap());
            drop(sender);
        });
        findings.into_inner().unwrap()
    }

    /// A few disks.
    pub(crate) fn some_disks(&self, count: usize, seed: u64) -> Vec<Case> {
        let mut cases = Vec::new();
        self.each_disk(count, seed, |case| cases.push(case));
        cases
    }

    fn each_disk(&self, count: usize, seed: u64, mut give: impl FnMut(Case)) {
        let mut dice = StdRng::seed_from_u64(seed);
        let mut disk = Disk::holding(&self.record.start);
        let mut happened = 0;
        for (moment, survival) in self.moments(count, &mut dice) {
            for event in &self.record.events[happened..moment] {
                disk.apply(event);
            }
            happened = moment;
            give(Case {
                image: disk.after_a_power_cut(survival, &mut dice),
                facts: self.facts(moment),
                when: format!("power cut after event {moment}, {survival:?} of what was not synced"),
            });
        }
    }

    /// When to cut the power, as numbers of events that have happened, and what is left then. Half of them are
    /// around what is rare, and hard: other files than the log, names, truncations.
    fn moments(&self, count: usize, dice: &mut StdRng) -> Vec<(usize, Survival)> {
        let events = &self.record.events;
        let is_rare = |event: &Event| match event {
            Event::Written { name, .. } | Event::SyncBegun { name } | Event::SyncDone { name } => {
                !name.ends_with("-wal") && !name.ends_with("-top-token")
            }
            Event::Made { .. } | Event::Truncated { .. } | Event::Removed { .. } | Event::NamesSynced => true,
            Event::Received { .. } | Event::Answered { .. } => false,
        };
        let each = |moment| Survival::EACH.map(|survival| (moment, survival));
        let (mut rare, mut others): (Vec<_>, Vec<_>) = (1..=events.len())
            .flat_map(each)
            .partition(|(moment, _)| is_rare(&events[moment - 1]));
        rare.shuffle(dice);
        rare.truncate(count / 2);
        others.shuffle(dice);
        others.truncate(count - rare.len());
        rare.append(&mut others);
        rare.sort_by_key(|(moment, _)| *moment);
        rare
    }

    /// What had arrived and what had been answered.
    fn facts(&self, moment: usize) -> Vec<Fact> {
        let happened = |at: usize| at < moment;
        let now = self
            .record
            .asked
            .iter()
            .zip(&self.times)
            .filter(|(_, (received, _))| happened(*received))
            .map(|(asked, (_, answered))| Fact {
                asked: asked.clone(),
                is_answered: answered.is_some_and(happened),
            });
        self.record.earlier.iter().cloned().chain(now).collect()
    }
}

impl Act {
    fn is_answered(&self) -> bool {
        match self {
            Self::Acquire { granted, .. } => granted.is_some(),
            Self::Renew { end, .. } => end.is_some(),
            // What became of it is known by the record alone.
            Self::Release { .. } => false,
        }
    }
}

impl Case {
    fn judge(&self) -> Result<(), String> {
        let directory = tempfile::tempdir().unwrap();
        lay_out(&self.image, directory.path());
        let path = directory.path().join("ferrolho.db");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let store = SqliteStore::open_with(&path, Arc::new(NextBoot))
                .map_err(|error| format!("the file is lost, it does not open: {error}"))?;
            let page = store
                .list(&ListQuery {
                    limit: ALL_LOCKS,
                    ..ListQuery::default()
                })
                .await
                .unwrap();
            let found = page
                .locks
                .into_iter()
                .map(|live| (live.lock.resource.as_str().to_owned(), live.lock))
                .collect();
            let known = Known::from(&self.facts);
            known.compare(&found)?;
            let next = draw_a_token(&store).await;
            if next <= known.highest {
                return Err(format!("a token comes again: {next} after {}", known.highest));
            }
            store.close().await;
            Ok(())
        })?;
        let check: String = rusqlite::Connection::open(&path)
            .and_then(|database| database.query_row("PRAGMA integrity_check", [], |row| row.get(0)))
            .map_err(|error| format!("the file is lost, it cannot be read: {error}"))?;
        if check != "ok" {
            return Err(format!("the file is damaged: {check}"));
        }
        Ok(())
    }
}

async fn draw_a_token(store: &SqliteStore) -> u64 {
    let holder = Holder {
        owner: Owner::new("after").unwrap(),
        principal: None,
    };
    let grant = ferrolho_core::Grant {
        holder,
        ttl: Ttl::new(60, Ttl::MAX).unwrap(),
        metadata: None,
        mark: Mark::Random(1),
    };
    let attempt = Attempt {
        changes: vec![Change {
            resource: Resource::new("after").unwrap(),
            expected: Expected::Free,
            write: Write::Grant(grant),
            cause: Cause::Acquire,
        }],
        not_after: Instant::now() + Duration::from_mins(1),
    };
    match store.apply(attempt).await {
        Ok(Outcome::Applied(locks)) => locks[0].as_ref().unwrap().lock.fencing_token.get(),
        other => panic!("a new lock is not granted: {other:?}"),
    }
}

/// What was told of the locks, by name.
struct Known<'a> {
    names: BTreeMap<&'a str, Told<'a>>,
    /// Sets of which nobody has been told: all or none.
    open_sets: Vec<&'a [Grant]>,
    /// The highest token that anybody was told of.
    highest: u64,
}

/// What was told of one lock.
#[derive(Default)]
struct Told<'a> {
    grants: Vec<(&'a Grant, &'a str, bool)>,
    /// Owners whose grants may have been made though no token is known.
    may_have: Vec<&'a str>,
    /// Tokens whose release has arrived, and whether it was answered.
    releases: Vec<(u64, bool)>,
    /// Tokens, their new ends if known, and whether the renewal was answered.
    renewals: Vec<(u64, Option<&'a str>, bool)>,
}

impl<'a> Known<'a> {
    fn from(facts: &'a [Fact]) -> Self {
        let mut known = Self {
            names: BTreeMap::new(),
            open_sets: Vec::new(),
            highest: 0,
        };
        for Fact { asked, is_answered } in facts {
            match &asked.act {
                Act::Acquire {
                    owner,
                    granted: Some(granted),
                    ..
                } => {
                    for grant in granted {
                        known.lock(&grant.name).grants.push((grant, owner, *is_answered));
                        if *is_answered {
                            known.highest = known.highest.max(grant.token);
                        }
                    }
                    if !is_answered {
                        known.open_sets.push(granted);
                    }
                }
                Act::Acquire {
                    owner,
                    names,
                    granted: None,
                } => {
                    for name in names {
                        known.lock(name).may_have.push(owner);
                    }
                }
                Act::Renew { name, token, end } => {
                    known
                        .lock(name)
                        .renewals
                        .push((*token, end.as_deref(), *is_answered));
                }
                Act::Release { name, token } => known.lock(name).releases.push((*token, *is_answered)),
            }
        }
        known
    }

    fn lock(&mut self, name: &'a str) -> &mut Told<'a> {
        self.names.entry(name).or_default()
    }

    fn compare(&self, found: &BTreeMap<String, Lock>) -> Result<(), String> {
        for (name, told) in &self.names {
            told.compare(found.get(*name))
                .map_err(|what| format!("{name}: {what}"))?;
        }
        if let Some(name) = found.keys().find(|name| !self.names.contains_key(name.as_str())) {
            return Err(format!("{name} is there, and nobody had asked for it"));
        }
        for set in &self.open_sets {
            let is_there = |grant: &&Grant| {
                found
                    .get(&grant.name)
                    .is_some_and(|lock| lock.fencing_token.get() == grant.token)
            };
            let there = set.iter().filter(is_there).count();
            if there != 0 && there != set.len() {
                return Err(format!("{there} of a set of {} are there: {set:?}", set.len()));
            }
        }
        Ok(())
    }
}

impl Told<'_> {
    fn compare(&self, found: Option<&Lock>) -> Result<(), String> {
        let last = self
            .grants
            .iter()
            .filter(|(_, _, is_answered)| *is_answered)
            .max_by_key(|(grant, _, _)| grant.token);
        let Some(lock) = found else {
            let is_released = |token| self.releases.iter().any(|(released, _)| *released == token);
            return match last {
                Some((grant, owner, _)) if !is_released(grant.token) => {
                    Err(format!("the grant of {owner} with token {} is lost", grant.token))
                }
                _ => Ok(()),
            };
        };
        let token = lock.fencing_token.get();
        if let Some((grant, _, _)) = last
            && token < grant.token
        {
            return Err(format!(
                "token {token} is back, and the grant with token {} is lost",
                grant.token
            ));
        }
        if self.releases.contains(&(token, true)) {
            return Err(format!("the release of token {token} is lost"));
        }
        let of_token = self.grants.iter().find(|(grant, _, _)| grant.token == token);
        let owner = lock.owner.as_str();
        match of_token {
            Some((grant, granted_to, _)) if *granted_to == owner => self.compare_end(grant, lock),
            None if self.may_have.contains(&owner) => Ok(()),
            _ => Err(format!("{owner} has token {token}, which nobody granted")),
        }
    }

    /// The end is that of the last answered grant or renewal, or of one that was under way.
    fn compare_end(&self, grant: &Grant, lock: &Lock) -> Result<(), String> {
        let renewals = || self.renewals.iter().filter(|(token, _, _)| *token == grant.token);
        let answered = renewals().rfind(|(_, _, is_answered)| *is_answered);
        let certain = answered.map_or(Some(grant.end.as_str()), |(_, end, _)| *end);
        let mut possible = renewals()
            .filter(|(_, _, is_answered)| !is_answered)
            .map(|(_, end, _)| *end);
        let end = lock.expires_at.to_string();
        let fits = |candidate: Option<&str>| candidate.is_none_or(|candidate| candidate == end);
        if fits(certain) || possible.any(fits) {
            return Ok(());
        }
        Err(format!(
            "a renewal of token {} is lost: it ends at {end}, and not at {certain:?}",
            grant.token
        ))
    }
}

/// This machine after it was switched on again.
#[derive(Debug)]
struct NextBoot;

impl TimeSource for NextBoot {
    fn wall(&self) -> Timestamp {
        HostTime.wall()
    }

    fn since_boot(&self) -> Duration {
        HostTime.since_boot()
    }

    fn boot_id(&self) -> String {
        "after the power loss".to_owned()
    }
}

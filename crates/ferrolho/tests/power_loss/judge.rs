//! Opens what a power cut leaves, with the real engine, and compares it with what callers were told.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use ferrolho_core::{Cause, Change, Expected, Holder, Mark, Owner, Resource, Timestamp, Ttl, Write};
use ferrolho_store::clock::{HostTime, TimeSource};
use ferrolho_store::{Attempt, ListQuery, Outcome, SqliteStore, Store};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::Instant;

use crate::disk::{Disk, Image, Survival, lay_out};
use crate::known::Known;
use crate::load::{Act, Asked};
use crate::record::Record;
use crate::trace::{CallerId, Event};

/// How many disks are opened at a time.
const WORKERS: usize = 2;

/// How large the index of a log is at least.
const INDEX_BYTES: usize = 32 * 1024;

/// More locks than there are.
const ALL_LOCKS: usize = 1_000_000;

/// A request that has arrived at the server, and whether its answer had begun to leave.
#[derive(Clone, Debug)]
pub(crate) struct Fact {
    pub(crate) asked: Asked,
    pub(crate) is_answered: bool,
}

/// What a power cut left, and what was known then.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) image: Image,
    pub(crate) facts: Vec<Fact>,
    /// What is left of the log's index, which is memory and no more: nothing, or anything.
    index: Option<Vec<u8>>,
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
                index: dice.random::<bool>().then(|| {
                    let mut index = vec![0; INDEX_BYTES];
                    dice.fill(&mut index[..]);
                    index
                }),
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
            Self::Look { .. } => true,
        }
    }
}

impl Case {
    /// Files that are there before any power cut.
    pub(crate) fn new(image: Image, facts: Vec<Fact>) -> Self {
        Self {
            image,
            facts,
            index: None,
            when: "at first".to_owned(),
        }
    }

    fn judge(&self) -> Result<(), String> {
        let directory = tempfile::tempdir().unwrap();
        lay_out(&self.image, directory.path());
        let path = directory.path().join("ferrolho.db");
        if let Some(index) = &self.index {
            std::fs::write(directory.path().join("ferrolho.db-shm"), index).unwrap();
        }
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
            let health = store.check().await.unwrap();
            if let Some(warning) = health.warnings.iter().find(|warning| warning.contains("older")) {
                return Err(format!(
                    "a power cut is taken for a copy that was put back: {warning}"
                ));
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

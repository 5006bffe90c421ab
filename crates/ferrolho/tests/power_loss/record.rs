//! A record: what was on the disk at first, what happened, and what callers were told.

use std::fmt::Write as _;
use std::process::Command;
use std::sync::Mutex;

use rand::SeedableRng as _;
use tempfile::TempDir;

use crate::disk::{Disk, Image, Survival, lay_out, read_in};
use crate::judge::{Case, Fact};
use crate::load::Asked;
use crate::server::Traced;
use crate::trace::{self, Event, Trace};

pub(crate) struct Record {
    pub(crate) start: Image,
    /// What was known before.
    pub(crate) earlier: Vec<Fact>,
    pub(crate) events: Vec<Event>,
    pub(crate) asked: Vec<Asked>,
}

/// So large, a log is about to be copied into the database and to start over.
pub(crate) const LARGE_LOG_BYTES: u64 = 7 << 20;

/// A fault that is put in, to see that it is found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mutation {
    /// The disk does not do what `fdatasync` says, for the log.
    NoSyncOfTheLog,
    /// Each answer leaves before the sync that came before it.
    AnswersBeforeTheSync,
}

/// Makes a record.
pub(crate) struct Recorder {
    /// Where the database is, and nothing else.
    pub(crate) directory: TempDir,
    beside: TempDir,
    servers: u16,
    disk: Disk,
    events: Vec<Event>,
    asked: Vec<Asked>,
}

/// A server that is being recorded.
pub(crate) struct Serving {
    pub(crate) traced: Traced,
    pub(crate) number: u16,
    pub(crate) asked: Mutex<Vec<Asked>>,
}

impl Recorder {
    fn new(start: &Image) -> Self {
        let directory = tempfile::tempdir().unwrap();
        lay_out(start, directory.path());
        Self {
            directory,
            beside: tempfile::tempdir().unwrap(),
            servers: 0,
            disk: Disk::holding(start),
            events: Vec::new(),
            asked: Vec::new(),
        }
    }

    pub(crate) fn start(&mut self) -> Serving {
        self.servers += 1;
        Serving {
            traced: Traced::start(self.directory.path(), self.beside.path(), self.servers),
            number: self.servers,
            asked: Mutex::default(),
        }
    }

    /// Waits for a server's end and takes in what was recorded of it.
    pub(crate) fn end(&mut self, mut serving: Serving) {
        serving.traced.wait();
        let directory = self.directory.path().canonicalize().unwrap();
        let Trace { events, cut_off } = trace::read(&serving.traced.trace, &directory, serving.number);
        self.take_in(events);
        let found = read_in(&directory);
        if let Some(cut_off) = cut_off
            && self.difference(&found).is_some()
        {
            self.take_in(vec![cut_off]);
        }
        let difference = self.difference(&found);
        assert!(difference.is_none(), "the record is not whole: {difference:?}");
        self.asked.extend(serving.asked.into_inner().unwrap());
    }
}

impl Recorder {
    fn take_in(&mut self, events: Vec<Event>) {
        for event in &events {
            self.disk.apply(event);
        }
        self.events.extend(events);
    }

    /// A file that is not as it was recorded.
    fn difference(&self, found: &Image) -> Option<String> {
        let mut dice = rand::rngs::StdRng::seed_from_u64(0);
        let recorded = self.disk.after_a_power_cut(Survival::All, &mut dice);
        let mut names = recorded.keys().chain(found.keys());
        names
            .find(|name| recorded.get(*name) != found.get(*name))
            .cloned()
    }
}

/// Whether writes can be recorded here.
pub(crate) fn can_trace() -> bool {
    let has_strace = Command::new("strace").arg("--version").output().is_ok();
    if !has_strace {
        ferrolho_testkit::missing("the record of writes", "Debian's package strace");
    }
    has_strace
}

impl Record {
    /// Records a new database under this load; nothing where that cannot be done.
    pub(crate) fn make(load: &dyn Fn(&mut Recorder)) -> Option<Self> {
        if !can_trace() {
            return None;
        }
        let mut recorder = Recorder::new(&Image::new());
        load(&mut recorder);
        Some(Self {
            start: Image::new(),
            earlier: Vec::new(),
            events: recorder.events,
            asked: recorder.asked,
        })
    }

    /// Records a server that starts on what a power cut has left, until it is ready.
    pub(crate) fn of_a_start(case: Case) -> Self {
        let mut recorder = Recorder::new(&case.image);
        let server = recorder.start();
        server.traced.kill();
        recorder.end(server);
        Self {
            start: case.image,
            earlier: case.facts,
            events: recorder.events,
            asked: Vec::new(),
        }
    }

    pub(crate) fn mutate(&self, mutation: Mutation) -> Self {
        let mut events = self.events.clone();
        match mutation {
            Mutation::NoSyncOfTheLog => events.retain(|event| !is_sync_of_the_log(event)),
            Mutation::AnswersBeforeTheSync => {
                for at in 0..events.len() {
                    if let Event::Answered { .. } = events[at]
                        && let Some(sync) = events[..at].iter().rposition(is_sync_of_the_log)
                    {
                        // The end of the sync, and before it its beginning.
                        let answer = events.remove(at);
                        events.insert(sync - 1, answer);
                    }
                }
            }
        }
        Self {
            start: self.start.clone(),
            earlier: self.earlier.clone(),
            events,
            asked: self.asked.clone(),
        }
    }

    /// What it consists of.
    pub(crate) fn summary(&self) -> String {
        let count = |is: &dyn Fn(&Event) -> bool| self.events.iter().filter(|event| is(event)).count();
        let mut summary = String::new();
        for (what, number) in [
            ("writes", count(&|event| matches!(event, Event::Written { .. }))),
            ("syncs", count(&|event| matches!(event, Event::SyncDone { .. }))),
            (
                "truncations",
                count(&|event| matches!(event, Event::Truncated { .. })),
            ),
            ("answers", count(&|event| matches!(event, Event::Answered { .. }))),
        ] {
            write!(summary, "{number} {what}, ").unwrap();
        }
        write!(summary, "{} requests that change something", self.asked.len()).unwrap();
        summary
    }
}

impl Record {
    /// Whether everything is in the record that is hard for an engine: a log that starts over in a file that keeps
    /// its length, one that is cut and one that is removed, changes that are in the journal only, the folding of
    /// it, the highest token.
    pub(crate) fn assert_covers_all(&self) {
        let of_log = |event: &Event| matches!(event, Event::Written { name, .. } if name.ends_with("-wal"));
        let starts = |event: &Event| matches!(event, Event::Written { offset: 0, .. }) && of_log(event);
        let cut = |event: &Event| matches!(event, Event::Truncated { length: 0, .. });
        let removed = |event: &Event| matches!(event, Event::Removed { name } if name.ends_with("-wal"));
        let long =
            |event: &Event| matches!(event, Event::Written { offset, .. } if *offset >= LARGE_LOG_BYTES);
        let after_long = self.events.iter().skip_while(|event| !long(event));
        let starts_over = after_long.take_while(|event| !cut(event)).any(starts);
        let holds = |text: &str| {
            let holds = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(text);
            self.events
                .iter()
                .any(|event| matches!(event, Event::Written { bytes, .. } if of_log(event) && holds(bytes)))
        };
        let top =
            |event: &Event| matches!(event, Event::Written { name, .. } if name.ends_with("-top-token"));
        let has = |is: &dyn Fn(&Event) -> bool| self.events.iter().any(is);
        assert!(
            starts_over && has(&cut) && has(&removed),
            "the log has not seen everything"
        );
        assert!(
            holds("\"granted\":[[") && holds("\"gone\":[\""),
            "the journal was not used"
        );
        assert!(has(&top), "the highest token was not written");
    }
}

fn is_sync_of_the_log(event: &Event) -> bool {
    match event {
        Event::SyncBegun { name } | Event::SyncDone { name } => name.ends_with("-wal"),
        _ => false,
    }
}

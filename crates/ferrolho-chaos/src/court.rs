//! What was seen: counts, violations, and the last lines of what happened, as evidence.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many lines of what happened are kept as evidence.
const EVIDENCE_LINES: usize = 300_000;

/// After so many violations the picture is clear.
const VIOLATIONS_MAX: usize = 200;

/// Collects what all clients and the storm report.
#[derive(Debug)]
pub(crate) struct Court {
    start: Instant,
    /// Where evidence is kept.
    folder: PathBuf,
    record: Mutex<Record>,
}

#[derive(Debug, Default)]
struct Record {
    counts: BTreeMap<&'static str, u64>,
    longest: BTreeMap<&'static str, Duration>,
    violations: Vec<String>,
    lines: VecDeque<String>,
}

impl Court {
    pub(crate) fn new(folder: &Path) -> Self {
        Self {
            start: Instant::now(),
            folder: folder.to_owned(),
            record: Mutex::default(),
        }
    }

    /// A client that panicked must not hide what the others saw.
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts something that happened.
    pub(crate) fn count(&self, what: &'static str) {
        *self.record().counts.entry(what).or_default() += 1;
    }

    /// Keeps the longest of these times.
    pub(crate) fn time(&self, what: &'static str, span: Duration) {
        let mut record = self.record();
        let longest = record.longest.entry(what).or_default();
        *longest = span.max(*longest);
    }

    /// Writes a line of evidence.
    pub(crate) fn note(&self, line: &str) {
        let line = format!("{:10.3} {line}", self.start.elapsed().as_secs_f64());
        let mut record = self.record();
        if record.lines.len() == EVIDENCE_LINES {
            record.lines.pop_front();
        }
        record.lines.push_back(line);
    }

    /// A promise was broken.
    pub(crate) fn accuse(&self, line: &str) {
        self.note(&format!("VIOLATION {line}"));
        let at = self.start.elapsed().as_secs_f64();
        let mut record = self.record();
        if record.violations.len() < VIOLATIONS_MAX {
            // At once, since nobody knows whether the run comes to its end.
            eprintln!("VIOLATION at {at:.3} s: {line}");
            // What led to the first is not to be lost in what comes later.
            if record.violations.is_empty()
                && let Err(cause) = record.write_history(&self.folder.join("history-of-the-first"))
            {
                eprintln!("the history cannot be written: {cause}");
            }
            record.violations.push(format!("{at:10.3} {line}"));
        }
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.record().violations.clone()
    }

    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.record().counts.clone()
    }

    pub(crate) fn longest(&self) -> BTreeMap<&'static str, Duration> {
        self.record().longest.clone()
    }

    /// Writes the evidence into the folder.
    pub(crate) fn keep(&self) -> io::Result<()> {
        let record = self.record();
        record.write_history(&self.folder.join("history"))?;
        fs::write(self.folder.join("violations"), record.violations.join("\n"))
    }
}

impl Record {
    fn write_history(&self, path: &Path) -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        for line in &self.lines {
            writeln!(file, "{line}")?;
        }
        file.flush()
    }
}

//! The way of lines to their file.
//!
//! Whoever notes a line puts it behind the others in memory and goes on; one thread writes what has gathered there.
//! A file that is slow, full or gone does not hold the service up: locks must be renewed and released meanwhile.
//! What was noted waits, up to [`MAX_PENDING_BYTES`], and is written as soon as the file takes it. Lines for which
//! there is no room then are lost, and that is said where they are missing, in the log and in the metrics.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tracing::{error, info};

use super::line::{Line, What};

/// How many bytes of lines may wait to be written: about 100 000 lines. As many again may be on their way.
const MAX_PENDING_BYTES: usize = 32 * 1024 * 1024;

/// How many bytes may wait when a refusal is noted: who is refused must not use up the room for what is done.
const MAX_PENDING_BYTES_FOR_REFUSALS: usize = MAX_PENDING_BYTES / 2;

/// How much room is kept when a crowd of lines has been written, in bytes.
const KEPT_BYTES: usize = 64 * 1024;

/// How long the writer rests after a failure.
const RETRY: Duration = Duration::from_millis(250);

/// How long the last lines may take when the server stops.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// Only its owner may read and write the file.
const MODE: u32 = 0o600;

/// Where a trail is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To standard output.
    StandardOutput,
    /// To the end of this file.
    File(PathBuf),
}

/// The file of the trail cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("the audit trail {}: {cause}", path.display())]
pub struct AuditError {
    path: PathBuf,
    cause: io::Error,
}

/// How dearly a line is missed when there is little room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    Change,
    Refusal,
}

/// The lines on their way.
#[derive(Debug, Default)]
pub(super) struct Trail {
    state: Mutex<State>,
    /// Rung when there is something for the writer to do.
    bell: Condvar,
    /// Rung when the writer has ended.
    ended: Condvar,
    noted: AtomicU64,
    lost: AtomicU64,
    is_failing: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    pending: Vec<u8>,
    /// How many lines have found no room since the writer came last.
    lost: u64,
    reopen: bool,
    is_closed: bool,
    has_ended: bool,
}

/// How the trail is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TrailCounts {
    /// How many lines were noted.
    pub(crate) noted: u64,
    /// How many of them, or besides them, are lost.
    pub(crate) lost: u64,
    /// Whether the file does not take them now.
    pub(crate) is_failing: bool,
}

impl Trail {
    /// Opens the file and begins to write.
    pub(super) fn start(destination: Destination) -> Result<Arc<Self>, AuditError> {
        let output = Output::open(destination)?;
        let trail = Arc::new(Self::default());
        let writer = Writer {
            trail: Arc::clone(&trail),
            output,
        };
        let spawned = thread::Builder::new()
            .name("ferrolho-audit".to_owned())
            .spawn(move || writer.run());
        match spawned {
            Ok(_) => Ok(trail),
            Err(cause) => Err(AuditError {
                path: PathBuf::from("its thread"),
                cause,
            }),
        }
    }

    /// Notes a line.
    pub(super) fn note(&self, line: &Line<'_>, urgency: Urgency) {
        let text = line.text();
        let room = match urgency {
            Urgency::Change => MAX_PENDING_BYTES,
            Urgency::Refusal => MAX_PENDING_BYTES_FOR_REFUSALS,
        };
        let mut state = self.state.lock();
        if state.is_closed || state.pending.len() + text.len() > room {
            state.lost += 1;
            let is_first = state.lost == 1;
            drop(state);
            self.lost.fetch_add(1, Ordering::Relaxed);
            if is_first {
                error!("lines of the audit trail are lost: its file does not take them fast enough");
            }
            return;
        }
        state.pending.extend_from_slice(text.as_bytes());
        drop(state);
        self.noted.fetch_add(1, Ordering::Relaxed);
        self.bell.notify_one();
    }

    /// Has the file opened anew; what is noted from now on goes there.
    pub(super) fn reopen(&self) {
        self.state.lock().reopen = true;
        self.bell.notify_one();
    }

    /// Writes what has been noted, and ends. Blocks until then, for a while at most.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        self.bell.notify_one();
        self.ended
            .wait_while_for(&mut state, |state| !state.has_ended, CLOSE_WITHIN);
    }

    pub(super) fn counts(&self) -> TrailCounts {
        TrailCounts {
            noted: self.noted.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
            is_failing: self.is_failing.load(Ordering::Relaxed),
        }
    }
}

/// Where lines are written now.
#[derive(Debug)]
struct Output {
    file: File,
    /// Where it is opened anew.
    path: Option<PathBuf>,
}

impl Output {
    fn open(destination: Destination) -> Result<Self, AuditError> {
        match destination {
            Destination::StandardOutput => {
                let output = io::stdout().as_fd().try_clone_to_owned();
                let file = File::from(output.map_err(|cause| AuditError {
                    path: PathBuf::from("-"),
                    cause,
                })?);
                Ok(Self { file, path: None })
            }
            Destination::File(path) => {
                let file = open_at(&path)?;
                Ok(Self {
                    file,
                    path: Some(path),
                })
            }
        }
    }
}

fn open_at(path: &Path) -> Result<File, AuditError> {
    let open = || {
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(MODE)
            .open(path)?;
        end_last_line(&mut file)?;
        Ok(file)
    };
    open().map_err(|cause| AuditError {
        path: path.to_owned(),
        cause,
    })
}

/// A crash or a full disk may have left half a line at the end.
fn end_last_line(file: &mut File) -> io::Result<()> {
    let status = file.metadata()?;
    let Some(last) = status.len().checked_sub(1).filter(|_| status.is_file()) else {
        return Ok(());
    };
    let mut byte = [0];
    file.read_exact_at(&mut byte, last)?;
    if byte == *b"\n" {
        return Ok(());
    }
    file.write_all(b"\n")
}

/// Writes what is noted, until the trail is closed.
struct Writer {
    trail: Arc<Trail>,
    output: Output,
}

/// What the writer has to do.
struct Work {
    lines: Vec<u8>,
    lost: u64,
    reopen: bool,
    is_closed: bool,
}

impl Writer {
    fn run(mut self) {
        let mut spare = Vec::new();
        loop {
            let mut work = self.wait(spare);
            if work.lost > 0 {
                let missing = What {
                    lines: Some(work.lost),
                    ..What::default()
                };
                work.lines
                    .extend_from_slice(missing.line("lost").text().as_bytes());
            }
            self.write(&work.lines);
            if work.reopen {
                self.reopen();
            }
            if work.is_closed {
                break;
            }
            work.lines.clear();
            work.lines.shrink_to(KEPT_BYTES);
            spare = work.lines;
        }
        self.trail.state.lock().has_ended = true;
        self.trail.ended.notify_all();
    }

    /// Waits for something to do. `spare` is where the next lines gather meanwhile.
    fn wait(&self, spare: Vec<u8>) -> Work {
        let mut state = self.trail.state.lock();
        self.trail.bell.wait_while(&mut state, |state| {
            state.pending.is_empty() && state.lost == 0 && !state.reopen && !state.is_closed
        });
        Work {
            lines: std::mem::replace(&mut state.pending, spare),
            lost: std::mem::take(&mut state.lost),
            reopen: std::mem::take(&mut state.reopen),
            is_closed: state.is_closed,
        }
    }

    /// Writes lines, however often that takes. Gives up only when the trail is closed.
    fn write(&mut self, lines: &[u8]) {
        let mut rest = lines;
        while !rest.is_empty() {
            match self.output.file.write(rest) {
                Ok(0) => self.failed(&io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    rest = rest.get(written..).unwrap_or_default();
                    if self.trail.is_failing.swap(false, Ordering::Relaxed) {
                        info!("the audit trail is written again");
                    }
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => self.failed(&error),
            }
            let mut state = self.trail.state.lock();
            let has_news = |state: &mut State| !state.reopen && !state.is_closed;
            self.trail.bell.wait_while_for(&mut state, has_news, RETRY);
            let (reopen, is_closed) = (std::mem::take(&mut state.reopen), state.is_closed);
            drop(state);
            if reopen {
                self.reopen();
                // The new file begins with a whole line; the old one may end with half of it.
                rest = from_line_start(lines, rest);
            }
            if is_closed {
                let missing = rest.split_inclusive(|byte| *byte == b'\n').count();
                error!(missing, "the last lines of the audit trail could not be written");
                return;
            }
        }
    }

    fn failed(&self, error: &io::Error) {
        if !self.trail.is_failing.swap(true, Ordering::Relaxed) {
            error!(%error, "the audit trail cannot be written; trying on");
        }
    }

    fn reopen(&mut self) {
        let Some(path) = &self.output.path else {
            return;
        };
        match open_at(path) {
            Ok(file) => {
                self.output.file = file;
                info!("the audit trail was opened anew");
            }
            Err(error) => error!(%error, "the audit trail goes on in its old file"),
        }
    }
}

/// What is left of `lines` from the beginning of the line that `rest` begins in.
fn from_line_start<'a>(lines: &'a [u8], rest: &[u8]) -> &'a [u8] {
    let written = lines.len() - rest.len();
    let whole = lines
        .get(..written)
        .and_then(|written| written.iter().rposition(|byte| *byte == b'\n'))
        .map_or(0, |end| end + 1);
    lines.get(whole..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_is_written_again_whole() {
        let lines = b"one\ntwo\nthree\n";
        for (written, left) in [(0, "one"), (2, "one"), (4, "two"), (5, "two"), (13, "three")] {
            let rest = from_line_start(lines, &lines[written..]);
            assert!(rest.starts_with(left.as_bytes()), "{written}");
        }
    }

    #[test]
    fn half_a_line_at_the_end_of_a_file_is_ended() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (before, after) in [("", ""), ("one\n", "one\n"), ("one\ntw", "one\ntw\n")] {
            std::fs::write(file.path(), before).unwrap();
            open_at(file.path()).unwrap();
            assert_eq!(std::fs::read_to_string(file.path()).unwrap(), after);
        }
    }

    #[test]
    fn lines_for_which_there_is_no_room_are_counted_and_refusals_are_the_first_to_go() {
        // Nobody writes.
        let trail = Trail::default();
        let line = What::default().line("acquired");
        let mut noted = 0;
        while trail.counts().lost == 0 {
            trail.note(&line, Urgency::Refusal);
            noted += 1;
        }
        let half = trail.counts().noted;
        assert_eq!((noted, trail.counts().lost), (half + 1, 1));
        while trail.counts().lost == 1 {
            trail.note(&line, Urgency::Change);
        }
        assert!(trail.counts().noted.abs_diff(half * 2) <= 2);
        assert!(trail.state.lock().pending.len() <= MAX_PENDING_BYTES);
        assert_eq!(trail.state.lock().lost, 2);
    }
}

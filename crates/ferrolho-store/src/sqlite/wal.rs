//! SQLite's write-ahead log: what it tells us, and how it is kept small.
//!
//! The index of the log, the file with the ending `-shm`, begins with a header that every commit of every process
//! changes (its layout is part of SQLite's documented file format, <https://sqlite.org/walformat.html>). Reading
//! its 48 bytes costs a fraction of a microsecond, so every look at the table can make sure, before it answers,
//! that no other program has changed the file. It also says how large the log is.
//!
//! The log can start over only when all of it has been copied into the database and no reader needs it. Our own
//! reads come from memory, so only other programs can hold it up; as long as one does, commits are held back more
//! and more, so that the log lasts for minutes, and at last refused.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

const MB: u64 = 1024 * 1024;

/// So large a log: time to copy it into the database.
const CHECKPOINT_BYTES: u64 = 8 * MB;

/// So large, and somebody keeps it from starting over: time to go slower.
const SLOW_BYTES: u64 = 16 * MB;

/// So large: no further. The largest commit takes the log to 64 MB.
const FULL_BYTES: u64 = 32 * MB;

/// How much further a log must grow that could not be copied whole, before that is tried again.
const RETRY_BYTES: u64 = MB;

/// How much of the log's file stays when it starts over; what is beyond is given back.
pub(super) const KEPT_BYTES: u64 = 16 * MB;

/// What SQLite puts before each page in its log.
const FRAME_HEAD_BYTES: u64 = 24;

/// The longest that commits are held back for the sake of the log.
const SLOWEST_COMMITS: Duration = Duration::from_millis(500);

/// What the log's index says. Two that are equal have nothing in between: no program has committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp([u8; 48]);

impl Stamp {
    /// How much of the log is in use.
    pub(super) fn log_bytes(&self) -> u64 {
        let u32_at = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|i| self.0[at + i]));
        // The page size is in two bytes, in which 1 stands for 65,536.
        let page = match u16::from_ne_bytes([self.0[14], self.0[15]]) {
            1 => 65_536,
            size => u64::from(size),
        };
        u64::from(u32_at(16)) * (page + FRAME_HEAD_BYTES)
    }
}

/// The index of the log, opened to be looked at. Must be dropped after the connection that it belongs to.
#[derive(Debug)]
pub(super) struct WalIndex(File);

impl WalIndex {
    /// Whether it is the file with this path.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        match (self.0.metadata(), path.metadata()) {
            (Ok(open), Ok(there)) => (open.dev(), open.ino()) == (there.dev(), there.ino()),
            _ => false,
        }
    }

    pub(super) fn open(path: &Path) -> io::Result<Self> {
        File::open(path).map(Self)
    }

    /// What it says now. While another program commits this may be a mixture, which equals nothing.
    pub(super) fn stamp(&self) -> io::Result<Stamp> {
        let mut header = [0; 48];
        self.0.read_exact_at(&mut header, 0)?;
        Ok(Stamp(header))
    }
}

/// When to copy the log into the database, and how fast to go on writing to it.
#[derive(Debug, Default)]
pub(super) struct LogPolicy {
    /// Whether somebody kept the last checkpoint from copying all.
    is_stuck: bool,
    /// How large the log was then.
    tried_at: u64,
}

impl LogPolicy {
    /// Whether a log of this size should have been copied.
    pub(super) fn is_large(log_bytes: u64) -> bool {
        log_bytes >= CHECKPOINT_BYTES
    }

    /// Whether to copy the log now that it is so large.
    pub(super) fn is_checkpoint_due(&self, log_bytes: u64) -> bool {
        let since = if self.is_stuck {
            self.tried_at + RETRY_BYTES
        } else {
            0
        };
        log_bytes >= CHECKPOINT_BYTES.max(since)
    }

    /// Takes note of a checkpoint of a log of this size, which copied all of it or not.
    pub(super) fn checkpointed(&mut self, log_bytes: u64, is_whole: bool) {
        self.is_stuck = !is_whole;
        self.tried_at = log_bytes;
    }

    /// Whether another program keeps the log from starting over.
    pub(super) fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    /// How long to hold back the next commit, or nothing when the log is full.
    pub(super) fn pace(&self, log_bytes: u64) -> Option<Duration> {
        if log_bytes < SLOW_BYTES || !self.is_stuck {
            return Some(Duration::ZERO);
        }
        if log_bytes >= FULL_BYTES {
            return None;
        }
        let tenths = (log_bytes - SLOW_BYTES) * 10 / (FULL_BYTES - SLOW_BYTES) + 1;
        Some(SLOWEST_COMMITS * u32::try_from(tenths).unwrap_or(10) / 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_cannot_start_over_is_written_slower_and_slower_and_then_not_at_all() {
        let mut policy = LogPolicy::default();
        assert!(!policy.is_checkpoint_due(CHECKPOINT_BYTES - 1));
        assert!(policy.is_checkpoint_due(CHECKPOINT_BYTES));
        assert_eq!(
            policy.pace(FULL_BYTES),
            Some(Duration::ZERO),
            "it will start over"
        );
        policy.checkpointed(CHECKPOINT_BYTES, false);
        assert!(!policy.is_checkpoint_due(CHECKPOINT_BYTES + RETRY_BYTES - 1));
        assert_eq!(policy.pace(SLOW_BYTES - 1), Some(Duration::ZERO));
        assert_eq!(policy.pace(SLOW_BYTES), Some(SLOWEST_COMMITS / 10));
        assert_eq!(policy.pace(FULL_BYTES - 1), Some(SLOWEST_COMMITS));
        assert_eq!(policy.pace(FULL_BYTES), None);
        policy.checkpointed(FULL_BYTES, true);
        assert_eq!(policy.pace(FULL_BYTES), Some(Duration::ZERO));
    }
}

//! What the engine does when the disk does not do its part.

mod crash;
mod failing;
mod flight;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::{
    Cause, Change, Claim, Expected, Grant, Holder, Live, Mark, Owner, Resource, Timestamp, Ttl, Write,
};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::time::{Instant, timeout};

use super::disk::{Checkpoint, Disk, SqliteDisk};
use super::error::DiskError;
use super::opening;
use super::rows::Loaded;
use super::wal::{Stamp, WalIndex};
use super::{SqliteStore, Store};
use crate::clock::{HostTime, TimeSource};
use crate::table::{Batch, Table};
use crate::{Attempt, Outcome, StoreError};

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// What goes wrong, until a test says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fault {
    #[default]
    None,
    /// Writing fails, before the commit.
    Write,
    /// The commit fails, and nothing is on disk.
    CommitUndone,
    /// The commit is reported as failed, but it is on disk.
    CommitDone,
    /// The disk is full when the batch is written.
    Full,
    /// The disk is full at the commit.
    FullAtCommit,
    /// As `CommitUndone`, and the file cannot be opened again.
    Gone,
}

/// What a test holds of its disk.
#[derive(Clone, Default)]
struct Faults(Arc<Mutex<Fault>>, Arc<Mutex<Option<Gate>>>);

/// Lets a commit wait for the test.
struct Gate {
    reached: std::sync::mpsc::Sender<()>,
    go_on: std::sync::mpsc::Receiver<()>,
}

impl Faults {
    fn set(&self, fault: Fault) {
        *self.0.lock() = fault;
    }

    fn now(&self) -> Fault {
        *self.0.lock()
    }

    /// The next commit says so on the first channel, and waits for the second.
    fn hold_next_commit(&self) -> (std::sync::mpsc::Receiver<()>, std::sync::mpsc::Sender<()>) {
        let (reached, at_the_gate) = std::sync::mpsc::channel();
        let (open, go_on) = std::sync::mpsc::channel();
        *self.1.lock() = Some(Gate { reached, go_on });
        (at_the_gate, open)
    }
}

/// A disk that fails when told.
struct FailingDisk {
    disk: SqliteDisk,
    faults: Faults,
}

fn sqlite_error(code: i32) -> DiskError {
    DiskError::Sqlite(rusqlite::Error::SqliteFailure(
        rusqlite::ffi::Error::new(code),
        None,
    ))
}

fn io_error() -> DiskError {
    sqlite_error(rusqlite::ffi::SQLITE_IOERR_FSYNC)
}

fn full() -> DiskError {
    sqlite_error(rusqlite::ffi::SQLITE_FULL)
}

impl Disk for FailingDisk {
    fn refresh(&mut self, table: &Table) -> Result<Option<Loaded>, DiskError> {
        self.disk.refresh(table)
    }

    fn begin(&mut self, table: &Table) -> Result<Option<Loaded>, DiskError> {
        self.disk.begin(table)
    }

    fn tidy_at(&self) -> Option<std::time::Instant> {
        self.disk.tidy_at()
    }

    fn write(&mut self, batch: &Batch, table: &Table) -> Result<(), DiskError> {
        self.disk.write(batch, table)?;
        match self.faults.now() {
            Fault::Write => Err(io_error()),
            Fault::Full => Err(full()),
            _ => Ok(()),
        }
    }

    fn commit(&mut self) -> Result<(), DiskError> {
        let gate = self.faults.1.lock().take();
        if let Some(gate) = gate {
            let _ = gate.reached.send(());
            let _ = gate.go_on.recv();
        }
        match self.faults.now() {
            Fault::CommitUndone | Fault::Gone => Err(io_error()),
            Fault::FullAtCommit => Err(full()),
            Fault::CommitDone => {
                self.disk.commit()?;
                Err(io_error())
            }
            Fault::None | Fault::Write | Fault::Full => self.disk.commit(),
        }
    }

    fn rollback(&mut self) -> Result<(), DiskError> {
        self.disk.rollback()
    }

    fn stamp(&mut self) -> Result<Option<Stamp>, DiskError> {
        self.disk.stamp()
    }

    fn index(&self) -> Arc<WalIndex> {
        self.disk.index()
    }

    fn checkpoint(&mut self, how: Checkpoint) -> Result<bool, DiskError> {
        self.disk.checkpoint(how)
    }

    fn touch(&mut self, now: Timestamp) -> Result<(), DiskError> {
        match self.faults.now() {
            Fault::Full | Fault::FullAtCommit => Err(full()),
            _ => self.disk.touch(now),
        }
    }

    fn reopen(&mut self) -> Result<Loaded, DiskError> {
        match self.faults.now() {
            Fault::Gone => Err(io_error()),
            _ => self.disk.reopen(),
        }
    }
}

/// A store on a disk that fails when told.
struct Failing {
    store: Arc<SqliteStore>,
    faults: Faults,
    path: PathBuf,
    _directory: TempDir,
}

impl Failing {
    fn start() -> Self {
        Self::with(Arc::new(HostTime), |_| {})
    }

    fn with(time: Arc<dyn TimeSource>, prepare: impl FnOnce(&mut SqliteDisk)) -> Self {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("ferrolho.db");
        let mut opened = opening::open(&path, time).unwrap();
        prepare(&mut opened.disk);
        let faults = Faults::default();
        let disk = FailingDisk {
            disk: opened.disk,
            faults: faults.clone(),
        };
        let store = SqliteStore::start(disk, opened.loaded, opened.clock, opened.notices).unwrap();
        Self {
            store: Arc::new(store),
            faults,
            path,
            _directory: directory,
        }
    }

    async fn apply(&self, change: Change) -> Result<Outcome, StoreError> {
        let attempt = Attempt {
            changes: vec![change],
            not_after: Instant::now() + PATIENCE,
        };
        timeout(PATIENCE, self.store.apply(attempt)).await.unwrap()
    }

    async fn must(&self, change: Change) -> Option<Live> {
        match self.apply(change).await.unwrap() {
            Outcome::Applied(mut made) => made.remove(0),
            Outcome::Stale(current) => panic!("{current:?}"),
        }
    }

    async fn find(&self, name: &str) -> Result<Option<Live>, StoreError> {
        self.store.find(&Resource::new(name).unwrap()).await
    }

    /// Waits until the store says that it works.
    async fn until_well(&self) {
        let give_up = Instant::now() + PATIENCE;
        while self.store.check().await.is_err() {
            assert!(Instant::now() < give_up, "it does not heal");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn acquire(name: &str, owner: &str, seconds: i128) -> Change {
    Change {
        resource: Resource::new(name).unwrap(),
        expected: Expected::Free,
        write: Write::Grant(Grant {
            holder: Holder {
                owner: Owner::new(owner).unwrap(),
                principal: None,
            },
            ttl: Ttl::new(seconds, Ttl::MAX).unwrap(),
            metadata: None,
            mark: Mark::Random(rand::random()),
        }),
        cause: Cause::Acquire,
    }
}

fn held(live: &Live, write: Write, cause: Cause) -> Change {
    Change {
        resource: live.lock.resource.clone(),
        expected: Expected::HeldBy(Claim {
            holder: live.lock.holder(),
            token: None,
        }),
        write,
        cause,
    }
}

fn release(live: &Live) -> Change {
    held(live, Write::Remove, Cause::Release)
}

fn renew(live: &Live, seconds: i128) -> Change {
    held(
        live,
        Write::Extend(Ttl::new(seconds, Ttl::MAX).unwrap()),
        Cause::Renew,
    )
}

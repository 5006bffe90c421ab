//! What the figures were measured on: a figure without its machine means nothing.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How many syncs are timed.
const SYNCS: usize = 300;
/// How much is written before each: what one small commit writes.
const WRITE_BYTES: usize = 4_096;
/// What `statfs` calls a file system in memory (`magic.h`).
const TMPFS: i64 = 0x0102_1994;

/// A machine and its disk.
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    /// How long a small write and its sync take, in the median.
    pub(crate) sync: Duration,
}

impl Machine {
    /// Looks at this machine, and at the disk that `directory` is on.
    pub(crate) fn look(directory: &Path) -> Result<Self> {
        let kind = rustix::fs::statfs(directory)?.f_type;
        if kind == TMPFS {
            bail!(
                "{} is in memory, where a sync costs nothing: name a directory on a disk with --directory",
                directory.display()
            );
        }
        let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = processors
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
            .map_or("unknown", |(_, model)| model);
        let name = rustix::system::uname();
        Ok(Self {
            processor: model.to_owned(),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            kernel: format!(
                "{} {}",
                name.sysname().to_string_lossy(),
                name.release().to_string_lossy()
            ),
            sync: sync_time(directory)?,
        })
    }
}

fn sync_time(directory: &Path) -> Result<Duration> {
    let path = directory.join("sync");
    let mut file = File::create(&path)?;
    let mut times = Vec::with_capacity(SYNCS);
    for _ in 0..SYNCS {
        let start = Instant::now();
        file.write_all(&[1; WRITE_BYTES])?;
        file.sync_data()?;
        times.push(start.elapsed());
    }
    fs::remove_file(path)?;
    times.sort();
    times.get(SYNCS / 2).copied().context("no time was taken")
}

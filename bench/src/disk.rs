//! How often the disk was told to make everything durable, as the kernel counts it.
//!
//! The count is the whole disk's. On a machine that does nothing else it is the measured server's, whatever system
//! call it syncs with; and it is what the servers share, which a system call that is answered from a cache is not.

use std::fs;
use std::path::{Path, PathBuf};

/// A disk whose syncs are counted.
#[derive(Clone)]
pub(crate) struct Disk {
    stat: Option<PathBuf>,
}

impl Disk {
    /// The disk that a directory is on. Some file systems have none of their own; then nothing is counted.
    pub(crate) fn below(directory: &Path) -> Self {
        Self {
            stat: stat_file(directory),
        }
    }

    /// How many syncs there have been.
    pub(crate) fn syncs(&self) -> Option<u64> {
        let text = fs::read_to_string(self.stat.as_ref()?).ok()?;
        // Reads, writes and discards with four numbers each, three of what is under way, then flushes.
        text.split_whitespace().nth(15)?.parse().ok()
    }
}

fn stat_file(directory: &Path) -> Option<PathBuf> {
    let device = rustix::fs::stat(directory).ok()?.st_dev;
    let link = format!(
        "/sys/dev/block/{}:{}",
        rustix::fs::major(device),
        rustix::fs::minor(device)
    );
    let mut block = fs::canonicalize(link).ok()?;
    // Flushes are counted for the whole disk.
    if block.join("partition").exists() {
        block.pop();
    }
    Some(block.join("stat")).filter(|stat| stat.exists())
}

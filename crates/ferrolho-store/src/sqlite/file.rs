//! The database file itself: where it really is, that no other server has it, and what it lies on.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock, fstatfs};
use rustix::io::Errno;

use super::error::SqliteOpenError;

/// The file, locked against other servers for as long as this value lives.
///
/// The lock is a `flock` on the database file: it goes with the process however that ends, follows symbolic
/// links, and is not in the way of SQLite's own locks, which are of another kind. The value must outlive every
/// SQLite connection to the file: closing any descriptor of a file gives up all locks that SQLite has on it.
#[derive(Debug)]
pub(super) struct DatabaseFile {
    path: PathBuf,
    file: File,
}

impl DatabaseFile {
    /// Opens the file, or makes it, and locks it.
    pub(super) fn lock(path: &Path) -> Result<Self, SqliteOpenError> {
        let failed = |cause| SqliteOpenError::File {
            path: path.to_owned(),
            cause,
        };
        let is_new = !path.exists();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                // Closing it would undo SQLite's own locks, should the other server be in this process.
                std::mem::forget(file);
                return Err(SqliteOpenError::InUse(path.to_owned()));
            }
            Err(cause) => return Err(failed(cause.into())),
        }
        let path = path.canonicalize().map_err(failed)?;
        let file = Self { path, file };
        if is_new {
            file.sync_directory().map_err(failed)?;
        }
        if !file.is_in_place() {
            return Err(failed(io::Error::other(
                "the file was replaced while it was opened",
            )));
        }
        Ok(file)
    }

    /// Where the file really is, links resolved.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file beside it, named as SQLite names its own.
    pub(super) fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(suffix);
        name.into()
    }

    /// Whether the path still leads to the file that is open.
    pub(super) fn is_in_place(&self) -> bool {
        match (self.file.metadata(), self.path.metadata()) {
            (Ok(open), Ok(there)) => (open.dev(), open.ino()) == (there.dev(), there.ino()),
            _ => false,
        }
    }

    /// The kind of network file system that the file lies on, if it does.
    pub(super) fn network_file_system(&self) -> Option<&'static str> {
        // Numbers of statfs(2).
        let kind = u64::try_from(fstatfs(&self.file).ok()?.f_type).ok()? & 0xffff_ffff;
        Some(match kind {
            0x6969 => "NFS",
            0x517b | 0xff53_4d42 | 0xfe53_4d42 => "SMB",
            0x0102_1997 => "9P",
            0x00c3_6400 => "Ceph",
            0x5346_414f => "AFS",
            0x7461_636f => "OCFS2",
            0x0116_1970 => "GFS2",
            0x6573_5546 => "FUSE",
            _ => return None,
        })
    }

    /// Makes the entry of a new file as durable as the file.
    fn sync_directory(&self) -> io::Result<()> {
        match self.path.parent() {
            Some(directory) => File::open(directory)?.sync_all(),
            None => Ok(()),
        }
    }
}

//! The highest token that was ever drawn at this place, in a small file beside the database.
//!
//! Who puts an older copy of the database back in its place, or deletes it, turns the token counter back, and
//! nothing in the copy says so. This file does: it is written after each batch that drew tokens, so it also
//! survives `kill -9`. It is not synced with each batch, so after a power loss it may be a little behind, and a
//! snapshot of the whole directory or machine takes it back together with the database: for these there is
//! `ferrolho lift-tokens`. Nothing else rests on it, so failing to write it is worth one line in the log and no more.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ferrolho_core::FencingToken;
use tracing::warn;

/// What begins the file, for those who wonder what it is.
const HEAD: &str = "ferrolho: the highest fencing token drawn here: ";

/// The file.
#[derive(Debug)]
pub(super) struct HighWater {
    /// Nothing when it could not be opened or written.
    file: Option<File>,
    token: u64,
}

impl HighWater {
    /// Reads the file, or makes it. A content that is none counts as 0.
    pub(super) fn open(path: &Path) -> Self {
        match Self::try_open(path) {
            Ok(opened) => opened,
            Err(cause) => {
                warn!(path = %path.display(), %cause, "a copy put back will not be noticed");
                Self { file: None, token: 0 }
            }
        }
    }

    fn try_open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        // One byte more than is right, so that a longer content is seen to be none.
        let mut content = vec![0; Self::content(0).len() + 1];
        let length = file.read_at(&mut content, 0)?;
        let token = std::str::from_utf8(&content[..length])
            .ok()
            .and_then(|text| text.strip_prefix(HEAD)?.strip_suffix('\n')?.parse().ok())
            .filter(|token| *token <= FencingToken::MAX.get() && length + 1 == content.len());
        Ok(Self {
            file: Some(file),
            token: token.unwrap_or(0),
        })
    }

    /// The highest token that was drawn here.
    pub(super) fn token(&self) -> u64 {
        self.token
    }

    /// Notes a higher one.
    pub(super) fn raise(&mut self, token: u64) {
        if token <= self.token {
            return;
        }
        self.token = token;
        let Some(file) = &self.file else { return };
        if let Err(cause) = file.write_all_at(Self::content(token).as_bytes(), 0) {
            warn!(%cause, "the highest token cannot be noted: a copy put back will not be noticed");
            self.file = None;
        }
    }

    /// Makes it durable, at a clean stop.
    pub(super) fn sync(&self) {
        if let Some(Err(cause)) = self.file.as_ref().map(File::sync_data) {
            warn!(%cause, "the highest token could not be synced");
        }
    }

    fn content(token: u64) -> String {
        format!("{HEAD}{token:016}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_content_counts_and_it_only_rises() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db-top");
        let mut file = HighWater::open(&path);
        assert_eq!(file.token(), 0);
        file.raise(12);
        file.raise(7);
        assert_eq!(HighWater::open(&path).token(), 12);
        for other in ["", "12", &format!("{HEAD}12\n"), &format!("{HEAD}{}\n", u64::MAX)] {
            std::fs::write(&path, other).unwrap();
            assert_eq!(HighWater::open(&path).token(), 0, "{other}");
        }
    }
}

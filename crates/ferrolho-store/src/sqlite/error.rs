//! What can go wrong with the file, in words for an operator.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// Why the file was not opened. Each message is one line that names the file.
#[derive(Debug, thiserror::Error)]
pub enum SqliteOpenError {
    /// Another server has it.
    #[error("{}: another ferrolho server has this file open", .0.display())]
    InUse(PathBuf),
    /// The file, or its directory, does not let itself be opened or written.
    #[error("{}: {cause}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// It is something else than a database.
    #[error("{}: this is not a SQLite database", .0.display())]
    NotADatabase(PathBuf),
    /// It is a database of another shape.
    #[error("{}: {what}", path.display())]
    Foreign {
        /// Which file.
        path: PathBuf,
        /// What does not fit.
        what: String,
    },
    /// SQLite could not open it.
    #[error("{}: SQLite says: {cause}", path.display())]
    Sqlite {
        /// Which file.
        path: PathBuf,
        /// What it said.
        cause: rusqlite::Error,
    },
}

impl SqliteOpenError {
    pub(super) fn sqlite(path: &Path, cause: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match cause.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => Self::NotADatabase(path),
            _ => Self::Sqlite { path, cause },
        }
    }

    pub(super) fn file(path: &Path, cause: std::io::Error) -> Self {
        let path = path.to_owned();
        Self::File { path, cause }
    }

    pub(super) fn disk(path: &Path, cause: DiskError) -> Self {
        match cause {
            DiskError::Sqlite(cause) => Self::sqlite(path, cause),
            DiskError::Open(cause) => cause,
            other => Self::file(path, std::io::Error::other(other.to_string())),
        }
    }
}

/// Why a step on the disk failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum DiskError {
    #[error("SQLite says: {0}")]
    Sqlite(#[from] rusqlite::Error),
    #[error(transparent)]
    File(std::io::Error),
    #[error("the database file was moved, replaced or deleted while the server runs")]
    Moved,
    #[error("the log of the database is full, since another program has been reading the file for long")]
    LogFull,
    #[error("the database is not open")]
    NotOpen,
    #[error(transparent)]
    Open(#[from] SqliteOpenError),
}

impl DiskError {
    /// Whether the connection is as sound as before: the disk was full, or somebody else was writing.
    pub(super) fn is_harmless(&self) -> bool {
        match self {
            Self::Sqlite(cause) => matches!(
                cause.sqlite_error_code(),
                Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
            ),
            Self::Moved | Self::LogFull => true,
            Self::File(_) | Self::NotOpen | Self::Open(_) => false,
        }
    }
}

//! Exit codes, fixed for scripts. The numbers above 63 are those of `sysexits.h`.

use std::io::{self, Write};
use std::process::ExitCode;

use ferrolho_client::{Error, Loss};

/// The lock is there, and another owner or grant has it.
pub(crate) const NOT_OWNER: u8 = 3;
/// There is no such lock.
pub(crate) const NOT_FOUND: u8 = 4;
/// The command line, or a value on it, is wrong (`EX_USAGE`).
pub(crate) const USAGE: u8 = 64;
/// No server can be reached, or none gives an answer (`EX_UNAVAILABLE`).
pub(crate) const UNREACHABLE: u8 = 69;
/// The lock was lost while the command ran (`EX_IOERR`).
pub(crate) const LOST: u8 = 74;
/// The lock is held by another owner, or was not free in time (`EX_TEMPFAIL`: try again).
pub(crate) const HELD: u8 = 75;
/// The server does not let this caller do that (`EX_NOPERM`).
pub(crate) const NOT_PERMITTED: u8 = 77;

/// The exit code for an error of the client.
pub(crate) fn code(error: &Error) -> u8 {
    match error {
        Error::Held { .. } => HELD,
        Error::NotFound | Error::Lost(Loss::Released) => NOT_FOUND,
        Error::NotOwner => NOT_OWNER,
        Error::Lost(_) => LOST,
        Error::Refused(problem) if matches!(problem.status, 401 | 403) => NOT_PERMITTED,
        Error::Invalid(_) | Error::Setup(_) | Error::Refused(_) => USAGE,
        _ => UNREACHABLE,
    }
}

/// Says what went wrong, on standard error, and how the program ends.
pub(crate) fn fail(error: &Error) -> ExitCode {
    say(error);
    code(error).into()
}

/// Says this on standard error. When that is closed there is nobody left to tell.
pub(crate) fn say(message: impl std::fmt::Display) {
    let _closed = writeln!(io::stderr(), "ferrolho: {message}");
}

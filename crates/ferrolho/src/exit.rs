//! Exit codes, fixed for scripts. The numbers above 63 are those of `sysexits.h`.

/// The command line, or a value on it, is wrong (`EX_USAGE`).
pub(crate) const USAGE: u8 = 64;

//! The small commands: one file each.

pub(crate) mod acquire;
pub(crate) mod lift_tokens;
pub(crate) mod list;
pub(crate) mod pages;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod status;
pub(crate) mod token;
pub(crate) mod watch;

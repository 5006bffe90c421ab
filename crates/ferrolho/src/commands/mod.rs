//! The small commands: one file each.

pub(crate) mod pages;

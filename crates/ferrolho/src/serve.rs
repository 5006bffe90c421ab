//! `ferrolho serve`: placeholder until the server lands; this file belongs to the HTTP part.

use std::process::ExitCode;

/// Arguments of `ferrolho serve`.
#[derive(clap::Args)]
pub(crate) struct ServeArgs {}

/// Runs the server until it is told to stop.
pub(crate) fn serve(_args: ServeArgs) -> ExitCode {
    ExitCode::FAILURE
}

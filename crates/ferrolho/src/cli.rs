//! The command line: one definition, from which help, completions and the manual page are made.

use clap::{Parser, Subcommand};

use crate::commands::pages::{CompletionsArgs, ManArgs};
use crate::serve::ServeArgs;

/// A distributed lock service: one binary, plain HTTP and JSON, durable by default.
#[derive(Parser)]
#[command(name = "ferrolho", version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run the lock server
    Serve(Box<ServeArgs>),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print the manual page
    Man(ManArgs),
}

//! The command line: one definition, from which help, completions and the manual page are made.

use clap::{Parser, Subcommand};

use crate::commands::acquire::AcquireArgs;
use crate::commands::lift_tokens::LiftTokensArgs;
use crate::commands::list::ListArgs;
use crate::commands::pages::{CompletionsArgs, ManArgs};
use crate::commands::release::ReleaseArgs;
use crate::commands::renew::RenewArgs;
use crate::commands::status::StatusArgs;
use crate::commands::token::TokenArgs;
use crate::commands::watch::WatchArgs;
use crate::run::RunArgs;
use crate::serve::ServeArgs;

/// A distributed lock service: one binary, plain HTTP and JSON, durable by default.
#[derive(Parser)]
#[command(name = "ferrolho", version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do. What a command is for stands with its arguments.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run the lock server
    Serve(Box<ServeArgs>),
    Run(RunArgs),
    Acquire(AcquireArgs),
    Renew(RenewArgs),
    Release(ReleaseArgs),
    Status(StatusArgs),
    List(ListArgs),
    Watch(WatchArgs),
    Token(TokenArgs),
    LiftTokens(LiftTokensArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

//! The `ferrolho` program: the server, `run`, and the small commands.
//!
//! `main` parses the command line once and hands the checked arguments to the command's own module. Exit codes
//! are fixed (`exit.rs`), also for a wrong command line. Nothing here panics on a closed pipe: all output goes
//! through writers whose errors are looked at.

mod cli;
mod commands;
mod config;
mod connect;
mod exit;
mod output;
mod run;
mod serve;
#[cfg(test)]
mod settings_table;
mod span;
mod supervisor;
mod warnings;

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;

use cli::{Cli, Command};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    if let Some(code) = run::inner(std::env::args_os()) {
        return code;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(answer) => return usage(&answer),
    };
    match cli.command {
        Command::Serve(args) => serve::serve(&args),
        Command::Run(args) => run::run(&args),
        Command::Acquire(args) => commands::acquire::acquire(&args),
        Command::Renew(args) => commands::renew::renew(&args),
        Command::Release(args) => commands::release::release(&args),
        Command::Status(args) => commands::status::status(&args),
        Command::List(args) => commands::list::list(&args),
        Command::Watch(args) => commands::watch::watch(&args),
        Command::Token(args) => commands::token::token(&args),
        Command::LiftTokens(args) => commands::lift_tokens::lift_tokens(&args),
        Command::Completions(args) => commands::pages::completions(&args),
        Command::Man(args) => commands::pages::man(&args),
    }
}

/// Prints what clap has to say. Help and version are answers; everything else is a wrong use of the command.
fn usage(answer: &clap::Error) -> ExitCode {
    // A reader that went away has seen enough: there is nobody left to tell.
    let _closed = answer.print();
    if answer.use_stderr() {
        exit::USAGE.into()
    } else {
        ExitCode::SUCCESS
    }
}

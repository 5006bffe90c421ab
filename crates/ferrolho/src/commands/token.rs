//! `ferrolho token`: tokens for those who may call.

use std::process::ExitCode;

use clap::Subcommand;
use ferrolho_core::Principal;
use ferrolho_server::auth::{Identity, NewToken, Pattern, Rights};

use crate::exit;
use crate::output::{Output, printed};

/// Make tokens for those who may call a server
#[derive(Debug, clap::Args)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    action: TokenAction,
}

#[derive(Debug, Subcommand)]
enum TokenAction {
    New(NewTokenArgs),
}

/// Make a token, and the line that lets its holder in.
///
/// Prints two lines: the token, which is kept nowhere and not shown again, and the line for the file that `ferrolho
/// serve --tokens` reads. Add the line to the file, and send the server SIGHUP.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 made, 64 wrong usage")]
struct NewTokenArgs {
    /// Who the holder is: its locks belong to this name and an owner's name together
    #[arg(long, value_name = "NAME", value_parser = principal)]
    name: Principal,

    /// Names that it may use: one exactly, or with a * at the end all that begin like it. May be given several times
    #[arg(long, value_name = "PATTERN", required = true)]
    allow: Vec<Pattern>,

    /// It may also see locks, who waits for them, and events
    #[arg(long)]
    read: bool,

    /// It may also take locks away from their holders, and see everything that --read shows
    #[arg(long)]
    admin: bool,

    /// It may not acquire, renew or release locks
    #[arg(long)]
    no_acquire: bool,
}

fn principal(text: &str) -> Result<Principal, String> {
    Principal::new(text).map_err(|invalid| invalid.message)
}

/// `ferrolho token`.
pub(crate) fn token(args: &TokenArgs) -> ExitCode {
    let TokenAction::New(args) = &args.action;
    let identity = Identity {
        principal: args.name.clone(),
        patterns: args.allow.clone(),
        rights: Rights {
            acquire: !args.no_acquire,
            read: args.read,
            admin: args.admin,
        },
    };
    match NewToken::make(&identity) {
        Ok(made) => printed(Output::new().line(format_args!("{}\n{}", made.token, made.line))),
        Err(error) => {
            exit::say(error);
            ExitCode::from(exit::USAGE)
        }
    }
}

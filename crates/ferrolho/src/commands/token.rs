//! `ferrolho token`: tokens for those who may call.

use std::fmt::Display;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use ferrolho_core::Principal;
use ferrolho_server::auth::{Identity, NewToken, Pattern, Rights, line_for_certificate};

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
    Certificate(CertificateArgs),
}

/// Make a token, and the line that lets its holder in.
///
/// Prints two lines: the token, which is kept nowhere and not shown again, and the line for the file that `ferrolho
/// serve --tokens` reads. Add the line to the file, and send the server SIGHUP.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 made, 64 wrong usage")]
struct NewTokenArgs {
    #[command(flatten)]
    holder: HolderArgs,
}

/// Print the line that lets in who has a client certificate.
///
/// For the same file; the server must know the certificate's authority (`ferrolho serve --tls-client-ca`). The line is
/// about the certificate's subject, so it holds for the certificates that come after it too.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 printed, 64 wrong usage")]
struct CertificateArgs {
    #[command(flatten)]
    holder: HolderArgs,

    /// The certificate, PEM
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Who somebody is, and what it may do.
#[derive(Debug, clap::Args)]
struct HolderArgs {
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

impl HolderArgs {
    fn identity(&self) -> Identity {
        Identity {
            principal: self.name.clone(),
            patterns: self.allow.clone(),
            rights: Rights {
                acquire: !self.no_acquire,
                read: self.read,
                admin: self.admin,
            },
        }
    }
}

/// `ferrolho token`.
pub(crate) fn token(args: &TokenArgs) -> ExitCode {
    let made = match &args.action {
        TokenAction::New(args) => NewToken::make(&args.holder.identity())
            .map(|made| format!("{}\n{}", made.token, made.line))
            .map_err(|error| error.to_string()),
        TokenAction::Certificate(args) => line_of(args),
    };
    match made {
        Ok(lines) => printed(Output::new().line(format_args!("{lines}"))),
        Err(error) => {
            exit::say(error);
            ExitCode::from(exit::USAGE)
        }
    }
}

fn line_of(args: &CertificateArgs) -> Result<String, String> {
    let wrong = |error: &dyn Display| format!("{}: {error}", args.file.display());
    let pem = fs::read(&args.file).map_err(|error| wrong(&error))?;
    line_for_certificate(&args.holder.identity(), &pem).map_err(|error| wrong(&error))
}

//! `ferrolho renew`: gives a lock a new end.

use std::process::ExitCode;

use ferrolho_client::{FencingToken, Ttl};

use crate::connect::{self, OwnerArg, ServerArgs};
use crate::output::{GOOD, Output, printed};
use crate::span;

/// Renew a lock that the owner holds: its new end is now and TIME.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 renewed, 4 no such lock (or it has expired), 3 not the owner, 69 no server, 64 wrong usage, 77 not permitted"
)]
pub(crate) struct RenewArgs {
    /// Which lock
    resource: String,

    /// How long it lives from now on: whole seconds, or 30s, 5m, 1h30m
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = span::parse_ttl)]
    ttl: Ttl,

    #[command(flatten)]
    owner: OwnerArg,

    /// Only this grant
    #[arg(long, value_name = "NUMBER", value_parser = parse_token)]
    fencing_token: Option<FencingToken>,

    /// Print the lock as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

/// `ferrolho renew RESOURCE`.
pub(crate) fn renew(args: &RenewArgs) -> ExitCode {
    connect::carry_out(async {
        let client = args.server.client(Some(args.owner.required()?))?;
        let lock = client.renew(&args.resource, args.ttl, args.fencing_token).await?;
        let output = Output::new();
        if args.json {
            return Ok(printed(output.json(&lock)));
        }
        let result = output.line(output.paint(GOOD, "renewed"));
        Ok(printed(
            result.and_then(|()| output.lock(&lock, client.server_now())),
        ))
    })
}

/// A fencing token as a number.
pub(crate) fn parse_token(text: &str) -> Result<FencingToken, String> {
    let number: i128 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    FencingToken::new(number).map_err(|error| error.message)
}

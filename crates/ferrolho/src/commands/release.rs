//! `ferrolho release`: gives a lock back.

use std::process::ExitCode;

use ferrolho_client::FencingToken;

use crate::commands::renew::parse_token;
use crate::connect::{self, OwnerArg, ServerArgs};
use crate::output::{GOOD, Output, printed};

/// Release a lock that the owner holds.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 released, 4 no such lock (or it has expired), 3 not the owner, 69 no server, 64 wrong usage, 77 not permitted"
)]
pub(crate) struct ReleaseArgs {
    /// Which lock
    resource: String,

    #[command(flatten)]
    owner: OwnerArg,

    /// Only this grant
    #[arg(long, value_name = "NUMBER", value_parser = parse_token)]
    fencing_token: Option<FencingToken>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

/// `ferrolho release RESOURCE`.
pub(crate) fn release(args: &ReleaseArgs) -> ExitCode {
    connect::carry_out(async {
        let client = args.server.client(Some(args.owner.required()?))?;
        client.release(&args.resource, args.fencing_token).await?;
        let output = Output::new();
        Ok(printed(if args.json {
            output.json(&serde_json::json!({ "released": args.resource }))
        } else {
            output.line(format_args!(
                "{} {}",
                output.paint(GOOD, "released"),
                args.resource
            ))
        }))
    })
}

//! `ferrolho acquire`: takes a lock and leaves it to the caller.

use std::process::ExitCode;

use ferrolho_client::{Error, Patience, Ttl};
use serde_json::value::RawValue;

use crate::connect::{self, ServerArgs};
use crate::output::{GOOD, Output, printed};
use crate::{exit, span};

/// Acquire a lock, which stays until it is released or its lifetime is over.
///
/// Nobody renews it: do so with `ferrolho renew`, or let `ferrolho run` do all of it. The lock belongs to the owner,
/// who is needed to renew and release it; without one, a new owner is made up and printed.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 acquired, 75 held by another owner, 69 no server, 64 wrong usage, 77 not permitted"
)]
pub(crate) struct AcquireArgs {
    /// What to lock
    resource: String,

    /// How long the lock lives: whole seconds, or 30s, 5m, 1h30m
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = span::parse_ttl)]
    ttl: Ttl,

    /// How long to wait for it, or "forever"
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = span::parse_wait)]
    wait: Patience,

    /// For which owner
    #[arg(long, env = "FERROLHO_OWNER")]
    owner: Option<String>,

    /// A JSON object that others see on the lock
    #[arg(long, value_name = "JSON")]
    metadata: Option<String>,

    /// Print the lock as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

/// `ferrolho acquire RESOURCE`.
pub(crate) fn acquire(args: &AcquireArgs) -> ExitCode {
    connect::carry_out(async {
        let client = args.server.client(connect::named(args.owner.as_deref())?)?;
        let mut request = client
            .lock(&args.resource)?
            .ttl(args.ttl.duration())?
            .patience(args.wait);
        if let Some(metadata) = &args.metadata {
            request = request.metadata(&json_text(metadata)?)?;
        }
        let output = Output::new();
        match request.acquire().await {
            Ok(guard) => {
                let lock = guard.detach();
                client.settle().await;
                if args.json {
                    let answer = serde_json::json!({ "acquired": true, "lock": lock });
                    return Ok(printed(output.json(&answer)));
                }
                let result = output.line(output.paint(GOOD, "acquired"));
                Ok(printed(
                    result.and_then(|()| output.lock(&lock, client.server_now())),
                ))
            }
            Err(held @ Error::Held { .. }) => {
                if args.json {
                    let answer = serde_json::json!({ "acquired": false, "resource": args.resource });
                    printed(output.json(&answer));
                } else {
                    exit::say(held);
                }
                Ok(exit::HELD.into())
            }
            Err(error) => Err(error),
        }
    })
}

/// A text that is JSON, as it is.
pub(crate) fn json_text(text: &str) -> Result<Box<RawValue>, Error> {
    serde_json::from_str(text).map_err(|error| Error::Setup(format!("--metadata is no JSON: {error}")))
}

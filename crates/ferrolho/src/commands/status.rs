//! `ferrolho status`: who holds a lock, who waits for it, or whether the server is ready.

use std::process::ExitCode;

use ferrolho_client::{Client, Error};

use crate::connect::{self, ServerArgs};
use crate::exit;
use crate::output::{GOOD, Output, WARNING, printed};

/// Show who holds a lock and who waits for it, or with --server whether the server is ready.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 held (or ready), 4 free, 69 no server (or not ready), 64 wrong usage, 77 not permitted"
)]
pub(crate) struct StatusArgs {
    /// Which lock
    #[arg(required_unless_present = "ready")]
    resource: Option<String>,

    /// Ask whether the server is ready to work, as a health check does
    #[arg(long = "server", id = "ready", conflicts_with = "resource")]
    ready: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

/// `ferrolho status RESOURCE`, `ferrolho status --server`.
pub(crate) fn status(args: &StatusArgs) -> ExitCode {
    connect::carry_out(async {
        let client = args.server.client(None)?;
        match &args.resource {
            Some(resource) => lock(&client, resource, args.json).await,
            None => server(&client, args.json).await,
        }
    })
}

async fn lock(client: &Client, resource: &str, json: bool) -> Result<ExitCode, Error> {
    let Some(lock) = client.find(resource).await? else {
        if json {
            printed(Output::new().json(&serde_json::Value::Null));
        } else {
            exit::say(format_args!("{resource} is free"));
        }
        return Ok(exit::NOT_FOUND.into());
    };
    let output = Output::new();
    if json {
        return Ok(printed(output.json(&lock)));
    }
    let waiters = match client.waiters(resource).await {
        Ok(waiters) => waiters,
        // Not everybody who may see a lock may see its queue.
        Err(Error::Refused(_)) => Vec::new(),
        Err(error) => return Err(error),
    };
    let result = output.lock(&lock, client.server_now()).and_then(|()| {
        for waiter in &waiters {
            let line = format_args!("{} since {}", waiter.owner, waiter.since).to_string();
            output.field("waits", output.paint(WARNING, line))?;
        }
        Ok(())
    });
    Ok(printed(result))
}

async fn server(client: &Client, json: bool) -> Result<ExitCode, Error> {
    let answer = client.ready().await?;
    let output = Output::new();
    Ok(printed(if json {
        output.line(answer)
    } else {
        output.line(format_args!(
            "{} {}",
            output.paint(GOOD, "ready"),
            client.current_server()
        ))
    }))
}

//! `ferrolho list`: who holds what.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use ferrolho_client::{Client, Error, Events, ListQuery, Lock, LockList, Timestamp};
use tokio::time::{Instant, sleep, sleep_until};

use crate::connect::{self, ServerArgs, named};
use crate::exit;
use crate::output::{self, FAINT, NOTHING, Output, printed};

/// List live locks, ordered by name.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 listed, 69 no server, 64 wrong usage, 77 not permitted")]
pub(crate) struct ListArgs {
    /// Only names that begin with this
    prefix: Option<String>,

    /// Only locks of this owner
    #[arg(long)]
    owner: Option<String>,

    /// Go on: show the list anew whenever it changes, with the time that is left
    #[arg(long)]
    watch: bool,

    /// Print JSON: {"locks":[…]}, with --watch one such line whenever the list changes
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

/// The shortest time between two lists that are asked for because something changed.
const BETWEEN_LISTS: Duration = Duration::from_millis(500);

/// How often the time that is left is shown anew.
const TICK: Duration = Duration::from_secs(1);

/// Moves to the top left and clears what was there.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// `ferrolho list [PREFIX]`.
pub(crate) fn list(args: &ListArgs) -> ExitCode {
    connect::carry_out(async {
        let view = View {
            client: args.server.client(None)?,
            query: ListQuery {
                prefix: args.prefix.clone().unwrap_or_default(),
                owner: named(args.owner.as_deref())?,
                ..ListQuery::default()
            },
            output: Output::new(),
            json: args.json,
            watch: args.watch,
        };
        if args.watch {
            return view.watch().await;
        }
        let locks = all(&view.client, &view.query).await?;
        Ok(printed(view.show(&locks)))
    })
}

/// All pages.
pub(crate) async fn all(client: &Client, query: &ListQuery) -> Result<Vec<Lock>, Error> {
    let mut locks = Vec::new();
    let mut query = query.clone();
    loop {
        let page = client.list(query.clone()).await?;
        locks.extend(page.locks);
        if page.next_cursor.is_none() {
            return Ok(locks);
        }
        query.cursor = page.next_cursor;
    }
}

/// What is looked at, and how it is shown.
struct View {
    client: Client,
    query: ListQuery,
    output: Output,
    json: bool,
    watch: bool,
}

impl View {
    async fn watch(&self) -> Result<ExitCode, Error> {
        let mut events = self.client.events(&self.query.prefix, None);
        let mut was_shown = false;
        loop {
            let locks = match all(&self.client, &self.query).await {
                Ok(locks) => locks,
                Err(error @ Error::Unreachable(_)) if was_shown => {
                    exit::say(format_args!("what is shown is old: {error}"));
                    sleep(TICK).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            was_shown = true;
            let next_list = Instant::now() + BETWEEN_LISTS;
            if let Err(error) = self.show(&locks) {
                return Ok(printed(Err(error)));
            }
            if let Some(end) = self.wait_for_change(&mut events, &locks).await {
                return end;
            }
            sleep_until(next_list).await;
        }
    }

    /// Waits until something happens, counting down meanwhile where people look on. How it ends, if it does.
    async fn wait_for_change(&self, events: &mut Events, locks: &[Lock]) -> Option<Result<ExitCode, Error>> {
        loop {
            tokio::select! {
                notice = events.next() => return match notice {
                    Some(Ok(_)) => None,
                    Some(Err(error)) => Some(Err(error)),
                    None => Some(Ok(ExitCode::SUCCESS)),
                },
                () = sleep(TICK), if self.output.is_terminal && !self.json => {
                    if let Err(error) = self.show(locks) {
                        return Some(Ok(printed(Err(error))));
                    }
                }
            }
        }
    }

    fn show(&self, locks: &[Lock]) -> io::Result<()> {
        if self.json {
            return self.output.json(&LockList {
                locks: locks.to_vec(),
                next_cursor: None,
            });
        }
        let now = self.client.server_now();
        let rows: Vec<Vec<String>> = locks.iter().map(|lock| row(lock, now)).collect();
        let heads = ["RESOURCE", "OWNER", "LEFT", "TOKEN", "SINCE"];
        let text = if rows.is_empty() && self.output.is_terminal {
            self.output.paint(FAINT, NOTHING)
        } else {
            output::table(&self.output, &heads, &rows).join("\n")
        };
        let clear = if self.watch && self.output.is_terminal {
            CLEAR
        } else {
            ""
        };
        self.output.line(format_args!("{clear}{text}"))
    }
}

fn row(lock: &Lock, now: Option<Timestamp>) -> Vec<String> {
    vec![
        lock.resource.to_string(),
        lock.owner.to_string(),
        now.map_or_else(String::new, |now| output::left(lock, now)),
        lock.fencing_token.to_string(),
        lock.acquired_at.to_string(),
    ]
}

//! `ferrolho watch`: what happens to locks, as it happens.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::styling::Style;
use ferrolho_client::{Client, Error, Event, EventKind, ListQuery, Lock, Notice, Resource};
use serde::Serialize;
use tokio::time::sleep;

use super::list;
use crate::connect::{self, ServerArgs};
use crate::output::{self, FAINT, GOOD, NOTHING, Output, WARNING, printed};

/// Show what happens to locks, as it happens.
///
/// One line for each event. On a terminal the last line counts down to the next end of a lock.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 69 no server, 64 wrong usage, 77 not permitted")]
pub(crate) struct WatchArgs {
    /// Only names that begin with this
    prefix: Option<String>,

    /// Begin after the event with this id, as --json shows it
    #[arg(long, value_name = "ID")]
    after: Option<String>,

    /// Print each event as one line of JSON, with its id; {"reset":true} when something may have been missed
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

/// How often the countdown is shown anew.
const TICK: Duration = Duration::from_secs(1);

/// Moves to the beginning of the line and clears it.
const CLEAR_LINE: &str = "\r\x1b[2K";

/// `ferrolho watch [PREFIX]`.
pub(crate) fn watch(args: &WatchArgs) -> ExitCode {
    connect::carry_out(async {
        let mut view = View {
            client: args.server.client(None)?,
            prefix: args.prefix.clone().unwrap_or_default(),
            output: Output::new(),
            json: args.json,
            live: BTreeMap::new(),
        };
        let mut events = view.client.events(&view.prefix, args.after.clone());
        loop {
            let result = tokio::select! {
                notice = events.next() => match notice {
                    Some(notice) => view.take(notice?).await?,
                    None => return Ok(ExitCode::SUCCESS),
                },
                () = sleep(TICK), if view.counts_down() => view.footer(),
            };
            if let Err(error) = result {
                return Ok(printed(Err(error)));
            }
        }
    })
}

struct View {
    client: Client,
    prefix: String,
    output: Output,
    json: bool,
    /// The locks that live, for the countdown.
    live: BTreeMap<Resource, Lock>,
}

/// An event for programs.
#[derive(Serialize)]
struct Line<'a> {
    id: Option<&'a str>,
    #[serde(flatten)]
    event: &'a Event,
}

impl View {
    fn counts_down(&self) -> bool {
        self.output.is_terminal && !self.json
    }

    async fn take(&mut self, notice: Notice) -> Result<io::Result<()>, Error> {
        let Notice::Event { id, event } = notice else {
            return self.look_anew().await;
        };
        match event.kind {
            EventKind::Acquired | EventKind::Renewed => {
                self.live.insert(event.resource.clone(), event.lock.clone());
            }
            EventKind::Released | EventKind::Expired | EventKind::Forced => {
                self.live.remove(&event.resource);
            }
        }
        if self.json {
            let id = id.as_deref();
            return Ok(self.output.json(&Line { id, event: &event }));
        }
        Ok(self.print(&event))
    }

    /// Something may have been missed, or nothing was seen yet.
    async fn look_anew(&mut self) -> Result<io::Result<()>, Error> {
        if self.json {
            return Ok(self.output.json(&serde_json::json!({ "reset": true })));
        }
        if !self.counts_down() {
            return Ok(Ok(()));
        }
        let query = ListQuery {
            prefix: self.prefix.clone(),
            ..ListQuery::default()
        };
        let locks = list::all(&self.client, &query).await?;
        self.live = locks
            .into_iter()
            .map(|lock| (lock.resource.clone(), lock))
            .collect();
        Ok(self.footer())
    }

    fn print(&self, event: &Event) -> io::Result<()> {
        let (word, style) = (event.kind.as_str(), style(event.kind));
        let clear = if self.counts_down() { CLEAR_LINE } else { "" };
        let reason = event
            .reason
            .as_ref()
            .map(|reason| format!(" ({reason})"))
            .unwrap_or_default();
        self.output.line(format_args!(
            "{clear}{} {} {} {} token {}{reason}",
            self.output.paint(FAINT, event.at),
            self.output.paint(style, format_args!("{word:<8}")),
            event.resource,
            self.output.paint(FAINT, format_args!("by {}", event.lock.owner)),
            event.lock.fencing_token,
        ))?;
        self.footer()
    }

    /// The last line: how many locks live, and which ends next.
    fn footer(&self) -> io::Result<()> {
        if !self.counts_down() {
            return Ok(());
        }
        let next = self.live.values().min_by_key(|lock| lock.expires_at);
        let text = match (next, self.client.server_now()) {
            (Some(lock), Some(now)) => {
                format!(
                    "{} held; {}: {}",
                    self.live.len(),
                    lock.resource,
                    output::left(lock, now)
                )
            }
            _ => NOTHING.to_owned(),
        };
        let text: String = text.chars().take(output::columns() - 1).collect();
        let mut out = io::stdout().lock();
        write!(out, "{CLEAR_LINE}{}", self.output.paint(FAINT, text))?;
        out.flush()
    }
}

fn style(kind: EventKind) -> Style {
    match kind {
        EventKind::Acquired => GOOD,
        EventKind::Renewed => FAINT,
        EventKind::Released => Style::new(),
        EventKind::Expired | EventKind::Forced => WARNING,
    }
}

//! What the small commands print: tables and colours for people on a terminal, JSON for programs.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Style};
use ferrolho_client::{Lock, Timestamp};
use serde::Serialize;

use crate::{exit, span};

/// Names of columns, and of fields.
pub(crate) const HEADING: Style = Style::new().bold();
/// What is as it should be.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// What wants attention.
pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default();
/// What matters less.
pub(crate) const FAINT: Style = Style::new().dimmed();

/// Standard output, with colours where people see them.
pub(crate) struct Output {
    out: io::Stdout,
    pub(crate) is_terminal: bool,
    colours: bool,
}

impl Output {
    /// Colours on a terminal, unless `NO_COLOR` is set (<https://no-color.org>).
    pub(crate) fn new() -> Self {
        let out = io::stdout();
        let is_terminal = out.is_terminal();
        let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            out,
            is_terminal,
            colours: is_terminal && !is_unwanted,
        }
    }

    /// The text in this style, if there are colours.
    pub(crate) fn paint(&self, style: Style, text: impl fmt::Display) -> String {
        if self.colours {
            format!("{style}{text}{style:#}")
        } else {
            text.to_string()
        }
    }

    /// Prints one line.
    pub(crate) fn line(&self, line: impl fmt::Display) -> io::Result<()> {
        let mut out = self.out.lock();
        writeln!(out, "{line}")?;
        out.flush()
    }

    /// Prints a value as one line of JSON.
    pub(crate) fn json(&self, value: &impl Serialize) -> io::Result<()> {
        let json = serde_json::to_string(value).map_err(io::Error::other)?;
        self.line(json)
    }

    /// A field of a lock, named, for people.
    pub(crate) fn field(&self, name: &str, value: impl fmt::Display) -> io::Result<()> {
        self.line(format_args!(
            "{} {value}",
            self.paint(HEADING, format_args!("{name:<13}"))
        ))
    }

    /// All of a lock, for people.
    pub(crate) fn lock(&self, lock: &Lock, now: Option<Timestamp>) -> io::Result<()> {
        self.field("resource", &lock.resource)?;
        self.field("owner", &lock.owner)?;
        if let Some(principal) = &lock.principal {
            self.field("principal", principal)?;
        }
        self.field("fencing token", lock.fencing_token)?;
        self.field("acquired at", lock.acquired_at)?;
        match now {
            Some(now) => self.field(
                "expires at",
                format_args!("{} ({})", lock.expires_at, left(lock, now)),
            )?,
            None => self.field("expires at", lock.expires_at)?,
        }
        match &lock.metadata {
            Some(metadata) => self.field("metadata", metadata.as_str()),
            None => Ok(()),
        }
    }
}

/// How long a lock still lives, for people.
pub(crate) fn left(lock: &Lock, now: Timestamp) -> String {
    match lock.expires_at.since(now) {
        Duration::ZERO => "at its end".to_owned(),
        left => format!("{} left", span::show(left)),
    }
}

/// What people are told in place of no locks.
pub(crate) const NOTHING: &str = "nothing is held";

/// How many columns the terminal has; at least one. A terminal that does not know is taken for a usual one.
pub(crate) fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout());
    let known = size.map_or(0, |size| usize::from(size.ws_col));
    if known == 0 { 80 } else { known }
}

/// A table with columns as wide as what is in them.
pub(crate) fn table(output: &Output, heads: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let width = |text: &str| text.chars().count();
    let mut widths: Vec<usize> = heads.iter().map(|head| width(head)).collect();
    for row in rows {
        for (column, cell) in widths.iter_mut().zip(row) {
            *column = width(cell).max(*column);
        }
    }
    let format = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::new();
        for (cell, column) in cells.zip(&widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', column + 2 - width(cell)));
        }
        line.trim_end().to_owned()
    };
    let mut lines = vec![output.paint(HEADING, format(&mut heads.iter().copied()))];
    lines.extend(rows.iter().map(|row| format(&mut row.iter().map(String::as_str))));
    lines
}

/// How a command ends that has printed what it had to say. A reader that went away has seen enough.
pub(crate) fn printed(result: io::Result<()>) -> ExitCode {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            exit::say(format_args!("cannot write: {error}"));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

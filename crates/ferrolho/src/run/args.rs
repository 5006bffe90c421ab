//! The command line of `ferrolho run`, and the plan that it comes to.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use ferrolho_client::{Client, Error, Guard, LockRequest, Metadata, Patience, Ttl};
use serde_json::{Map, Value};

use crate::commands::acquire::json_text;
use crate::connect::{self, ServerArgs};
use crate::{exit, span};

/// Run a command while holding a lock, and only then.
///
/// Acquires the lock, renews it at a third of its lifetime, and runs COMMAND in a process group of its own, with
/// standard input, output and error as they are. Signals are passed on. When COMMAND has ended, what is left of its
/// processes is ended too, and then the lock is released. When the lock is lost, or cannot be renewed in time,
/// COMMAND gets SIGTERM and then SIGKILL, and is dead before anybody else can have the lock.
///
/// COMMAND finds FERROLHO_RESOURCE, FERROLHO_OWNER, FERROLHO_FENCING_TOKEN and FERROLHO_URL in its environment.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: COMMAND's own (128 + n when signal n ended it, 126 or 127 when it cannot be run),
75 not acquired in time, 69 no server, 74 lock lost, 64 wrong usage, 77 not permitted

Examples:
  ferrolho run nightly-report -- ./report.sh
  ferrolho run deploy --wait 10m --ttl 1m -- make deploy
  ferrolho run backup --shell -- 'pg_dump shop | gzip > shop.gz'")]
pub(crate) struct RunArgs {
    /// What to lock
    resource: String,

    /// How long the lock lives without a renewal: whole seconds, or 30s, 5m, 1h30m
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = span::parse_ttl)]
    ttl: Ttl,

    /// How long to wait for it, or "forever"
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = span::parse_wait)]
    wait: Patience,

    /// For which owner; without it a new one for each start. (Inside another run the variable names that run's
    /// owner, and is not used.)
    #[arg(long, env = "FERROLHO_OWNER")]
    owner: Option<String>,

    /// COMMAND is text for /bin/sh
    #[arg(long)]
    shell: bool,

    /// The exit code when the lock is not acquired in time
    #[arg(long, value_name = "CODE", default_value_t = exit::HELD)]
    on_held_exit: u8,

    /// Say nothing on standard error but what COMMAND says
    #[arg(long, short)]
    quiet: bool,

    /// A JSON object that others see on the lock, in place of host, pid and program
    #[arg(long, value_name = "JSON")]
    metadata: Option<String>,

    /// Show others COMMAND with its arguments too (which may hold secrets)
    #[arg(long)]
    metadata_command: bool,

    #[command(flatten)]
    server: ServerArgs,

    /// What to run
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// What is to be run under which lock, checked.
pub(crate) struct Plan {
    pub(crate) client: Client,
    pub(crate) request: LockRequest<Guard>,
    pub(crate) ttl: Ttl,
    pub(crate) resource: String,
    pub(crate) url: String,
    /// The program and its arguments; never empty.
    pub(crate) command: Vec<OsString>,
    pub(crate) on_held_exit: u8,
    pub(crate) quiet: bool,
}

impl RunArgs {
    /// Checks everything. Nothing is sent yet.
    pub(crate) fn plan(&self) -> Result<Plan, Error> {
        let command = if self.shell {
            shell(&self.command)
        } else {
            self.command.clone()
        };
        let client = self.server.client(connect::named(self.owner())?)?;
        let request = client
            .lock(&self.resource)?
            .ttl(self.ttl.duration())?
            .patience(self.wait)
            .metadata(&self.metadata(&command)?)?;
        Ok(Plan {
            client,
            request,
            ttl: self.ttl,
            resource: self.resource.clone(),
            url: self.server.url().to_owned(),
            command,
            on_held_exit: self.on_held_exit,
            quiet: self.quiet,
        })
    }

    /// The owner that was asked for.
    ///
    /// A command that runs under a lock has its run's owner in the environment. A run inside it would otherwise be
    /// the same owner, and take the lock from under the run around it instead of being refused.
    fn owner(&self) -> Option<&str> {
        let owner = self.owner.as_deref()?;
        let is_inside = std::env::var_os("FERROLHO_FENCING_TOKEN").is_some();
        let is_inherited = std::env::var("FERROLHO_OWNER").is_ok_and(|inherited| inherited == owner);
        (!(is_inside && is_inherited)).then_some(owner)
    }

    /// What others see on the lock.
    fn metadata(&self, command: &[OsString]) -> Result<Value, Error> {
        let mut metadata = match &self.metadata {
            Some(text) => serde_json::from_str(json_text(text)?.get())
                .map_err(|_| Error::Setup("--metadata must be a JSON object".to_owned()))?,
            None => default_metadata(command),
        };
        if self.metadata_command {
            add_command(&mut metadata, command);
        }
        Ok(Value::Object(metadata))
    }
}

/// The shell that runs this text.
fn shell(words: &[OsString]) -> Vec<OsString> {
    let text = words.join(OsStr::new(" "));
    vec!["/bin/sh".into(), "-c".into(), text]
}

/// Host, pid and program name, so that people can see who has the lock. No arguments: they may hold secrets.
fn default_metadata(command: &[OsString]) -> Map<String, Value> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let program = command
        .first()
        .map(Path::new)
        .and_then(Path::file_name)
        .unwrap_or_default();
    let mut metadata = Map::new();
    metadata.insert("host".to_owned(), host.into());
    metadata.insert("pid".to_owned(), std::process::id().into());
    metadata.insert("program".to_owned(), program.to_string_lossy().into());
    metadata
}

/// Adds the command's words, as many as there is room for.
fn add_command(metadata: &mut Map<String, Value>, command: &[OsString]) {
    let mut words: Vec<Value> = command.iter().map(|word| word.to_string_lossy().into()).collect();
    loop {
        metadata.insert("command".to_owned(), words.clone().into());
        let text = Value::Object(metadata.clone()).to_string();
        if Metadata::parse(&text).is_ok() || words.is_empty() {
            return;
        }
        // The last word gives way to a sign that something is missing, then the one before it.
        words.truncate(words.len().saturating_sub(2));
        words.push("…".into());
        if words.len() == 1 {
            words.clear();
        }
    }
}

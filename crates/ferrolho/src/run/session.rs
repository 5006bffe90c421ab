//! One run: acquire, start the command, see it through, release.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use ferrolho_client::{Error, Guard, Loss};
use rustix::process::{Pid, Signal};

use super::args::Plan;
use super::launch::Launch;
use super::margins::Margins;
use super::sentry::Sentry;
use super::signals::Signals;
use super::supervise::{Supervisor, exit_code};
use super::terminal::{self, Terminal};
use crate::exit;

/// How long giving up may take, when this program is told to end while it waits, or when the lock is lost: what the
/// server does not hear in that time it learns from the broken connection, or from the lock's own end.
const GIVE_UP_TIME: Duration = Duration::from_millis(500);

/// The exit code when the command cannot be started, as shells have it.
const CANNOT_RUN: u8 = 126;

/// Runs the plan; how it ended.
pub(crate) async fn session(plan: &Plan) -> ExitCode {
    let mut signals = match Signals::listen() {
        Ok(signals) => signals,
        Err(error) => return cannot_run(&error),
    };
    let acquired = tokio::select! {
        biased;
        signal = signals.next_ending() => Err(signal),
        acquired = plan.request.acquire() => Ok(acquired),
    };
    let guard = match acquired {
        Ok(Ok(guard)) => guard,
        Ok(Err(error)) => return refused(plan, &error).await,
        Err(signal) => return give_up(plan, signal).await,
    };
    match start(plan, &guard) {
        Ok(started) => see_through(plan, guard, started, &mut signals).await,
        Err(error) => {
            release(plan, guard).await;
            cannot_run(&error)
        }
    }
}

fn cannot_run(error: &io::Error) -> ExitCode {
    exit::say(format_args!("cannot run anything: {error}"));
    CANNOT_RUN.into()
}

/// The lock was not acquired.
async fn refused(plan: &Plan, error: &Error) -> ExitCode {
    let is_held = matches!(error, Error::Held { .. });
    if !plan.quiet {
        exit::say(error);
        if is_held && let Ok(Some(lock)) = plan.client.find(&plan.resource).await {
            let metadata = lock.metadata.as_ref().map_or("", |metadata| metadata.as_str());
            exit::say(format_args!(
                "held by {} until {} {metadata}",
                lock.owner, lock.expires_at
            ));
        }
    }
    if is_held {
        plan.on_held_exit.into()
    } else {
        exit::code(error).into()
    }
}

/// A signal ended the wait.
async fn give_up(plan: &Plan, signal: Signal) -> ExitCode {
    let _late = tokio::time::timeout(GIVE_UP_TIME, plan.client.settle()).await;
    u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX).into()
}

/// A command that runs.
struct Started {
    main: Pid,
    sentry: Option<Sentry>,
    terminal: Option<Terminal>,
    belongs_to_front: bool,
}

fn start(plan: &Plan, guard: &Guard) -> io::Result<Started> {
    // Where the kernel does not know this, orphans that left the group are not found.
    let _unknown = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let terminal = Terminal::open();
    let belongs_to_front = terminal.is_some() && terminal::is_interactive();
    let environment = [
        ("FERROLHO_RESOURCE", plan.resource.clone()),
        ("FERROLHO_OWNER", plan.client.owner().to_string()),
        ("FERROLHO_FENCING_TOKEN", guard.fencing_token().to_string()),
        ("FERROLHO_URL", plan.url.clone()),
    ];
    let launch = Launch {
        command: &plan.command,
        environment: &environment,
        to_the_front: belongs_to_front && terminal.as_ref().is_some_and(Terminal::is_ours),
    };
    let sentry = post_sentry(plan, guard);
    Ok(Started {
        main: launch.start()?,
        sentry,
        terminal,
        belongs_to_front,
    })
}

/// A sentry that knows until when the lock is certain. Without one, this program watches alone.
fn post_sentry(plan: &Plan, guard: &Guard) -> Option<Sentry> {
    match Sentry::post() {
        Ok(mut sentry) => {
            sentry.tell(Margins::of(plan.ttl).order(guard.certain_until(), None));
            Some(sentry)
        }
        Err(error) => {
            exit::say(format_args!("no sentry watches over the command: {error}"));
            None
        }
    }
}

async fn see_through(plan: &Plan, guard: Guard, started: Started, signals: &mut Signals) -> ExitCode {
    let ended = Supervisor::new(started.main, &guard, Margins::of(plan.ttl), signals)
        .with_sentry(started.sentry)
        .at(started.terminal, started.belongs_to_front)
        .run()
        .await;
    let code = exit_code(ended.status);
    let loss = match ended.loss {
        Some(loss) => {
            // What is still there of the lock is given back, if a server hears it soon.
            let _late = tokio::time::timeout(GIVE_UP_TIME, guard.release()).await;
            Some(loss)
        }
        None => release(plan, guard).await,
    };
    match loss {
        None => code.into(),
        Some(loss) => {
            if !plan.quiet {
                exit::say(format_args!("{loss}; the command ended with {code}"));
            }
            exit::LOST.into()
        }
    }
}

/// Gives the lock back; whether it turned out to be lost.
async fn release(plan: &Plan, guard: Guard) -> Option<Loss> {
    match guard.release().await {
        Ok(()) => None,
        Err(Error::Lost(loss)) => Some(loss),
        Err(error) => {
            if !plan.quiet {
                exit::say(format_args!(
                    "the lock was not released and ends by itself: {error}"
                ));
            }
            None
        }
    }
}

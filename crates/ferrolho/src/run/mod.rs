//! `ferrolho run`: a command that runs while a lock is held, and only then.
//!
//! `args` checks what is asked for, `session` goes from acquiring to releasing, `launch` starts the command,
//! `supervise` sees it and its processes (`tree`) through, in time for the lock (`margins`), `sentry` watches over it
//! when this program cannot; `signals` and `terminal` are what their names say. The lock is the client's business and is renewed on the
//! client's own thread.

mod args;
mod launch;
mod margins;
mod sentry;
mod session;
mod signals;
mod supervise;
mod terminal;
mod tree;

use std::ffi::OsString;
use std::process::ExitCode;

pub(crate) use args::RunArgs;

use crate::{exit, warnings};

/// `ferrolho run RESOURCE -- COMMAND`.
pub(crate) fn run(args: &RunArgs) -> ExitCode {
    let plan = match args.plan() {
        Ok(plan) => plan,
        Err(error) => return exit::fail(&error),
    };
    if !plan.quiet {
        warnings::show();
    }
    // On this very thread: the kernel ends a command with the thread that started it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(session::session(&plan)),
        Err(error) => {
            exit::say(error);
            exit::UNREACHABLE.into()
        }
    }
}

/// The inner parts of a run, under their hidden names.
pub(crate) fn inner(mut arguments: std::env::ArgsOs) -> Option<ExitCode> {
    let _program = arguments.next();
    let name: OsString = arguments.next()?;
    if name == launch::BECOME {
        Some(launch::become_command(arguments))
    } else if name == sentry::SENTRY {
        Some(sentry::watch(arguments))
    } else {
        None
    }
}

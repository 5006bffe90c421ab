//! `completions` and `man`: what a packager installs, made from the same definitions as `--help`.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;

/// Print a completion script for a shell.
#[derive(clap::Args)]
pub(crate) struct CompletionsArgs {
    /// For which shell
    shell: Shell,
}

/// Print the manual page.
#[derive(clap::Args)]
pub(crate) struct ManArgs {
    /// Of this command; without it the page of ferrolho itself
    command: Option<String>,
}

/// `ferrolho completions SHELL`.
pub(crate) fn completions(args: &CompletionsArgs) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ferrolho", &mut script);
    print(&script)
}

/// `ferrolho man [COMMAND]`.
pub(crate) fn man(args: &ManArgs) -> ExitCode {
    let mut root = Cli::command();
    root.build();
    let command = match &args.command {
        None => Some(&root),
        Some(name) => root
            .find_subcommand(name)
            .filter(|command| !command.is_hide_set()),
    };
    let Some(command) = command else {
        let name = args.command.as_deref().unwrap_or_default();
        let _closed = writeln!(io::stderr(), "ferrolho: there is no command {name:?}");
        return crate::exit::USAGE.into();
    };
    let mut page = Vec::new();
    // Writing into memory does not fail.
    let _infallible = clap_mangen::Man::new(command.clone()).render(&mut page);
    print(&page)
}

/// Writes it all to standard output. A reader that went away has seen enough.
fn print(text: &[u8]) -> ExitCode {
    match io::stdout().write_all(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let _closed = writeln!(io::stderr(), "ferrolho: cannot write: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

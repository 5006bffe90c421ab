//! `ferrolho lift-tokens`: what has to be done after a store was restored from a back-up.

use std::process::ExitCode;

use ferrolho_core::FencingToken;
use ferrolho_store::{Lift, StoreUrl, lift_tokens as lift};

use crate::exit;
use crate::output::{Output, printed};

/// Lift all fencing tokens of a store that was restored from a back-up.
///
/// A restored store has forgotten which tokens it gave out since the back-up was taken, and would give them out again.
/// Do this before a server is started on it. The default, a million, is enough when fewer grants were made since the
/// back-up (on etcd: fewer writes of any kind).
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 lifted, 64 wrong usage, 69 the store cannot be opened or does not answer"
)]
pub(crate) struct LiftTokensArgs {
    /// The store, as `ferrolho serve` has it
    #[arg(long, value_name = "URL", env = "FERROLHO_STORE", hide_env_values = true)]
    store: String,

    /// By so many, from where the store is now
    #[arg(long, value_name = "TOKENS", default_value_t = 1_000_000)]
    by: u64,

    /// Above this token, the highest that anything has seen
    #[arg(long, value_name = "TOKEN", conflicts_with = "by")]
    above: Option<u64>,
}

/// `ferrolho lift-tokens`.
pub(crate) fn lift_tokens(args: &LiftTokensArgs) -> ExitCode {
    let usage = |message: String| {
        exit::say(message);
        ExitCode::from(exit::USAGE)
    };
    // The text is not shown: it may hold a password.
    let store: StoreUrl = match args.store.parse() {
        Ok(store) => store,
        Err(error) => return usage(format!("--store is not valid: {error}")),
    };
    let how = match args.above {
        None => Lift::By(args.by),
        Some(above) => match FencingToken::new(above.into()) {
            Ok(token) => Lift::Above(token),
            Err(invalid) => return usage(format!("--above is not valid: {}", invalid.message)),
        },
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return unreachable_store(&error),
    };
    match runtime.block_on(lift(&store, how)) {
        Ok(above) => printed(Output::new().line(format_args!(
            "{store}: every further fencing token is above {above}"
        ))),
        Err(error) => unreachable_store(&error),
    }
}

fn unreachable_store(error: &dyn std::fmt::Display) -> ExitCode {
    exit::say(error);
    exit::UNREACHABLE.into()
}

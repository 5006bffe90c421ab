//! Servers with false clocks and in other time zones.

use ferrolho_testkit::{faketime_library, missing};

use super::Server;

/// The library that gives programs a false clock, as a variable of their environment; nothing when Debian's faketime is
/// not installed.
fn faketime() -> Option<String> {
    let library = faketime_library();
    if library.is_none() {
        missing("a false clock", "Debian's package faketime");
    }
    Some(library?.to_str().unwrap().to_owned())
}

/// A server that hardly lives: its monotonic clock, by which it sleeps and looks again, runs at a fraction of its
/// speed, such as `x0.1`. Other clocks, and what others send it, are as they are.
pub(crate) fn drowsy(store: &str, args: &[&str], speed: &str) -> Option<Server> {
    let library = faketime()?;
    let clock = format!("+0 {speed}");
    let env = [("LD_PRELOAD", library.as_str()), ("FAKETIME", &clock)];
    Some(Server::start_on(store, args, &env))
}

/// A server in this time zone whose wall clock is off by so many seconds.
pub(crate) fn elsewhere(store: &str, zone: &str, seconds: i64) -> Option<Server> {
    let library = faketime()?;
    let clock = format!("{seconds:+}");
    let env = [
        ("LD_PRELOAD", library.as_str()),
        ("FAKETIME", &clock),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ("TZ", zone),
    ];
    Some(Server::start_on(store, &[], &env))
}

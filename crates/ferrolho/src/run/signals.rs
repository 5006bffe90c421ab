//! The signals that a run passes on.
//!
//! What asks a program to end goes to the whole group, as a terminal would send it; what means something to one
//! program only goes to the command's main process. A signal that was ignored when this program was started stays
//! ignored, here and in the command: that is how `nohup`, and a shell's background jobs, work.

use std::fs;
use std::io;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// Those that ask to end.
const ENDING: [Signal; 4] = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM];

/// Those with a meaning of the command's own.
const OWN: [Signal; 2] = [Signal::USR1, Signal::USR2];

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// The command, all of it, is to end.
    End(Signal),
    /// The command's main process is told something.
    Tell(Signal),
    /// This program goes on after it was stopped.
    Continue,
    /// Something happened to a child.
    Child,
}

/// The signals that arrive from now on.
pub(crate) struct Signals {
    streams: Vec<(Call, unix::Signal)>,
}

impl Signals {
    /// Listens from now on.
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = ignored();
        let ending = ENDING.map(|signal| (Call::End(signal), signal));
        let own = OWN.map(|signal| (Call::Tell(signal), signal));
        let others = [(Call::Continue, Signal::CONT), (Call::Child, Signal::CHILD)];
        let mut streams = Vec::new();
        for (call, signal) in ending.into_iter().chain(own).chain(others) {
            let is_ignored = ignored & (1 << (signal.as_raw() - 1)) != 0;
            if call == Call::Child || !is_ignored {
                streams.push((call, unix::signal(SignalKind::from_raw(signal.as_raw()))?));
            }
        }
        Ok(Self { streams })
    }

    /// The next one. Signals of one kind that come close together may count as one, as everywhere.
    pub(crate) async fn next(&mut self) -> Call {
        std::future::poll_fn(|context| {
            for (call, stream) in &mut self.streams {
                if stream.poll_recv(context).is_ready() {
                    return std::task::Poll::Ready(*call);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }

    /// The next one that asks to end.
    pub(crate) async fn next_ending(&mut self) -> Signal {
        loop {
            if let Call::End(signal) = self.next().await {
                return signal;
            }
        }
    }
}

/// The set of signals that are ignored, bit n - 1 for signal n.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0)
}

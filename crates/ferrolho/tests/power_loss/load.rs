//! What callers do while the server is traced, and what they were told.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::{slice, thread};

use serde_json::{Value, json};

use crate::caller::Caller;
use crate::record::{LARGE_LOG_BYTES, Recorder, Serving};
use crate::server::until;
use crate::trace::CallerId;

/// A request that can change something, and what its caller was told.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) caller: CallerId,
    /// How many requests the caller sent before this one.
    pub(crate) nth: usize,
    pub(crate) act: Act,
}

/// What was asked, with the answer if there was one.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Acquire {
        owner: String,
        names: Vec<String>,
        granted: Option<Vec<Grant>>,
    },
    Renew {
        name: String,
        token: u64,
        /// The new end.
        end: Option<String>,
    },
    Release {
        name: String,
        token: u64,
    },
    /// Somebody else saw the lock.
    Look {
        owner: String,
        seen: Grant,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) name: String,
    pub(crate) token: u64,
    pub(crate) end: String,
}

/// Everything that the engine does: writes straight into the table, the journal and its folding, a log that is
/// copied and starts over, rest, hand-overs, `kill -9` under load, a start from what that has left, a clean stop.
pub(crate) fn everything(recorder: &mut Recorder) {
    let log = recorder.directory.path().join("ferrolho.db-wal");
    let log_bytes = || log.metadata().unwrap().len();
    let server = recorder.start();
    one_by_one(&server, "alone", 12);
    many(&server, "crowd", 20, 10, 1);
    hand_overs(&server, 6);
    let mut round = 0;
    while log_bytes() < LARGE_LOG_BYTES {
        many(&server, &format!("large-{round}"), 6, 4, 14);
        round += 1;
        assert!(round < 20, "the log does not grow: {}", log_bytes());
    }
    // And past the point where it starts over.
    many(&server, "larger", 6, 8, 14);
    many(&server, "after", 12, 4, 3);
    until("the log is emptied at rest", || (log_bytes() == 0).then_some(()));
    until_killed(&server, "killed", 16);
    recorder.end(server);

    let server = recorder.start();
    many(&server, "again", 12, 4, 2);
    server.traced.stop();
    recorder.end(server);

    let server = recorder.start();
    one_by_one(&server, "last", 4);
    many(&server, "end", 8, 3, 1);
    server.traced.kill();
    recorder.end(server);
}

/// Some of that, for what is repeated.
pub(crate) fn a_little(recorder: &mut Recorder) {
    let server = recorder.start();
    one_by_one(&server, "alone", 4);
    until_killed(&server, "killed", 12);
    recorder.end(server);

    let server = recorder.start();
    many(&server, "again", 12, 5, 2);
    server.traced.kill();
    recorder.end(server);
}

/// One caller, one request after the other: each is written straight into the table.
fn one_by_one(server: &Serving, prefix: &str, rounds: usize) {
    let mut caller = Caller::to(server);
    for round in 0..rounds {
        caller
            .round(&[format!("{prefix}-{round}")], round, &json!({}))
            .unwrap();
    }
}

/// Many callers at once, each with so many names at a time: large batches, which go through the journal. With more
/// names than ten each lock carries about as much metadata as it may.
fn many(server: &Serving, prefix: &str, callers: usize, rounds: usize, names: usize) {
    let weight = if names > 10 { 4000 } else { 10 };
    let metadata = json!({"what": "x".repeat(weight)});
    thread::scope(|scope| {
        for caller in 0..callers {
            let metadata = &metadata;
            scope.spawn(move || {
                let mut to_server = Caller::to(server);
                for round in 0..rounds {
                    let names: Vec<_> = (0..names)
                        .map(|name| format!("{prefix}-{caller}-{round}-{name}"))
                        .collect();
                    to_server.round(&names, round, metadata).unwrap();
                }
            });
        }
    });
}

/// Likewise, until the server is killed in the middle of it. Somebody looks at what the others take: what is seen
/// counts as told.
fn until_killed(server: &Serving, prefix: &str, callers: usize) {
    let rounds: Vec<_> = (0..callers).map(|_| AtomicUsize::new(0)).collect();
    let name = |caller: usize, round: usize| format!("{prefix}-{caller}-{round}");
    thread::scope(|scope| {
        for (caller, at) in rounds.iter().enumerate() {
            scope.spawn(move || {
                let mut to_server = Caller::to(server);
                for round in 0.. {
                    at.store(round, Ordering::Relaxed);
                    if to_server
                        .round(&[name(caller, round)], round, &json!({}))
                        .is_err()
                    {
                        return;
                    }
                }
            });
        }
        scope.spawn(|| {
            let mut looking = Caller::to(server);
            let mut each = rounds.iter().enumerate().cycle();
            while let Some((caller, at)) = each.next()
                && looking.look(&name(caller, at.load(Ordering::Relaxed))).is_ok()
            {}
        });
        let done = || rounds.iter().map(|at| at.load(Ordering::Relaxed)).sum::<usize>();
        until("there is load", || (done() > 10 * callers).then_some(()));
        server.traced.kill();
    });
}

/// One lock that passes from one owner to the next: a release and a grant in one commit.
fn hand_overs(server: &Serving, rounds: usize) {
    let name = "passed-on".to_owned();
    let mut holder = (Caller::to(server), "p0".to_owned());
    let granted = holder
        .0
        .acquire(&holder.1, slice::from_ref(&name), &json!({}), 0)
        .unwrap();
    let mut token = granted[0].token;
    for round in 1..=rounds {
        let owner = format!("p{round}");
        let mut heir = Caller::to(server);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                heir.acquire(&owner, slice::from_ref(&name), &json!({}), 60)
                    .unwrap()
            });
            let mut looking = Caller::to(server);
            until("the heir waits", || {
                let path = format!("/locks/{name}/waiters");
                let body = looking.call("GET", &path, &Value::Null).unwrap();
                (body["waiters"].as_array()?.len() == 1).then_some(())
            });
            holder.0.release(&holder.1, &name, token).unwrap();
            token = waiting.join().unwrap()[0].token;
        });
        holder = (heir, owner);
    }
}

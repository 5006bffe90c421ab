//! Callers that leave while they wait, or in the very moment in which they are given what they waited for.
//! (Cases: rows 47 and 48.)

use std::fs;
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::support::{Connection, Request, Server, on_every_engine, until};

on_every_engine!(
    who_hung_up_is_passed_over,
    who_hangs_up_at_the_moment_of_the_grant_is_answered_or_passed_over,
    a_dead_head_does_not_hold_up_the_line,
    a_set_that_was_given_up_is_free_again,
);

/// The ways in which a caller may leave.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Reset,
    Close,
    HalfClose,
}

const CUTS: [Cut; 3] = [Cut::Reset, Cut::Close, Cut::HalfClose];

impl Cut {
    /// Cuts it. A connection that is shut on one side only lives on until the test drops it.
    fn apply(self, connection: Connection) -> Option<Connection> {
        match self {
            Self::Reset => connection.reset(),
            Self::Close => drop(connection),
            Self::HalfClose => {
                connection.half_close();
                return Some(connection);
            }
        }
        None
    }
}

fn who_hung_up_is_passed_over(server: &Server) {
    for cut in CUTS {
        let name = format!("{cut:?}");
        server.acquire(&name, "a", 600).granted();
        let waiting = server.wait_for(&name, "b", 600, 60);
        server.until_waiting(&name, 1);
        let half = cut.apply(waiting);
        until("it is seen", || server.waiters(&name).is_empty());
        server.release(&name, "a").done();
        // Nobody was told yes, so whoever asks now gets it.
        server.acquire(&name, "c", 600).granted();
        drop(half);
    }
}

/// The release and the cut come within 5 ms of each other, in either order. Who left may have been answered just
/// before; then it has the lock. If not, whoever asks next gets it, though the one who left wanted it for ten
/// minutes.
fn who_hangs_up_at_the_moment_of_the_grant_is_answered_or_passed_over(server: &Server) {
    let run = |lane: u64| {
        for round in 0..15 {
            let name = format!("lane-{lane}-{round}");
            server.acquire(&name, "a", 600).granted();
            let waiting = server.wait_for(&name, "b", 600, 300);
            server.until_waiting(&name, 1);
            let offset = Duration::from_micros((round * 10 + lane) * 7919 % 50 * 100);
            let cut = CUTS[usize::try_from((round + lane) % 3).unwrap()];
            let half = thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(if round % 2 == 0 { offset } else { Duration::ZERO });
                    server.release(&name, "a").done();
                });
                thread::sleep(if round % 2 == 1 { offset } else { Duration::ZERO });
                cut.apply(waiting)
            });
            // One that is shut on one side still hears its answer, and so knows.
            let told = half.map(|mut half| half.try_answer().is_ok_and(|answer| answer.is_granted()));
            let next = server
                .wait_for(&name, "c", 600, if told == Some(false) { 300 } else { 1 })
                .answer();
            let holder = server.find(&name).lock().owner;
            assert_eq!(holder, if next.is_granted() { "c" } else { "b" });
            assert_eq!(told.unwrap_or(holder == "b"), holder == "b");
        }
    };
    thread::scope(|scope| {
        for lane in 0..10 {
            let run = &run;
            scope.spawn(move || run(lane));
        }
    });
}

fn a_dead_head_does_not_hold_up_the_line(server: &Server) {
    for cut in CUTS {
        let name = format!("{cut:?}");
        server.acquire(&name, "a", 600).granted();
        let head = server.wait_for(&name, "b", 600, 300);
        server.until_waiting(&name, 1);
        let mut next = server.wait_for(&name, "c", 600, 300);
        server.until_waiting(&name, 2);
        let half = cut.apply(head);
        server.release(&name, "a").done();
        assert_eq!(next.answer().granted().owner, "c");
        // A release that comes late, twice, is no more than refused.
        server.release(&name, "a").forbidden();
        server.release(&name, "a").forbidden();
        server.release(&name, "c").done();
        drop(half);
    }
    assert_eq!(server.get("/healthz").status, 200);
}

fn a_set_that_was_given_up_is_free_again(server: &Server) {
    for cut in CUTS {
        let (held, free) = (format!("{cut:?}-held"), format!("{cut:?}-free"));
        server.acquire(&held, "a", 600).granted();
        let set = json!({"resources": [free, held], "owner": "b", "ttl_seconds": 600, "wait_seconds": 300});
        let waiting = server.begin(&Request::post("/locks").json(&set));
        server.until_waiting(&held, 1);
        // Nobody overtakes the set while it waits.
        server.acquire(&free, "c", 600).refused();
        let half = cut.apply(waiting);
        until("it is seen", || server.acquire(&free, "c", 600).is_granted());
        server.release(&held, "a").done();
        server.acquire(&held, "c", 600).granted();
        drop(half);
    }
}

/// A connection whose other end is gone without a word is found out: the kernel probes it after 5 s of silence.
#[test]
fn silent_connections_are_probed() {
    let server = Server::memory();
    server.acquire("r", "a", 600).granted();
    let waiting = server.wait_for("r", "b", 600, 300);
    server.until_waiting("r", 1);
    let ours = |port: u16| format!("0100007F:{port:04X}");
    let (near, far) = (ours(server.addr.port()), ours(waiting.local_port()));
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let of_the_server = |line: &&str| {
        let mut fields = line.split_whitespace().skip(1);
        fields.next() == Some(&near) && fields.next() == Some(&far)
    };
    let line = table.lines().find(of_the_server).unwrap();
    // The kind of timer, 2 for a probe, and when it rings, in hundredths of a second.
    let (kind, at) = line.split_whitespace().nth(5).unwrap().split_once(':').unwrap();
    assert_eq!(kind, "02", "{line}");
    assert!(u32::from_str_radix(at, 16).unwrap() <= 500, "{line}");
}

#[test]
fn nothing_is_left_of_callers_that_come_and_go() {
    let server = Server::memory();
    server.acquire("r", "a", 600).granted();
    let before = server.descriptors();
    for round in 0..10 {
        let waiting: Vec<Connection> = (0..100)
            .map(|number| server.wait_for("r", &format!("b{number}"), 600, 300))
            .collect();
        if round % 2 == 0 {
            server.until_waiting("r", 100);
        }
        let mut halves = Vec::new();
        for (number, connection) in waiting.into_iter().enumerate() {
            halves.extend(CUTS[number % 3].apply(connection));
        }
        until("all are gone", || server.waiters("r").is_empty());
    }
    until("its descriptors are closed", || server.descriptors() <= before);
    server.release("r", "a").done();
    server.acquire("r", "c", 600).granted();
}

//! Waiting: the lock the moment it is free, in order of arrival, and an answer on time. (Cases: WAI.)

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Connection, PATIENCE, Server, acquire, on_every_engine, until};

on_every_engine!(
    a_release_wakes_the_first_in_line,
    expiry_wakes_the_first_in_line,
    a_lifetime_begins_with_the_grant,
    answers_come_when_the_wait_is_over,
    there_is_always_one_try,
    those_who_wait_get_it_in_order_of_arrival,
    newcomers_do_not_overtake,
    requests_of_one_owner_share_a_place,
    who_returns_in_time_finds_its_place,
    a_release_at_the_start_of_a_wait_is_not_missed,
    a_release_at_the_end_of_a_wait_goes_to_one_side,
);

fn a_release_wakes_the_first_in_line(server: &Server) {
    server.acquire("r", "a", 600).granted();
    let mut first = server.wait_for("r", "b", 600, 60);
    server.until_waiting("r", 1);
    let mut second = server.wait_for("r", "c", 600, 60);
    server.until_waiting("r", 2);
    assert_eq!(server.waiters("r"), ["b", "c"]);
    server.release("r", "a").done();
    let lock = first.answer().granted();
    assert_eq!(server.find("r").lock(), lock);
    assert!(!second.has_news());
    server.release("r", "b").done();
    assert_eq!(second.answer().granted().owner, "c");
    assert_eq!(server.waiters("r"), [""; 0]);
}

fn expiry_wakes_the_first_in_line(server: &Server) {
    let begun = Instant::now();
    server.acquire("r", "a", 2).granted();
    let lock = server.wait_for("r", "b", 3, 60).answer().granted();
    assert!(begun.elapsed() >= Duration::from_secs(2), "never before its end");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert_eq!(lock.life(), Duration::from_secs(3));
}

/// However long it was waited for.
fn a_lifetime_begins_with_the_grant(server: &Server) {
    server.acquire("r", "a", 600).granted();
    let mut waiting = server.wait_for("r", "b", 3, 60);
    server.until_waiting("r", 1);
    thread::sleep(Duration::from_secs(1));
    let before = server.acquire("clock", "a", 600).granted();
    let released = Instant::now();
    server.release("r", "a").done();
    let lock = waiting.answer().granted();
    assert!(lock.acquired_at >= before.acquired_at);
    assert_eq!(lock.life(), Duration::from_secs(3));
    until("it ends", || server.acquire("r", "c", 600).is_granted());
    assert!(released.elapsed() >= Duration::from_secs(3));
}

fn answers_come_when_the_wait_is_over(server: &Server) {
    let lock = server.acquire("r", "a", 600).granted();
    for seconds in [0, 1, 2] {
        let begun = Instant::now();
        server.wait_for("r", "b", 600, seconds).answer().refused();
        let wait = Duration::from_secs(seconds.into());
        assert!(begun.elapsed() >= wait, "{:?} of {wait:?}", begun.elapsed());
        assert!(
            begun.elapsed() < wait + Duration::from_secs(5),
            "{:?}",
            begun.elapsed()
        );
    }
    assert_eq!(server.find("r").lock(), lock);
    assert_eq!(server.waiters("r"), [""; 0]);
}

fn there_is_always_one_try(server: &Server) {
    for (name, wait) in [("zero", 0), ("one", 1), ("most", 300)] {
        server.wait_for(name, "b", 600, wait).answer().granted();
    }
}

/// Lets so many callers stand in line, one after the other.
pub(crate) fn line_up(server: &Server, resource: &str, count: usize) -> Vec<Connection> {
    let mut waiting = Vec::new();
    for number in 1..=count {
        waiting.push(server.wait_for(resource, &format!("waiter-{number}"), 600, 300));
        server.until_waiting(resource, number);
    }
    waiting
}

fn those_who_wait_get_it_in_order_of_arrival(server: &Server) {
    server.acquire("r", "a", 600).granted();
    let mut waiting = line_up(server, "r", 10);
    server.release("r", "a").done();
    for number in 1..=10 {
        let owner = format!("waiter-{number}");
        assert_eq!(waiting[number - 1].answer().granted().owner, owner);
        assert!(waiting[number..].iter().all(|later| !later.has_news()));
        server.release("r", &owner).done();
    }
    server.find("r").not_found();
}

fn newcomers_do_not_overtake(server: &Server) {
    server.acquire("r", "a", 600).granted();
    let mut waiting = line_up(server, "r", 12);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..4 {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut connection = server.connect();
                let request = acquire("r", &format!("newcomer-{number}"), 600);
                while !is_over.load(Ordering::SeqCst) {
                    connection.call(&request).refused();
                }
            });
        }
        server.release("r", "a").done();
        for number in 1..=12 {
            let owner = format!("waiter-{number}");
            assert_eq!(waiting[number - 1].answer().granted().owner, owner);
            if number < 12 {
                server.release("r", &owner).done();
            }
        }
        // The last of them keeps it until no newcomer asks any more.
        is_over.store(true, Ordering::SeqCst);
    });
}

fn requests_of_one_owner_share_a_place(server: &Server) {
    server.acquire("r", "a", 600).granted();
    let mut older = server.wait_for("r", "b", 600, 60);
    server.until_waiting("r", 1);
    let mut other = server.wait_for("r", "c", 600, 60);
    server.until_waiting("r", 2);
    let mut newer = server.wait_for("r", "b", 900, 59);
    until("the newer one stands there", || {
        let waiters = server.get("/locks/r/waiters").json()["waiters"].clone();
        waiters[0]["wait_seconds"] == 59
    });
    assert_eq!(server.waiters("r"), ["b", "c"]);
    server.release("r", "a").done();
    older.answer().refused();
    let lock = newer.answer().granted();
    assert_eq!(lock.life(), Duration::from_mins(15));
    assert_eq!(server.find("r").lock(), lock);
    server.release("r", "b").done();
    other.answer().granted();
}

fn who_returns_in_time_finds_its_place(server: &Server) {
    server.acquire("r", "a", 600).granted();
    let first = server.wait_for("r", "b", 600, 60);
    server.until_waiting("r", 1);
    let mut second = server.wait_for("r", "c", 600, 60);
    server.until_waiting("r", 2);
    let left = Instant::now();
    drop(first);
    until("it has left", || server.waiters("r") == ["c"]);
    let mut back = server.wait_for("r", "b", 600, 60);
    server.until_waiting("r", 2);
    if left.elapsed() < Duration::from_secs(5) {
        assert_eq!(server.waiters("r"), ["b", "c"]);
    }
    // Who is away is never waited for.
    back.reset();
    until("it has left", || server.waiters("r") == ["c"]);
    server.release("r", "a").done();
    assert_eq!(second.answer().granted().owner, "c");
    back = server.wait_for("r", "b", 600, 60);
    server.release("r", "c").done();
    assert_eq!(back.answer().granted().owner, "b");
}

/// So many rounds at a time, each on a lock of its own.
const TOGETHER: usize = 20;
const ROUNDS: usize = 500;

fn a_release_at_the_start_of_a_wait_is_not_missed(server: &Server) {
    let run = |lane: usize| {
        for round in 0..ROUNDS / TOGETHER {
            let name = format!("lane-{lane}-{round}");
            server.acquire(&name, "a", 600).granted();
            let mut waiting = server.wait_for(&name, "b", 600, 300);
            // Spread over 50 ms, differently in each lane.
            let delay = (round * TOGETHER + lane) * 7919 % 500;
            thread::sleep(Duration::from_micros(delay as u64 * 100));
            let released = Instant::now();
            server.release(&name, "a").done();
            let lock = waiting.answer().granted();
            assert!(released.elapsed() < PATIENCE);
            assert_eq!(server.find(&name).lock(), lock);
        }
    };
    thread::scope(|scope| {
        for lane in 0..TOGETHER {
            let run = &run;
            scope.spawn(move || run(lane));
        }
    });
}

/// A wait that ends and a release come within 50 ms of each other: the answer and the stored lock agree.
fn a_release_at_the_end_of_a_wait_goes_to_one_side(server: &Server) {
    let run = |lane: usize| {
        for round in 0..2 {
            let names: Vec<String> = (0..ROUNDS / TOGETHER / 2)
                .map(|number| format!("lane-{lane}-{round}-{number}"))
                .collect();
            for name in &names {
                server.acquire(name, "a", 600).granted();
            }
            let begun = Instant::now();
            let mut waiting: Vec<Connection> = names
                .iter()
                .map(|name| server.wait_for(name, "b", 600, 1))
                .collect();
            for (number, name) in names.iter().enumerate() {
                let offset = 950 + (number * 41 + lane * 5 + round) % 100;
                let at = begun + Duration::from_millis(offset as u64);
                thread::sleep(at.saturating_duration_since(Instant::now()));
                server.release(name, "a").done();
            }
            for (name, waiting) in names.iter().zip(&mut waiting) {
                let answer = waiting.answer();
                if answer.status == 503 {
                    // An engine that is slow at this moment: nothing is known, so nothing is claimed for long.
                    answer.problem(503, "unavailable");
                    server.wait_for(name, "c", 600, 300).answer().granted();
                } else if answer.is_granted() {
                    assert_eq!(server.find(name).lock(), answer.granted());
                } else {
                    server.find(name).not_found();
                    server.acquire(name, "c", 600).granted();
                }
            }
        }
    };
    thread::scope(|scope| {
        for lane in 0..TOGETHER {
            let run = &run;
            scope.spawn(move || run(lane));
        }
    });
}

/// Ten thousand of them are to fit in 200 MB; what one costs does not depend on how many there are.
#[test]
fn a_waiting_connection_costs_at_most_20_kib() {
    const WAITERS: u64 = 900;
    let server = Server::memory();
    server.acquire("r", "a", 600).granted();
    server.acquire("warm", "a", 600).granted();
    let wait = |name: &str, number| server.wait_for(name, &format!("w-{number}"), 60, 60);
    let _warm: Vec<Connection> = (0..50).map(|number| wait("warm", number)).collect();
    server.until_waiting("warm", 50);
    let before = server.memory_kib();
    let _waiting: Vec<Connection> = (0..WAITERS).map(|number| wait("r", number)).collect();
    server.until_waiting("r", usize::try_from(WAITERS).unwrap());
    let each = (server.memory_kib() - before) / WAITERS;
    assert!(each <= 20, "{each} KiB for each");
}

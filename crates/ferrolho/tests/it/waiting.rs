//! Waiting over real connections, which really are cut. (Cases: WAI, AMB.)

use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Server, acquire, on_every_engine, until};

on_every_engine!(
    a_release_wakes_the_first_in_line,
    expiry_wakes_the_first_in_line,
    who_hung_up_is_passed_over,
    nobody_waits_with_zero,
);

fn a_release_wakes_the_first_in_line(server: &Server) {
    server.acquire("r", "a", 60).granted();
    let mut first = server.wait_for("r", "b", 60, 60);
    server.until_waiting("r", 1);
    let mut second = server.wait_for("r", "c", 60, 60);
    server.until_waiting("r", 2);
    assert_eq!(server.waiters("r"), ["b", "c"]);
    server.acquire("r", "newcomer", 60).refused();
    server.release("r", "a").done();
    assert_eq!(first.answer().granted().owner, "b");
    assert!(!second.has_news());
    server.release("r", "b").done();
    assert_eq!(second.answer().granted().life(), Duration::from_mins(1));
}

fn expiry_wakes_the_first_in_line(server: &Server) {
    let begun = Instant::now();
    server.acquire("r", "a", 2).granted();
    let mut waiting = server.wait_for("r", "b", 3, 60);
    assert_eq!(waiting.answer().granted().life(), Duration::from_secs(3));
    assert!(begun.elapsed() >= Duration::from_secs(2), "never before its end");
}

fn who_hung_up_is_passed_over(server: &Server) {
    for cut in 0..3 {
        let name = format!("r{cut}");
        server.acquire(&name, "a", 60).granted();
        let waiting = server.wait_for(&name, "b", 60, 60);
        server.until_waiting(&name, 1);
        let kept = match cut {
            0 => {
                waiting.reset();
                None
            }
            1 => {
                drop(waiting);
                None
            }
            _ => {
                waiting.half_close();
                Some(waiting)
            }
        };
        server.until_waiting(&name, 0);
        server.release(&name, "a").done();
        assert_eq!(server.acquire(&name, "c", 60).granted().owner, "c");
        drop(kept);
    }
}

fn nobody_waits_with_zero(server: &Server) {
    server.acquire("r", "a", 60).granted();
    for seconds in [1, 2] {
        let begun = Instant::now();
        server.wait_for("r", "b", 60, seconds).answer().refused();
        assert!(begun.elapsed() >= Duration::from_secs(seconds.into()));
    }
    server.wait_for("free", "b", 60, 1).answer().granted();
}

#[test]
fn releases_at_every_moment_of_a_wait_lose_nobody() {
    let server = Server::start();
    for round in 0..500_u64 {
        let name = format!("r{round}");
        server.acquire(&name, "a", 60).granted();
        let mut waiting = server.wait_for(&name, "b", 60, 30);
        thread::sleep(Duration::from_micros(round % 50 * 200));
        server.release(&name, "a").done();
        let lock = waiting.answer().granted();
        assert_eq!(server.find(&name).lock(), lock);
    }
}

#[test]
fn at_the_end_of_a_wait_answer_and_lock_agree() {
    let server = Server::start();
    let mut rounds: Vec<_> = (0..200_u64)
        .map(|round| {
            let name = format!("r{round}");
            server.acquire(&name, "a", 60).granted();
            (server.wait_for(&name, "b", 60, 1), name, Instant::now())
        })
        .collect();
    for (n, (waiting, name, begun)) in rounds.iter_mut().enumerate() {
        let offset = Duration::from_millis(950 + n as u64 % 100);
        thread::sleep((*begun + offset).saturating_duration_since(Instant::now()));
        server.release(name, "a").done();
        let was_granted = waiting.answer().is_granted();
        let found = server.find(name);
        assert_eq!(
            found.status == 200,
            was_granted,
            "{name}: the answer and the lock disagree"
        );
    }
}

#[test]
fn five_hundred_wait_and_cost_a_release_nothing() {
    let server = Server::start();
    server.acquire("r", "o0", 60).granted();
    let descriptors = server.descriptors();
    let mut waiting = Vec::new();
    for n in 1..=500 {
        waiting.push(server.wait_for("r", &format!("o{n}"), 60, 300));
        if n % 50 == 0 {
            server.until_waiting("r", n);
        }
    }
    for (n, connection) in waiting.iter_mut().enumerate().take(20) {
        let holder = server.find("r").lock().owner;
        server.release("r", &holder).done();
        let next = connection.answer().granted();
        assert_ne!(next.owner, holder, "after {n} releases");
    }
    drop(waiting);
    until("nobody waits", || server.waiters("r").is_empty());
    until("its descriptors are closed", || {
        server.descriptors() <= descriptors + 2
    });
    let mut last = server.connect();
    last.call(&acquire("other", "x", 1)).granted();
}

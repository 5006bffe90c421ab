//! Long queues: their order, their limits, and what a server that is full of waiting callers still does. (Cases:
//! rows 54, 55 and 56.)

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, prlimit, setrlimit};

use crate::support::{Connection, Request, Server, acquire_waiting, until};
use crate::waiting::line_up;

#[test]
fn two_hundred_get_it_in_order_of_arrival() {
    let server = Server::start();
    server.acquire("r", "a", 600).granted();
    let mut waiting = line_up(&server, "r", 200);
    let mut release = server.connect();
    let mut holder = "a".to_owned();
    let mut last = 0;
    for (number, connection) in waiting.iter_mut().enumerate() {
        release
            .call(&Request::delete(&format!("/locks/r?owner={holder}")))
            .done();
        let lock = connection.answer().granted();
        holder = format!("waiter-{}", number + 1);
        assert_eq!(lock.owner, holder);
        assert!(lock.fencing_token > last);
        last = lock.fencing_token;
    }
    assert_eq!(server.waiters("r"), [""; 0]);
}

#[test]
fn a_release_wakes_one_of_five_hundred() {
    let server = Server::start();
    server.acquire("r", "a", 600).granted();
    let before = server.descriptors();
    let mut waiting: Vec<Connection> = (0..500)
        .map(|number| server.wait_for("r", &format!("waiter-{number}"), 600, 300))
        .collect();
    server.until_waiting("r", 500);
    let order = server.waiters("r");
    let mut holder = "a".to_owned();
    for (number, next) in order.iter().take(20).enumerate() {
        server.release("r", &holder).done();
        let index: usize = next.strip_prefix("waiter-").unwrap().parse().unwrap();
        assert_eq!(waiting[index].answer().granted().owner, *next);
        holder.clone_from(next);
        assert!(
            waiting.iter().all(|connection| !connection.has_news()),
            "nobody else was woken"
        );
        assert_eq!(server.waiters("r").len(), 500 - number - 1);
        assert_eq!(server.get("/healthz").status, 200);
    }
    waiting.clear();
    until("nobody waits", || server.waiters("r").is_empty());
    until("its descriptors are closed", || server.descriptors() <= before);
    server.release("r", &holder).done();
    server.acquire("r", "last", 600).granted();
}

#[test]
fn beyond_a_limit_waits_are_refused_at_once() {
    let server = Server::with(&["--max-waiters", "30", "--max-waiters-per-resource", "20"]);
    for name in ["r", "s", "t"] {
        server.acquire(name, "a", 600).granted();
    }
    let refused = |resource: &str, limit: &str| {
        let answer = server.call(&acquire_waiting(resource, "late", 600, 300));
        let problem = answer.problem(429, "too-many-waiters");
        assert!(problem["detail"].as_str().unwrap().contains(limit), "{problem}");
        assert_eq!(problem["limit"], limit, "{problem}");
        assert!(answer.header("retry-after").is_some());
        // Who does not wait is served as ever.
        server.acquire(resource, "late", 600).refused();
    };
    let mut waiting = line_up(&server, "r", 20);
    refused("r", "max-waiters-per-resource");
    let others = line_up(&server, "s", 10);
    refused("s", "max-waiters");
    refused("t", "max-waiters");
    server.acquire("free", "late", 600).granted();
    server.release("r", "a").done();
    waiting.remove(0).answer().granted();
    // There is room for one more.
    drop(others);
    until("they have left", || server.waiters("s").is_empty());
    let mut one_more = server.wait_for("s", "one-more", 600, 300);
    server.until_waiting("s", 1);
    server.release("s", "a").done();
    one_more.answer().granted();
}

/// Takes as many open files as the system gives.
fn raise_file_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let all = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, all).unwrap();
}

fn limit_files(server: &Server, files: u64) {
    let limit = Rlimit {
        current: Some(files),
        maximum: Some(files),
    };
    prlimit(Some(server.pid()), Resource::Nofile, limit).unwrap();
}

#[test]
fn three_thousand_who_wait_hinder_nobody() {
    raise_file_limit();
    let server = Server::memory();
    limit_files(&server, 4096);
    let names = ["r0", "r1", "r2", "r3", "r4"];
    for name in names {
        server.acquire(name, "a", 600).granted();
    }
    let before = server.descriptors();
    let mut waiting: Vec<Connection> = (0..3_000)
        .map(|number| server.wait_for(names[number % 5], &format!("waiter-{number}"), 600, 300))
        .collect();
    for name in names {
        server.until_waiting(name, 600);
    }
    let begun = Instant::now();
    assert_eq!(server.get("/healthz").status, 200);
    server.renew("r0", "a", 600).lock();
    server.release("r0", "a").done();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    until("one is woken", || {
        waiting.iter().step_by(5).any(Connection::has_news)
    });
    waiting.clear();
    until("nobody waits", || {
        names.iter().all(|name| server.waiters(name).is_empty())
    });
    until("its descriptors are closed", || server.descriptors() <= before);
}

#[test]
fn a_server_without_descriptors_recovers() {
    let server = Server::memory();
    server.acquire("r", "a", 600).granted();
    limit_files(&server, 60);
    // More than it can take; some are never heard of.
    let crowd: Vec<Connection> = (0..150)
        .map(|number| server.wait_for("r", &format!("waiter-{number}"), 600, 300))
        .collect();
    until("it is full", || server.descriptors() >= 59);
    // Let it run into its limit again and again.
    thread::sleep(Duration::from_millis(300));
    drop(crowd);
    assert_eq!(server.find("r").lock().owner, "a");
    until("nobody waits", || server.waiters("r").is_empty());
    server.release("r", "a").done();
    server.acquire("r", "b", 600).granted();
}

//! Clocks and durations: one form of time, one clock that decides, and no step of the wall clock that matters.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Server, micros, on_every_engine, until};

on_every_engine!(
    every_time_has_the_one_form,
    a_lifetime_runs_from_the_grant_and_a_renewal_from_the_renewal,
    renewals_do_not_add_up,
);

/// Everything in an answer whose name ends as a time's does.
fn times(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                match value.as_str() {
                    Some(text) if name.ends_with("_at") || name == "since" => found.push(text.to_owned()),
                    _ => times(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| times(item, found)),
        _ => {}
    }
}

fn every_time_has_the_one_form(server: &Server) {
    let mut found = Vec::new();
    for round in 0..100 {
        let answer = server.acquire("r", "a", 60 + round);
        times(&answer.json(), &mut found);
    }
    let waiting = server.wait_for("r", "b", 30, 60);
    server.until_waiting("r", 1);
    for target in ["/locks/r", "/locks", "/locks/r/waiters"] {
        times(&server.get(target).json(), &mut found);
    }
    times(&server.renew("r", "a", 60).json(), &mut found);
    times(
        &server.post("/owners/a/renew", &json!({"ttl_seconds": 60})).json(),
        &mut found,
    );
    drop(waiting);
    assert_eq!(found.len(), 209);
    // The order of the texts is the order of the times.
    let by_time: Vec<i64> = found.iter().map(|text| micros(text)).collect();
    for (a, at_a) in found.iter().zip(&by_time) {
        for (b, at_b) in found.iter().zip(&by_time) {
            assert_eq!(a.cmp(b), at_a.cmp(at_b));
        }
    }
}

fn a_lifetime_runs_from_the_grant_and_a_renewal_from_the_renewal(server: &Server) {
    for ttl in [1, 30, 86_400] {
        let lock = server.acquire("r", "a", ttl).granted();
        assert_eq!(lock.life(), Duration::from_secs(ttl.into()));
    }
    let before = server.acquire("clock", "a", 60).granted();
    let renewed = server.renew("r", "a", 60).lock();
    let after = server.acquire("clock", "a", 60).granted();
    assert!(
        (before.expires_at..=after.expires_at).contains(&renewed.expires_at),
        "{renewed:?}"
    );
}

fn renewals_do_not_add_up(server: &Server) {
    server.acquire("r", "a", 10).granted();
    for _ in 0..20 {
        server.renew("r", "a", 60).lock();
    }
    let renewed = server.find("r").lock();
    let now = server.acquire("clock", "a", 60).granted();
    assert!(renewed.expires_at <= now.expires_at, "{renewed:?} at {now:?}");
    server.renew("r", "a", 5).lock();
    assert!(server.find("r").lock().expires_at < renewed.expires_at);
}

#[test]
fn zones_change_nothing() {
    let mut server = Server::start_on("sqlite:ferrolho.db", &[], &[("TZ", "Asia/Tokyo")]);
    let lock = server.acquire("r", "a", 600).granted();
    for zone in ["America/Lima", "Europe/Lisbon", "Pacific/Kiritimati", "UTC"] {
        server.stop();
        server.set_env("TZ", zone);
        server.start_again();
        assert_eq!(server.find("r").lock(), lock);
        server.acquire("r", "b", 600).refused();
        let now = server.acquire("clock", "a", 600).granted();
        let apart = micros(&now.acquired_at) - micros(&lock.acquired_at);
        assert!((0..60_000_000).contains(&apart), "{zone}: {apart}");
    }
    server.release("r", "a").done();
    server.acquire("r", "b", 600).granted();
}

/// A server whose wall clock can be set.
struct Stepped {
    server: Server,
    offset: PathBuf,
    _dir: TempDir,
}

const HOUR: i64 = 3_600;

impl Stepped {
    /// Nothing when Debian's faketime is not installed.
    fn start() -> Option<Self> {
        let Some(library) = ferrolho_testkit::faketime_library() else {
            ferrolho_testkit::missing("a false clock", "Debian's package faketime");
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        let offset = dir.path().join("offset");
        fs::write(&offset, "+0").unwrap();
        let env = [
            ("LD_PRELOAD", library.to_str().unwrap()),
            ("FAKETIME_TIMESTAMP_FILE", offset.to_str().unwrap()),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ];
        Some(Self {
            server: Server::start_on("sqlite:ferrolho.db", &[], &env),
            offset: offset.clone(),
            _dir: dir,
        })
    }

    /// Sets the wall clock to so many seconds from what it was at first. A file that is written in place is empty
    /// for a moment.
    fn step(&self, seconds: i64) {
        let new = self.offset.with_extension("new");
        fs::write(&new, format!("{seconds:+}")).unwrap();
        fs::rename(&new, &self.offset).unwrap();
    }

    /// Waits until the server has seen that its wall clock is so many seconds off.
    fn until_seen(&self, seconds: i64) {
        until("the step is seen", || {
            let ready = self.server.get("/readyz").json();
            let off = -ready["clock_ahead_micros"].as_i64().unwrap() / 1_000_000;
            let is_warned = !ready["warnings"].as_array().unwrap().is_empty();
            (off - seconds).abs() < 60 && is_warned
        });
    }
}

#[test]
fn a_step_while_the_server_runs_neither_frees_nor_prolongs_a_lock() {
    for step in [HOUR, -HOUR] {
        let Some(stepped) = Stepped::start() else { return };
        let server = &stepped.server;
        let lock = server.acquire("r", "a", 30).granted();
        let asked = Instant::now();
        server.acquire("short", "a", 3).granted();
        stepped.step(step);
        stepped.until_seen(step);
        assert_eq!(server.find("r").lock(), lock);
        server.acquire("r", "b", 30).refused();
        let renewed = server.renew("r", "a", 60).lock();
        assert_eq!(renewed.fencing_token, lock.fencing_token);
        let apart = micros(&renewed.expires_at) - micros(&lock.expires_at);
        assert!((30_000_000..90_000_000).contains(&apart), "{apart}");
        until("the short one ends", || server.find("short").status == 404);
        assert!(asked.elapsed() >= Duration::from_secs(3));
        assert!(asked.elapsed() < Duration::from_secs(30));
    }
}

#[test]
fn a_step_during_a_wait_changes_nothing_about_its_time() {
    for step in [HOUR, -HOUR] {
        let Some(stepped) = Stepped::start() else { return };
        let server = &stepped.server;
        server.acquire("long", "a", 600).granted();
        let asked = Instant::now();
        server.acquire("short", "a", 3).granted();
        let mut in_vain = server.wait_for("long", "b", 60, 3);
        let mut heir = server.wait_for("short", "b", 60, 60);
        stepped.step(step);
        stepped.until_seen(step);
        in_vain.answer().refused();
        assert!(asked.elapsed() >= Duration::from_secs(3));
        assert!(asked.elapsed() < Duration::from_secs(30));
        let lock = heir.answer().granted();
        assert!(asked.elapsed() >= Duration::from_secs(3));
        assert!(asked.elapsed() < Duration::from_secs(30));
        assert_eq!(lock.life(), Duration::from_mins(1));
    }
}

#[test]
fn a_step_before_a_restart_neither_frees_nor_prolongs_a_lock() {
    for step in [HOUR, -HOUR] {
        let Some(mut stepped) = Stepped::start() else {
            return;
        };
        let lock = stepped.server.acquire("r", "a", 30).granted();
        let asked = Instant::now();
        stepped.server.acquire("short", "a", 3).granted();
        stepped.server.kill();
        stepped.step(step);
        stepped.server.start_again();
        stepped.until_seen(step);
        let server = &stepped.server;
        assert_eq!(server.find("r").lock(), lock);
        server.acquire("r", "b", 30).refused();
        until("the short one ends", || server.find("short").status == 404);
        assert!(asked.elapsed() >= Duration::from_secs(3));
        assert!(asked.elapsed() < Duration::from_secs(30));
        let next = server.acquire("short", "b", 30).granted();
        assert!(micros(&next.acquired_at) >= micros(&lock.acquired_at) + 3_000_000);
    }
}

/// The real lifetime of many locks, small and large, against the one that was asked for.
#[test]
fn no_lock_of_many_ends_early() {
    let server = Server::start();
    let asked = Instant::now();
    let ttls: Vec<u32> = (0..90).map(|number| 1 + number % 3).collect();
    for (number, ttl) in ttls.iter().enumerate() {
        server.acquire(&format!("r{number}"), "a", *ttl).granted();
    }
    let mut open: Vec<usize> = (0..ttls.len()).collect();
    while !open.is_empty() {
        open.retain(|number| {
            let is_gone = server.find(&format!("r{number}")).status == 404;
            let ttl = Duration::from_secs(ttls[*number].into());
            assert!(
                !is_gone || asked.elapsed() >= ttl,
                "{number} after {:?}",
                asked.elapsed()
            );
            !is_gone
        });
        assert!(asked.elapsed() < Duration::from_mins(1), "{open:?}");
        thread::yield_now();
    }
}

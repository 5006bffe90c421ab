//! Losing the lock in each way: the command is dead before anybody else can have it, and the code is 74.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::fake::{Act, Fault, problem_body};
use crate::lab::{Lab, is_alive, text, until};
use crate::processes::{FAMILY, family};

/// Writes down the time, in nanoseconds, for as long as it lives, and will not end when it is asked to.
const WITNESS: &str = "trap '' TERM; echo $$ >main; while :; do date +%s%N >>first; done";

/// Writes down the time at which it began.
const NEXT: &str = "date +%s%N >second";

fn nanos(lab: &Lab, name: &str) -> u128 {
    lab.read(name)
        .lines()
        .rfind(|line| line.len() == 19)
        .unwrap()
        .parse()
        .unwrap()
}

/// The first command is over before the second begins, with its own lock lost.
fn assert_no_overlap(lab: &Lab, mut first: crate::lab::Running, second: crate::lab::Running) {
    assert_eq!(second.end().status.code(), Some(0));
    assert!(!is_alive(lab.pid("main")), "the first command lives on");
    assert!(nanos(lab, "first") < nanos(lab, "second"));
    assert_eq!(first.wait().code(), Some(74));
}

#[test]
fn a_run_that_is_cut_off_kills_in_time() {
    for ttl in ["1s", "3s"] {
        let lab = Lab::new();
        let first = lab.start(&["--ttl", ttl, "--owner", "first", "--", "sh", "-c", WITNESS]);
        lab.pid("main");
        lab.fake.cut_off("first");
        let second = lab.start(&["--wait", "20s", "--", "sh", "-c", NEXT]);
        assert_no_overlap(&lab, first, second);
    }
}

#[test]
fn a_run_that_is_stopped_has_a_sentry_that_kills_in_time() {
    for ttl in ["1s", "3s"] {
        let lab = Lab::new();
        let first = lab.start(&["--ttl", ttl, "--", "sh", "-c", WITNESS]);
        lab.pid("main");
        first.send(Signal::STOP);
        let second = lab.start(&["--wait", "20s", "--", "sh", "-c", NEXT]);
        let code = second.end().status.code();
        first.send(Signal::CONT);
        assert_eq!(code, Some(0));
        assert!(!is_alive(lab.pid("main")));
        assert!(nanos(&lab, "first") < nanos(&lab, "second"));
        let ended = Instant::now();
        let mut first = first;
        assert_eq!(first.wait().code(), Some(74));
        assert!(ended.elapsed() < Duration::from_secs(2));
    }
}

#[test]
fn a_short_stop_does_no_harm() {
    let lab = Lab::new();
    let mut running = lab.start(&["--ttl", "5s", "--", "sh", "-c", "echo $$ >main; sleep 2; exit 3"]);
    lab.pid("main");
    running.send(Signal::STOP);
    std::thread::sleep(Duration::from_secs(1));
    running.send(Signal::CONT);
    assert_eq!(running.wait().code(), Some(3));
}

#[test]
fn a_frozen_server_ends_the_command_before_the_lock() {
    let lab = Lab::new();
    let begun = Instant::now();
    let mut running = lab.start(&["--ttl", "2s", "--", "sh", "-c", WITNESS]);
    let main = lab.pid("main");
    until("it renewed", || !lab.fake.seen(Act::Renew).is_empty());
    let renewed = Instant::now();
    lab.fake.freeze();
    until("the command is dead", || !is_alive(main));
    assert!(
        renewed.elapsed() < Duration::from_secs(2),
        "{:?}",
        renewed.elapsed()
    );
    lab.fake.thaw();
    assert_eq!(running.wait().code(), Some(74));
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_command_that_hears_it_may_clean_up_in_the_time_that_is_left() {
    let lab = Lab::new();
    let script = "trap 'echo cleaned >cleaned; exit 0' TERM; echo $$ >main; while :; do sleep 0.05; done";
    let mut running = lab.start(&["--ttl", "4s", "--owner", "first", "--", "sh", "-c", script]);
    lab.pid("main");
    lab.fake.cut_off("first");
    assert_eq!(running.wait().code(), Some(74));
    assert_eq!(lab.read("cleaned"), "cleaned\n");
}

#[test]
fn a_lock_that_is_taken_away_ends_the_command_at_the_next_renewal() {
    for refusal in [None, Some((403, "forbidden")), Some((404, "not-found"))] {
        let lab = Lab::new();
        let running = lab.start(&["--ttl", "2s", "--", "sh", "-c", WITNESS]);
        let main = lab.pid("main");
        match refusal {
            None => lab.fake.take_away("r"),
            Some((status, code)) => {
                lab.fake
                    .fault(Act::Renew, 1, Fault::Answer(status, problem_body(status, code)));
            }
        }
        let output = running.end();
        assert_eq!(output.status.code(), Some(74));
        assert!(text(&output.stderr).contains("lost"), "{}", text(&output.stderr));
        assert!(!is_alive(main));
    }
}

#[test]
fn nothing_of_a_command_outlives_its_lock() {
    let lab = Lab::new();
    let mut running = lab.start(&["--ttl", "1s", "--owner", "first", "--", "sh", "-c", FAMILY]);
    let family = family(&lab);
    lab.fake.cut_off("first");
    assert_eq!(running.wait().code(), Some(74));
    assert!(!family.into_iter().any(is_alive));
}

#[test]
fn a_command_that_ended_under_a_lost_lock_is_no_success() {
    let lab = Lab::new();
    let mut running = lab.start(&[
        "--ttl",
        "10m",
        "--",
        "sh",
        "-c",
        "echo $$ >main; while ! [ -e go ]; do sleep 0.02; done",
    ]);
    lab.pid("main");
    lab.fake.seize("r", "b", Duration::from_mins(1));
    std::fs::write(lab.file("go"), "").unwrap();
    assert_eq!(running.wait().code(), Some(74));
    assert_eq!(lab.fake.holder("r").unwrap().0, "b");
}

/// The witness is the kernel: a file lock that lives for as long as the command's processes do.
#[test]
fn whatever_happens_to_the_runs_their_commands_never_overlap() {
    let lab = Lab::new();
    let seed = std::process::id();
    println!("seed {seed}");
    let until = Instant::now() + Duration::from_secs(8);
    let script =
        "trap '' TERM; flock -n witness sh -c 'echo in >>entered; exec sleep 0.4' || echo overlap >>overlaps";
    std::thread::scope(|scope| {
        for n in 0..4u32 {
            let lab = &lab;
            scope.spawn(move || {
                let mut dice = seed.wrapping_mul(2_654_435_761).wrapping_add(n);
                let mut throw = |sides: u32| {
                    // Numerical Recipes' linear congruence: enough to vary, and the seed repeats it.
                    dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (dice >> 16) % sides
                };
                while Instant::now() < until {
                    let mut run = lab.start(&["--ttl", "1s", "--wait", "2s", "--", "sh", "-c", script]);
                    std::thread::sleep(Duration::from_millis(throw(700).into()));
                    match throw(5) {
                        0 => run.send(Signal::KILL),
                        1 => run.send(Signal::TERM),
                        2 => {
                            run.send(Signal::STOP);
                            std::thread::sleep(Duration::from_millis(throw(2500).into()));
                            run.send(Signal::CONT);
                        }
                        3 => lab.fake.fault(Act::Renew, 1, Fault::Swallow),
                        _ => {}
                    }
                    run.wait();
                }
            });
        }
    });
    assert_eq!(lab.read("overlaps"), "", "seed {seed}");
    assert!(
        lab.read("entered").lines().count() >= 5,
        "{}",
        lab.read("entered").lines().count()
    );
}

#[test]
fn hiccups_are_no_loss() {
    let lab = Lab::new();
    lab.fake.fault(
        Act::Renew,
        1,
        Fault::Answer(503, problem_body(503, "unavailable")),
    );
    lab.fake.fault(Act::Renew, 1, Fault::Swallow);
    lab.fake.fault(Act::Renew, 1, Fault::DropAnswer);
    let output = lab.run(&["--ttl", "3s", "--", "sh", "-c", "sleep 5; exit 3"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
}

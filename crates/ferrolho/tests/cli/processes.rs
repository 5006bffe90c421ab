//! Signals to every party, and nothing left behind.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::fake::Act;
use crate::lab::{FERROLHO, Lab, is_alive, until};

const ENDING: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];

/// A command with a child in the background and one in front, whose numbers it writes down.
pub(crate) const FAMILY: &str =
    "echo $$ >main; sleep 300 & echo $! >behind; sh -c 'echo $$ >front; exec sleep 300'";

pub(crate) fn family(lab: &Lab) -> [Pid; 3] {
    ["main", "behind", "front"].map(|name| lab.pid(name))
}

#[test]
fn a_signal_to_the_run_ends_all_of_the_command_and_frees_the_lock() {
    for signal in ENDING {
        let lab = Lab::new();
        let mut running = lab.start(&["--ttl", "10m", "--", "sh", "-c", FAMILY]);
        let family = family(&lab);
        running.send(signal);
        assert_eq!(running.wait().code(), Some(128 + signal.as_raw()), "{signal:?}");
        assert!(!family.into_iter().any(is_alive), "{signal:?}");
        assert_eq!(lab.fake.holder("r"), None, "{signal:?}");
    }
}

#[test]
fn a_signal_to_the_command_itself_ends_what_is_left_of_it() {
    for signal in [Signal::TERM, Signal::KILL] {
        let lab = Lab::new();
        let mut running = lab.start(&["--", "sh", "-c", FAMILY]);
        let [main, behind, front] = family(&lab);
        kill_process(main, signal).unwrap();
        assert_eq!(running.wait().code(), Some(128 + signal.as_raw()));
        assert!(![behind, front].into_iter().any(is_alive));
        assert_eq!(lab.fake.holder("r"), None);
    }
}

#[test]
fn the_lock_is_kept_while_the_command_cleans_up() {
    let lab = Lab::new();
    let script =
        "trap 'sleep 2; echo done >cleaned; exit 9' TERM; echo $$ >main; while :; do sleep 0.1; done";
    let mut running = lab.start(&["--ttl", "1s", "--", "sh", "-c", script]);
    lab.pid("main");
    running.send(Signal::TERM);
    let other = lab.start(&["--wait", "20s", "--", "sh", "-c", "cat cleaned"]);
    assert_eq!(running.wait().code(), Some(9));
    assert_eq!(
        other.end().stdout,
        b"done\n",
        "the other was let in before the cleaning was over"
    );
    assert!(lab.fake.seen(Act::Renew).len() >= 4);
}

#[test]
fn a_command_that_has_ended_takes_its_children_with_it() {
    let lab = Lab::new();
    let begun = Instant::now();
    let output = lab.run(&["--", "sh", "-c", "sleep 60 & echo $! >behind; exit 3"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(!is_alive(lab.pid("behind")));
    assert_eq!(lab.fake.holder("r"), None);
}

#[test]
fn a_child_that_will_not_end_is_killed_before_the_lock_is_released() {
    let lab = Lab::new();
    let script = "sh -c 'trap \"\" TERM INT HUP; echo $$ >behind; while :; do sleep 0.05; done' & \
                  while ! [ -s behind ]; do sleep 0.01; done; exit 4";
    let mut running = lab.start(&["--ttl", "1s", "--", "sh", "-c", script]);
    let stubborn = lab.pid("behind");
    until("it was released", || {
        let was_alive = is_alive(stubborn);
        let released = !lab.fake.seen(Act::Release).is_empty();
        assert!(!(released && was_alive), "released before the end of the command");
        released
    });
    assert_eq!(running.wait().code(), Some(4));
    assert!(!is_alive(stubborn));
}

#[test]
fn a_child_in_a_group_of_its_own_is_found() {
    let lab = Lab::new();
    let script = "set -m; (echo $BASHPID >behind; exec sleep 300) & while ! [ -s behind ]; do sleep 0.01; done; exit 5";
    let output = lab.run(&["--", "bash", "-c", script]);
    assert_eq!(output.status.code(), Some(5));
    assert!(!is_alive(lab.pid("behind")));
}

#[test]
fn a_daemon_with_a_session_of_its_own_is_let_go() {
    let lab = Lab::new();
    let script = "setsid sh -c 'echo $$ >daemon; exec sleep 60' >/dev/null 2>&1 & \
                  while ! [ -s daemon ]; do sleep 0.01; done; exit 6";
    let output = lab.run(&["--", "sh", "-c", script]);
    let daemon = lab.pid("daemon");
    let lives = is_alive(daemon);
    kill_process(daemon, Signal::KILL).unwrap();
    assert_eq!(output.status.code(), Some(6));
    assert!(lives);
    assert_eq!(lab.fake.holder("r"), None);
}

#[test]
fn children_of_whoever_became_the_run_are_left_alone() {
    let lab = Lab::new();
    let mut shell = Command::new("sh");
    lab.prepare(&mut shell);
    let script = format!("sleep 60 & echo $! >helper; exec {FERROLHO} run r -- true");
    assert!(shell.args(["-c", &script]).status().unwrap().success());
    let helper = lab.pid("helper");
    let lives = is_alive(helper);
    kill_process(helper, Signal::KILL).unwrap();
    assert!(lives);
}

#[test]
fn a_run_that_waits_hears_signals() {
    for signal in ENDING {
        let lab = Lab::new();
        lab.fake.seize("r", "a", Duration::from_mins(1));
        let mut waiting = lab.start(&["--wait", "60s", "--", "touch", "ran"]);
        until("it waits", || lab.fake.waiting("r") == 1);
        let sent = Instant::now();
        waiting.send(signal);
        assert_eq!(waiting.wait().code(), Some(128 + signal.as_raw()));
        assert!(sent.elapsed() < Duration::from_secs(1), "{:?}", sent.elapsed());
        until("its place is free", || lab.fake.waiting("r") == 0);
        lab.fake.take_away("r");
        assert_eq!(lab.run(&["--", "true"]).status.code(), Some(0));
        assert!(!lab.file("ran").exists());
    }
}

#[test]
fn a_signal_of_its_own_reaches_the_main_process_only() {
    let lab = Lab::new();
    let script = "trap 'echo told >told' USR1; echo $$ >main; sleep 300 & echo $! >behind; while :; do sleep 0.05; done";
    let mut running = lab.start(&["--", "sh", "-c", script]);
    let behind = (lab.pid("main"), lab.pid("behind")).1;
    running.send(Signal::USR1);
    until("it was told", || lab.read("told") == "told\n");
    assert!(is_alive(behind));
    running.send(Signal::TERM);
    running.wait();
}

#[test]
fn what_was_ignored_at_the_start_stays_ignored() {
    let lab = Lab::new();
    let script = format!("trap '' HUP; exec {FERROLHO} run r -- sh -c 'echo $$ >main; exec sleep 300'");
    let mut shell = Command::new("sh");
    lab.prepare(&mut shell);
    let mut shell = shell.args(["-c", &script]).spawn().unwrap();
    let (run, main) = (Pid::from_child(&shell), lab.pid("main"));
    kill_process(run, Signal::HUP).unwrap();
    kill_process(main, Signal::HUP).unwrap();
    kill_process(run, Signal::TERM).unwrap();
    assert_eq!(shell.wait().unwrap().code(), Some(143));
}

#[test]
fn a_run_that_is_killed_takes_the_command_with_it() {
    let lab = Lab::new();
    let mut running = lab.start(&["--ttl", "10m", "--", "sh", "-c", FAMILY]);
    let family = family(&lab);
    // Once it was told of the sentry's post the sentry watches.
    until("a sentry watches", || !sentries_of(running.pid()).is_empty());
    running.send(Signal::KILL);
    running.wait();
    until("nothing is left", || !family.into_iter().any(is_alive));
}

#[test]
fn no_process_of_ours_is_left_behind() {
    let lab = Lab::new();
    for _ in 0..20 {
        let mut running = lab.start(&["--", "true"]);
        let pid = running.pid();
        assert_eq!(running.wait().code(), Some(0));
        assert!(sentries_of(pid).is_empty());
    }
}

/// The sentries that watch over the command of this run.
fn sentries_of(run: Pid) -> Vec<i32> {
    let wanted = format!("__sentry\0{}\0", run.as_raw_pid());
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
            .unwrap_or_default()
            .contains(&wanted)
    })
    .collect()
}

//! `ferrolho run` at a terminal: reading, Ctrl-C, Ctrl-Z and a shell's job control, in a pseudo-terminal.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::lab::{FERROLHO, Lab, is_alive, until};
use crate::real::Server;

/// A person at a terminal, in front of a program that has it for its own.
struct Person {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<String>>,
}

impl Person {
    /// Starts this program as the leader of a new session at a new terminal.
    fn at(lab: &Lab, program: &[&str]) -> Self {
        let terminal: OwnedFd =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
        let line = || Stdio::from(OpenOptions::new().read(true).write(true).open(&name).unwrap());
        let mut command = Command::new("setsid");
        lab.prepare(&mut command);
        command.args(["--ctty", "--wait"]).args(program);
        command
            .env("PS1", "READY> ")
            .env("TERM", "dumb")
            .env_remove("PROMPT_COMMAND");
        command.stdin(line()).stdout(line()).stderr(line());
        let child = command.spawn().unwrap();
        let keyboard = File::from(terminal);
        let screen = Arc::new(Mutex::new(String::new()));
        let (mut reading, shown) = (keyboard.try_clone().unwrap(), Arc::clone(&screen));
        thread::spawn(move || {
            let mut piece = [0; 1024];
            // It fails when the last program has left the terminal.
            while let Ok(length @ 1..) = reading.read(&mut piece) {
                shown
                    .lock()
                    .unwrap()
                    .push_str(&String::from_utf8_lossy(&piece[..length]));
            }
        });
        Self {
            child,
            keyboard,
            screen,
        }
    }

    fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn seen(&self) -> String {
        self.screen.lock().unwrap().clone()
    }

    /// Waits until this has appeared so many times.
    fn sees(&self, text: &str, times: usize) {
        let begun = Instant::now();
        while self.seen().matches(text).count() < times {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "no {times} times {text:?} in {:?}",
                self.seen()
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn end(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "it does not end: {:?}",
                self.seen()
            );
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

#[test]
fn a_command_reads_from_the_terminal() {
    let lab = Lab::new();
    let mut person = Person::at(
        &lab,
        &[
            FERROLHO,
            "run",
            "r",
            "--",
            "sh",
            "-c",
            "echo ready; read x; echo got $x",
        ],
    );
    person.sees("ready", 1);
    person.types("hello\n");
    person.sees("got hello", 1);
    assert!(person.end().success());
    assert_eq!(lab.fake.holder("r"), None);
}

#[test]
fn ctrl_c_reaches_the_command_once() {
    for output in ["", " | cat", " 2>errors"] {
        let lab = Lab::new();
        let script = "trap 'echo INT >>heard' INT; trap 'exit 3' TERM; echo $$ >main; echo ready; while :; do sleep 0.02; done";
        let line = format!(
            "{FERROLHO} run r -- sh -c \"{}\"{output}",
            script.replace('$', "\\$")
        );
        let mut person = Person::at(&lab, &["bash", "--norc", "--noprofile", "-i"]);
        person.sees("READY>", 1);
        person.types(&format!("{line}\n"));
        let main = lab.pid("main");
        person.types("\x03");
        until("it was heard", || !lab.read("heard").is_empty());
        // A second one would have come by the time that the third is heard.
        person.types("\x03");
        until("the next was heard", || lab.read("heard").lines().count() >= 2);
        rustix::process::kill_process(main, rustix::process::Signal::TERM).unwrap();
        person.sees("READY>", 2);
        person.types("exit\n");
        person.end();
        assert_eq!(lab.read("heard").lines().count(), 2, "{output}");
        assert_eq!(lab.fake.holder("r"), None);
    }
}

#[test]
fn ctrl_c_ends_a_command_that_does_not_catch_it() {
    let lab = Lab::new();
    let mut person = Person::at(
        &lab,
        &[
            FERROLHO,
            "run",
            "r",
            "--",
            "sh",
            "-c",
            "echo ready; exec sleep 300",
        ],
    );
    person.sees("ready", 1);
    person.types("\x03");
    assert_eq!(person.end().code(), Some(130));
    assert_eq!(lab.fake.holder("r"), None);
}

#[test]
fn ctrl_c_ends_a_wait() {
    let lab = Lab::new();
    lab.fake.seize("r", "b", Duration::from_mins(1));
    let mut person = Person::at(&lab, &[FERROLHO, "run", "r", "--wait", "forever", "--", "true"]);
    until("it waits", || lab.fake.waiting("r") == 1);
    person.types("\x03");
    assert_eq!(person.end().code(), Some(130));
    until("its place is free", || lab.fake.waiting("r") == 0);
}

#[test]
fn a_shells_job_control_works() {
    let lab = Lab::new();
    let mut person = Person::at(&lab, &["bash", "--norc", "--noprofile", "-i"]);
    person.sees("READY>", 1);
    person.types(&format!(
        "{FERROLHO} run r --ttl 60s -- sh -c 'echo on; exec cat'\n"
    ));
    person.sees("on\r\n", 1);
    person.types("one\n");
    // Once as it is typed, once as cat prints it.
    person.sees("one\r\n", 2);
    person.types("\x1a");
    person.sees("Stopped", 1);
    person.sees("READY>", 2);
    person.types("echo $((6*7))\n");
    person.sees("42", 1);
    assert!(lab.fake.holder("r").is_some());
    person.types("fg\n");
    // What is typed while the shell changes the terminal's mode may be lost.
    let mut typed = 0;
    until("cat prints what is typed", || {
        person.types("two\n");
        typed += 1;
        thread::sleep(Duration::from_millis(50));
        person.seen().matches("two\r\n").count() > typed
    });
    person.types("\x04");
    person.sees("READY>", 4);
    until("it was released", || lab.fake.holder("r").is_none());
    person.types("exit\n");
    person.end();
}

#[test]
fn a_command_in_the_background_gets_the_terminal_when_it_is_brought_to_the_front() {
    let lab = Lab::new();
    let mut person = Person::at(&lab, &["bash", "--norc", "--noprofile", "-i"]);
    person.sees("READY>", 1);
    person.types(&format!("{FERROLHO} run r -- sh -c 'read x; echo got $x' &\n"));
    until("it holds", || lab.fake.holder("r").is_some());
    until("it was stopped for reading", || {
        person.types("\n");
        thread::sleep(Duration::from_millis(50));
        person.seen().contains("Stopped")
    });
    person.types("fg\n");
    person.types("hello\n");
    person.sees("got hello", 1);
    person.types("exit\n");
    person.end();
    assert_eq!(lab.fake.holder("r"), None);
}

#[test]
fn without_a_shell_ctrl_z_stops_nothing() {
    let lab = Lab::new();
    let mut person = Person::at(
        &lab,
        &[
            FERROLHO,
            "run",
            "r",
            "--",
            "sh",
            "-c",
            "echo ready; read x; echo got $x",
        ],
    );
    person.sees("ready", 1);
    person.types("\x1a");
    person.types("hello\n");
    person.sees("got hello", 1);
    assert!(person.end().success());
}

#[test]
fn a_command_behind_a_pipe_gets_the_terminal_when_it_asks() {
    let lab = Lab::new();
    let mut person = Person::at(&lab, &["bash", "--norc", "--noprofile", "-i"]);
    person.sees("READY>", 1);
    person.types(&format!(
        "{FERROLHO} run r -- sh -c 'echo ready; read x </dev/tty; echo got $x' | cat\n"
    ));
    person.sees("ready\r\n", 1);
    person.types("hello\n");
    person.sees("got hello", 1);
    person.sees("READY>", 2);
    person.types("exit\n");
    person.end();
}

/// The whole pipeline stops, the lock is kept meanwhile, and all of it goes on.
#[test]
fn ctrl_z_stops_a_pipeline_and_fg_goes_on_with_it() {
    for line in [
        "{run} run r --ttl 60s -- sh -c 'echo ready; read x </dev/tty; echo got $x' | cat",
        "echo given | {run} run r --ttl 60s -- sh -c 'echo ready; read y; read x </dev/tty; echo $y got $x'",
    ] {
        let lab = Lab::new();
        let mut person = Person::at(&lab, &["bash", "--norc", "--noprofile", "-i"]);
        person.sees("READY>", 1);
        person.types(&format!("{}\n", line.replace("{run}", FERROLHO)));
        person.sees("ready\r\n", 1);
        person.types("\x1a");
        person.sees("Stopped", 1);
        person.sees("READY>", 2);
        assert!(lab.fake.holder("r").is_some());
        person.types("fg\n");
        // What is typed while the shell changes the terminal's mode may be lost.
        until("the command goes on", || {
            person.types("hello\n");
            thread::sleep(Duration::from_millis(50));
            person.seen().contains("got hello")
        });
        person.types("exit\n");
        person.end();
        assert_eq!(lab.fake.holder("r"), None, "{line}");
    }
}

#[test]
fn a_job_that_was_stopped_too_long_has_lost_its_lock() {
    let lab = Lab::new();
    let mut person = Person::at(&lab, &["bash", "--norc", "--noprofile", "-i"]);
    person.sees("READY>", 1);
    // No child processes: a stop between fork and exec of one holds up its parent's stop, with any shell.
    let script = "echo $$ >main; while :; do echo $EPOCHREALTIME >>first; done";
    person.types(&format!("{FERROLHO} run r --ttl 1s -- bash -c '{script}'\n"));
    let main = lab.pid("main");
    until("it works", || lab.read("first").lines().count() > 1);
    person.types("\x1a");
    person.sees("READY>", 2);
    let other = lab.start(&["--wait", "20s", "--", "bash", "-c", "echo $EPOCHREALTIME >second"]);
    assert_eq!(other.end().status.code(), Some(0));
    person.types("fg\n");
    person.sees("lost", 1);
    person.types("echo code $?\n");
    person.sees("code 74", 1);
    assert!(!is_alive(main));
    let last = |name: &str| -> String {
        // Seconds, a point, and six more digits: text order is time order.
        lab.read(name)
            .lines()
            .rfind(|line| line.len() == 17)
            .unwrap()
            .to_owned()
    };
    assert!(last("first") < last("second"));
    person.types("exit\n");
    person.end();
}

#[test]
fn tables_and_colours_are_for_terminals() {
    let lab = Lab::new();
    lab.fake.seize("r", "a", Duration::from_mins(1));
    let mut person = Person::at(&lab, &[FERROLHO, "status", "r"]);
    person.end();
    person.sees("\x1b[1m", 1);
}

/// The seconds that the last of all countdowns on the screen shows.
fn seconds_left(screen: &str) -> Option<u64> {
    let (before, _) = screen.rsplit_once("s left")?;
    let digits = before.rsplit(|char: char| !char.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// Watches the seconds run down from what is seen first, in steps of one at most now and then.
fn sees_a_countdown(person: &Person) {
    let mut seen = Vec::new();
    until("it counts down", || {
        if let Some(left) = seconds_left(&person.seen())
            && seen.last() != Some(&left)
        {
            seen.push(left);
        }
        seen.len() >= 4
    });
    assert!(seen.is_sorted_by(|earlier, later| earlier > later), "{seen:?}");
}

#[test]
fn watch_shows_events_and_counts_down() {
    let lab = Lab::new();
    let server = Server::start();
    let url = server.url();
    let mut person = Person::at(&lab, &[FERROLHO, "watch", "w/", "--url", &url]);
    person.sees("nothing is held", 1);
    let acquire = |name: &str, ttl: &str| {
        let mut acquire = lab.command(&["acquire", name, "--owner", "o", "--ttl", ttl, "--url", &url]);
        assert!(acquire.output().unwrap().status.success());
    };
    acquire("w/long", "10m");
    acquire("w/next", "40s");
    acquire("other", "1s");
    person.sees("acquired", 2);
    person.sees("2 held; w/next: ", 1);
    sees_a_countdown(&person);
    acquire("w/short", "1s");
    person.sees("expired", 1);
    assert!(!person.seen().contains("other"));
    person.types("\x03");
    assert!(!person.end().success());
}

#[test]
fn list_counts_down_and_follows_changes() {
    let lab = Lab::new();
    let server = Server::start();
    let url = server.url();
    let call = |command: &str, rest: &[&str]| {
        let mut call = lab.command(&[command, "w/a", "--owner", "o", "--url", &url]);
        assert!(call.args(rest).output().unwrap().status.success());
    };
    call("acquire", &["--ttl", "40s"]);
    let mut person = Person::at(&lab, &[FERROLHO, "list", "w/", "--watch", "--url", &url]);
    person.sees("w/a", 1);
    sees_a_countdown(&person);
    call("renew", &["--ttl", "10m"]);
    // Only the renewed lock can have minutes left.
    until("the renewal is shown", || {
        let screen = person.seen();
        screen
            .rsplit("w/a")
            .next()
            .is_some_and(|rest| rest.contains('m') && rest.contains("left"))
    });
    call("release", &[]);
    person.sees("nothing is held", 1);
    person.types("\x03");
    assert!(!person.end().success());
}

//! What goes in and comes out of `ferrolho run`: exit codes, environment, streams, metadata, owners.

use std::fs;
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use crate::fake::{Act, Fault, problem_body};
use crate::lab::{FERROLHO, Lab, text, until};

#[test]
fn the_commands_own_code_passes_through() {
    let lab = Lab::new();
    for (command, code) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -9 $$", 137),
        ("kill -15 $$", 143),
        ("exec no-such-command-anywhere", 127),
    ] {
        let output = lab.run(&["--", "sh", "-c", command]);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{command}: {}",
            text(&output.stderr)
        );
        assert_eq!(lab.fake.holder("r"), None, "{command}");
    }
    assert_eq!(
        lab.run(&["--", "no-such-command-anywhere"]).status.code(),
        Some(127)
    );
    fs::write(lab.file("not-executable"), "x").unwrap();
    assert_eq!(lab.run(&["--", "./not-executable"]).status.code(), Some(126));
    assert_eq!(lab.fake.holder("r"), None);
}

#[test]
fn its_own_failures_have_codes_of_their_own() {
    let lab = Lab::new();
    lab.fake.seize("r", "b", Duration::from_mins(1));
    let output = lab.run(&["--", "touch", "ran"]);
    assert_eq!(output.status.code(), Some(75));
    assert!(
        text(&output.stderr).contains("held by b"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(
        lab.run(&["--on-held-exit", "0", "--", "touch", "ran"])
            .status
            .code(),
        Some(0)
    );
    let output = lab.run(&["--quiet", "--", "touch", "ran"]);
    assert_eq!(
        (output.status.code(), text(&output.stderr)),
        (Some(75), String::new())
    );

    lab.fake.take_away("r");
    lab.fake.fault(
        Act::Acquire,
        2,
        Fault::Answer(503, problem_body(503, "unavailable")),
    );
    assert_eq!(lab.run(&["--", "touch", "ran"]).status.code(), Some(69));
    let nobody = ["--url", "http://127.0.0.1:1", "--", "touch", "ran"];
    assert_eq!(lab.run(&nobody).status.code(), Some(69));
    lab.fake.fault(
        Act::Acquire,
        1,
        Fault::Answer(401, problem_body(401, "unauthorized")),
    );
    assert_eq!(lab.run(&["--", "touch", "ran"]).status.code(), Some(77));
    lab.fake.fault(
        Act::Acquire,
        1,
        Fault::Answer(422, problem_body(422, "validation-failed")),
    );
    assert_eq!(lab.run(&["--", "touch", "ran"]).status.code(), Some(64));
    assert!(!lab.file("ran").exists());
}

#[test]
fn wrong_usage_is_64_and_nothing_is_sent() {
    let lab = Lab::new();
    let wrong: &[&[&str]] = &[
        &[],
        &["run"],
        &["run", "r"],
        &["run", "r", "--"],
        &["run", "r", "--ttl", "0", "--", "true"],
        &["run", "r", "--ttl", "1500ms", "--", "true"],
        &["run", "r", "--ttl", "9999d", "--", "true"],
        &["run", "r", "--wait", "soon", "--", "true"],
        &["run", "r", "--metadata", "[]", "--", "true"],
        &["run", "r", "--metadata", "{", "--", "true"],
        &["run", "r", "--url", "ftp://x", "--", "true"],
        &["run", "r", "--no-such-flag", "--", "true"],
        &["run", ".", "--", "true"],
        &["run", "..", "--", "true"],
        &["run", "", "--", "true"],
        &["run", "a\nb", "--", "true"],
        &["run", "r", "--owner", " ", "--", "true"],
        &["run", "r", "--on-held-exit", "256", "--", "true"],
        &["renew", "r"],
        &["release", "r"],
        &["no-such-command"],
        &["status"],
    ];
    for args in wrong {
        let output = lab.command(args).stdin(Stdio::null()).output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(64),
            "{args:?}: {}",
            text(&output.stderr)
        );
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
    assert_eq!(lab.fake.connections(), 0);
    for args in [
        ["--version"].as_slice(),
        &["--help"],
        &["run", "--help"],
        &["help", "run"],
    ] {
        let output = lab.command(args).output().unwrap();
        assert!(output.status.success() && !output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn streams_and_environment_are_the_commands_own() {
    let lab = Lab::new();
    let script = "cat; echo \"$FERROLHO_RESOURCE $FERROLHO_OWNER $FERROLHO_FENCING_TOKEN $FERROLHO_URL $OTHER\"; echo e >&2";
    let mut command = lab.command(&["run", "team/job", "--owner", "me", "--", "sh", "-c", script]);
    command
        .env("OTHER", "x")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"in\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(
        text(&output.stdout),
        format!("in\nteam/job me 1 {} x\n", lab.fake.url())
    );
    assert_eq!(text(&output.stderr), "e\n");
}

#[test]
fn no_descriptor_of_ours_is_inherited_and_all_of_the_callers_are() {
    let lab = Lab::new();
    let alone = std::process::Command::new("ls")
        .arg("/proc/self/fd")
        .output()
        .unwrap();
    let output = lab.run(&["--", "ls", "/proc/self/fd"]);
    assert_eq!(text(&output.stdout), text(&alone.stdout));
    let script = format!("{FERROLHO} run r -- sh -c 'echo through >&5' 5>file");
    let mut shell = std::process::Command::new("sh");
    lab.prepare(&mut shell);
    assert!(shell.args(["-c", &script]).status().unwrap().success());
    assert_eq!(lab.read("file"), "through\n");
}

#[test]
fn people_see_who_has_it() {
    let lab = Lab::new();
    let metadata = |args: &[&str]| {
        lab.run(args);
        lab.fake.seen(Act::Acquire).last().unwrap().body["metadata"].clone()
    };
    let shown = metadata(&["--", "/bin/echo", "secret"]);
    assert_eq!(shown["program"], "echo");
    assert!(shown["pid"].is_u64() && shown["host"].is_string());
    assert!(!shown.to_string().contains("secret"));
    let shown = metadata(&["--metadata-command", "--", "/bin/echo", "a b"]);
    assert_eq!(shown["command"], serde_json::json!(["/bin/echo", "a b"]));
    let shown = metadata(&["--metadata", "{\"ticket\": 7}", "--", "true"]);
    assert_eq!(shown, serde_json::json!({"ticket": 7}));
    let long = "x".repeat(3000);
    let shown = metadata(&["--metadata-command", "--", "true", "first", &long, &long]);
    assert_eq!(shown["command"][1], "first");
    assert!(shown.to_string().len() <= 4096);
}

#[test]
fn a_shell_runs_text() {
    let lab = Lab::new();
    let output = lab.run(&["--shell", "--", "echo one | sed s/one/two/; exit 5"]);
    assert_eq!(
        (output.status.code(), text(&output.stdout)),
        (Some(5), "two\n".to_owned())
    );
}

#[test]
fn each_start_is_an_owner_of_its_own() {
    let lab = Lab::new();
    let mut first = lab.start(&["--", "sleep", "60"]);
    until("it holds", || lab.fake.holder("r").is_some());
    assert_eq!(lab.run(&["--", "true"]).status.code(), Some(75));
    first.send(rustix::process::Signal::TERM);
    first.wait();

    // A run inside a run is not the owner of the one around it.
    let inside = format!("{FERROLHO} run r -- true");
    assert_eq!(lab.run(&["--", "sh", "-c", &inside]).status.code(), Some(75));
    let mut shell = lab.command(&["run", "r", "--", "sh", "-c", &inside]);
    assert_eq!(
        shell.env("FERROLHO_OWNER", "me").output().unwrap().status.code(),
        Some(75)
    );
    let owners = lab
        .fake
        .seen(Act::Acquire)
        .iter()
        .map(|seen| seen.body["owner"].to_string())
        .collect::<Vec<_>>();
    assert!(owners.contains(&"\"me\"".to_owned()));
}

#[test]
fn it_renews_for_as_long_as_the_command_takes() {
    let lab = Lab::new();
    let mut running = lab.start(&["--ttl", "1s", "--", "sleep", "3"]);
    until("it holds", || lab.fake.holder("r").is_some());
    let token = lab.fake.holder("r").unwrap().1;
    until("six renewals", || {
        assert_eq!(lab.fake.holder("r").map(|holder| holder.1), Some(token));
        lab.fake.seen(Act::Renew).len() >= 6
    });
    assert_eq!(running.wait().code(), Some(0));
    assert_eq!(lab.fake.holder("r"), None);
}

#[test]
fn a_server_that_is_gone_at_the_end_changes_no_code() {
    let lab = Lab::new();
    lab.fake.fault(
        Act::Release,
        usize::MAX,
        Fault::Answer(503, problem_body(503, "unavailable")),
    );
    let output = lab.run(&["--", "sh", "-c", "exit 7"]);
    assert_eq!(output.status.code(), Some(7));
    assert!(
        text(&output.stderr).contains("not released"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn it_waits_for_its_turn() {
    let lab = Lab::new();
    lab.fake.seize("r", "b", Duration::from_secs(1));
    assert_eq!(lab.run(&["--wait", "10s", "--", "true"]).status.code(), Some(0));
    lab.fake.seize("r", "b", Duration::from_secs(1));
    assert_eq!(
        lab.run(&["--wait", "forever", "--", "true"]).status.code(),
        Some(0)
    );
    lab.fake.seize("r", "b", Duration::from_mins(1));
    assert_eq!(lab.run(&["--wait", "1s", "--", "true"]).status.code(), Some(75));
}

//! The small commands: what they print and how they exit.

use std::process::{Output, Stdio};
use std::time::Duration;

use crate::fake::{Act, Fault, problem_body};
use crate::lab::{FERROLHO, Lab, text};

fn ferrolho(lab: &Lab, args: &[&str]) -> Output {
    lab.command(args).stdin(Stdio::null()).output().unwrap()
}

fn code(lab: &Lab, args: &[&str]) -> i32 {
    ferrolho(lab, args).status.code().unwrap()
}

#[test]
fn scripts_go_by_the_exit_codes() {
    let lab = Lab::new();
    assert_eq!(code(&lab, &["acquire", "r", "--owner", "a", "--ttl", "5m"]), 0);
    assert_eq!(lab.fake.holder("r").unwrap().0, "a");
    assert_eq!(code(&lab, &["acquire", "r", "--owner", "b"]), 75);
    assert_eq!(code(&lab, &["renew", "r", "--owner", "a", "--ttl", "1m"]), 0);
    assert_eq!(code(&lab, &["renew", "r", "--owner", "b"]), 3);
    assert_eq!(code(&lab, &["renew", "s", "--owner", "a"]), 4);
    assert_eq!(code(&lab, &["release", "r", "--owner", "b"]), 3);
    assert_eq!(
        code(&lab, &["release", "r", "--owner", "a", "--fencing-token", "999"]),
        3
    );
    assert_eq!(
        code(&lab, &["release", "r", "--owner", "a", "--fencing-token", "1"]),
        0
    );
    assert_eq!(code(&lab, &["release", "r", "--owner", "a"]), 4);
    assert_eq!(code(&lab, &["status", "r"]), 4);
    for args in [
        ["acquire", "r"].as_slice(),
        &["renew", "r", "--owner", "a"],
        &["release", "r", "--owner", "a"],
        &["status", "r"],
        &["status", "--server"],
        &["list"],
        &["watch"],
    ] {
        let mut args = args.to_vec();
        args.extend(["--url", "http://127.0.0.1:1"]);
        assert_eq!(code(&lab, &args), 69, "{args:?}");
    }
    lab.fake.fault(
        Act::Acquire,
        1,
        Fault::Answer(403, problem_body(403, "not-permitted")),
    );
    assert_eq!(code(&lab, &["acquire", "r"]), 77);
}

#[test]
fn the_environment_names_owner_and_server() {
    let lab = Lab::new();
    let mut acquire = lab.command(&["acquire", "r"]);
    assert!(acquire.env("FERROLHO_OWNER", "env").status().unwrap().success());
    assert_eq!(lab.fake.holder("r").unwrap().0, "env");
    let mut release = lab.command(&["release", "r"]);
    assert!(release.env("FERROLHO_OWNER", "env").status().unwrap().success());
    // Set to nothing is not set.
    let mut acquire = lab.command(&["acquire", "r"]);
    acquire
        .env("FERROLHO_OWNER", "")
        .env("FERROLHO_TOKEN", "")
        .env("FERROLHO_CA_FILE", "");
    assert!(acquire.status().unwrap().success());
}

#[test]
fn json_is_for_programs() {
    let lab = Lab::new();
    let json = |args: &[&str]| -> serde_json::Value {
        serde_json::from_slice(&ferrolho(&lab, args).stdout).unwrap()
    };
    let answer = json(&[
        "acquire",
        "r",
        "--owner",
        "a",
        "--json",
        "--metadata",
        "{\"k\":1}",
    ]);
    assert_eq!(answer["acquired"], true);
    assert_eq!(answer["lock"]["owner"], "a");
    assert_eq!(answer["lock"]["metadata"]["k"], 1);
    let answer = json(&["acquire", "r", "--owner", "b", "--json"]);
    assert_eq!(answer, serde_json::json!({"acquired": false, "resource": "r"}));
    assert_eq!(
        json(&["renew", "r", "--owner", "a", "--json"])["fencing_token"],
        1
    );
    assert_eq!(json(&["status", "r", "--json"])["owner"], "a");
    assert_eq!(json(&["release", "r", "--owner", "a", "--json"])["released"], "r");
}

#[test]
fn text_is_for_people_and_has_colours_on_a_terminal_only() {
    let lab = Lab::new();
    let output = ferrolho(&lab, &["acquire", "café/ü", "--owner", "a"]);
    let shown = text(&output.stdout);
    for part in ["acquired", "café/ü", "owner", "fencing token 1"] {
        assert!(shown.contains(part), "{shown}");
    }
    assert!(!shown.contains('\x1b'));
    assert!(lab.fake.holder("café/ü").is_some());
}

#[test]
fn a_reader_that_leaves_is_no_error_and_no_panic() {
    let lab = Lab::new();
    lab.fake.seize("r", "a", Duration::from_mins(1));
    for args in [
        "status r",
        "completions bash",
        "man",
        "--help",
        "acquire s",
        "run --help",
    ] {
        let script = format!("{FERROLHO} {args} 2>err | true; exit ${{PIPESTATUS[0]}}");
        let mut shell = std::process::Command::new("bash");
        lab.prepare(&mut shell);
        let status = shell.args(["-c", &script]).status().unwrap();
        assert_eq!(status.code(), Some(0), "{args}: {}", lab.read("err"));
        assert!(!lab.read("err").contains("panic"), "{args}: {}", lab.read("err"));
    }
}

#[test]
fn completions_and_manual_come_from_the_same_definitions() {
    let lab = Lab::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&ferrolho(&lab, &["completions", shell]).stdout);
        assert!(script.contains("on-held-exit"), "{shell}");
        assert!(!script.contains("__become"), "{shell}");
    }
    assert!(text(&ferrolho(&lab, &["man"]).stdout).contains("ferrolho"));
    assert!(text(&ferrolho(&lab, &["man", "run"]).stdout).contains("on\\-held\\-exit"));
    assert_eq!(code(&lab, &["man", "no-such-command"]), 64);
}

#[test]
fn secrets_are_not_shown() {
    let lab = Lab::new();
    let mut help = lab.command(&["run", "--help"]);
    let output = help.env("FERROLHO_TOKEN", "very-secret").output().unwrap();
    assert!(!text(&output.stdout).contains("very-secret"));
}

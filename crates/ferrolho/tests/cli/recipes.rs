//! The recipes of `docs/recipes.md`, as they stand there.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::lab::{FERROLHO, Lab, text};

/// The block that follows this mark.
fn block(mark: &str) -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/recipes.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once(&format!("<!-- {mark} -->\n```")).unwrap();
    let (_, rest) = rest.split_once('\n').unwrap();
    rest.split_once("\n```").unwrap().0.to_owned()
}

/// A recipe in the lab's folder, with `ferrolho` in the path.
fn recipe(lab: &Lab, mark: &str) -> Command {
    let mut shell = Command::new("sh");
    lab.prepare(&mut shell);
    let path = std::env::var("PATH").unwrap();
    let here = Path::new(FERROLHO).parent().unwrap().display().to_string();
    shell
        .args(["-euc", &block(mark)])
        .env("PATH", format!("{here}:{path}"));
    shell
}

fn run(lab: &Lab, mark: &str) -> Output {
    recipe(lab, mark).output().unwrap()
}

/// A program in the lab's folder that writes down that it ran.
fn program(lab: &Lab, name: &str) {
    fs::write(lab.file(name), format!("#!/bin/sh\necho ran >>{name}.ran\n")).unwrap();
    fs::set_permissions(lab.file(name), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn cron_runs_once_among_all_hosts() {
    let lab = Lab::new();
    program(&lab, "report");
    let hosts: Vec<_> = (0..3)
        .map(|_| recipe(&lab, "run: cron").spawn().unwrap())
        .collect();
    for mut host in hosts {
        assert!(host.wait().unwrap().success());
    }
    assert_eq!(lab.read("report.ran"), "ran\n");
}

#[test]
fn deployments_are_done_one_after_the_other() {
    let lab = Lab::new();
    program(&lab, "deploy.sh");
    let pipelines: Vec<_> = (0..3)
        .map(|_| recipe(&lab, "run: deploy").spawn().unwrap())
        .collect();
    for mut pipeline in pipelines {
        assert!(pipeline.wait().unwrap().success());
    }
    assert_eq!(lab.read("deploy.sh.ran"), "ran\nran\nran\n");
    let output = run(&lab, "run: steps");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(lab.fake.holder("deploy:production"), None);
}

#[test]
fn a_service_refuses_old_tokens() {
    let lab = Lab::new();
    // So that the token of the recipe's second writer is an old one.
    lab.fake.seize("other", "b", std::time::Duration::from_secs(1));
    let output = run(&lab, "run: http");
    assert_eq!(
        text(&output.stdout),
        "written\na later holder has written\n",
        "{}",
        text(&output.stderr)
    );
}

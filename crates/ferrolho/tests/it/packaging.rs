//! What is in `packaging/`: it fits the program as it is.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::support::metrics::promtool;
use crate::support::{Request, Server, ferrolho};

const RULES: &str = include_str!("../../../../packaging/prometheus/ferrolho.rules.yml");
const RULE_TESTS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../packaging/prometheus/ferrolho.rules.test.yml"
);
const DASHBOARD: &str = include_str!("../../../../packaging/grafana/ferrolho.json");

/// The words of a text that name metrics.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let words = text.split(|c| !is_word(c));
    words
        .filter(|word| word.starts_with("ferrolho_") || word.starts_with("process_"))
        .map(str::to_owned)
        .collect()
}

/// The queries of all panels and variables.
fn queries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::String(text) if name == "expr" || name == "query" => found.push(text.clone()),
                    _ => queries(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| queries(item, found)),
        _ => {}
    }
}

/// The names that the server shows, once something has been done.
fn known() -> BTreeSet<String> {
    Server::start().metrics().names()
}

#[test]
fn every_metric_of_the_alerts_is_there() {
    let named = metrics_in(RULES);
    assert!(named.len() > 10, "{named:?}");
    let known = known();
    let unknown: Vec<&String> = named.difference(&known).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn every_metric_of_the_dashboard_is_there_and_none_is_left_out() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut found = Vec::new();
    queries(&dashboard, &mut found);
    let named = metrics_in(&found.join(" "));
    let known = known();
    let unknown: Vec<&String> = named.difference(&known).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let is_shown = |name: &&String| {
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix))
            .unwrap_or(name);
        named.iter().any(|named| named.starts_with(family))
    };
    let left_out: Vec<&String> = known.iter().filter(|name| !is_shown(name)).collect();
    assert!(left_out.is_empty(), "{left_out:?}");
}

#[test]
fn every_alert_is_explained() {
    let page = include_str!("../../../../docs/operations.md");
    let alerts: Vec<&str> = RULES
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    assert!(alerts.len() > 10);
    for alert in &alerts {
        assert!(page.contains(&format!("**{alert}**: ")), "{alert}");
    }
    assert_eq!(page.matches("**Ferrolho").count(), alerts.len(), "one too many");
}

#[test]
fn the_alerts_fire_on_what_they_are_for() {
    promtool(&["test", "rules", RULE_TESTS], "");
}

const UNIT: &str = include_str!("../../../../packaging/systemd/ferrolho.service");
const SETTINGS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../packaging/systemd/ferrolho.toml"
);
const DOCKERFILE: &str = include_str!("../../../../packaging/docker/Dockerfile");
const KUBERNETES: &str = include_str!("../../../../packaging/kubernetes/ferrolho.yaml");

#[test]
fn the_unit_is_understood_by_systemd() {
    let directory = tempfile::tempdir().unwrap();
    let unit = directory.path().join("ferrolho.service");
    // What it starts must be there, and is not where it will be installed.
    std::fs::write(
        &unit,
        UNIT.replace("/usr/bin/ferrolho", env!("CARGO_BIN_EXE_ferrolho")),
    )
    .unwrap();
    let verify = |arguments: &[&str]| {
        Command::new("systemd-analyze")
            .args(arguments)
            .arg(&unit)
            .output()
    };
    let Ok(verified) = verify(&["verify", "--man=no", "--recursive-errors=no"]) else {
        return ferrolho_testkit::missing("systemd", "systemd-analyze");
    };
    let said = String::from_utf8(verified.stderr).unwrap();
    assert!(verified.status.success() && said.is_empty(), "{said}");
    // Its exposure, in tenths of what systemd counts: "OK" ends at 4.9, and this is far below.
    let judged = verify(&["security", "--offline=true", "--threshold=15"]).unwrap();
    let said = String::from_utf8(judged.stdout).unwrap();
    assert!(judged.status.success(), "{said}");
}

#[test]
fn the_settings_that_are_installed_are_valid() {
    let server = Server::start_on(
        "memory:",
        &["--config", SETTINGS, "--metrics-listen", "127.0.0.1:0"],
        &[],
    );
    server.acquire("a", "one", 60).granted();
}

/// The words of a text that name variables of the program.
fn variables_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_uppercase() && c != '_');
    words.filter(|word| word.starts_with("FERROLHO_")).collect()
}

#[test]
fn every_variable_of_the_images_is_one_of_the_servers() {
    let help = ferrolho(&["serve", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let known = variables_in(&help);
    for file in [DOCKERFILE, KUBERNETES] {
        let named = variables_in(file);
        assert!(!named.is_empty());
        let unknown: Vec<_> = named.difference(&known).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}

#[test]
fn the_probes_ask_for_what_is_there() {
    let server = Server::memory();
    let probes: BTreeSet<&str> = KUBERNETES
        .split("httpGet: { path: ")
        .skip(1)
        .map(|rest| rest.split(',').next().unwrap())
        .collect();
    assert_eq!(probes.into_iter().collect::<Vec<_>>(), ["/healthz", "/readyz"]);
    // As the kubelet asks: by address.
    let host = server.addr.to_string();
    for path in ["/healthz", "/readyz"] {
        let answer = server.call(&Request::get(path).header("host", &host));
        assert_eq!(answer.status, 200);
    }
}

#[test]
fn the_health_check_of_the_image_tells_ready_from_not() {
    assert!(DOCKERFILE.contains("CMD [\"/ferrolho\", \"status\", \"--server\"]"));
    let mut server = Server::memory();
    let url = format!("http://{}", server.addr);
    let check = || {
        let mut command = ferrolho(&["status", "--server"]);
        command.env("FERROLHO_URL", &url).output().unwrap().status.code()
    };
    assert_eq!(check(), Some(0));
    server.stop();
    assert_eq!(check(), Some(69));
}

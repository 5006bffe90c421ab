//! What is in `packaging/`: it fits the program as it is.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::Server;
use crate::support::metrics::promtool;

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
fn the_alerts_fire_on_what_they_are_for() {
    promtool(&["test", "rules", RULE_TESTS], "");
}

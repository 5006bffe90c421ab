//! SECURITY.md names tests, and they are there; with those of its lines that belong nowhere else.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::support::{Server, ferrolho};

#[test]
fn every_test_that_the_threat_model_names_is_there() {
    let page = include_str!("../../../../SECURITY.md").replace('\n', " ");
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let named: Vec<(&str, &str)> = page
        .split('`')
        .filter_map(|code| code.strip_prefix("it ")?.trim().split_once("::"))
        .collect();
    assert!(named.len() > 20, "{named:?}");
    for (module, name) in named {
        let file = tests.join(format!("{module}.rs"));
        let source = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{module}: {error}"));
        assert!(source.contains(&format!("fn {name}(")), "{module}::{name}");
    }
}

#[test]
fn nobody_takes_a_lock_by_force_without_an_admin_token() {
    let server = Server::memory();
    let lock = server.acquire("r", "a", 60).granted();
    let forced = server.post("/locks/r/force-release", &json!({"reason": "mine now"}));
    forced.problem(403, "not-permitted");
    assert_eq!(server.find("r").lock(), lock);
}

#[test]
fn an_address_that_others_reach_needs_a_word() {
    for flag in ["--listen", "--metrics-listen"] {
        let mut command = ferrolho(&["serve", "--store", "memory:", flag, "0.0.0.0:0"]);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{flag}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("reachable from elsewhere"), "{said}");
    }
}

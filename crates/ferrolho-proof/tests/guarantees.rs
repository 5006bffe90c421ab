//! `docs/guarantees.md` names tests for each promise: they are there.

use std::fs;
use std::path::Path;

#[test]
fn every_test_that_a_promise_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("docs/guarantees.md")).unwrap();
    let rows: Vec<&str> = text
        .lines()
        .skip_while(|line| !line.contains("attacked by"))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert!(rows.len() >= 7, "the promises are gone");
    for row in rows {
        let attacks = row.trim_end_matches('|').rsplit('|').next().unwrap();
        let names: Vec<&str> = attacks.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "no test attacks {row}");
        for name in names {
            let (file, function) = name.split_once("::").unwrap_or((name, ""));
            let path = if file.starts_with("scripts/") {
                root.join(file)
            } else {
                root.join("crates").join(file)
            };
            let source = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(
                source.contains(&format!("fn {function}")) || function.is_empty(),
                "{name} is gone"
            );
        }
    }
}

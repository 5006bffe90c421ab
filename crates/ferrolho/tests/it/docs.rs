//! The lines of the README and of docs/api.md, as they are printed.

use std::process::Command;

use ferrolho_testkit::Postgres;

use crate::support::Server;

/// Runs every curl line of a page against one server and returns what each printed.
fn run(page: &str) -> Vec<(String, String)> {
    let server = Server::start();
    let mut in_console = false;
    let mut said = Vec::new();
    for line in page.lines() {
        in_console = match line {
            "```console" => true,
            "```" => false,
            _ => in_console,
        };
        if in_console && line.starts_with("curl ") {
            let aimed = line.replace("127.0.0.1:7400", &server.addr.to_string());
            let aimed = aimed.replacen("curl ", "curl -sS ", 1);
            let output = Command::new("bash").args(["-c", &aimed]).output().unwrap();
            said.push((line.to_owned(), String::from_utf8(output.stdout).unwrap()));
        }
    }
    said
}

#[test]
fn five_lines_lead_from_nothing_to_a_released_lock() {
    let said = run(include_str!("../../../../README.md"));
    assert!(said[0].1.contains("\"acquired\":true"), "{said:?}");
    assert!(said[1].1.contains("\"acquired\":false"), "{said:?}");
    assert!(said[2].1.contains("\"owner\":\"worker-1\""), "{said:?}");
    assert!(said[3].1.contains("\"owner\":\"worker-1\""), "{said:?}");
    assert_eq!(said[4].1, "", "released");
    assert!(said[5].1.contains("\"acquired\":true"), "{said:?}");
}

/// The line that starts one of several servers, on a database of this test.
#[test]
fn one_line_starts_one_of_several_servers() {
    let Some(postgres) = Postgres::start() else { return };
    postgres.create_database("locks");
    let mut lines = include_str!("../../../../README.md").lines();
    let line = lines.find(|line| line.contains("--store postgres://")).unwrap();
    let (program, store) = line.split_once(" --store ").unwrap();
    assert_eq!(program, "cargo run --release -- serve");
    let store = store.replace("127.0.0.1/", &format!("127.0.0.1:{}/", postgres.port()));
    let (one, two) = (Server::on(&store), Server::on(&store));
    let lock = one.acquire("r", "a", 60).granted();
    assert_eq!(two.find("r").lock(), lock);
}

#[test]
fn no_line_of_the_api_page_is_refused_as_a_mistake() {
    let said = run(include_str!("../../../../docs/api.md"));
    assert!(said.len() > 15);
    for (line, output) in said {
        for code in [
            "validation-failed",
            "malformed-json",
            "no-such-route",
            "not-found",
            "internal",
        ] {
            assert!(!output.contains(code), "{line}\n{output}");
        }
    }
}

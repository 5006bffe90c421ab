//! Back-ups that are put back: no token comes twice. (Cases: row 12.)

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::support::{Server, ferrolho};

/// Runs `ferrolho lift-tokens` on a file: its exit code and what it said.
fn lift(file: &Path, more: &[&str]) -> (i32, String) {
    let store = format!("sqlite:{}", file.display());
    let mut command = ferrolho(&["lift-tokens", "--store", &store]);
    let output = command.args(more).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), said)
}

/// Grants a lock so many times; the last token.
fn draw(server: &Server, times: usize) -> u64 {
    let mut last = 0;
    for _ in 0..times {
        last = server.acquire("r", "a", 600).granted().fencing_token;
    }
    last
}

/// A server that has given out five tokens, and its file as it was then.
fn backed_up() -> (Server, Vec<u8>) {
    let mut server = Server::start();
    draw(&server, 5);
    server.stop();
    let back_up = fs::read(server.file()).unwrap();
    server.start_again();
    (server, back_up)
}

#[test]
fn an_older_file_put_back_is_noticed_at_start_and_told() {
    let (mut server, back_up) = backed_up();
    let file = server.file();
    let seen = draw(&server, 4);
    server.stop();
    assert!(!server.log().contains("older than what has run here"));
    fs::write(&file, back_up).unwrap();
    server.start_again();
    assert!(server.log().contains("older than what has run here"));
    let warnings = server.get("/readyz").json()["warnings"].to_string();
    assert!(warnings.contains("older than what has run here"), "{warnings}");
    assert!(server.metrics().value("ferrolho_store_warnings") > 0.5);
    assert!(draw(&server, 1) > seen);
}

#[test]
fn a_whole_directory_put_back_is_lifted_by_one_command() {
    let (mut server, back_up) = backed_up();
    let file = server.file();
    let seen = draw(&server, 400);
    let (code, said) = lift(&file, &[]);
    assert_eq!(code, 69, "not while a server has it: {said}");
    server.stop();
    // All that was beside it comes from the back-up too.
    let beside = file.with_file_name("ferrolho.db-top-token");
    fs::remove_file(&beside).unwrap();
    fs::write(&file, back_up).unwrap();
    let (code, said) = lift(&file, &["--by", "1000"]);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("every further fencing token is above 1005"),
        "{said}"
    );
    let (code, said) = lift(&file, &["--above", "2000"]);
    assert_eq!(code, 0, "{said}");
    server.start_again();
    assert!(draw(&server, 1) > seen.max(2000));
}

/// As docs/operations.md has it.
#[test]
fn a_copy_taken_while_the_server_works_is_whole() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy.db");
    let done = AtomicBool::new(false);
    let (held, top) = thread::scope(|scope| {
        let busy = scope.spawn(|| {
            let mut number = 0;
            while !done.load(Ordering::Relaxed) {
                server.acquire(&format!("busy-{number}"), "b", 600).granted();
                number += 1;
            }
        });
        let held = server.acquire("held", "a", 600).granted();
        let into = format!("VACUUM INTO '{}'", copy.display());
        server.database().execute_batch(&into).unwrap();
        done.store(true, Ordering::Relaxed);
        busy.join().unwrap();
        (held, draw(&server, 1))
    });
    let (code, said) = lift(&copy, &[]);
    assert_eq!(code, 0, "{said}");
    let restored = Server::on_file(|file| {
        fs::copy(&copy, file).unwrap();
    });
    assert_eq!(restored.find("held").lock(), held);
    assert!(draw(&restored, 1) > top + 900_000);
}

#[test]
fn what_cannot_be_lifted_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("none.db");
    let (code, said) = lift(&file, &[]);
    assert_eq!(code, 69, "{said}");
    assert!(!file.exists(), "it makes none");
    fs::write(&file, "no database").unwrap();
    assert_eq!(lift(&file, &[]).0, 69);
    for wrong in [
        &["--above", "0"][..],
        &["--above", "x"],
        &["--by", "1", "--above", "1"],
    ] {
        assert_eq!(lift(&file, wrong).0, 64, "{wrong:?}");
    }
    let mut secret = ferrolho(&["lift-tokens", "--store", "redis://user:secret@host"]);
    let output = secret.output().unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert!(!String::from_utf8(output.stderr).unwrap().contains("secret"));
}

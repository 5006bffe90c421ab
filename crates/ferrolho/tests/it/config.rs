//! The server's settings, how it says what is wrong with them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::support::{Request, Server, ferrolho};

/// Starts a server that must refuse to with this code, and returns the one line in which it says why.
fn refused(dir: &Path, args: &[&str], env: &[(&str, &str)]) -> String {
    let mut command = ferrolho(&["serve"]);
    command.args(args).envs(env.iter().copied()).current_dir(dir);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{args:?}");
    assert!(output.stdout.is_empty());
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("ferrolho: "), "{said}");
    said
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        fs::write(dir.path().join(name), text).unwrap();
    };
    file("unknown.toml", "listen = \"127.0.0.1:0\"\nmax_tll_seconds = 5\n");
    file("dashes.toml", "max-ttl-seconds = 5\n");
    file("table.toml", "[listen]\nport = 1\n");
    file("float.toml", "max_ttl_seconds = 1.5\n");
    file("broken.toml", "listen = \n");
    file("secret.toml", "store = \"redis://user:secret@host\"\n");
    fs::create_dir(dir.path().join("a-directory")).unwrap();
    fs::write(
        dir.path().join("no-database"),
        "this is no database, and long enough to be seen as none",
    )
    .unwrap();
    let listen = ["--listen", "127.0.0.1:0"];
    for (args, said) in [
        (&["--config", "unknown.toml"][..], "max_tll_seconds"),
        (&["--config", "dashes.toml"], "max-ttl-seconds"),
        (&["--config", "table.toml"], "listen"),
        (&["--config", "float.toml"], "max_ttl_seconds"),
        (&["--config", "broken.toml"], "broken.toml"),
        (&["--config", "secret.toml"], "store"),
        (&["--config", "no.toml"], "no.toml"),
        (&["--config", "a-directory"], "a-directory"),
        (&["--listen", "nowhere"], "listen"),
        (&["--listen", "127.0.0.1"], "listen"),
        (&["--listen", "127.0.0.1:99999"], "listen"),
        (&["--listen", "0.0.0.0:0"], "--allow-anonymous"),
        (&["--listen", "[::]:0"], "--allow-anonymous"),
        (&["--allow-anonymous=perhaps"], "allow_anonymous"),
        (&["--store", "redis://user:secret@host"], "store"),
        (&["--store", "user:secret@host"], "store"),
        (&["--store", "sqlite:x.db?mode=ro"], "store"),
        (&["--store", "sqlite:no/such/dir/x.db"], "no/such/dir/x.db"),
        (&["--store", "sqlite:a-directory"], "a-directory"),
        (&["--store", "sqlite:no-database"], "no-database"),
        (&["--store", "sqlite:/proc/ferrolho.db"], "/proc/ferrolho.db"),
        (&["--max-ttl-seconds", "0"], "max_ttl_seconds"),
        (&["--max-ttl-seconds", "315360001"], "max_ttl_seconds"),
        (&["--max-ttl-seconds", "1d"], "max_ttl_seconds"),
        (&["--max-waiters=-1"], "max_waiters"),
        (&["--max-waiters-per-resource", "0"], "max_waiters_per_resource"),
        (&["--max-locks-per-principal", "0"], "max_locks_per_principal"),
        (&["--event-buffer", "0"], "event_buffer"),
        (&["--max-event-readers", "0"], "max_event_readers"),
        (&["--max-connections", "0"], "max_connections"),
        (&["--head-timeout-seconds", "0"], "head_timeout_seconds"),
        (&["--body-timeout-seconds", "x"], "body_timeout_seconds"),
        (&["--worker-threads", "0"], "worker_threads"),
        (&["--log-format", "xml"], "log_format"),
        (&["--log-level", "a=b=c"], "log_level"),
    ] {
        let args = if args[0] == "--listen" || args[0] == "--config" {
            args.to_vec()
        } else {
            [&listen, args].concat()
        };
        let line = refused(dir.path(), &args, &[]);
        assert!(line.contains(said) && !line.contains("secret"), "{line}");
    }
    let line = refused(dir.path(), &[], &[("FERROLHO_MAX_WAITERS", "many")]);
    assert!(line.contains("max_waiters"), "{line}");
}

#[test]
fn a_wrong_use_of_the_command_is_told_apart() {
    for args in [
        &["serve", "--max-tll-seconds", "5"][..],
        &["serve", "extra"],
        &["sreve"],
        &["serve", "--listen"],
        &[],
    ] {
        let output = ferrolho(args).output().unwrap();
        assert_eq!(output.status.code(), Some(64), "{args:?}");
        assert!(output.stdout.is_empty());
        assert!(!output.stderr.is_empty());
    }
    let help = ferrolho(&["serve", "--help"]).output().unwrap();
    assert!(help.status.success());
    let help = String::from_utf8(help.stdout).unwrap();
    for name in [
        "listen",
        "store",
        "max-ttl-seconds",
        "max-waiters",
        "max-waiters-per-resource",
        "event-buffer",
        "log-format",
    ] {
        assert!(help.contains(&format!("--{name}")), "{name}");
        let variable = name.replace('-', "_").to_uppercase();
        assert!(help.contains(&format!("FERROLHO_{variable}")), "{variable}");
    }
    let version = ferrolho(&["--version"]).output().unwrap();
    assert_eq!(
        version.stdout,
        format!("ferrolho {}\n", env!("CARGO_PKG_VERSION")).into_bytes()
    );
}

#[test]
fn a_port_and_a_file_have_one_server() {
    let server = Server::start();
    server.acquire("r", "a", 600).granted();
    let dir = tempfile::tempdir().unwrap();
    let address = server.addr.to_string();
    let port_in_use = refused(dir.path(), &["--listen", &address, "--store", "memory:"], &[]);
    assert!(port_in_use.contains(&address), "{port_in_use}");
    let path = server.database().path().unwrap().to_owned();
    symlink(&path, dir.path().join("link.db")).unwrap();
    fs::hard_link(&path, dir.path().join("hard.db")).unwrap_or(());
    for name in [path.as_str(), "link.db", "hard.db"] {
        if dir.path().join(name).exists() {
            let args = ["--listen", "127.0.0.1:0", "--store", &format!("sqlite:{name}")];
            let file_in_use = refused(dir.path(), &args, &[]);
            assert!(file_in_use.contains("another"), "{file_in_use}");
        }
    }
    assert_eq!(server.find("r").lock().owner, "a");
    server.release("r", "a").done();
}

/// The longest lifetime that a server takes shows which of its settings count.
fn longest(server: &Server) -> u32 {
    let ttls = [5, 10, 20, 30, 86_400];
    let is_taken = |ttl: &&u32| server.acquire("r", "a", **ttl).status == 200;
    *ttls.iter().rev().find(is_taken).unwrap()
}

#[test]
fn flags_win_then_the_environment_then_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ferrolho.toml");
    fs::write(
        &file,
        "max_ttl_seconds = 10\nallowed_host = [\"one.example\", \"two.example\"]\n",
    )
    .unwrap();
    let file = file.to_str().unwrap();
    let variable = ("FERROLHO_MAX_TTL_SECONDS", "20");
    let start = |args: &[&str], env: &[(&str, &str)]| Server::start_on("memory:", args, env);
    assert_eq!(longest(&start(&[], &[])), 86_400);
    let by_file = start(&["--config", file], &[]);
    assert_eq!(longest(&by_file), 10);
    let two = Request::get("/healthz").header("host", "two.example");
    assert_eq!(by_file.call(&two).status, 200);
    assert_eq!(longest(&start(&[], &[("FERROLHO_CONFIG", file)])), 10);
    assert_eq!(longest(&start(&["--config", file], &[variable])), 20);
    assert_eq!(
        longest(&start(
            &["--max-ttl-seconds", "30", "--config", file],
            &[variable]
        )),
        30
    );
    // What is empty counts as not given.
    assert_eq!(
        longest(&start(&["--config", file], &[("FERROLHO_MAX_TTL_SECONDS", "")])),
        10
    );
    assert_eq!(longest(&start(&[], &[("FERROLHO_CONFIG", "")])), 86_400);
}

/// Every setting, with a value that it does not take.
const SETTINGS: [(&str, &str); 18] = [
    ("listen", "nowhere"),
    ("store", "nowhere"),
    ("etcd_compact", "perhaps"),
    ("tls_client_ca", "alone"),
    ("allow_anonymous", "perhaps"),
    ("max_ttl_seconds", "long"),
    ("max_waiters", "many"),
    ("max_waiters_per_resource", "many"),
    ("max_locks_per_principal", "many"),
    ("event_buffer", "large"),
    ("max_event_readers", "many"),
    ("max_connections", "many"),
    ("head_timeout_seconds", "long"),
    ("body_timeout_seconds", "long"),
    ("worker_threads", "many"),
    ("audit_log", "/nowhere/audit_log"),
    ("log_format", "xml"),
    ("log_level", "a=b=c"),
];

#[test]
fn every_setting_is_a_flag_a_variable_and_a_key() {
    let dir = tempfile::tempdir().unwrap();
    for (name, wrong) in SETTINGS {
        let flag = format!("--{}={wrong}", name.replace('_', "-"));
        let variable = format!("FERROLHO_{}", name.to_uppercase());
        fs::write(dir.path().join("x.toml"), format!("{name} = \"{wrong}\"\n")).unwrap();
        for line in [
            refused(dir.path(), &[&flag], &[]),
            refused(dir.path(), &[], &[(&variable, wrong)]),
            refused(dir.path(), &["--config", "x.toml"], &[]),
        ] {
            assert!(line.contains(name), "{line}");
        }
    }
}

#[test]
fn the_ready_line_names_where_it_listens_and_what_on() {
    use std::io::{BufRead as _, BufReader};
    let dir = tempfile::tempdir().unwrap();
    for listen in ["127.0.0.1:0", "[::1]:0", "127.8.9.10:0"] {
        let mut command = ferrolho(&["serve", "--listen", listen, "--store", "sqlite:x.db"]);
        command
            .current_dir(dir.path())
            .stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut ready)
            .unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let host = listen.trim_end_matches('0');
        let begins = format!(
            "ferrolho {} listening on http://{host}",
            env!("CARGO_PKG_VERSION")
        );
        let rest = ready.strip_prefix(&begins).unwrap_or_else(|| panic!("{ready}"));
        let (port, rest) = rest.split_once(' ').unwrap();
        assert!(port.parse::<u16>().unwrap() > 0);
        assert_eq!(rest, "(store sqlite:x.db)\n");
    }
}

#[test]
fn the_log_is_text_or_json_and_has_the_ids_of_requests() {
    let request = Request::get("/locks/r").header("x-request-id", "find-me");
    let text = Server::start_on("memory:", &["--log-level", "debug"], &[]);
    text.call(&request).not_found();
    assert!(
        text.log()
            .lines()
            .any(|line| line.contains("find-me") && line.contains("404"))
    );
    assert!(!text.log().contains('\u{1b}'), "no colours in a file");
    let json = Server::start_on("memory:", &["--log-level", "debug", "--log-format", "json"], &[]);
    json.call(&request).not_found();
    let log = json.log();
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of_request = lines.iter().find(|line| line["request_id"] == "find-me").unwrap();
    assert_eq!(of_request["status"], 404);
    assert_eq!(of_request["route"], "/locks/{resource}");
    // Names that callers choose stay out of it.
    let quiet = Server::start_on("memory:", &[], &[]);
    quiet.call(&request).not_found();
    assert!(!quiet.log().contains("find-me"));
}

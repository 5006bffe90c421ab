//! The table of settings in docs/operations.md is made from the command line's definition, and may not be stale.

use std::collections::BTreeSet;

use clap::{Arg, CommandFactory, Parser};

use crate::cli::{Cli, Command};
use crate::config::Config;

const PAGE: &str = include_str!("../../../docs/operations.md");

/// The settings of `ferrolho serve`, without what every command has.
fn settings() -> Vec<Arg> {
    let mut root = Cli::command();
    root.build();
    let serve = root.find_subcommand("serve").unwrap();
    serve
        .get_arguments()
        .filter(|arg| !["help", "version"].contains(&arg.get_id().as_str()))
        .cloned()
        .collect()
}

fn row(arg: &Arg) -> String {
    // The file does not say where it is itself.
    let key = match arg.get_id().as_str() {
        "config" => String::new(),
        key => format!("`{key}`"),
    };
    let help = arg.get_help().unwrap().to_string();
    let (meaning, default) = match help.split_once(" [default: ") {
        Some((meaning, rest)) => (meaning.to_owned(), rest.trim_end_matches(']').to_owned()),
        None => (help, String::new()),
    };
    format!(
        "| `--{}` | `{}` | {key} | {default} | {} |",
        arg.get_long().unwrap(),
        arg.get_env().unwrap().to_str().unwrap(),
        meaning.replace('|', "\\|")
    )
}

#[test]
fn the_table_of_settings_is_not_stale() {
    let rows: Vec<String> = settings().iter().map(row).collect();
    let table = rows.join("\n");
    assert!(
        PAGE.contains(&table),
        "the rows of the settings in docs/operations.md should be:\n{table}"
    );
    let listed = PAGE.lines().filter(|line| line.starts_with("| `--")).count();
    assert_eq!(listed, rows.len(), "a setting that is none is listed");
}

#[test]
fn every_setting_has_one_name_in_all_three_places() {
    for arg in settings() {
        let key = arg.get_id().as_str();
        assert_eq!(arg.get_long().unwrap(), key.replace('_', "-"));
        let variable = arg.get_env().unwrap().to_str().unwrap();
        assert_eq!(variable, format!("FERROLHO_{}", key.to_uppercase()));
    }
}

#[test]
fn the_file_knows_every_setting_but_its_own_place() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("x.toml");
    std::fs::write(&file, "nonsense = 1").unwrap();
    let cli = Cli::try_parse_from(["ferrolho", "serve", "--config", file.to_str().unwrap()]).unwrap();
    let Command::Serve(args) = cli.command else {
        panic!("another command");
    };
    let message = Config::read(&args).unwrap_err().to_string();
    let (_, known) = message.split_once("known are ").unwrap();
    let known: BTreeSet<&str> = known.split(", ").collect();
    let settings = settings();
    let flags: BTreeSet<&str> = settings
        .iter()
        .map(|arg| arg.get_id().as_str())
        .filter(|key| *key != "config")
        .collect();
    assert_eq!(known, flags);
}

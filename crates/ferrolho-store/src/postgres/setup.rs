//! Tables and functions, made and brought up to date by any number of servers that start at once.
//!
//! The names of the functions end with their edition, which is taken from their text. So a program finds its own
//! functions or makes them, and never changes those that servers of another version work with beside it.

use std::fmt::Write as _;
use std::sync::LazyLock;

use ferrolho_core::FencingToken;
use sha2::{Digest, Sha256};
use tokio::time::{Instant, timeout_at};
use tokio_postgres::error::SqlState;

use super::PostgresOpenError;
use super::config::PostgresConfig;
use super::failure::{Failure, said};
use super::link::{Door, Session};
use crate::{ENGINE_TIMEOUT, Lift};

/// The version of the tables that this program works on.
const VERSION: i32 = 1;

/// Held by whoever sets the tables up. The bytes of "ferrolho".
const SETUP_LOCK: i64 = 0x6665_7272_6f6c_686f;

/// How long the setting up may take, with waiting for others who do it.
const SETUP_SECONDS: u64 = 30;

const TABLES: &str = include_str!("sql/tables.sql");
const FUNCTIONS: [&str; 4] = [
    include_str!("sql/common.sql"),
    include_str!("sql/read.sql"),
    include_str!("sql/clock.sql"),
    include_str!("sql/apply.sql"),
];

/// How many bytes of a text's digest are in its edition.
const EDITION_BYTES: usize = 4;

/// What the names of this program's functions end with.
pub(super) static EDITION: LazyLock<String> = LazyLock::new(|| edition(&FUNCTIONS.concat()));

fn edition(text: &str) -> String {
    let digest = Sha256::digest(text);
    digest
        .iter()
        .take(EDITION_BYTES)
        .fold(String::new(), |mut edition, byte| {
            // Writing to a string does not fail.
            let _ = write!(edition, "{byte:02x}");
            edition
        })
}

/// Makes sure that the database is fit to hold locks and has what is needed for it.
pub(super) async fn set_up(config: &PostgresConfig, door: &Door) -> Result<(), PostgresOpenError> {
    let session = door
        .open(Instant::now() + ENGINE_TIMEOUT)
        .await
        .map_err(no_answer)?;
    let schema = &config.schema;
    if text(&session, "SELECT pg_is_in_recovery()::text").await? == "true" {
        return Err(PostgresOpenError::Standby);
    }
    let encoding = text(&session, "SELECT current_setting('server_encoding')").await?;
    if encoding != "UTF8" {
        return Err(PostgresOpenError::Encoding(encoding));
    }
    if has_tables(schema, &session).await? && is_there(&session, &function(schema)).await? {
        return Ok(());
    }
    let until = Instant::now() + std::time::Duration::from_secs(SETUP_SECONDS);
    // One transaction, which a failure ends with the session.
    timeout_at(until, make(schema, &session))
        .await
        .map_err(|_| PostgresOpenError::NoAnswer("setting up the tables takes too long".into()))?
}

/// Whether the tables are there, in a version that this program works on.
async fn has_tables(schema: &str, session: &Session) -> Result<bool, PostgresOpenError> {
    if !is_there(session, &table(schema, "ferrolho_commit")).await? {
        return Ok(false);
    }
    let version = format!("SELECT version::text FROM {schema}.ferrolho_commit");
    match text(session, &version).await?.parse() {
        Ok(version) if version > VERSION => Err(PostgresOpenError::TooNew(version)),
        _ => Ok(true),
    }
}

/// Makes what is missing, once the lock is ours.
async fn make(schema: &str, session: &Session) -> Result<(), PostgresOpenError> {
    let run = |sql: String| async move {
        let done = session.client.batch_execute(&sql).await;
        done.map_err(|error| match error.code() {
            Some(&SqlState::INSUFFICIENT_PRIVILEGE) => PostgresOpenError::MayNotCreate(schema.to_owned()),
            _ => PostgresOpenError::NoTables(said(&error)),
        })
    };
    run(format!(
        "BEGIN; SET LOCAL lock_timeout = '{SETUP_SECONDS}s'; SELECT pg_advisory_xact_lock({SETUP_LOCK})"
    ))
    .await?;
    // Asked for first: CREATE SCHEMA IF NOT EXISTS needs a right even where there is nothing to do.
    let there = format!("SELECT FROM pg_namespace WHERE nspname = '{schema}'");
    if !is_there(session, &there).await? {
        run(format!("CREATE SCHEMA {schema}")).await?;
    }
    if !has_tables(schema, session).await? {
        let was_there = is_there(session, &table(schema, "distributed_locks")).await?;
        run(TABLES.replace("{schema}", schema))
            .await
            .map_err(|error| match error {
                PostgresOpenError::NoTables(why) if was_there => PostgresOpenError::Foreign {
                    schema: schema.to_owned(),
                    why,
                },
                other => other,
            })?;
    }
    if !is_there(session, &function(schema)).await? {
        let functions = FUNCTIONS.concat().replace("{schema}", schema);
        run(functions.replace("{edition}", &EDITION)).await?;
    }
    run("COMMIT".to_owned()).await
}

/// Looks for a table. The catalogue is asked itself: to_regclass() may remember that there was none.
fn table(schema: &str, name: &str) -> String {
    format!(
        "SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname = '{schema}' AND c.relname = '{name}'"
    )
}

/// Looks for the last one of this program's functions, which are made together.
fn function(schema: &str) -> String {
    format!(
        "SELECT FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
         WHERE n.nspname = '{schema}' AND p.proname = 'ferrolho_apply_{}'",
        *EDITION
    )
}

async fn is_there(session: &Session, look: &str) -> Result<bool, PostgresOpenError> {
    let found = text(session, &format!("SELECT EXISTS ({look})::text")).await?;
    Ok(found == "true")
}

/// Lifts every further token, for a database that was restored. Whoever reads its events begins anew.
pub(super) async fn lift(config: &PostgresConfig, door: &Door, lift: Lift) -> Result<u64, PostgresOpenError> {
    let session = door
        .open(Instant::now() + ENGINE_TIMEOUT)
        .await
        .map_err(no_answer)?;
    let schema = &config.schema;
    let run = async {
        let client = &session.client;
        client
            .batch_execute("BEGIN; SET LOCAL synchronous_commit = on")
            .await?;
        let drawn = format!("SELECT n FROM {schema}.ferrolho_commit FOR UPDATE");
        let drawn: i64 = client.query_one(&drawn, &[]).await?.try_get(0)?;
        let lifted = lift.target(drawn.unsigned_abs()).min(FencingToken::MAX.get());
        let update = format!(
            "UPDATE {schema}.ferrolho_commit SET n = {lifted}, epoch = 1 + floor(random() * 9e15)::bigint"
        );
        client.batch_execute(&update).await?;
        client.batch_execute("COMMIT").await?;
        Ok(lifted)
    };
    timeout_at(Instant::now() + ENGINE_TIMEOUT, run)
        .await
        .map_err(|_| no_answer(Failure::Away("the database does not answer".into())))?
        .map_err(|error: tokio_postgres::Error| PostgresOpenError::NoAnswer(said(&error)))
}

fn no_answer(failure: Failure) -> PostgresOpenError {
    match failure {
        Failure::Again(what) | Failure::Away(what) | Failure::Unknown(what) => {
            PostgresOpenError::NoAnswer(what)
        }
    }
}

/// The one text that a statement gives.
async fn text(session: &Session, sql: &str) -> Result<String, PostgresOpenError> {
    let until = Instant::now() + ENGINE_TIMEOUT;
    let rows = timeout_at(until, session.client.query_typed(sql, &[]))
        .await
        .map_err(|_| PostgresOpenError::NoAnswer("the database does not answer".into()))?
        .map_err(|error| PostgresOpenError::NoAnswer(said(&error)))?;
    let row = rows
        .first()
        .ok_or_else(|| PostgresOpenError::NoAnswer("no answer".into()))?;
    row.try_get(0)
        .map_err(|error| PostgresOpenError::NoAnswer(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_another_text_have_other_names() {
        let text = FUNCTIONS.concat();
        assert_eq!(edition(&text), *EDITION);
        assert_ne!(edition(&text.replacen("2s", "3s", 1)), *EDITION);
        let made = text.matches("CREATE OR REPLACE FUNCTION").count();
        let names = text.matches("CREATE OR REPLACE FUNCTION {schema}.ferrolho_");
        assert_eq!(names.count(), made);
        for mention in text.split("{schema}.ferrolho_").skip(1) {
            let name: String = mention.chars().take_while(|c| !" (;\n".contains(*c)).collect();
            assert!(name == "commit" || name.ends_with("_{edition}"), "{name}");
        }
    }
}

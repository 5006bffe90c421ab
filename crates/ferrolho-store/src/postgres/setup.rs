//! Tables and functions, made and brought up to date by any number of servers that start at once.

use ferrolho_core::FencingToken;
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

/// Makes sure that the database is fit to hold locks and has what is needed for it.
pub(super) async fn set_up(config: &PostgresConfig, door: &Door) -> Result<(), PostgresOpenError> {
    let session = door
        .open(Instant::now() + ENGINE_TIMEOUT)
        .await
        .map_err(no_answer)?;
    let setting = |sql: &'static str| text(&session, sql);
    if setting("SELECT pg_is_in_recovery()::text").await? == "true" {
        return Err(PostgresOpenError::Standby);
    }
    let encoding = setting("SELECT current_setting('server_encoding')").await?;
    if encoding != "UTF8" {
        return Err(PostgresOpenError::Encoding(encoding));
    }
    match version(config, &session).await? {
        Some(version) if version > VERSION => Err(PostgresOpenError::TooNew(version)),
        Some(_) => Ok(()),
        None => make(config, &session).await,
    }
}

/// The version of the tables, if they and the functions are all there.
async fn version(config: &PostgresConfig, session: &Session) -> Result<Option<i32>, PostgresOpenError> {
    let schema = &config.schema;
    let known = format!(
        "SELECT ({} AND EXISTS (
            SELECT FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
            WHERE n.nspname = '{schema}' AND p.proname = 'ferrolho_apply_v1'))::text",
        has_table(schema)
    );
    if text(session, &known).await? != "true" {
        return Ok(None);
    }
    let version = text(
        session,
        &format!("SELECT version::text FROM {schema}.ferrolho_commit"),
    )
    .await?;
    Ok(version.parse().ok())
}

/// Whether the row of commits is there. The catalogue is asked itself: to_regclass() may remember that there was none.
fn has_table(schema: &str) -> String {
    format!(
        "EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = '{schema}' AND c.relname = 'ferrolho_commit')"
    )
}

async fn make(config: &PostgresConfig, session: &Session) -> Result<(), PostgresOpenError> {
    let schema = &config.schema;
    let functions = FUNCTIONS.concat().replace("{schema}", schema);
    let tables = TABLES.replace("{schema}", schema);
    // One transaction. The tables are made by whoever finds none once the lock is theirs.
    let begin = format!(
        "BEGIN; SET LOCAL lock_timeout = '{SETUP_SECONDS}s'; SELECT pg_advisory_xact_lock({SETUP_LOCK})"
    );
    let until = Instant::now() + std::time::Duration::from_secs(SETUP_SECONDS);
    let run = async {
        session.client.batch_execute(&begin).await?;
        if schema != "public" {
            session
                .client
                .batch_execute(&format!("CREATE SCHEMA IF NOT EXISTS {schema}"))
                .await?;
        }
        let there = session
            .client
            .query_one(&format!("SELECT {}", has_table(schema)), &[])
            .await?
            .get::<_, bool>(0);
        if !there {
            session.client.batch_execute(&tables).await?;
        }
        session.client.batch_execute(&functions).await?;
        session.client.batch_execute("COMMIT").await
    };
    match timeout_at(until, run).await {
        Err(_) => Err(PostgresOpenError::NoAnswer(
            "setting up the tables takes too long".into(),
        )),
        Ok(Err(error)) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            Err(PostgresOpenError::MayNotCreate(schema.clone()))
        }
        Ok(Err(error)) => Err(PostgresOpenError::NoTables(said(&error))),
        Ok(Ok(())) => Ok(()),
    }
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

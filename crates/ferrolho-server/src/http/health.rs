//! `GET /healthz` and `GET /readyz`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::call::Call;
use super::problem::Problem;
use super::reply::Reply;
use crate::service::Refusal;

/// The process answers.
pub(super) fn get_healthz(call: &Call<'_>) -> Result<Reply, Problem> {
    call.query(&[])?.finish(Some(()))?;
    Ok(Reply::ok(&BTreeMap::from([("status", "ok")])))
}

/// The service can do its work: the store answers and the server is not stopping.
pub(super) async fn get_readyz(call: &Call<'_>) -> Result<Reply, Problem> {
    call.query(&[])?.finish(Some(()))?;
    let service = &call.inner.service;
    if service.is_shutting_down() {
        return Err(Refusal::ShuttingDown.into());
    }
    let health = service.health().await?;
    let mut body = BTreeMap::from([
        ("status", Value::from("ready")),
        ("store", Value::from(service.engine_name())),
        ("warnings", Value::from(health.warnings)),
    ]);
    if let Some(micros) = health.clock_ahead_micros {
        body.insert("clock_ahead_micros", micros.into());
    }
    if let Some(locks) = health.live_locks {
        body.insert("live_locks", locks.into());
    }
    Ok(Reply::ok(&body))
}

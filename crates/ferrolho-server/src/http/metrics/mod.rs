//! `GET /metrics`: what an operator should know, in the text format of Prometheus (version 0.0.4).
//!
//! Counting happens where things happen (`http::meters`, `service::meters`, the engine's own meter); here it is
//! only read, when somebody asks. Every label has a fixed set of values, so the page does not grow with what callers
//! send, and no name of a lock, an owner or a principal is on it.

mod page;
mod process;
mod sections;

use std::sync::Arc;

use prometheus_client::encoding::prometheus_text::{CONTENT_TYPE, encode};
use prometheus_client::registry::Registry;

use super::Inner;
use super::call::{Call, allow};
use super::problem::{Code, Problem};
use super::reply::Reply;
use sections::Snapshot;

/// Answers with the page. A store that is away is shown as such, and nothing else on the page depends on it.
/// With authentication it is for callers that may read everything, unless it is on a listener of its own.
pub(super) async fn get_metrics(call: &Call<'_>, is_open: bool) -> Result<Reply, Problem> {
    allow(is_open || call.access.may_read_all(), || {
        "read everything".to_owned()
    })?;
    call.query(&[])?.finish(Some(()))?;
    let text = text(call.inner).await?;
    Ok(Reply::text(CONTENT_TYPE, text))
}

async fn text(inner: &Arc<Inner>) -> Result<String, Problem> {
    let snapshot = Snapshot {
        health: inner.service.health().await.ok(),
        inner: Arc::clone(inner),
    };
    let mut registry = Registry::default();
    registry.register_collector(Box::new(snapshot));
    let mut text = String::new();
    // Writing into memory does not fail.
    encode(&mut text, &registry)
        .map_err(|_| Problem::new(Code::Internal, "The metrics could not be written."))?;
    Ok(text)
}

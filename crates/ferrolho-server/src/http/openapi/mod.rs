//! The API's description: OpenAPI 3.1, and a page that shows it.
//!
//! Both are made of one table of operations ([`operations`]) and the schemas beside it ([`schemas`]). The document is
//! also checked in as `openapi.json`; a test fails when that is stale.

mod document;
mod operations;
mod page;
mod schemas;

use std::sync::LazyLock;

use bytes::Bytes;

use super::call::Call;
use super::problem::Problem;
use super::reply::Reply;

static DOCUMENT: LazyLock<String> = LazyLock::new(|| format!("{:#}\n", document::document()));
static PAGE: LazyLock<String> = LazyLock::new(page::page);

/// `GET /openapi.json`.
pub(super) fn get_openapi(call: &Call<'_>) -> Result<Reply, Problem> {
    call.query(&[])?.finish(Some(()))?;
    Ok(Reply::page(
        "application/json",
        Bytes::from_static(DOCUMENT.as_bytes()),
    ))
}

/// `GET /docs`.
pub(super) fn get_docs(call: &Call<'_>) -> Result<Reply, Problem> {
    call.query(&[])?.finish(Some(()))?;
    Ok(super::pages::page("API", &PAGE))
}

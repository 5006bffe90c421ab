//! The document.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::operations::{ALL, Answer, Operation};
use super::schemas;
use crate::http::problem::Code;

/// What everything can be answered with.
const COMMON: &[Code] = &[
    Code::ValidationFailed,
    Code::NotPermitted,
    Code::PathTooLong,
    Code::LimitReached,
    Code::Unavailable,
    Code::Internal,
];

/// What an operation can be answered with that asks for a token.
const OF_TOKENS: &[Code] = &[Code::Unauthorized];

/// What an operation can be answered with that has a body.
const OF_BODIES: &[Code] = &[Code::MalformedJson, Code::BodyTooLarge];

/// What an operation can be answered with that has a name in its path.
const OF_NAMES: &[Code] = &[Code::NoSuchRoute];

/// A body that comes too slowly is answered `too-slow` under this status.
const SLOW_BODY: u16 = 408;

/// The whole document.
pub(super) fn document() -> Value {
    let mut paths: BTreeMap<&str, BTreeMap<&str, Value>> = BTreeMap::new();
    for operation in ALL {
        let path = paths.entry(operation.endpoint.template()).or_default();
        path.insert(operation.method, describe(operation));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "ferrolho",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "A distributed lock service.",
            "description": "One owner holds a lock at a time; only that owner may renew or release it; it ends by \
                itself. Every error is a problem (RFC 9457). Unknown, doubled or malformed keys and parameters are \
                refused by name.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "paths": paths,
        "security": [{}, {"token": []}, {"certificate": []}],
        "components": {
            "schemas": schemas::all(),
            "securitySchemes": {
                "token": {
                    "type": "http", "scheme": "bearer",
                    "description": "Needed when the server runs with authentication.",
                },
                "certificate": {
                    "type": "mutualTLS",
                    "description": "In the place of a token, when the server runs with --tls-client-ca.",
                },
            },
        },
    })
}

fn describe(operation: &Operation) -> Value {
    let mut described = json!({
        "operationId": operation.id,
        "tags": [operation.group],
        "summary": operation.summary,
        "description": operation.description,
        "parameters": parameters(operation),
        "responses": responses(operation),
    });
    if operation.endpoint.is_open() {
        described["security"] = json!([]);
    }
    if let Some(body) = operation.body {
        // The owner of a release may stand in the query instead.
        let is_required = operation.parameters.is_empty() || body != "ReleaseBody";
        described["requestBody"] = json!({
            "required": is_required,
            "content": {"application/json": {"schema": {"$ref": format!("#/components/schemas/{body}")}}},
        });
    }
    described
}

fn parameters(operation: &Operation) -> Vec<Value> {
    let placeholders = placeholders(operation.endpoint.template());
    let in_path = placeholders.map(schemas::path_parameter);
    let others = operation.parameters.iter().map(|p| schemas::parameter(*p));
    in_path.chain(others).collect()
}

/// The names in braces.
fn placeholders(template: &str) -> impl Iterator<Item = &str> {
    template
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

/// The statuses of the problems that an operation can be answered with, with their codes.
pub(super) fn problems(operation: &Operation) -> BTreeMap<u16, Vec<Code>> {
    let of_bodies = operation.body.map_or(&[][..], |_| OF_BODIES);
    let has_name = placeholders(operation.endpoint.template()).next().is_some();
    let of_names = if has_name { OF_NAMES } else { &[] };
    let of_tokens = if operation.endpoint.is_open() {
        &[][..]
    } else {
        OF_TOKENS
    };
    let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    for code in [COMMON, of_tokens, of_bodies, of_names, operation.problems].concat() {
        by_status.entry(code.status()).or_default().push(code);
    }
    if operation.body.is_some() {
        by_status.entry(SLOW_BODY).or_default().push(Code::TooSlow);
    }
    by_status
}

fn responses(operation: &Operation) -> BTreeMap<String, Value> {
    let mut responses: BTreeMap<String, Value> = problems(operation)
        .into_iter()
        .map(|(status, codes)| {
            let names: Vec<String> = codes
                .iter()
                .map(|code| format!("`{}`: {}.", code.as_str(), code.title()))
                .collect();
            let schema = json!({"$ref": "#/components/schemas/Problem"});
            let response = json!({
                "description": names.join(" "),
                "content": {"application/problem+json": {"schema": schema}},
            });
            (status.to_string(), response)
        })
        .collect();
    let (status, response) = match operation.answer {
        Answer::Nothing => ("204", json!({"description": "Done."})),
        // OpenAPI 3.1 has no words for the items of a stream; what a text is, its type says.
        Answer::Text(content_type) => (
            "200",
            json!({"description": "All is well.", "content": {content_type: {}}}),
        ),
        Answer::Json(schema) => {
            let schema = json!({"$ref": format!("#/components/schemas/{schema}")});
            (
                "200",
                json!({"description": "All is well.", "content": {"application/json": {"schema": schema}}}),
            )
        }
    };
    responses.insert(status.to_owned(), response);
    responses
}

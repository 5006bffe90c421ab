//! The bodies that travel, as JSON Schema. (The types are in `ferrolho_core::wire`; what the server accepts is decided
//! by `http::form`, which is stricter than a schema can say: `30.0` is no integer, and lengths are in bytes.)

use ferrolho_core::{EventKind, FencingToken, MAX_NAME_BYTES, Ttl};
use serde_json::{Value, json};

use super::operations::Parameter;
use crate::http::dashboard::ASSETS;
use crate::http::problem::Code;

/// A name that must be as it is: of a resource, in bodies, answers and paths.
fn name(what: &str) -> Value {
    json!({
        "type": "string", "minLength": 1, "maxLength": MAX_NAME_BYTES,
        "description": format!(
            "{what}. At most {MAX_NAME_BYTES} bytes of UTF-8, no control characters, no white space at either end, \
             not `.` or `..`. Bytes are compared."
        ),
    })
}

/// An owner, which is trimmed before it is looked at.
fn owner() -> Value {
    json!({
        "type": "string", "minLength": 1, "pattern": "\\S",
        "description": format!(
            "Who holds the lock. Trimmed, and then at most {MAX_NAME_BYTES} bytes of UTF-8 without control characters. \
             Two processes that use one name are one owner."
        ),
    })
}

fn ttl() -> Value {
    json!({
        "type": "integer", "minimum": 1, "maximum": Ttl::MAX.seconds(),
        "description": "The lifetime in seconds. The server has a maximum of its own: 86400 unless configured. \
            Written without a point or an exponent.",
    })
}

fn token() -> Value {
    json!({
        "type": "integer", "minimum": 1, "maximum": FencingToken::MAX.get(),
        "description": "The number of a grant: it rises with every grant of a resource, for ever.",
    })
}

fn wait() -> Value {
    json!({
        "type": "integer", "minimum": 0, "maximum": 300,
        "description": "How long to wait for the lock, in seconds.",
    })
}

fn metadata() -> Value {
    json!({
        "type": "object",
        "description": "What the caller wants to note on the lock: at most 4096 bytes of JSON, given back as it came.",
    })
}

fn time(what: &str) -> Value {
    json!({
        "type": "string", "format": "date-time", "minLength": 27, "maxLength": 27,
        "description": format!("{what}. RFC 3339 in UTC with six fraction digits."),
    })
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

fn list(of: &Value) -> Value {
    json!({"type": "array", "items": of})
}

/// An object with these members and no others, of which these must be there.
fn object(required: &[&str], members: &Value) -> Value {
    let mut schema = json!({"type": "object", "properties": members, "additionalProperties": false});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// All schemas, by name.
pub(super) fn all() -> Value {
    let mut schemas = requests();
    if let (Some(all), Value::Object(answers)) = (schemas.as_object_mut(), answers()) {
        all.extend(answers);
    }
    schemas
}

fn requests() -> Value {
    let resources = json!({
        "type": "array", "items": name("What is locked"), "minItems": 1, "maxItems": 32, "uniqueItems": true,
        "description": "Which locks, none twice.",
    });
    let reason = json!({
        "type": "string", "minLength": 1, "pattern": "\\S",
        "description": "Why, for those who watch.",
    });
    json!({
        "AcquireBody": object(&["owner", "ttl_seconds"], &json!({
            "owner": owner(), "ttl_seconds": ttl(), "wait_seconds": wait(), "metadata": metadata(),
        })),
        "AcquireSetBody": object(&["resources", "owner", "ttl_seconds"], &json!({
            "resources": resources, "owner": owner(), "ttl_seconds": ttl(), "wait_seconds": wait(),
            "metadata": metadata(),
        })),
        "ReleaseBody": object(&[], &json!({"owner": owner(), "fencing_token": token()})),
        "RenewBody": object(&["owner", "ttl_seconds"], &json!({
            "owner": owner(), "ttl_seconds": ttl(), "fencing_token": token(),
        })),
        "ForceReleaseBody": object(&["reason"], &json!({"reason": reason, "fencing_token": token()})),
        "RenewOwnerBody": object(&["ttl_seconds"], &json!({"ttl_seconds": ttl()})),
    })
}

fn answers() -> Value {
    let principal =
        json!({"type": "string", "description": "Whose token the holder has, with authentication."});
    let lock = json!({
        "resource": name("What is locked"), "owner": owner(), "expires_at": time("When it ends by itself"),
        "acquired_at": time("When it was granted"), "fencing_token": token(), "metadata": metadata(),
        "principal": principal,
    });
    let granted = object(
        &["acquired", "lock"],
        &json!({"acquired": {"const": true}, "lock": reference("Lock")}),
    );
    let held = object(
        &["acquired", "resource"],
        &json!({"acquired": {"const": false}, "resource": name("What another holds")}),
    );
    let all_granted = object(
        &["acquired", "locks"],
        &json!({"acquired": {"const": true}, "locks": list(&reference("Lock"))}),
    );
    let some_held = object(
        &["acquired", "resources"],
        &json!({"acquired": {"const": false}, "resources": list(&name("What others hold or wait for"))}),
    );
    let cursor = json!({
        "type": ["string", "null"], "description": "The `cursor` of the next page; null on the last.",
    });
    json!({
        "Lock": object(
            &["resource", "owner", "expires_at", "acquired_at", "fencing_token"],
            &lock,
        ),
        "AcquireAnswer": {"oneOf": [granted, held]},
        "AcquireSetAnswer": {"oneOf": [all_granted, some_held]},
        "LockList": object(&["locks", "next_cursor"], &json!({
            "locks": list(&reference("Lock")), "next_cursor": cursor,
        })),
        "RenewedLocks": object(&["locks"], &json!({"locks": list(&reference("Lock"))})),
        "ReleasedLocks": object(&["released"], &json!({"released": list(&name("What was released"))})),
        "WaiterList": object(&["waiters"], &json!({"waiters": list(&reference("Waiter"))})),
        "Waiter": object(&["owner", "since", "wait_seconds"], &json!({
            "owner": owner(), "since": time("Since when it has had its place"), "wait_seconds": wait(),
        })),
        "WhoAmI": object(&["principal", "rights", "allow"], &json!({
            "principal": {"type": ["string", "null"]},
            "rights": list(&json!({"enum": ["acquire", "read", "admin"]})),
            "allow": list(&json!({"type": "string", "description": "A name, or with a `*` behind, the beginning of one."})),
        })),
        "LineList": object(&["lines"], &json!({"lines": list(&reference("Line"))})),
        "Line": object(&["resource", "waiters"], &json!({
            "resource": name("What they wait for"),
            "waiters": {"type": "integer", "minimum": 1, "description": "How many owners wait for it on this server."},
        })),
        "EventList": object(&["events"], &json!({"events": list(&reference("PastEvent"))})),
        "PastEvent": object(&["id", "kind", "resource", "lock", "at"], &json!({
            "id": {"type": "string", "description": "Opaque; `Last-Event-ID` understands it."},
            "kind": {"enum": EventKind::ALL},
            "resource": name("What is locked"), "lock": reference("Lock"), "at": time("When"),
            "reason": {"type": "string", "description": "Why, where somebody gave a reason."},
        })),
        "Event": object(&["kind", "resource", "lock", "at"], &json!({
            "kind": {"enum": EventKind::ALL},
            "resource": name("What is locked"), "lock": reference("Lock"), "at": time("When"),
            "reason": {"type": "string", "description": "Why, where somebody gave a reason."},
        })),
        "Alive": object(&["status"], &json!({"status": {"const": "ok"}})),
        "Ready": object(&["status", "store", "warnings"], &json!({
            "status": {"const": "ready"},
            "store": {"enum": ["memory", "sqlite", "postgres", "etcd"]},
            "warnings": list(&json!({"type": "string"})),
            "clock_ahead_micros": {
                "type": "integer",
                "description": "How far the clock that locks are judged by is ahead of the wall clock.",
            },
            "live_locks": {"type": "integer", "minimum": 0},
        })),
        "Description": {"type": "object", "required": ["openapi", "info", "paths"]},
        "Problem": problem(),
        "FieldError": object(&["field", "code", "message"], &json!({
            "field": {"type": "string"}, "code": {"type": "string"}, "message": {"type": "string"},
        })),
    })
}

fn problem() -> Value {
    let members = json!({
        "type": {"type": "string", "description": "A page about the kind of problem, on this server."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What happened, and what to do."},
        "instance": {"type": "string", "description": "The path that was asked."},
        "code": {"type": "string", "description": "The kind, for programs: the last part of `type`."},
        "request_id": {"type": "string", "description": "The server's log has it too."},
        "errors": list(&reference("FieldError")),
        "limit": {"type": "string", "description": "The name of the limit that refused the request."},
    });
    let mut schema = object(
        &[
            "type",
            "title",
            "status",
            "detail",
            "instance",
            "code",
            "request_id",
        ],
        &members,
    );
    schema["description"] = json!("RFC 9457. `errors` names every wrong field, for `validation-failed`.");
    schema
}

/// A parameter of a path, by its name in braces.
pub(super) fn path_parameter(placeholder: &str) -> Value {
    let schema = match placeholder {
        "resource" => name("What is locked. A slash is written `%2F`"),
        "owner" => owner(),
        "file" => json!({"enum": ASSETS.map(|(name, ..)| name)}),
        _ => json!({"enum": Code::ALL.map(Code::as_str)}),
    };
    json!({"name": placeholder, "in": "path", "required": true, "schema": schema})
}

/// A parameter in the query or a header.
pub(super) fn parameter(parameter: Parameter) -> Value {
    let (name, place, what, schema) = match parameter {
        Parameter::FailIfHeld => (
            "fail_if_held",
            "query",
            "Answer 409 `held` instead of `acquired: false`, for scripts that only look at the status.",
            json!({"type": "boolean"}),
        ),
        Parameter::IdempotencyKey => (
            "Idempotency-Key",
            "header",
            "A repeat of the request that made the live grant is answered with that grant, unchanged.",
            json!({"type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[!-~]+$"}),
        ),
        Parameter::Owner => (
            "owner",
            "query",
            "The owner, for those who cannot send a body. It must stand in one of the two.",
            owner(),
        ),
        Parameter::FencingToken => ("fencing_token", "query", "Release this grant only.", token()),
        Parameter::Prefix => (
            "prefix",
            "query",
            "Only names that begin with this.",
            json!({"type": "string"}),
        ),
        Parameter::OfOwner => (
            "owner",
            "query",
            "Only locks of this owner. Empty counts as absent.",
            json!({"type": "string"}),
        ),
        Parameter::Limit => (
            "limit",
            "query",
            "How many locks a page has at most.",
            json!({"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}),
        ),
        Parameter::Cursor => (
            "cursor",
            "query",
            "The `next_cursor` of the page before. Empty counts as absent.",
            json!({"type": "string"}),
        ),
        Parameter::LastEventId => (
            "Last-Event-ID",
            "header",
            "Go on after the event with this id.",
            json!({"type": "string"}),
        ),
    };
    json!({"name": name, "in": place, "description": what, "schema": schema})
}

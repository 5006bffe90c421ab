//! Paths, queries and bodies broken in small ways. Nothing panics, what is refused is named, and what is accepted says
//! the same to an independent reader.

use std::collections::BTreeMap;

use ferrolho_core::{FencingToken, Holder, Metadata, Owner, Resource, Ttl};
use ferrolho_testkit::fuzz::{broken, try_all};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode, utf8_percent_encode};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use serde_json::Value;
use serde_json::value::RawValue;

use super::form::Form;
use super::route::{Endpoint, Route};

const PATHS: &[&str] = &[
    "/locks/payment:42",
    "/locks/team%2Fjob/renew",
    "/locks/a/release",
    "/locks/%C3%A9/waiters",
    "/locks/a/force-release",
    "/locks",
    "/owners/worker%201",
    "/owners/o/renew",
    "/problems/held",
    "/events",
];

const QUERIES: &[&str] = &[
    "owner=a&fencing_token=7",
    "owner=worker+1&fencing_token=9007199254740991",
    "owner=%C3%A9",
    "fencing_token=1",
    "",
];

const BODIES: &[&str] = &[
    r#"{"owner":"a","ttl_seconds":30}"#,
    r#"{"owner":"worker 1","ttl_seconds":86400,"fencing_token":7}"#,
    r#"{ "ttl_seconds" : 1 , "owner" : "\u00e9\ud83d\udd12" }"#,
    r#"{"fencing_token":9007199254740991,"owner":"x","ttl_seconds":315360000}"#,
    r#"{"owner":"a"}"#,
    "{}",
    "",
    "  \n",
];

/// The names that the form is asked for.
const KEYS: [&str; 3] = ["owner", "ttl_seconds", "fencing_token"];

fn same<T: PartialEq + std::fmt::Debug>(left: &T, right: &T) -> Result<(), TestCaseError> {
    prop_assert_eq!(left, right);
    Ok(())
}

#[test]
fn a_path_leads_to_one_endpoint_and_a_name_to_itself() {
    try_all(2_000, &broken(PATHS), |bytes| {
        // What hyper lets through is a URI's path: visible ASCII.
        let path: String = bytes
            .iter()
            .filter(|b| b.is_ascii_graphic())
            .map(|b| char::from(*b))
            .collect();
        let route = Route::of(&path);
        let (Route::Lock(raw) | Route::Renew(raw) | Route::Release(raw) | Route::Owner(raw)) = route else {
            return Ok(());
        };
        prop_assert!(!raw.is_empty() && !raw.contains('/'));
        let mut form = Form::default();
        let Ok(name) = ({
            let name = form.resource(raw);
            form.finish(name)
        }) else {
            return Ok(());
        };
        // An independent reader decodes the same, and the name leads back to where it came from.
        let decoded: Vec<u8> = percent_decode(raw.as_bytes()).collect();
        same(&decoded.as_slice(), &name.as_str().as_bytes())?;
        prop_assert!(name.as_str() != "." && name.as_str() != "..");
        prop_assert!(!name.as_str().chars().any(char::is_control));
        let again = format!("/locks/{}", utf8_percent_encode(name.as_str(), NON_ALPHANUMERIC));
        let Route::Lock(raw) = Route::of(&again) else {
            return Err(TestCaseError::fail(again));
        };
        let mut form = Form::default();
        same(&form.resource(raw), &Some(name))
    });
}

#[test]
fn every_path_is_counted_under_a_template() {
    try_all(1_000, &broken(PATHS), |bytes| {
        let path = String::from_utf8_lossy(&bytes).into_owned();
        let endpoint = Route::of(&path).endpoint();
        prop_assert!(Endpoint::ALL.contains(&endpoint));
        prop_assert!(!endpoint.allow().is_empty());
        Ok(())
    });
}

/// What the form makes of query and body.
type Read = (Holder, Ttl, Option<u64>);

fn read(query: &str, body: &[u8]) -> Result<Read, super::Problem> {
    let mut form = Form::read(Some(query), &["owner", "fencing_token"], body, &KEYS)?;
    let ttl = form.ttl(Ttl::MAX);
    let claim = form.claim(None);
    let (ttl, claim) = form.finish(ttl.zip(claim))?;
    Ok((claim.holder, ttl, claim.token.map(FencingToken::get)))
}

/// An independent reading of a body that was accepted: everything in it must be what the form said.
fn check(query: &str, body: &[u8], said: &Read) -> Result<(), TestCaseError> {
    let (holder, ttl, token) = said;
    let empty = body.iter().all(u8::is_ascii_whitespace);
    let json: Value = if empty {
        Value::Object(serde_json::Map::new())
    } else {
        serde_json::from_slice(body).map_err(|error| TestCaseError::fail(error.to_string()))?
    };
    let members = json.as_object().ok_or_else(|| TestCaseError::fail("no object"))?;
    prop_assert!(members.keys().all(|key| KEYS.contains(&key.as_str())));
    // A lifetime can only stand in the body, and is an integer there.
    same(
        &members.get("ttl_seconds").and_then(Value::as_u64),
        &Some(u64::from(ttl.seconds())),
    )?;
    if let Some(owner) = members.get("owner") {
        let owner = Owner::new(owner.as_str().unwrap_or_default());
        same(&owner.ok(), &Some(holder.owner.clone()))?;
    } else {
        prop_assert!(query.contains("owner="));
    }
    if let Some(in_body) = members.get("fencing_token") {
        return same(&in_body.as_u64(), token);
    }
    same(&token.is_some(), &query.contains("fencing_token="))
}

#[test]
fn a_form_is_read_as_an_independent_reader_would_or_refused_by_name() {
    let inputs = (broken(QUERIES), broken(BODIES));
    try_all(4_000, &inputs, |(query, body)| {
        // What hyper lets through in a query.
        let query: String = query
            .iter()
            .filter(|b| b.is_ascii_graphic() && **b != b'#')
            .map(|b| char::from(*b))
            .collect();
        match read(&query, &body) {
            Ok(said) => check(&query, &body, &said),
            Err(problem) => {
                let reply = problem.into_reply("/locks/a", "id");
                prop_assert!(matches!(reply.status.as_u16(), 400 | 422), "{}", reply.status);
                Ok(())
            }
        }
    });
}

#[test]
fn what_is_right_is_accepted_however_it_is_written() {
    let name = "[a-zA-Z0-9 _:é/%\"\\\\-]{1,40}";
    let inputs = (name, 1..=86_400u32, any::<bool>(), any::<bool>());
    try_all(1_000, &inputs, |(owner, ttl, in_query, spaced)| {
        let Ok(expected) = Owner::new(&owner) else {
            return Ok(());
        };
        let mut body = serde_json::json!({"ttl_seconds": ttl});
        let query = if in_query {
            format!("owner={}", utf8_percent_encode(&owner, NON_ALPHANUMERIC))
        } else {
            body["owner"] = owner.into();
            String::new()
        };
        let text = if spaced {
            format!("{body:#}")
        } else {
            body.to_string()
        };
        let Ok((holder, read_ttl, None)) = read(&query, text.as_bytes()) else {
            return Err(TestCaseError::fail(format!("{query} {text}")));
        };
        same(&holder.owner, &expected)?;
        same(&read_ttl.seconds(), &ttl)
    });
}

#[test]
fn sets_and_metadata_are_read_or_refused() {
    const SETS: &[&str] = &[
        r#"{"resources":["a","b","team/job"],"owner":"o","ttl_seconds":30,"metadata":{"host":"h","n":[1,2.5e3,null]}}"#,
        r#"{"resources":["\u00e9"],"owner":"o","ttl_seconds":30,"wait_seconds":300}"#,
    ];
    let known = ["resources", "owner", "ttl_seconds", "wait_seconds", "metadata"];
    try_all(2_000, &broken(SETS), |body| {
        let Ok(mut form) = Form::read(None, &[], &body, &known) else {
            return Ok(());
        };
        let resources = form.resources();
        let (metadata, wait) = (form.metadata(), form.wait());
        let holder = form.holder(None);
        let ttl = form.ttl(Ttl::MAX);
        let Ok((resources, _)) = form.finish(resources.zip(holder.zip(ttl))) else {
            return Ok(());
        };
        // Metadata may hold what not every reader can read; it is given back as it came.
        let json: BTreeMap<String, &RawValue> =
            serde_json::from_slice(&body).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let in_list: Vec<String> = serde_json::from_str(json["resources"].get()).unwrap_or_default();
        let names: Vec<&str> = resources.iter().map(Resource::as_str).collect();
        same(&names, &in_list.iter().map(String::as_str).collect())?;
        prop_assert!((1..=32).contains(&names.len()));
        prop_assert!(wait.seconds() <= 300);
        let in_body = json.get("metadata").map(|raw| raw.get());
        same(&metadata.as_ref().map(Metadata::as_str), &in_body)
    });
}

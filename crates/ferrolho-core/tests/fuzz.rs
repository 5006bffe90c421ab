//! What travels and what is stored, broken in small ways: read as an independent reader would, or refused.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use ferrolho_core::wire::{AcquireAnswer, AcquireBody, AcquireSetAnswer, LockList, Problem, ReleaseBody};
use ferrolho_core::{Event, Lock, Mark, Position, Resource, Timestamp};
use ferrolho_testkit::fuzz::{broken, try_all};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use serde::Serialize;
use serde::de::DeserializeOwned;

const BODIES: &[&str] = &[
    r#"{"resource":"payment:42","owner":"worker 1","expires_at":"2026-12-01T05:02:15.000000Z","acquired_at":"2026-12-01T05:01:45.123456Z","fencing_token":9007199254740991,"metadata":{ "b":1e2,"a":"\u0000" }}"#,
    r#"{"acquired":true,"lock":{"resource":"a","owner":"o","expires_at":"2026-12-01T05:02:15.000000Z","acquired_at":"2026-12-01T05:01:45.123456Z","fencing_token":1}}"#,
    r#"{"acquired":false,"resource":"team/job"}"#,
    r#"{"acquired":false,"resources":["a","b"]}"#,
    r#"{"kind":"forced","resource":"a","lock":{"resource":"a","owner":"o","expires_at":"2026-12-01T05:02:15.000000Z","acquired_at":"2026-12-01T05:01:45.123456Z","fencing_token":1},"at":"2026-12-01T05:02:15.000000Z","reason":"stuck"}"#,
    r#"{"locks":[],"next_cursor":null}"#,
    r#"{"owner":"a","ttl_seconds":30,"wait_seconds":5,"metadata":{"host":"h"}}"#,
    r#"{"owner":"a","fencing_token":7}"#,
    r#"{"type":"/problems/held","title":"t","status":409,"detail":"d","instance":"/locks/a","code":"held","request_id":"r"}"#,
];

/// What can be read can be written and read again, to the same.
fn round_trip<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(bytes: &[u8]) -> TestCaseResult {
    if let Ok(value) = serde_json::from_slice::<T>(bytes) {
        let text = serde_json::to_string(&value).unwrap();
        prop_assert_eq!(serde_json::from_str::<T>(&text).unwrap(), value);
    }
    Ok(())
}

#[test]
fn bodies_that_can_be_read_can_be_written_and_read_again() {
    try_all(2_000, &broken(BODIES), |bytes| {
        round_trip::<Lock>(&bytes)?;
        round_trip::<AcquireAnswer>(&bytes)?;
        round_trip::<AcquireSetAnswer>(&bytes)?;
        round_trip::<Event>(&bytes)?;
        round_trip::<LockList>(&bytes)?;
        round_trip::<AcquireBody>(&bytes)?;
        round_trip::<ReleaseBody>(&bytes)?;
        round_trip::<Problem>(&bytes)
    });
}

#[test]
fn times_have_one_form_for_one_moment() {
    const TIMES: &[&str] = &[
        "2026-12-01T05:02:15.000000Z",
        "2026-12-01 05:02:15",
        "1969-12-31T23:59:59.999999Z",
        "9999-12-31T23:59:59.999999Z",
        "2024-02-29T00:00:00.000001Z",
        "2026-12-01T05:02:15+01:00",
    ];
    try_all(2_000, &broken(TIMES), |bytes| {
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(time) = Timestamp::parse(&text) {
            let shown = time.to_string();
            prop_assert_eq!(Timestamp::parse(&shown).unwrap(), time);
            prop_assert_eq!(Timestamp::from_micros(time.as_micros()), time);
        }
        Ok(())
    });
}

#[test]
fn ids_and_marks_have_one_form() {
    const IDS: &[&str] = &[
        "1-2-0",
        "fe-c-3",
        "ffffffffffffffff-ffffffffffffffff-ffffffff",
        "r00000000000000ff",
        "kkey-1",
    ];
    try_all(2_000, &broken(IDS), |bytes| {
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(position) = text.parse::<Position>() {
            prop_assert_eq!(position.to_string(), text.as_ref());
        }
        let keyed = Mark::from_key(&text).ok();
        for mark in text.parse::<Mark>().ok().into_iter().chain(keyed) {
            prop_assert_eq!(mark.to_string().parse::<Mark>(), Ok(mark));
        }
        Ok(())
    });
}

#[test]
fn a_name_is_kept_byte_by_byte_or_refused() {
    const NAMES: &[&str] = &["payment:42", "team/job", "é\u{301}", "a b", "..", "🔒"];
    try_all(2_000, &broken(NAMES), |bytes| {
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(name) = Resource::new(&text) {
            prop_assert_eq!(name.as_str(), text.as_ref());
            prop_assert!((1..=255).contains(&text.len()) && text.trim() == text);
            prop_assert!(!text.chars().any(char::is_control) && text != "." && text != "..");
        }
        Ok(())
    });
}

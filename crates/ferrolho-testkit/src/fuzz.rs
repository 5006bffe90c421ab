//! Inputs that nobody would think of: good ones, broken in small ways.
//!
//! A random text is refused by the first line of every parser. So these begin as good inputs, and a few pieces of them
//! are then taken out, doubled, moved, or replaced by words and bytes that have broken parsers before.
//! `FERROLHO_FUZZ_CASES` says how many are tried, for long runs; `PROPTEST_RNG_SEED` replays one.

use std::fmt;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{TestCaseResult, TestRunner};

/// Words and bytes that have broken parsers before.
const WORDS: &[&[u8]] = &[
    b"",
    b"\0",
    b"\r\n",
    b"\n\n",
    b" ",
    b"\t",
    b"\x0b",
    b"\x7f",
    b"\xc2\x85",
    b"\xe2\x80\xa8",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\xc0\xaf",
    b"\xed\xa0\x80",
    b"\xf0\x9f\x94\x92",
    b"%",
    b"%2",
    b"%2F",
    b"%2e",
    b"%00",
    b"%ff",
    b"%C3%A9",
    b"%25",
    b"+",
    b"&",
    b"=",
    b"?",
    b"#",
    b"/",
    b"..",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"\"",
    b"'",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"-",
    b"-0",
    b"1e999",
    b"30.0",
    b"9007199254740993",
    b"99999999999999999999999999999999999999999999",
    b"null",
    b"true",
    b"NaN",
    b"owner",
    b"ttl_seconds",
];

/// One small break.
#[derive(Clone, Debug)]
enum Break {
    /// A piece becomes this: nothing, or a word.
    Replace(Index, u8, &'static [u8]),
    /// A piece stands there twice.
    Double(Index, u8),
    /// A piece stands elsewhere.
    Move(Index, u8, Index),
    /// One byte is another.
    Byte(Index, u8),
    /// All that follows is gone.
    Cut(Index),
    /// A piece is there very often.
    Repeat(Index, u8, u16),
}

fn one_break() -> impl Strategy<Value = Break> {
    prop_oneof![
        (any::<Index>(), 0..8u8, select(WORDS))
            .prop_map(|(at, length, word)| Break::Replace(at, length, word)),
        (any::<Index>(), 1..20u8).prop_map(|(at, length)| Break::Double(at, length)),
        (any::<Index>(), 1..20u8, any::<Index>()).prop_map(|(at, length, to)| Break::Move(at, length, to)),
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Break::Byte(at, byte)),
        any::<Index>().prop_map(Break::Cut),
        (any::<Index>(), 1..4u8, 100..400u16)
            .prop_map(|(at, length, times)| Break::Repeat(at, length, times)),
    ]
}

/// From where to where a piece of this length goes that begins there.
fn piece(text: &[u8], at: Index, length: u8) -> std::ops::Range<usize> {
    let begin = at.index(text.len() + 1);
    begin..(begin + usize::from(length)).min(text.len())
}

fn apply(text: &mut Vec<u8>, one: &Break) {
    match *one {
        Break::Replace(at, length, word) => {
            text.splice(piece(text, at, length), word.iter().copied());
        }
        Break::Double(at, length) => {
            let range = piece(text, at, length);
            let copy = text[range.clone()].to_vec();
            text.splice(range.start..range.start, copy);
        }
        Break::Move(at, length, to) => {
            let moved: Vec<u8> = text.drain(piece(text, at, length)).collect();
            let to = to.index(text.len() + 1);
            text.splice(to..to, moved);
        }
        Break::Byte(at, byte) => {
            if !text.is_empty() {
                let at = at.index(text.len());
                text[at] = byte;
            }
        }
        Break::Cut(at) => text.truncate(at.index(text.len() + 1)),
        Break::Repeat(at, length, times) => {
            let range = piece(text, at, length);
            let copy = text[range.clone()].repeat(times.into());
            text.splice(range.start..range.start, copy);
        }
    }
}

/// One of these good inputs, broken in up to six places.
pub fn broken(good: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    (select(good), vec(one_break(), 0..=6)).prop_map(|(good, breaks)| {
        let mut text = good.as_bytes().to_vec();
        for one in &breaks {
            apply(&mut text, one);
        }
        text
    })
}

/// Tries so many inputs, or as many as `FERROLHO_FUZZ_CASES` says. A failure is shown in its smallest form.
pub fn try_all<S>(cases: u32, inputs: &S, test: impl Fn(S::Value) -> TestCaseResult)
where
    S: Strategy,
    S::Value: fmt::Debug,
{
    let asked = std::env::var("FERROLHO_FUZZ_CASES").ok();
    let cases = asked.map_or(cases, |asked| {
        asked.parse().expect("FERROLHO_FUZZ_CASES is a number")
    });
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    if let Err(failure) = TestRunner::new(config).run(inputs, test) {
        panic!("{failure}");
    }
}

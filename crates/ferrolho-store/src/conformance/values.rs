//! Values: what is stored comes back as it was, whatever it is.

use ferrolho_core::{Change, Mark, Metadata, Ttl, Write};

use super::Engine;
use super::kit::{acquire, assert_same, find, grant_to, holder, must, must_remove, release};

/// Names that have hurt others: quotes, slashes, patterns, format signs, look-alikes, both Unicode forms, every
/// length of character, the longest.
pub(super) fn hostile_names() -> Vec<String> {
    let mut names: Vec<String> = [
        "job",
        "Job",
        "JOB",
        "team/job",
        "team%2Fjob",
        "resource'; DROP TABLE distributed_locks; --",
        "\"quoted\" `back` $1 ${HOME} %s %n {} \\ \\0 \\x00",
        "100%",
        "_",
        "%",
        "*",
        "?",
        "[a-z]",
        "a b",
        "a  b",
        "null",
        "NULL",
        "0",
        "00",
        "1e3",
        "...",
        "<img src=x onerror=alert(1)>",
        "caf\u{e9}",
        "cafe\u{301}",
        "\u{201c}curly\u{201d}",
        "語",
        "\u{1f512}",
        "\u{10ffff}",
        "\u{fffd}",
        "\u{feff}bom",
        "a\u{200b}b",
        "\u{202e}reversed",
    ]
    .map(str::to_owned)
    .to_vec();
    names.push("x".repeat(255));
    names.push(format!("{}y", "x".repeat(254)));
    names.push("語".repeat(85));
    names
}

/// Every name is its own lock, as a resource and as an owner, and comes back byte for byte.
pub async fn names_are_kept_byte_for_byte_and_apart(engine: &mut impl Engine) {
    let store = engine.store();
    let mut made = Vec::new();
    for name in hostile_names() {
        let live = must(&store, acquire(&name, &name, 60)).await;
        assert_eq!(live.lock.resource.as_str(), name);
        assert_eq!(live.lock.owner.as_str(), name);
        made.push(live);
    }
    for live in &made {
        assert_same(find(&store, live.lock.resource.as_str()).await.as_ref(), live);
    }
    for live in made {
        must_remove(&store, release(&live)).await;
        assert_eq!(find(&store, live.lock.resource.as_str()).await, None);
    }
}

/// Metadata comes back as the text that came in: order, spaces, doubled keys, `\u0000`, numbers of any size.
pub async fn metadata_comes_back_as_it_came(engine: &mut impl Engine) {
    let store = engine.store();
    let largest = format!("{{\"k\":\"{}\"}}", "語".repeat(1362));
    for text in [
        "{}",
        "{ \"b\" : 1e2,\t\"a\":\"\\u0000\",\"a\":1 }",
        "{\"n\":123456789012345678901234567890.10}",
        "{\"quotes\":\"' \\\" \\\\ $1 %s\",\"lone\":\"\\ud800\"}",
        &largest,
    ] {
        let mut grant = grant_to(holder("a"), 30);
        grant.metadata = Some(Metadata::parse(text).unwrap());
        let live = must(
            &store,
            Change {
                write: Write::Grant(grant),
                ..acquire("r", "a", 30)
            },
        )
        .await;
        assert_eq!(live.lock.metadata.as_ref().map(Metadata::as_str), Some(text));
        assert_same(find(&store, "r").await.as_ref(), &live);
        must_remove(&store, release(&live)).await;
    }
}

/// Marks come back, random ones and keys, up to the longest.
pub async fn marks_come_back_as_they_came(engine: &mut impl Engine) {
    let store = engine.store();
    for mark in [
        Mark::Random(0),
        Mark::Random(u64::MAX),
        Mark::from_key("!").unwrap(),
        Mark::from_key(&"~".repeat(64)).unwrap(),
    ] {
        let mut grant = grant_to(holder("a"), 30);
        grant.mark = mark.clone();
        let live = must(
            &store,
            Change {
                write: Write::Grant(grant),
                ..acquire("r", "a", 30)
            },
        )
        .await;
        assert_eq!(live.mark, mark);
        assert_same(find(&store, "r").await.as_ref(), &live);
        must_remove(&store, release(&live)).await;
    }
}

/// Ten years are ten years.
pub async fn the_longest_lifetime_is_kept(engine: &mut impl Engine) {
    let store = engine.store();
    let live = must(&store, acquire("r", "a", Ttl::MAX.seconds())).await;
    assert_eq!(
        live.lock.expires_at.since(live.lock.acquired_at),
        Ttl::MAX.duration()
    );
    assert_same(find(&store, "r").await.as_ref(), &live);
}

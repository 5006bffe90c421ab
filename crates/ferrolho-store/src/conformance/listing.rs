//! Lists: live locks in the order of bytes, in pages, narrowed.

use std::collections::BTreeSet;
use std::sync::Arc;

use ferrolho_core::{Change, Owner, Write};

use super::Engine;
use super::kit::{acquire, grant_to, holder, holder_under, must, resource, until_over};
use super::values::hostile_names;
use crate::{ListQuery, Store};

/// All resources that the query wants, page by page.
async fn resources(store: &Arc<dyn Store>, mut query: ListQuery) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        let page = store.list(&query).await.unwrap();
        assert!(page.locks.len() <= query.limit);
        assert!(
            !page.more || page.locks.len() == query.limit,
            "a page with more behind it is full"
        );
        names.extend(page.locks.iter().map(|live| live.lock.resource.to_string()));
        query.after = page.locks.last().map(|live| live.lock.resource.clone());
        if !page.more {
            return names;
        }
    }
}

fn all(limit: usize) -> ListQuery {
    ListQuery {
        limit,
        ..ListQuery::default()
    }
}

/// Pages of every size give every lock once, in the order of the bytes of the names; a cursor needs no lock to
/// be there.
pub async fn pages_follow_the_bytes_of_the_names(engine: &mut impl Engine) {
    let store = engine.store();
    assert_eq!(resources(&store, all(10)).await, Vec::<String>::new());
    let names: BTreeSet<String> = hostile_names().into_iter().collect();
    for name in &names {
        must(&store, acquire(name, "a", 60)).await;
    }
    let sorted: Vec<String> = names.into_iter().collect();
    for limit in [1, 7, sorted.len() - 1, sorted.len(), 1000] {
        assert_eq!(resources(&store, all(limit)).await, sorted, "in pages of {limit}");
    }
    let between = ListQuery {
        after: Some(resource("jo!")),
        ..all(1000)
    };
    let expected: Vec<_> = sorted
        .iter()
        .filter(|name| name.as_str() > "jo!")
        .cloned()
        .collect();
    assert_eq!(resources(&store, between).await, expected);
}

/// A prefix is bytes and no pattern; an owner's list has its locks under every principal, a holder's only its
/// own.
pub async fn a_prefix_an_owner_and_a_holder_narrow_the_list(engine: &mut impl Engine) {
    let store = engine.store();
    let held = [
        ("p%/1", holder("a")),
        ("p%/2", holder("b")),
        ("p%/3", holder_under("a", "x")),
        ("p_/1", holder_under("a", "y")),
        ("px/1", holder("a")),
        ("P%/1", holder("A")),
    ];
    for (name, holder) in held {
        let change = Change {
            write: Write::Grant(grant_to(holder, 60)),
            ..acquire(name, "a", 60)
        };
        must(&store, change).await;
    }
    let owner = |name: &str| Owner::new(name).ok();
    for limit in [1, 100] {
        for (prefix, expected) in [
            ("p%", vec!["p%/1", "p%/2", "p%/3"]),
            ("p%/", vec!["p%/1", "p%/2", "p%/3"]),
            ("p_", vec!["p_/1"]),
            ("p%/1", vec!["p%/1"]),
            ("p%/1 ", vec![]),
            ("q", vec![]),
        ] {
            let query = ListQuery {
                prefix: prefix.to_owned(),
                ..all(limit)
            };
            assert_eq!(resources(&store, query).await, expected, "{prefix}");
        }
        let of_owner = ListQuery {
            owner: owner("a"),
            ..all(limit)
        };
        assert_eq!(
            resources(&store, of_owner.clone()).await,
            ["p%/1", "p%/3", "p_/1", "px/1"]
        );
        let narrowed = ListQuery {
            prefix: "p%".to_owned(),
            ..of_owner.clone()
        };
        assert_eq!(resources(&store, narrowed).await, ["p%/1", "p%/3"]);
        for (holder, expected) in [
            (holder("a"), vec!["p%/1", "px/1"]),
            (holder_under("a", "x"), vec!["p%/3"]),
            (holder_under("a", "z"), vec![]),
        ] {
            let of_holder = ListQuery {
                holder: Some(holder.clone()),
                ..all(limit)
            };
            assert_eq!(resources(&store, of_holder.clone()).await, expected, "{holder:?}");
            let both = ListQuery {
                owner: owner("a"),
                ..of_holder
            };
            assert_eq!(resources(&store, both).await, expected, "{holder:?}");
        }
    }
}

/// A lock that is over is in no list.
pub async fn what_is_over_is_not_listed(engine: &mut impl Engine) {
    let store = engine.store();
    must(&store, acquire("r", "a", 1)).await;
    must(&store, acquire("s", "a", 60)).await;
    assert_eq!(resources(&store, all(10)).await, ["r", "s"]);
    until_over(&store, "r").await;
    assert_eq!(resources(&store, all(10)).await, ["s"]);
}

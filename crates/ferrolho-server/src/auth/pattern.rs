//! Patterns of names: a name, or the beginning of names with a `*` behind it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Which names a right is about: exactly one, or all that begin in a certain way.
///
/// `ci/*` covers `ci/build` and not `ci`; `ci/build` covers itself alone; `*` covers everything. A `*` anywhere else
/// is refused, so that nobody takes it for more than it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern {
    text: String,
    is_prefix: bool,
}

impl Pattern {
    /// All names that begin like this.
    pub(super) fn below(prefix: &str) -> Self {
        Self {
            text: prefix.to_owned(),
            is_prefix: true,
        }
    }

    /// How the names that it covers begin, and whether there may be more to them.
    pub(crate) fn parts(&self) -> (&str, bool) {
        (&self.text, self.is_prefix)
    }

    /// Whether it covers this name.
    pub(super) fn covers(&self, name: &str) -> bool {
        if self.is_prefix {
            name.starts_with(&self.text)
        } else {
            name == self.text
        }
    }

    /// Whether it covers every name.
    pub(super) fn is_any(&self) -> bool {
        self.is_prefix && self.text.is_empty()
    }

    fn covers_all_of(&self, other: &Self) -> bool {
        self.covers(&other.text) && (self.is_prefix || !other.is_prefix)
    }

    /// What it covers of the names below a prefix.
    fn below_prefix(&self, prefix: &str) -> Option<Self> {
        if self.text.starts_with(prefix) {
            Some(self.clone())
        } else {
            (self.is_prefix && prefix.starts_with(&self.text)).then(|| Self::below(prefix))
        }
    }
}

/// What these patterns cover of the names below a prefix, without overlaps, in the order of their bytes.
pub(super) fn narrowed(patterns: &[Pattern], prefix: &str) -> Vec<Pattern> {
    let mut narrow: Vec<Pattern> = patterns.iter().filter_map(|p| p.below_prefix(prefix)).collect();
    // A prefix comes before whatever it covers: a shorter text first, and `x*` before `x`.
    narrow.sort_by(|a, b| a.text.cmp(&b.text).then(b.is_prefix.cmp(&a.is_prefix)));
    let mut apart: Vec<Pattern> = Vec::new();
    for pattern in narrow {
        if !apart.last().is_some_and(|last| last.covers_all_of(&pattern)) {
            apart.push(pattern);
        }
    }
    apart
}

impl FromStr for Pattern {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (text, is_prefix) = match text.strip_suffix('*') {
            Some(prefix) => (prefix, true),
            None => (text, false),
        };
        if text.contains('*') {
            return Err("a * may stand only at the end of a pattern");
        }
        if text.is_empty() && !is_prefix {
            return Err("a pattern may not be empty; * covers all names");
        }
        Ok(Self {
            text: text.to_owned(),
            is_prefix,
        })
    }
}

impl TryFrom<String> for Pattern {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.to_string()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)?;
        formatter.write_str(if self.is_prefix { "*" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn patterns(texts: &[&str]) -> Vec<Pattern> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_pattern_covers_what_it_says() {
        let covers = |pattern: &str, name: &str| pattern.parse::<Pattern>().unwrap().covers(name);
        assert!(covers("ci/*", "ci/build"));
        assert!(covers("ci/*", "ci/"));
        assert!(!covers("ci/*", "ci"));
        assert!(!covers("ci/*", "ci2/build"));
        assert!(!covers("ci/*", "CI/build"));
        assert!(covers("ci", "ci"));
        assert!(!covers("ci", "ci/build"));
        assert!(covers("*", "anything"));
        for refused in ["", "*x", "a*b", "**"] {
            assert!(refused.parse::<Pattern>().is_err(), "{refused}");
        }
    }

    #[test]
    fn narrowing_leaves_no_overlaps() {
        let all = patterns(&["b/*", "a/x", "a/*", "a/y/*", "c", "c", "cc*"]);
        assert_eq!(narrowed(&all, ""), patterns(&["a/*", "b/*", "c", "cc*"]));
        assert_eq!(narrowed(&all, "a/y/z"), patterns(&["a/y/z*"]));
        assert_eq!(narrowed(&all, "c"), patterns(&["c", "cc*"]));
        assert_eq!(narrowed(&all, "d"), []);
        assert_eq!(narrowed(&patterns(&["*", "a"]), "q"), patterns(&["q*"]));
    }

    proptest! {
        #[test]
        fn narrowed_patterns_cover_the_same_names_once(
            texts in prop::collection::vec("[ab]{0,3}\\*|[ab]{1,3}", 0..6),
            prefix in "[ab]{0,2}",
            name in "[ab]{1,4}",
        ) {
            let all: Vec<Pattern> = texts.iter().map(|text| text.parse().unwrap()).collect();
            let narrow = narrowed(&all, &prefix);
            let wanted = name.starts_with(&prefix) && all.iter().any(|pattern| pattern.covers(&name));
            let times = narrow.iter().filter(|pattern| pattern.covers(&name)).count();
            prop_assert_eq!(times, usize::from(wanted));
            prop_assert!(narrow.is_sorted_by(|a, b| a.text < b.text));
        }
    }
}

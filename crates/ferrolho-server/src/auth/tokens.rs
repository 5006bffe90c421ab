//! Bearer tokens: how they are made, and the file of their hashes.
//!
//! The file has a line for each token, a JSON object: `{"name":"ci","sha256":"…","allow":["ci/*"],"rights":
//! ["acquire"]}`. Empty lines and lines that begin with `#` are passed over. A name may have several lines: that is
//! how a token is exchanged for another without its locks changing hands. A token is 32 random bytes, so its plain
//! hash tells nobody anything.

use std::collections::HashSet;
use std::fmt::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use ferrolho_core::Principal;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::identity::{Identity, Right, Rights};
use super::pattern::Pattern;

/// What tokens begin with, so that people and scanners know one when they see it.
const TOKEN_PREFIX: &str = "ferrolho_";

/// How many random bytes a token has.
const TOKEN_BYTES: usize = 32;

/// What is wrong with a file of tokens.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TokenFileError(String);

impl TokenFileError {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(super) fn in_file(self, path: &Path) -> Self {
        Self(format!("{}: {}", path.display(), self.0))
    }
}

/// The SHA-256 of a token. Not a secret, and not shown all the same.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct TokenHash([u8; 32]);

impl TokenHash {
    pub(super) fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    fn from_hex(text: &str) -> Option<Self> {
        let mut hash = [0; 32];
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        for (byte, at) in hash.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
        }
        Some(Self(hash))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TokenHash")
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    name: String,
    sha256: String,
    allow: Vec<Pattern>,
    rights: Vec<Right>,
}

impl Line {
    fn check(self) -> Result<(TokenHash, Identity), String> {
        let hash = TokenHash::from_hex(&self.sha256).ok_or("sha256 must be 64 hexadecimal digits")?;
        let principal = Principal::new(&self.name).map_err(|invalid| format!("name {}", invalid.message))?;
        if self.allow.is_empty() {
            return Err("allow must name at least one pattern; \"*\" covers all names".to_owned());
        }
        if self.rights.is_empty() {
            return Err("rights must name at least one of acquire, read, admin".to_owned());
        }
        let identity = Identity {
            principal,
            patterns: self.allow,
            rights: Rights::of(&self.rights),
        };
        Ok((hash, identity))
    }
}

/// The tokens of a file.
#[derive(Debug, Default)]
pub(super) struct Tokens(Vec<(TokenHash, Arc<Identity>)>);

impl Tokens {
    pub(super) fn parse(text: &str) -> Result<Self, TokenFileError> {
        let mut tokens = Vec::new();
        let mut seen = HashSet::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what: &str| TokenFileError::new(format!("line {number}: {what}"));
            let line: Line = serde_json::from_str(line).map_err(|error| wrong(&error.to_string()))?;
            let (hash, identity) = line.check().map_err(|what| wrong(&what))?;
            if !seen.insert(hash.clone()) {
                return Err(wrong("this token is in a line before already"));
            }
            tokens.push((hash, Arc::new(identity)));
        }
        if tokens.is_empty() {
            let how = "has no token in it; `ferrolho token new` makes one and prints its line";
            return Err(TokenFileError::new(how));
        }
        Ok(Self(tokens))
    }

    /// The caller with this token. Takes as long whichever token it is, or none.
    pub(super) fn find(&self, hash: &TokenHash) -> Option<&Arc<Identity>> {
        let mut found = None;
        for (known, identity) in &self.0 {
            if bool::from(known.0.ct_eq(&hash.0)) {
                found = Some(identity);
            }
        }
        found
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// A token that was just made. Whoever made it shows it once; only its hash is kept.
pub struct NewToken {
    /// The token itself: a secret.
    pub token: String,
    /// Its line for the file.
    pub line: String,
}

impl NewToken {
    /// Makes a token for this caller.
    ///
    /// # Errors
    /// The system has no random bytes to give, or the caller has a right to nothing.
    pub fn make(identity: &Identity) -> Result<Self, TokenFileError> {
        let mut secret = [0; TOKEN_BYTES];
        rand::TryRngCore::try_fill_bytes(&mut rand::rngs::OsRng, &mut secret)
            .map_err(|error| TokenFileError::new(format!("no random bytes: {error}")))?;
        let token = format!("{TOKEN_PREFIX}{}", hex(&secret));
        let line = Line {
            name: identity.principal.as_str().to_owned(),
            sha256: hex(&TokenHash::of(&token).0),
            allow: identity.patterns.clone(),
            rights: identity.rights.listed(),
        };
        let text = serde_json::to_string(&line).map_err(|error| TokenFileError::new(error.to_string()))?;
        line.check().map_err(TokenFileError::new)?;
        Ok(Self { token, line: text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrolho_testkit::fuzz::{broken, try_all};
    use proptest::prelude::*;
    use serde_json::Value;

    fn identity(name: &str) -> Identity {
        Identity {
            principal: Principal::new(name).unwrap(),
            patterns: vec!["ci/*".parse().unwrap()],
            rights: Rights {
                acquire: true,
                ..Rights::default()
            },
        }
    }

    #[test]
    fn a_token_is_found_by_its_line_and_by_no_other() {
        let (one, other) = (
            NewToken::make(&identity("ci")).unwrap(),
            NewToken::make(&identity("ci")).unwrap(),
        );
        assert_ne!(one.token, other.token);
        let tokens = Tokens::parse(&format!("# ours\n\n{}\n", one.line)).unwrap();
        assert_eq!(**tokens.find(&TokenHash::of(&one.token)).unwrap(), identity("ci"));
        assert_eq!(tokens.find(&TokenHash::of(&other.token)), None);
        assert!(!one.line.contains(one.token.trim_start_matches(TOKEN_PREFIX)));
        let both = Tokens::parse(&format!("{}\n{}", one.line, other.line)).unwrap();
        assert_eq!(both.len(), 2);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let good = NewToken::make(&identity("ci")).unwrap().line;
        let sha = "0".repeat(64);
        for (line, what) in [
            (String::new(), "no token"),
            ("ci".to_owned(), "line 1: expected"),
            (good.replace("\"name\"", "\"Name\""), "unknown field `Name`"),
            (good.replace("acquire", "everything"), "unknown variant"),
            (good.replace("ci/*", "c*i"), "only at the end"),
            (good.replace("[\"ci/*\"]", "[]"), "at least one pattern"),
            (good.replace("[\"acquire\"]", "[]"), "at least one of"),
            (good.replace("\"ci\"", "\"\""), "name"),
            (format!("{good}\n\n{good}"), "line 3: this token"),
            (
                format!("{{\"name\":\"a\",\"sha256\":\"{sha}0\",\"allow\":[\"*\"],\"rights\":[\"read\"]}}"),
                "64 hex",
            ),
        ] {
            let error = Tokens::parse(&line).unwrap_err().to_string();
            assert!(error.contains(what), "{line}: {error}");
        }
    }

    /// What an independent reader finds in a line.
    fn read_alone(line: &str) -> (String, String, Vec<String>, Vec<Right>) {
        let line: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| line[name].as_str().unwrap().to_owned();
        (
            text("name"),
            text("sha256").to_lowercase(),
            serde_json::from_value(line["allow"].clone()).unwrap(),
            serde_json::from_value(line["rights"].clone()).unwrap(),
        )
    }

    #[test]
    fn a_broken_file_is_read_as_an_independent_reader_would_or_refused_by_line() {
        const FILES: &[&str] = &[
            "# ours\n\n{\"name\":\"ci\",\"sha256\":\"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\",\"allow\":[\"ci/*\",\"x\"],\"rights\":[\"acquire\",\"read\"]}\n",
            "{\"name\":\"a\",\"sha256\":\"AA112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\",\"allow\":[\"*\"],\"rights\":[\"admin\"]}\r\n{\"name\":\"a\",\"sha256\":\"BB112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\",\"allow\":[\"*\"],\"rights\":[\"read\"]}",
        ];
        try_all(2_000, &broken(FILES), |bytes| {
            let text = String::from_utf8_lossy(&bytes);
            let tokens = match Tokens::parse(&text) {
                Ok(tokens) => tokens,
                Err(error) => {
                    let said = error.to_string();
                    prop_assert!(
                        said.starts_with("line ") || said.contains("no token in it"),
                        "{}",
                        said
                    );
                    return Ok(());
                }
            };
            let lines: Vec<&str> = text
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty() && !line.starts_with('#'))
                .collect();
            prop_assert_eq!(lines.len(), tokens.len());
            for (line, (hash, identity)) in lines.iter().zip(&tokens.0) {
                let (name, sha256, allow, rights) = read_alone(line);
                prop_assert_eq!(identity.principal.as_str(), name);
                prop_assert_eq!(hex(&hash.0), sha256);
                let patterns: Vec<String> = identity.patterns.iter().map(Pattern::to_string).collect();
                prop_assert_eq!(&patterns, &allow);
                prop_assert!(!patterns.is_empty() && !rights.is_empty());
                prop_assert_eq!(identity.rights, Rights::of(&rights));
            }
            Ok(())
        });
    }
}

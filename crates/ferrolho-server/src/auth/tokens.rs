//! Bearer tokens: how they are made, and the file of their hashes, and of the subjects of client certificates.
//!
//! The file has a line for each token, a JSON object: `{"name":"ci","sha256":"…","allow":["ci/*"],"rights":
//! ["acquire"]}`. A certificate has `"subject":"CN=ci,O=Example"` in the place of the hash. Empty lines and lines that begin with `#` are passed over. A name may have several lines: that is
//! how a token is exchanged for another without its locks changing hands. A token is 32 random bytes, so its plain
//! hash tells nobody anything.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use ferrolho_core::Principal;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::Proof;
use super::identity::{Identity, Right, Rights};
use super::pattern::Pattern;
use super::subject::Subject;

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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    allow: Vec<Pattern>,
    rights: Vec<Right>,
}

impl Line {
    /// The line of this caller, without what it is known by.
    fn of(identity: &Identity) -> Self {
        Self {
            name: identity.principal.as_str().to_owned(),
            sha256: None,
            subject: None,
            allow: identity.patterns.clone(),
            rights: identity.rights.listed(),
        }
    }

    /// The line as it is written, if it is right.
    fn text(self) -> Result<String, TokenFileError> {
        let text = serde_json::to_string(&self).map_err(|error| TokenFileError::new(error.to_string()))?;
        self.check().map_err(TokenFileError::new)?;
        Ok(text)
    }

    fn check(self) -> Result<(Proof, Identity), String> {
        let proof = match (&self.sha256, &self.subject) {
            (Some(hex), None) => {
                Proof::Token(TokenHash::from_hex(hex).ok_or("sha256 must be 64 hexadecimal digits")?)
            }
            (None, Some(text)) => Proof::Certificate(Subject::from_text(text).ok_or(
                "subject must be a distinguished name such as CN=ci,O=Example, as `ferrolho token certificate` \
                 prints it",
            )?),
            _ => return Err("there must be either sha256 or subject".to_owned()),
        };
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
        Ok((proof, identity))
    }
}

/// The tokens and subjects of a file.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    tokens: Vec<(TokenHash, Arc<Identity>)>,
    subjects: HashMap<Subject, Arc<Identity>>,
}

impl Tokens {
    pub(super) fn parse(text: &str) -> Result<Self, TokenFileError> {
        let mut all = Self::default();
        let mut seen = HashSet::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what: &str| TokenFileError::new(format!("line {number}: {what}"));
            let line: Line = serde_json::from_str(line).map_err(|error| wrong(&error.to_string()))?;
            let (proof, identity) = line.check().map_err(|what| wrong(&what))?;
            let identity = Arc::new(identity);
            let is_new = match proof {
                Proof::Token(hash) => {
                    all.tokens.push((hash.clone(), identity));
                    seen.insert(hash)
                }
                Proof::Certificate(subject) => all.subjects.insert(subject, identity).is_none(),
            };
            if !is_new {
                return Err(wrong("this token or subject is in a line before already"));
            }
        }
        if all.len() == 0 {
            let how = "has no token in it; `ferrolho token new` makes one and prints its line";
            return Err(TokenFileError::new(how));
        }
        Ok(all)
    }

    /// The caller that is known by this.
    pub(super) fn find(&self, proof: &Proof) -> Option<&Arc<Identity>> {
        match proof {
            Proof::Token(hash) => self.find_token(hash),
            // No secret: the handshake has proven that the caller has its key.
            Proof::Certificate(subject) => self.subjects.get(subject),
        }
    }

    /// The caller with this token. Takes as long whichever token it is, or none.
    fn find_token(&self, hash: &TokenHash) -> Option<&Arc<Identity>> {
        let mut found = None;
        for (known, identity) in &self.tokens {
            if bool::from(known.0.ct_eq(&hash.0)) {
                found = Some(identity);
            }
        }
        found
    }

    /// How many callers can be told apart.
    pub(super) fn len(&self) -> usize {
        self.tokens.len() + self.subjects.len()
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
            sha256: Some(hex(&TokenHash::of(&token).0)),
            ..Line::of(identity)
        };
        let line = line.text()?;
        Ok(Self { token, line })
    }
}

/// The line that lets in whoever has the key of this certificate (PEM), or of another with its subject.
///
/// # Errors
/// The text holds no certificate with a subject, or the caller has a right to nothing.
pub fn line_for_certificate(identity: &Identity, pem: &[u8]) -> Result<String, TokenFileError> {
    let certificate = CertificateDer::from_pem_slice(pem)
        .map_err(|error| TokenFileError::new(format!("no certificate: {error}")))?;
    let subject = Subject::of(&certificate)
        .ok_or_else(|| TokenFileError::new("the certificate has no subject that could be named"))?;
    let line = Line {
        subject: Some(subject.as_str().to_owned()),
        ..Line::of(identity)
    };
    line.text()
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
        assert_eq!(
            **tokens.find_token(&TokenHash::of(&one.token)).unwrap(),
            identity("ci")
        );
        assert_eq!(tokens.find_token(&TokenHash::of(&other.token)), None);
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
            (good.replace("sha256", "subject"), "such as CN=ci"),
            (
                good.replace("\"allow\"", "\"subject\":\"CN=ci\",\"allow\""),
                "either sha256 or subject",
            ),
            (
                "{\"name\":\"a\",\"allow\":[\"*\"],\"rights\":[\"read\"]}".to_owned(),
                "either sha256 or subject",
            ),
        ] {
            let error = Tokens::parse(&line).unwrap_err().to_string();
            assert!(error.contains(what), "{line}: {error}");
        }
    }

    /// What an independent reader finds in a line.
    fn read_alone(line: &str) -> (String, Proof, Vec<String>, Vec<Right>) {
        let line: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| line[name].as_str().map(str::to_owned);
        let proof = match (text("sha256"), text("subject")) {
            (Some(sha256), None) => {
                let hash = TokenHash::from_hex(&sha256).unwrap();
                assert_eq!(hex(&hash.0), sha256.to_lowercase());
                Proof::Token(hash)
            }
            (None, Some(subject)) => Proof::Certificate(Subject::from_text(&subject).unwrap()),
            both => panic!("{both:?}"),
        };
        (
            text("name").unwrap(),
            proof,
            serde_json::from_value(line["allow"].clone()).unwrap(),
            serde_json::from_value(line["rights"].clone()).unwrap(),
        )
    }

    #[test]
    fn a_broken_file_is_read_as_an_independent_reader_would_or_refused_by_line() {
        const FILES: &[&str] = &[
            "# ours\n\n{\"name\":\"ci\",\"sha256\":\"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\",\"allow\":[\"ci/*\",\"x\"],\"rights\":[\"acquire\",\"read\"]}\n",
            "{\"name\":\"a\",\"sha256\":\"AA112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\",\"allow\":[\"*\"],\"rights\":[\"admin\"]}\r\n{\"name\":\"a\",\"sha256\":\"BB112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\",\"allow\":[\"*\"],\"rights\":[\"read\"]}",
            "{\"name\":\"a\",\"subject\":\"CN=a,O=Example\",\"allow\":[\"*\"],\"rights\":[\"read\"]}\n{\"name\":\"b\",\"subject\":\"CN=b\",\"allow\":[\"b\"],\"rights\":[\"acquire\"]}",
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
            for line in lines {
                let (name, proof, allow, rights) = read_alone(line);
                let identity = tokens.find(&proof).unwrap();
                prop_assert_eq!(identity.principal.as_str(), name);
                let patterns: Vec<String> = identity.patterns.iter().map(Pattern::to_string).collect();
                prop_assert_eq!(&patterns, &allow);
                prop_assert!(!patterns.is_empty() && !rights.is_empty());
                prop_assert_eq!(identity.rights, Rights::of(&rights));
            }
            Ok(())
        });
    }
}

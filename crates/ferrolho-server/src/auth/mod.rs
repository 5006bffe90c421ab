//! Who may do what.
//!
//! One function turns a request into a caller: [`Authenticator::identify`]. It knows bearer tokens and client
//! certificates ([`subject`]); whose they are, and what rights they have, is in one file ([`tokens`]). Another kind of
//! proof would be looked at there too, and would end in an [`Access`] as well. Everything behind it asks the [`Access`] alone: as whom a lock is taken, and which names may be acquired,
//! read, or taken away by force.

mod identity;
mod pattern;
mod subject;
mod tokens;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use ferrolho_core::{Principal, Resource};
use hyper::header::{self, HeaderMap};
use parking_lot::RwLock;

pub use identity::{Identity, Rights};
pub use pattern::Pattern;
pub(crate) use subject::Subject;
pub use tokens::{NewToken, TokenFileError, line_for_certificate};

use tokens::{TokenHash, Tokens};

/// Decides who a caller is.
#[derive(Debug)]
pub enum Authenticator {
    /// Nobody is asked: every caller may do everything, but what needs an administrator.
    Off,
    /// Callers show a token of a file.
    Tokens(TokenFile),
}

/// A file of tokens, as it was when it was last read whole.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    tokens: RwLock<Arc<Tokens>>,
}

/// Why nobody could be made out behind a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unidentified {
    /// It shows no token.
    NoToken,
    /// It shows something that is no token of the file.
    WrongToken,
    /// It shows no token, and a certificate whose subject is not in the file.
    WrongCertificate,
}

/// What a caller may do.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// There is no authentication.
    Everybody,
    /// This one.
    Known(Known),
    /// Whoever it is, it was not asked.
    Nobody,
}

/// A caller that showed who it is.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    identity: Arc<Identity>,
    proof: Proof,
    /// Among which it was found.
    tokens: Arc<Tokens>,
}

/// By what a caller is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    Token(TokenHash),
    Certificate(Subject),
}

impl Authenticator {
    /// Reads the tokens in this file.
    pub fn from_file(path: PathBuf) -> Result<Self, TokenFileError> {
        let tokens = RwLock::new(Arc::new(read(&path)?));
        Ok(Self::Tokens(TokenFile { path, tokens }))
    }

    /// Reads the file again, if there is one. If that fails, the tokens stay as they were. Returns how many there are
    /// now.
    pub fn reload(&self) -> Result<Option<usize>, TokenFileError> {
        let Self::Tokens(file) = self else {
            return Ok(None);
        };
        let tokens = Arc::new(read(&file.path)?);
        let count = tokens.len();
        *file.tokens.write() = tokens;
        Ok(Some(count))
    }

    /// Whether callers may be anonymous.
    pub(crate) fn is_off(&self) -> bool {
        matches!(self, Self::Off)
    }

    /// Who sent this request: the one place where a request becomes a principal. `certificate` is whom the certificate
    /// that its connection began with is about. A token counts before it: who shows one means it.
    pub(crate) fn identify(
        &self,
        headers: &HeaderMap,
        certificate: Option<&Subject>,
    ) -> Result<Access, Unidentified> {
        let Self::Tokens(file) = self else {
            return Ok(Access::Everybody);
        };
        let (proof, otherwise) = match (bearer(headers), certificate) {
            (Err(Unidentified::NoToken), Some(subject)) => (
                Proof::Certificate(subject.clone()),
                Unidentified::WrongCertificate,
            ),
            (token, _) => (Proof::Token(TokenHash::of(token?)), Unidentified::WrongToken),
        };
        file.find(proof).map(Access::Known).ok_or(otherwise)
    }

    /// Finds out what a caller that was identified earlier may do by now: whether it still is anybody.
    pub(crate) fn identify_again(&self, access: &mut Access) -> bool {
        let (Self::Tokens(file), Access::Known(known)) = (self, &mut *access) else {
            return true;
        };
        if Arc::ptr_eq(&known.tokens, &file.tokens.read()) {
            return true;
        }
        let found = file.find(known.proof.clone());
        let is_still_known = found.is_some();
        if let Some(found) = found {
            *known = found;
        }
        is_still_known
    }
}

impl TokenFile {
    fn find(&self, proof: Proof) -> Option<Known> {
        let tokens = Arc::clone(&self.tokens.read());
        let identity = Arc::clone(tokens.find(&proof)?);
        Some(Known {
            identity,
            proof,
            tokens,
        })
    }
}

fn read(path: &std::path::Path) -> Result<Tokens, TokenFileError> {
    let text = std::fs::read_to_string(path).map_err(|error| TokenFileError::unreadable(path, &error))?;
    Tokens::parse(&text).map_err(|error| error.in_file(path))
}

/// The token in the `Authorization` header. (Source: RFC 6750, section 2.1.)
fn bearer(headers: &HeaderMap) -> Result<&str, Unidentified> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next().ok_or(Unidentified::NoToken)?;
    if values.next().is_some() {
        return Err(Unidentified::WrongToken);
    }
    let text = value.to_str().map_err(|_| Unidentified::WrongToken)?;
    let (scheme, token) = text.split_once(' ').ok_or(Unidentified::WrongToken)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(Unidentified::WrongToken);
    }
    Ok(token.trim())
}

impl Access {
    /// As whom locks are taken.
    pub(crate) fn principal(&self) -> Option<Principal> {
        match self {
            Self::Known(known) => Some(known.identity.principal.clone()),
            Self::Everybody | Self::Nobody => None,
        }
    }

    /// Whether the caller may do what is up to a known caller's rights.
    fn may(&self, has_right: impl FnOnce(&Identity) -> bool) -> bool {
        match self {
            Self::Everybody => true,
            Self::Known(known) => has_right(&known.identity),
            Self::Nobody => false,
        }
    }

    /// Whether the caller may acquire, renew and release this lock.
    pub(crate) fn may_acquire(&self, resource: &Resource) -> bool {
        self.may(|identity| identity.rights.acquire && identity.covers(resource))
    }

    /// Whether the caller may see this lock.
    pub(crate) fn may_read(&self, resource: &Resource) -> bool {
        self.may(|identity| identity.may_read() && identity.covers(resource))
    }

    /// Whether the caller may take this lock away from its holder. Without authentication nobody may.
    pub(crate) fn may_force(&self, resource: &Resource) -> bool {
        !matches!(self, Self::Everybody)
            && self.may(|identity| identity.rights.admin && identity.covers(resource))
    }

    /// Whether the caller may acquire anything at all.
    pub(crate) fn may_acquire_some(&self) -> bool {
        self.may(|identity| identity.rights.acquire)
    }

    /// Whether the caller may see anything at all.
    pub(crate) fn may_read_some(&self) -> bool {
        self.may(Identity::may_read)
    }

    /// Whether the caller may see everything.
    pub(crate) fn may_read_all(&self) -> bool {
        self.may(|identity| identity.may_read() && identity.patterns.iter().any(Pattern::is_any))
    }

    /// What the caller may do, as the file of tokens spells it.
    pub(crate) fn rights(&self) -> Vec<String> {
        let rights = match self {
            Self::Everybody => Rights {
                acquire: true,
                read: true,
                admin: false,
            },
            Self::Known(known) => known.identity.rights,
            Self::Nobody => Rights::default(),
        };
        rights
            .listed()
            .into_iter()
            .map(|right| right.as_str().to_owned())
            .collect()
    }

    /// The names that its rights are about, as the file of tokens spells them.
    pub(crate) fn allowed(&self) -> Vec<String> {
        match self {
            Self::Everybody => vec![Pattern::below("").to_string()],
            Self::Known(known) => known.identity.patterns.iter().map(Pattern::to_string).collect(),
            Self::Nobody => Vec::new(),
        }
    }

    /// The names below `prefix` that the caller may see, as patterns that do not overlap, in the order of their
    /// bytes.
    pub(crate) fn readable(&self, prefix: &str) -> Vec<Pattern> {
        match self {
            Self::Everybody => vec![Pattern::below(prefix)],
            Self::Known(known) if known.identity.may_read() => {
                pattern::narrowed(&known.identity.patterns, prefix)
            }
            Self::Known(_) | Self::Nobody => Vec::new(),
        }
    }
}

impl TokenFileError {
    fn unreadable(path: &std::path::Path, error: &io::Error) -> Self {
        Self::new(format!("cannot be read: {error}")).in_file(path)
    }
}

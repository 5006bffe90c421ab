//! How to reach an etcd cluster: the URL, its user, its TLS.
//!
//! `etcd://[user:password@]host[:port][,host[:port]…][?prefix=…&tls_ca=…&tls_cert=…&tls_key=…&tls_name=…]`.
//! User, password and parameters are percent-encoded where they hold reserved characters. `tls_ca` names the
//! file of the authority that signed the members' certificates and turns TLS on; `tls_cert` and `tls_key` are
//! this client's own; `tls_name` is the name that the members' certificates carry, where it is not the host.
//! Secrets appear in no `Debug` and no `Display`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::percent_decode_str;

/// The port of an etcd member that names none.
const DEFAULT_PORT: u16 = 2379;

/// The most members that a URL may name.
const MAX_MEMBERS: usize = 16;

/// The most bytes of a prefix. With it a full transaction still fits into etcd's 1.5 MiB.
const MAX_PREFIX_BYTES: usize = 64;

/// How much of the key space's history is kept when this server compacts it.
const DEFAULT_HISTORY: Duration = Duration::from_mins(10);

/// Where the cluster is and how to use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdConfig {
    /// The members, `host:port`.
    pub(super) members: Vec<String>,
    /// What every key begins with; ends with `/`.
    pub(super) prefix: String,
    pub(super) user: Option<User>,
    pub(super) tls: Option<TlsFiles>,
    /// How much history of the whole cluster's keys is kept; older revisions are compacted away, once a tenth of
    /// this time. None leaves compaction to the cluster's operator, as a cluster that others use too needs it.
    pub history: Option<Duration>,
}

/// A user of etcd.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) password: String,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The files that TLS needs, PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TlsFiles {
    pub(super) authority: PathBuf,
    pub(super) own: Option<OwnCertificate>,
    pub(super) name: Option<String>,
}

/// The certificate by which this client shows who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OwnCertificate {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

/// Why a text names no etcd cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EtcdUrlError {
    /// It does not begin with `etcd://`.
    #[error("an etcd store is etcd://host:2379,host:2379")]
    Scheme,
    /// A member's address is not `host` or `host:port`, or there are none or too many.
    #[error("an etcd store names 1 to {MAX_MEMBERS} members, host or host:port, with commas between them")]
    Members,
    /// There is a user without a password, or the other way round, or they are not percent-encoded.
    #[error("the user of an etcd store is user:password@, percent-encoded")]
    User,
    /// A parameter that is unknown, given twice, without a value, or not percent-encoded.
    #[error("the parameter {0:?} of an etcd store is unknown, given twice, or has no value")]
    Parameter(String),
    /// The prefix is too long or has control characters.
    #[error("the prefix of an etcd store has 1 to {MAX_PREFIX_BYTES} bytes and no control characters")]
    Prefix,
    /// Parts of TLS are missing.
    #[error("TLS to etcd needs tls_ca; a client certificate needs both tls_cert and tls_key")]
    Tls,
}

impl FromStr for EtcdConfig {
    type Err = EtcdUrlError;

    fn from_str(url: &str) -> Result<Self, EtcdUrlError> {
        let rest = url.strip_prefix("etcd://").ok_or(EtcdUrlError::Scheme)?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (user, members) = match place.rsplit_once('@') {
            Some((user, members)) => (Some(parse_user(user)?), members),
            None => (None, place),
        };
        let members: Vec<String> = members
            .trim_end_matches('/')
            .split(',')
            .map(parse_member)
            .collect::<Option<_>>()
            .filter(|members: &Vec<_>| members.len() <= MAX_MEMBERS)
            .ok_or(EtcdUrlError::Members)?;
        let mut parameters = Parameters::parse(query)?;
        Ok(Self {
            members,
            prefix: parse_prefix(parameters.prefix.take().as_deref())?,
            user,
            tls: parameters.into_tls()?,
            history: Some(DEFAULT_HISTORY),
        })
    }
}

/// The store's name for people: its members and nothing secret.
impl fmt::Display for EtcdConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "etcd://{}", self.members.join(","))
    }
}

fn decode(text: &str) -> Option<String> {
    Some(percent_decode_str(text).decode_utf8().ok()?.into_owned())
}

fn parse_user(text: &str) -> Result<User, EtcdUrlError> {
    let (name, password) = text.split_once(':').ok_or(EtcdUrlError::User)?;
    match (decode(name), decode(password)) {
        (Some(name), Some(password)) if !name.is_empty() && !password.is_empty() => {
            Ok(User { name, password })
        }
        _ => Err(EtcdUrlError::User),
    }
}

fn parse_member(text: &str) -> Option<String> {
    let bare_v6 = text.ends_with(']');
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !bare_v6 => (host, port.parse().ok().filter(|port| *port != 0)?),
        _ => (text, DEFAULT_PORT),
    };
    let is_v6 = host.starts_with('[') && host.ends_with(']');
    let inner = if is_v6 { &host[1..host.len() - 1] } else { host };
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c) || (is_v6 && c == ':');
    let valid = !inner.is_empty() && inner.chars().all(allowed);
    valid.then(|| format!("{host}:{port}"))
}

fn parse_prefix(text: Option<&str>) -> Result<String, EtcdUrlError> {
    let mut prefix = text.unwrap_or("ferrolho").to_owned();
    if !prefix.ends_with('/') {
        prefix.push('/');
    }
    if prefix.len() > MAX_PREFIX_BYTES || prefix.chars().any(char::is_control) {
        return Err(EtcdUrlError::Prefix);
    }
    Ok(prefix)
}

#[derive(Default)]
struct Parameters {
    prefix: Option<String>,
    authority: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
    name: Option<String>,
}

impl Parameters {
    fn parse(query: &str) -> Result<Self, EtcdUrlError> {
        let mut parameters = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            // What has not the form of a name may be a part of a password that was not encoded.
            let is_name = name.len() < 20 && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            let wrong = || EtcdUrlError::Parameter(if is_name { name } else { "?" }.to_owned());
            let place = match name {
                "prefix" => &mut parameters.prefix,
                "tls_ca" => &mut parameters.authority,
                "tls_cert" => &mut parameters.certificate,
                "tls_key" => &mut parameters.key,
                "tls_name" => &mut parameters.name,
                _ => return Err(wrong()),
            };
            let value = decode(value)
                .filter(|value| !value.is_empty())
                .ok_or_else(wrong)?;
            if place.replace(value).is_some() {
                return Err(wrong());
            }
        }
        Ok(parameters)
    }

    fn into_tls(self) -> Result<Option<TlsFiles>, EtcdUrlError> {
        let own = match (self.certificate, self.key) {
            (Some(certificate), Some(key)) => Some(OwnCertificate {
                certificate: certificate.into(),
                key: key.into(),
            }),
            (None, None) => None,
            _ => return Err(EtcdUrlError::Tls),
        };
        match self.authority {
            Some(authority) => Ok(Some(TlsFiles {
                authority: authority.into(),
                own,
                name: self.name,
            })),
            None if own.is_none() && self.name.is_none() => Ok(None),
            None => Err(EtcdUrlError::Tls),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<EtcdConfig, EtcdUrlError> {
        url.parse()
    }

    #[test]
    fn members_and_their_ports() {
        let config = parse("etcd://one:1,two,[::1]:3,[::1]").unwrap();
        assert_eq!(config.members, ["one:1", "two:2379", "[::1]:3", "[::1]:2379"]);
        assert_eq!(config.prefix, "ferrolho/");
        for wrong in [
            "etcd://",
            "etcd://a,,b",
            "etcd://a:0",
            "etcd://a:b",
            "etcd://a b",
            "etcd://:1",
            "etcd://a/b",
        ] {
            assert_eq!(parse(wrong), Err(EtcdUrlError::Members), "{wrong}");
        }
        assert_eq!(parse("http://a"), Err(EtcdUrlError::Scheme));
    }

    #[test]
    fn secrets_are_read_and_not_shown() {
        let config = parse("etcd://us%40er:pa%3Ass%40@h").unwrap();
        let user = config.user.clone().unwrap();
        assert_eq!((user.name.as_str(), user.password.as_str()), ("us@er", "pa:ss@"));
        assert!(!format!("{config:?}{config}").contains("pa:ss"));
        let unencoded = parse("etcd://user:1?SS@h").unwrap_err().to_string();
        assert!(!unencoded.contains("SS"), "{unencoded}");
        assert_eq!(parse("etcd://user@h"), Err(EtcdUrlError::User));
        assert_eq!(parse("etcd://:x@h"), Err(EtcdUrlError::User));
    }

    #[test]
    fn parameters_are_whole_or_refused() {
        let config =
            parse("etcd://h?prefix=locks%2Fprod&tls_ca=/ca.pem&tls_cert=c&tls_key=k&tls_name=etcd").unwrap();
        assert_eq!(config.prefix, "locks/prod/");
        let tls = config.tls.unwrap();
        assert_eq!(tls.authority, PathBuf::from("/ca.pem"));
        assert_eq!(tls.own.unwrap().key, PathBuf::from("k"));
        assert_eq!(tls.name.as_deref(), Some("etcd"));
        for wrong in [
            "etcd://h?x=1",
            "etcd://h?prefix=a&prefix=b",
            "etcd://h?prefix",
            "etcd://h?prefix=%ff",
        ] {
            assert!(matches!(parse(wrong), Err(EtcdUrlError::Parameter(_))), "{wrong}");
        }
        for wrong in [
            "etcd://h?tls_cert=c&tls_key=k",
            "etcd://h?tls_ca=c&tls_key=k",
            "etcd://h?tls_name=n",
        ] {
            assert_eq!(parse(wrong), Err(EtcdUrlError::Tls), "{wrong}");
        }
        let long = format!("etcd://h?prefix={}", "x".repeat(MAX_PREFIX_BYTES));
        assert_eq!(parse(&long), Err(EtcdUrlError::Prefix));
    }
}

//! Whom a browser may bring here.
//!
//! A lock service on loopback is in reach of every page that a browser on the same machine opens. So a request
//! that a foreign page made is refused, by what browsers say of it; and while requests may be anonymous, so is a
//! foreign name in `Host`, which is how a page whose name was pointed at this machine would come. (Source: the
//! Fetch Metadata and Fetch standards; design.md section 3.)

use std::net::{IpAddr, Ipv6Addr};

use hyper::Method;
use hyper::header::{self, HeaderMap};
use hyper::http::request::Parts;

use super::problem::{Code, Problem};

/// Which hosts and sites are ours.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    /// Names besides `localhost` and addresses under which callers may reach this server.
    pub allowed_hosts: Vec<String>,
}

impl Guard {
    /// Refuses what a foreign page sent, or, where callers may be anonymous, what was sent to a foreign name.
    pub(super) fn check(&self, head: &Parts, is_page: bool, is_anonymous: bool) -> Result<(), Problem> {
        let host = host_of(head);
        if is_anonymous && host.is_some_and(|host| !self.is_ours(host)) {
            return Err(refuse(
                "The Host is not a name of this server; --allowed-host adds one.",
            ));
        }
        if is_cross_site(&head.headers, host) && !(is_page && is_navigation(head)) {
            return Err(refuse("A browser brought this request from another site."));
        }
        Ok(())
    }

    fn is_ours(&self, host: &str) -> bool {
        let name = without_port(host);
        let is_address = match name.strip_prefix('[') {
            Some(rest) => rest
                .strip_suffix(']')
                .is_some_and(|literal| literal.parse::<Ipv6Addr>().is_ok()),
            None => name.parse::<IpAddr>().is_ok(),
        };
        is_address
            || name.eq_ignore_ascii_case("localhost")
            || self
                .allowed_hosts
                .iter()
                .any(|allowed| name.eq_ignore_ascii_case(allowed))
    }
}

fn refuse(detail: &str) -> Problem {
    Problem::new(Code::NotPermitted, detail)
}

/// What the caller calls this server. A doubled or unreadable header is no name of ours.
fn host_of(head: &Parts) -> Option<&str> {
    let mut hosts = head.headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => head.uri.authority().map(hyper::http::uri::Authority::as_str),
        (Some(host), None) => Some(host.to_str().unwrap_or("?")),
        (Some(_), Some(_)) => Some("?"),
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.is_empty() => {
            // An IPv6 literal has its port behind the bracket, if any.
            if name.contains(':') && !name.ends_with(']') {
                host
            } else {
                name
            }
        }
        _ => host,
    }
}

fn is_cross_site(headers: &HeaderMap, host: Option<&str>) -> bool {
    let mut sites = headers.get_all("sec-fetch-site").iter().peekable();
    if sites.peek().is_some() {
        return !sites.all(|site| site == "same-origin" || site == "none");
    }
    let is_own = |origin: &str| {
        let named = origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"));
        named.is_some_and(|named| host.is_some_and(|host| named.eq_ignore_ascii_case(host)))
    };
    headers
        .get_all(header::ORIGIN)
        .iter()
        .any(|origin| !origin.to_str().is_ok_and(is_own))
}

fn is_navigation(head: &Parts) -> bool {
    let mode = head.headers.get("sec-fetch-mode");
    (head.method == Method::GET || head.method == Method::HEAD) && mode.is_some_and(|mode| mode == "navigate")
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn allows(is_page: bool, headers: &[(&str, &str)]) -> bool {
        let mut request = Request::get("/x");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let guard = Guard {
            allowed_hosts: vec!["locks.example".to_owned()],
        };
        guard
            .check(&request.body(()).unwrap().into_parts().0, is_page, true)
            .is_ok()
    }

    #[test]
    fn hosts() {
        for ours in [
            "localhost",
            "LOCALHOST:7400",
            "127.0.0.1:7400",
            "[::1]:7400",
            "[::1]",
            "::1",
            "locks.example:80",
        ] {
            assert!(allows(false, &[("host", ours)]), "{ours}");
        }
        for foreign in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:7400",
            "evil@localhost",
            "",
        ] {
            assert!(!allows(false, &[("host", foreign)]), "{foreign}");
        }
        assert!(allows(false, &[]));
        assert!(!allows(false, &[("host", "localhost"), ("host", "evil.example")]));
    }

    #[test]
    fn sites() {
        let host = ("host", "localhost:7400");
        assert!(allows(false, &[host, ("sec-fetch-site", "same-origin")]));
        assert!(allows(false, &[host, ("sec-fetch-site", "none")]));
        assert!(!allows(false, &[host, ("sec-fetch-site", "cross-site")]));
        assert!(!allows(false, &[host, ("sec-fetch-site", "same-site")]));
        assert!(!allows(
            false,
            &[host, ("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")]
        ));
        assert!(allows(false, &[host, ("origin", "http://localhost:7400")]));
        for foreign in ["null", "http://localhost:7401", "http://evil.example", ""] {
            assert!(!allows(false, &[host, ("origin", foreign)]), "{foreign}");
        }
        let navigation = [
            host,
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
        ];
        assert!(allows(true, &navigation));
        assert!(!allows(false, &navigation));
        assert!(!allows(
            true,
            &[
                host,
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "no-cors")
            ]
        ));
    }
}

//! From a raw path to an endpoint. Names stay as they came, percent-encoded; nothing is decoded or folded here.

/// An endpoint, with the raw name that its path holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route<'a> {
    Lock(&'a str),
    Renew(&'a str),
    Release(&'a str),
    ForceRelease(&'a str),
    Waiters(&'a str),
    Locks,
    Owner(&'a str),
    RenewOwner(&'a str),
    Events,
    Healthz,
    Readyz,
    Problems,
    ProblemPage(&'a str),
    Unknown,
}

impl<'a> Route<'a> {
    /// The endpoint at this path.
    pub(super) fn of(path: &'a str) -> Self {
        let mut segments = path.strip_prefix('/').unwrap_or_default().split('/');
        let parts = [segments.next(), segments.next(), segments.next(), segments.next()];
        match parts {
            [Some("locks"), None, ..] => Self::Locks,
            [Some("locks"), Some(name), None, _] if !name.is_empty() => Self::Lock(name),
            [Some("locks"), Some(name), Some(action), None] if !name.is_empty() => match action {
                "renew" => Self::Renew(name),
                "release" => Self::Release(name),
                "force-release" => Self::ForceRelease(name),
                "waiters" => Self::Waiters(name),
                _ => Self::Unknown,
            },
            [Some("owners"), Some(name), None, _] if !name.is_empty() => Self::Owner(name),
            [Some("owners"), Some(name), Some("renew"), None] if !name.is_empty() => Self::RenewOwner(name),
            [Some("events"), None, ..] => Self::Events,
            [Some("healthz"), None, ..] => Self::Healthz,
            [Some("readyz"), None, ..] => Self::Readyz,
            [Some("problems"), None, ..] => Self::Problems,
            [Some("problems"), Some(code), None, _] if !code.is_empty() => Self::ProblemPage(code),
            _ => Self::Unknown,
        }
    }

    /// The endpoint's path with placeholders, for logs and metrics: a bounded set, whatever is asked.
    pub(super) fn template(self) -> &'static str {
        match self {
            Self::Lock(_) => "/locks/{resource}",
            Self::Renew(_) => "/locks/{resource}/renew",
            Self::Release(_) => "/locks/{resource}/release",
            Self::ForceRelease(_) => "/locks/{resource}/force-release",
            Self::Waiters(_) => "/locks/{resource}/waiters",
            Self::Locks => "/locks",
            Self::Owner(_) => "/owners/{owner}",
            Self::RenewOwner(_) => "/owners/{owner}/renew",
            Self::Events => "/events",
            Self::Healthz => "/healthz",
            Self::Readyz => "/readyz",
            Self::Problems => "/problems",
            Self::ProblemPage(_) => "/problems/{code}",
            Self::Unknown => "unknown",
        }
    }

    /// The methods that the endpoint knows, as an `Allow` header has them.
    pub(super) fn allow(self) -> &'static str {
        match self {
            Self::Lock(_) => "GET, HEAD, POST, DELETE",
            Self::Locks => "GET, HEAD, POST",
            Self::Renew(_) | Self::Release(_) | Self::ForceRelease(_) | Self::RenewOwner(_) => "POST",
            Self::Owner(_) => "DELETE",
            _ => "GET, HEAD",
        }
    }

    /// Whether the endpoint is a page that a browser may be sent to from anywhere.
    pub(super) fn is_page(self) -> bool {
        matches!(self, Self::Problems | Self::ProblemPage(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_whole_and_nothing_is_folded() {
        for (path, route) in [
            ("/locks/a", Route::Lock("a")),
            ("/locks/team%2Fjob/renew", Route::Renew("team%2Fjob")),
            ("/locks/..", Route::Lock("..")),
            ("/locks/renew", Route::Lock("renew")),
            ("/locks/team/job", Route::Unknown),
            ("/locks/a/", Route::Unknown),
            ("/locks/a/renew/", Route::Unknown),
            ("/locks/", Route::Unknown),
            ("/locks//renew", Route::Unknown),
            ("//locks/a", Route::Unknown),
            ("/locks", Route::Locks),
            ("/owners/o/renew", Route::RenewOwner("o")),
            ("*", Route::Unknown),
            ("", Route::Unknown),
        ] {
            assert_eq!(Route::of(path), route, "{path}");
        }
    }
}

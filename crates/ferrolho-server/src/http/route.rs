//! From a raw path to an endpoint. Names stay as they came, percent-encoded; nothing is decoded or folded here.

/// An endpoint, with the raw name that its path holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route<'a> {
    Lock(&'a str),
    Renew(&'a str),
    Release(&'a str),
    ForceRelease(&'a str),
    Waiters(&'a str),
    LockEvents(&'a str),
    Lines,
    WhoAmI,
    Locks,
    Owner(&'a str),
    RenewOwner(&'a str),
    Events,
    Healthz,
    Readyz,
    Metrics,
    OpenApi,
    Docs,
    Problems,
    ProblemPage(&'a str),
    Dashboard,
    Asset(&'a str),
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
                "events" => Self::LockEvents(name),
                _ => Self::Unknown,
            },
            [Some("owners"), Some(name), None, _] if !name.is_empty() => Self::Owner(name),
            [Some("owners"), Some(name), Some("renew"), None] if !name.is_empty() => Self::RenewOwner(name),
            [Some("waiters"), None, ..] => Self::Lines,
            [Some("whoami"), None, ..] => Self::WhoAmI,
            [Some("events"), None, ..] => Self::Events,
            [Some("healthz"), None, ..] => Self::Healthz,
            [Some("readyz"), None, ..] => Self::Readyz,
            [Some("metrics"), None, ..] => Self::Metrics,
            [Some("openapi.json"), None, ..] => Self::OpenApi,
            [Some("docs"), None, ..] => Self::Docs,
            [Some("problems"), None, ..] => Self::Problems,
            [Some("problems"), Some(code), None, _] if !code.is_empty() => Self::ProblemPage(code),
            [Some("assets"), Some(file), None, _] if !file.is_empty() => Self::Asset(file),
            [Some(""), None, ..] if path == "/" => Self::Dashboard,
            _ => Self::Unknown,
        }
    }

    /// The raw name of the lock that it is about.
    pub(super) fn lock(self) -> Option<&'a str> {
        match self {
            Self::Lock(name)
            | Self::Renew(name)
            | Self::Release(name)
            | Self::ForceRelease(name)
            | Self::Waiters(name)
            | Self::LockEvents(name) => Some(name),
            _ => None,
        }
    }

    /// Which endpoint it is, whatever the name.
    pub(super) fn endpoint(self) -> Endpoint {
        match self {
            Self::Lock(_) => Endpoint::Lock,
            Self::Renew(_) => Endpoint::Renew,
            Self::Release(_) => Endpoint::Release,
            Self::ForceRelease(_) => Endpoint::ForceRelease,
            Self::Waiters(_) => Endpoint::Waiters,
            Self::LockEvents(_) => Endpoint::LockEvents,
            Self::Lines => Endpoint::Lines,
            Self::WhoAmI => Endpoint::WhoAmI,
            Self::Locks => Endpoint::Locks,
            Self::Owner(_) => Endpoint::Owner,
            Self::RenewOwner(_) => Endpoint::RenewOwner,
            Self::Events => Endpoint::Events,
            Self::Healthz => Endpoint::Healthz,
            Self::Readyz => Endpoint::Readyz,
            Self::Metrics => Endpoint::Metrics,
            Self::OpenApi => Endpoint::OpenApi,
            Self::Docs => Endpoint::Docs,
            Self::Problems => Endpoint::Problems,
            Self::ProblemPage(_) => Endpoint::ProblemPage,
            Self::Dashboard => Endpoint::Dashboard,
            Self::Asset(_) => Endpoint::Asset,
            Self::Unknown => Endpoint::Unknown,
        }
    }
}

/// An endpoint without the name in its path: what logs, metrics and the API's description are by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Lock,
    Renew,
    Release,
    ForceRelease,
    Waiters,
    LockEvents,
    Lines,
    WhoAmI,
    Locks,
    Owner,
    RenewOwner,
    Events,
    Healthz,
    Readyz,
    Metrics,
    OpenApi,
    Docs,
    Problems,
    ProblemPage,
    Dashboard,
    Asset,
    /// Any path that is none of ours.
    Unknown,
}

impl Endpoint {
    /// All of them, in the order of their numbers.
    pub(super) const ALL: [Self; 22] = [
        Self::Lock,
        Self::Renew,
        Self::Release,
        Self::ForceRelease,
        Self::Waiters,
        Self::LockEvents,
        Self::Lines,
        Self::WhoAmI,
        Self::Locks,
        Self::Owner,
        Self::RenewOwner,
        Self::Events,
        Self::Healthz,
        Self::Readyz,
        Self::Metrics,
        Self::OpenApi,
        Self::Docs,
        Self::Problems,
        Self::ProblemPage,
        Self::Dashboard,
        Self::Asset,
        Self::Unknown,
    ];

    /// The endpoint's path with placeholders, for logs and metrics: a bounded set, whatever is asked.
    pub(super) fn template(self) -> &'static str {
        match self {
            Self::Lock => "/locks/{resource}",
            Self::Renew => "/locks/{resource}/renew",
            Self::Release => "/locks/{resource}/release",
            Self::ForceRelease => "/locks/{resource}/force-release",
            Self::Waiters => "/locks/{resource}/waiters",
            Self::LockEvents => "/locks/{resource}/events",
            Self::Lines => "/waiters",
            Self::WhoAmI => "/whoami",
            Self::Locks => "/locks",
            Self::Owner => "/owners/{owner}",
            Self::RenewOwner => "/owners/{owner}/renew",
            Self::Events => "/events",
            Self::Healthz => "/healthz",
            Self::Readyz => "/readyz",
            Self::Metrics => "/metrics",
            Self::OpenApi => "/openapi.json",
            Self::Docs => "/docs",
            Self::Problems => "/problems",
            Self::ProblemPage => "/problems/{code}",
            Self::Dashboard => "/",
            Self::Asset => "/assets/{file}",
            Self::Unknown => "unknown",
        }
    }

    /// The methods that the endpoint knows, as an `Allow` header has them.
    pub(super) fn allow(self) -> &'static str {
        match self {
            Self::Lock => "GET, HEAD, POST, DELETE",
            Self::Locks => "GET, HEAD, POST",
            Self::Renew | Self::Release | Self::ForceRelease | Self::RenewOwner => "POST",
            Self::Owner => "DELETE",
            _ => "GET, HEAD",
        }
    }

    /// Whether it answers without asking who the caller is: it shows nothing of locks.
    pub(super) fn is_open(self) -> bool {
        matches!(
            self,
            Self::Healthz
                | Self::Readyz
                | Self::OpenApi
                | Self::Docs
                | Self::Problems
                | Self::ProblemPage
                | Self::Dashboard
                | Self::Asset
                | Self::Unknown
        )
    }

    /// Whether the endpoint is a page that a browser may be sent to from anywhere.
    pub(super) fn is_page(self) -> bool {
        matches!(
            self,
            Self::Docs | Self::Problems | Self::ProblemPage | Self::Dashboard
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_numbered_as_they_are_listed() {
        for (number, endpoint) in Endpoint::ALL.into_iter().enumerate() {
            assert_eq!(endpoint as usize, number);
        }
    }

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

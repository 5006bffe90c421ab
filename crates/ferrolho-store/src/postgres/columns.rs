//! Changes as the arrays that the function of the database takes.

use std::sync::Arc;

use ferrolho_core::{Change, Claim, EventKind, Expected, FencingToken, Holder, Metadata, Principal, Write};
use tokio::time::Instant;
use tokio_postgres::types::Type;

use super::clock::Sight;
use super::failure::Failure;
use super::link::{Link, Parameters};

/// The principal's name, if there is one.
pub(super) fn principal(holder: &Holder) -> Option<&str> {
    holder.principal.as_ref().map(Principal::as_str)
}

/// Changes as the arrays that the function takes.
#[derive(Default)]
pub(super) struct Columns<'a> {
    group: Vec<i32>,
    resource: Vec<&'a str>,
    expect: Vec<&'static str>,
    owner: Vec<Option<&'a str>>,
    principal: Vec<Option<&'a str>>,
    token: Vec<Option<i64>>,
    write: Vec<&'static str>,
    ttl: Vec<Option<i32>>,
    new_owner: Vec<Option<&'a str>>,
    new_principal: Vec<Option<&'a str>>,
    metadata: Vec<Option<&'a str>>,
    mark: Vec<Option<String>>,
    end: Vec<Option<&'static str>>,
    begin: Vec<Option<&'static str>>,
    reason: Vec<Option<String>>,
}

impl<'a> Columns<'a> {
    pub(super) fn of(groups: &'a [Arc<[Change]>]) -> Self {
        let mut columns = Self::default();
        for (group, changes) in (0..).zip(groups) {
            for change in changes.iter() {
                columns.group.push(group);
                columns.push(change);
            }
        }
        columns
    }

    fn push(&mut self, change: &'a Change) {
        self.resource.push(change.resource.as_str());
        let claim = |claim: &'a Claim| (Some(claim.holder.owner.as_str()), principal(&claim.holder));
        let number = |token: FencingToken| i64::try_from(token.get()).unwrap_or(i64::MAX);
        let (expect, (owner, by), token) = match &change.expected {
            Expected::Free => ("free", (None, None), None),
            Expected::HeldBy(held) => ("held", claim(held), held.token.map(number)),
            Expected::Token(token) => ("token", (None, None), Some(number(*token))),
        };
        self.expect.push(expect);
        self.owner.push(owner);
        self.principal.push(by);
        self.token.push(token);
        let (write, ttl, grant) = match &change.write {
            Write::Grant(grant) => ("grant", Some(grant.ttl), Some(grant)),
            Write::Extend(ttl) => ("extend", Some(*ttl), None),
            Write::Remove => ("remove", None, None),
        };
        self.write.push(write);
        self.ttl
            .push(ttl.map(|ttl| i32::try_from(ttl.seconds()).unwrap_or(i32::MAX)));
        self.new_owner
            .push(grant.map(|grant| grant.holder.owner.as_str()));
        self.new_principal
            .push(grant.and_then(|grant| principal(&grant.holder)));
        self.metadata.push(
            grant
                .and_then(|grant| grant.metadata.as_ref())
                .map(Metadata::as_str),
        );
        self.mark.push(grant.map(|grant| grant.mark.to_string()));
        let kinds = change.event_kinds();
        let is_begin = |kind: &EventKind| matches!(kind, EventKind::Acquired | EventKind::Renewed);
        let named = |wanted: bool| {
            let kind = kinds.iter().find(|kind| is_begin(kind) == wanted);
            kind.map(|kind| kind.as_str())
        };
        self.end.push(named(false));
        self.begin.push(named(true));
        self.reason
            .push(change.reason().map(|reason| reason.as_str().to_owned()));
    }

    /// Sends them to the function, with the clock that is expected.
    pub(super) async fn send(
        &self,
        link: &Link,
        sql: &str,
        sight: Sight,
        clear: i32,
        until: Instant,
    ) -> Result<Vec<tokio_postgres::Row>, Failure> {
        let expected = sight.expected();
        let parameters: Parameters<'_> = &[
            (&sight.era, Type::INT8),
            (&expected, Type::INT8),
            (&true, Type::BOOL),
            (&clear, Type::INT4),
            (&self.group, Type::INT4_ARRAY),
            (&self.resource, Type::TEXT_ARRAY),
            (&self.expect, Type::TEXT_ARRAY),
            (&self.owner, Type::TEXT_ARRAY),
            (&self.principal, Type::TEXT_ARRAY),
            (&self.token, Type::INT8_ARRAY),
            (&self.write, Type::TEXT_ARRAY),
            (&self.ttl, Type::INT4_ARRAY),
            (&self.new_owner, Type::TEXT_ARRAY),
            (&self.new_principal, Type::TEXT_ARRAY),
            (&self.metadata, Type::TEXT_ARRAY),
            (&self.mark, Type::TEXT_ARRAY),
            (&self.end, Type::TEXT_ARRAY),
            (&self.begin, Type::TEXT_ARRAY),
            (&self.reason, Type::TEXT_ARRAY),
        ];
        link.call(sql, parameters, until).await
    }
}

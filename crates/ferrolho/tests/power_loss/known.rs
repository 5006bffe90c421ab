//! What callers were told, against what the engine knows after it was opened again.

use std::collections::BTreeMap;

use ferrolho_core::Lock;

use crate::judge::Fact;
use crate::load::{Act, Grant};

/// What was told of the locks, by name.
pub(crate) struct Known<'a> {
    names: BTreeMap<&'a str, Told<'a>>,
    /// Sets of which nobody has been told: all or none.
    open_sets: Vec<&'a [Grant]>,
    /// The highest token that anybody was told of.
    pub(crate) highest: u64,
}

/// What was told of one lock.
#[derive(Default)]
struct Told<'a> {
    grants: Vec<(&'a Grant, &'a str, bool)>,
    /// Owners whose grants may have been made though no token is known.
    may_have: Vec<&'a str>,
    /// Tokens whose release has arrived, and whether it was answered.
    releases: Vec<(u64, bool)>,
    /// Tokens, their new ends if known, and whether the renewal was answered.
    renewals: Vec<(u64, Option<&'a str>, bool)>,
}

impl<'a> Known<'a> {
    pub(crate) fn from(facts: &'a [Fact]) -> Self {
        let mut known = Self {
            names: BTreeMap::new(),
            open_sets: Vec::new(),
            highest: 0,
        };
        for Fact { asked, is_answered } in facts {
            match &asked.act {
                Act::Acquire {
                    owner,
                    granted: Some(granted),
                    ..
                } => {
                    for grant in granted {
                        known.lock(&grant.name).grants.push((grant, owner, *is_answered));
                        if *is_answered {
                            known.highest = known.highest.max(grant.token);
                        }
                    }
                    if !is_answered {
                        known.open_sets.push(granted);
                    }
                }
                Act::Acquire {
                    owner,
                    names,
                    granted: None,
                } => {
                    for name in names {
                        known.lock(name).may_have.push(owner);
                    }
                }
                Act::Renew { name, token, end } => {
                    known
                        .lock(name)
                        .renewals
                        .push((*token, end.as_deref(), *is_answered));
                }
                Act::Look { owner, seen } if *is_answered => {
                    known.lock(&seen.name).grants.push((seen, owner, true));
                    known.highest = known.highest.max(seen.token);
                }
                Act::Look { .. } => {}
                Act::Release { name, token } => known.lock(name).releases.push((*token, *is_answered)),
            }
        }
        known
    }

    fn lock(&mut self, name: &'a str) -> &mut Told<'a> {
        self.names.entry(name).or_default()
    }

    pub(crate) fn compare(&self, found: &BTreeMap<String, Lock>) -> Result<(), String> {
        for (name, told) in &self.names {
            told.compare(found.get(*name))
                .map_err(|what| format!("{name}: {what}"))?;
        }
        if let Some(name) = found.keys().find(|name| !self.names.contains_key(name.as_str())) {
            return Err(format!("{name} is there, and nobody had asked for it"));
        }
        for set in &self.open_sets {
            let is_there = |grant: &&Grant| {
                found
                    .get(&grant.name)
                    .is_some_and(|lock| lock.fencing_token.get() == grant.token)
            };
            let there = set.iter().filter(is_there).count();
            if there != 0 && there != set.len() {
                return Err(format!("{there} of a set of {} are there: {set:?}", set.len()));
            }
        }
        Ok(())
    }
}

impl Told<'_> {
    fn compare(&self, found: Option<&Lock>) -> Result<(), String> {
        let last = self
            .grants
            .iter()
            .filter(|(_, _, is_answered)| *is_answered)
            .max_by_key(|(grant, _, _)| grant.token);
        let Some(lock) = found else {
            let is_released = |token| self.releases.iter().any(|(released, _)| *released == token);
            return match last {
                Some((grant, owner, _)) if !is_released(grant.token) => {
                    Err(format!("the grant of {owner} with token {} is lost", grant.token))
                }
                _ => Ok(()),
            };
        };
        let token = lock.fencing_token.get();
        if let Some((grant, _, _)) = last
            && token < grant.token
        {
            return Err(format!(
                "token {token} is back, and the grant with token {} is lost",
                grant.token
            ));
        }
        if self.releases.contains(&(token, true)) {
            return Err(format!("the release of token {token} is lost"));
        }
        let of_token = self.grants.iter().find(|(grant, _, _)| grant.token == token);
        let owner = lock.owner.as_str();
        match of_token {
            Some((grant, granted_to, _)) if *granted_to == owner => self.compare_end(grant, lock),
            None if self.may_have.contains(&owner) => Ok(()),
            _ => Err(format!("{owner} has token {token}, which nobody granted")),
        }
    }

    /// The end is that of the last answered grant or renewal, or of one that was under way.
    fn compare_end(&self, grant: &Grant, lock: &Lock) -> Result<(), String> {
        let renewals = || self.renewals.iter().filter(|(token, _, _)| *token == grant.token);
        let answered = renewals().rfind(|(_, _, is_answered)| *is_answered);
        let certain = answered.map_or(Some(grant.end.as_str()), |(_, end, _)| *end);
        let mut possible = renewals()
            .filter(|(_, _, is_answered)| !is_answered)
            .map(|(_, end, _)| *end);
        let end = lock.expires_at.to_string();
        let fits = |candidate: Option<&str>| candidate.is_none_or(|candidate| candidate == end);
        if fits(certain) || possible.any(fits) {
            return Ok(());
        }
        Err(format!(
            "a renewal of token {} is lost: it ends at {end}, and not at {certain:?}",
            grant.token
        ))
    }
}

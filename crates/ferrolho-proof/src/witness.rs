//! The outside witness: what the locks are there to guard.
//!
//! Whoever believes that it holds a lock goes in with its token, and leaves before it gives the lock back. Two inside
//! who both believe it, or a token that is not above all that were inside before, is a broken promise, whatever the
//! servers say. The witness knows nothing of stores and rules.

use std::collections::BTreeMap;
use std::fmt;

use ferrolho_core::{FencingToken, Resource};

use crate::Moment;

/// What was seen that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Two were inside at once, both certain to hold the lock.
    Exclusion {
        /// Where.
        resource: Resource,
        /// Who came in, with which token.
        comes: (String, FencingToken),
        /// Who was inside.
        inside: (String, FencingToken),
        /// Until when that one was certain.
        until: Moment,
    },
    /// A token came in after one that is as high or higher.
    Fence {
        /// Where.
        resource: Resource,
        /// Who came in, with which token.
        comes: (String, FencingToken),
        /// The highest that was inside before.
        highest: FencingToken,
    },
}

/// Watches what locks guard.
#[derive(Debug, Default)]
pub struct Witness {
    places: BTreeMap<Resource, Place>,
}

#[derive(Debug, Default)]
struct Place {
    inside: Option<Inside>,
    highest: Option<FencingToken>,
}

#[derive(Debug)]
struct Inside {
    client: String,
    token: FencingToken,
    until: Moment,
}

impl Witness {
    /// A client goes in, certain until this moment that it holds the lock. One who is inside already says until when
    /// it is certain now.
    pub fn enter(
        &mut self,
        now: Moment,
        resource: &Resource,
        client: &str,
        token: FencingToken,
        until: Moment,
    ) -> Result<(), Broken> {
        let place = self.places.entry(resource.clone()).or_default();
        if let Some(inside) = &mut place.inside
            && inside.token == token
            && inside.client == client
        {
            inside.until = until;
            return Ok(());
        }
        let comes = (client.to_owned(), token);
        if let Some(inside) = &place.inside
            && inside.until > now
        {
            return Err(Broken::Exclusion {
                resource: resource.clone(),
                comes,
                inside: (inside.client.clone(), inside.token),
                until: inside.until,
            });
        }
        if let Some(highest) = place.highest
            && token <= highest
        {
            return Err(Broken::Fence {
                resource: resource.clone(),
                comes,
                highest,
            });
        }
        place.highest = Some(token);
        place.inside = Some(Inside {
            client: client.to_owned(),
            token,
            until,
        });
        Ok(())
    }

    /// Whoever went in with this token leaves.
    pub fn leave(&mut self, resource: &Resource, token: FencingToken) {
        if let Some(place) = self.places.get_mut(resource) {
            place.inside.take_if(|inside| inside.token == token);
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusion {
                resource,
                comes: (client, token),
                inside: (other, others_token),
                until,
            } => write!(
                f,
                "{client} enters {resource} with token {token}, and {other} is inside with {others_token}, certain until \
                 {:.6}",
                until.as_secs_f64()
            ),
            Self::Fence {
                resource,
                comes: (client, token),
                highest,
            } => write!(f, "{client} enters {resource} with token {token} after {highest}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn enter(witness: &mut Witness, at: u64, client: &str, token: i128, until: u64) -> Result<(), Broken> {
        let resource = Resource::new("r").unwrap();
        let token = FencingToken::new(token).unwrap();
        let [at, until] = [at, until].map(Duration::from_secs);
        witness.enter(at, &resource, client, token, until)
    }

    #[test]
    fn one_after_the_other_is_well() {
        let mut witness = Witness::default();
        assert_eq!(enter(&mut witness, 0, "a", 1, 5), Ok(()));
        assert_eq!(enter(&mut witness, 4, "a", 1, 9), Ok(()), "it has renewed");
        assert_eq!(enter(&mut witness, 9, "b", 2, 12), Ok(()));
        witness.leave(&Resource::new("r").unwrap(), FencingToken::new(2).unwrap());
        assert_eq!(enter(&mut witness, 10, "c", 3, 12), Ok(()));
    }

    #[test]
    fn two_at_once_and_older_tokens_are_seen() {
        let mut witness = Witness::default();
        assert_eq!(enter(&mut witness, 0, "a", 2, 5), Ok(()));
        let both = enter(&mut witness, 4, "b", 3, 9);
        assert!(matches!(both, Err(Broken::Exclusion { .. })), "{both:?}");
        let older = enter(&mut witness, 6, "b", 1, 9);
        assert!(matches!(older, Err(Broken::Fence { .. })), "{older:?}");
        assert!(older.unwrap_err().to_string().contains("after 2"));
    }
}

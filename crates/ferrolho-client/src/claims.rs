//! Which names this client holds or is about to take.
//!
//! A client is one owner, and to the server an owner never stands in its own way. Two tasks of one program that
//! ask for the same name would both get it, the second by taking it from the first. So the client lets only one
//! of its own in at a time, in the order of asking, before it asks the server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ferrolho_core::Resource;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One door per name that is held or asked for. A name that nobody wants any more has no entry.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims(Arc<Mutex<HashMap<Resource, Door>>>);

#[derive(Debug)]
struct Door {
    turn: Arc<Semaphore>,
    /// How many hold the name or stand before its door.
    wanted_by: usize,
    /// Who is inside is only giving the lock back.
    is_leaving: bool,
}

/// The right to ask the server for a name, until it is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    /// Declared first, so that the next one is let in before the entry may go.
    _turn: Option<OwnedSemaphorePermit>,
    place: Place,
}

/// A place at a door.
#[derive(Debug)]
struct Place {
    claims: Claims,
    resource: Resource,
}

impl Claims {
    /// Waits for its turn at one door.
    pub(crate) async fn enter(&self, resource: &Resource) -> Claim {
        let (place, turn) = self.stand(resource);
        // Nobody closes a door.
        Claim::new(turn.acquire_owned().await.ok(), place)
    }

    /// Enters if nobody of this client is there, or as soon as the one who is has given the lock back, if that is
    /// all that it still does.
    pub(crate) async fn try_enter(&self, resource: &Resource) -> Option<Claim> {
        let (place, turn) = self.stand(resource);
        let turn = match Arc::clone(&turn).try_acquire_owned() {
            Ok(turn) => turn,
            Err(_) if place.with_door(|door| door.is_leaving) => turn.acquire_owned().await.ok()?,
            Err(_) => return None,
        };
        Some(Claim::new(Some(turn), place))
    }

    /// Whether anybody of this client holds the name or wants it.
    pub(crate) fn is_wanted(&self, resource: &Resource) -> bool {
        self.doors(|doors| doors.contains_key(resource))
    }

    fn stand(&self, resource: &Resource) -> (Place, Arc<Semaphore>) {
        let turn = self.doors(|doors| {
            let door = doors.entry(resource.clone()).or_insert_with(|| Door {
                turn: Arc::new(Semaphore::new(1)),
                wanted_by: 0,
                is_leaving: false,
            });
            door.wanted_by += 1;
            Arc::clone(&door.turn)
        });
        let place = Place {
            claims: self.clone(),
            resource: resource.clone(),
        };
        (place, turn)
    }

    fn doors<T>(&self, act: impl FnOnce(&mut HashMap<Resource, Door>) -> T) -> T {
        // Nothing panics while it holds the lock; the map is whole in any case.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Place {
    fn with_door<T: Default>(&self, act: impl FnOnce(&mut Door) -> T) -> T {
        self.claims
            .doors(|doors| doors.get_mut(&self.resource).map(act).unwrap_or_default())
    }
}

impl Claim {
    fn new(turn: Option<OwnedSemaphorePermit>, place: Place) -> Self {
        place.with_door(|door| door.is_leaving = false);
        Self { _turn: turn, place }
    }

    /// From here on the lock is only given back.
    pub(crate) fn leave(&self) {
        self.place.with_door(|door| door.is_leaving = true);
    }

    /// For which name.
    pub(crate) fn resource(&self) -> &Resource {
        &self.place.resource
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.claims.doors(|doors| {
            if let Some(door) = doors.get_mut(&self.resource) {
                door.wanted_by -= 1;
                if door.wanted_by == 0 {
                    doors.remove(&self.resource);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_at_a_time_and_nothing_is_left() {
        let claims = Claims::default();
        let name = Resource::new("r").unwrap();
        let first = claims.try_enter(&name).await.unwrap();
        assert!(claims.try_enter(&name).await.is_none());
        assert!(claims.try_enter(&Resource::new("s").unwrap()).await.is_some());

        let waiting = tokio::spawn({
            let (claims, name) = (claims.clone(), name.clone());
            async move { claims.enter(&name).await }
        });
        tokio::task::yield_now().await;
        drop(first);
        let second = waiting.await.unwrap();
        assert_eq!(second.resource(), &name);
        assert!(claims.is_wanted(&name));

        assert!(claims.try_enter(&name).await.is_none());
        second.leave();
        let (third, ()) = tokio::join!(claims.try_enter(&name), async { drop(second) });
        assert!(claims.try_enter(&name).await.is_none(), "the third stays");
        drop(third);
        assert!(!claims.is_wanted(&name));
    }
}

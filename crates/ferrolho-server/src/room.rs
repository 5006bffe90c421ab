//! Room for connections.
//!
//! A server has a seat for so many connections, and some spare ones besides. Whoever gets a spare seat is told with
//! its first answer that there is no room, and hung up on; whoever gets none is hung up on at once. So most callers
//! learn why they are refused, and what the others cost has a bound too.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many connections beyond the limit are told so.
const SPARE_CONNECTIONS: usize = 64;

/// All seats of a listener.
#[derive(Debug)]
pub(crate) struct Room {
    served: Arc<Semaphore>,
    spare: Arc<Semaphore>,
}

/// What a connection is given. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) enum Seat {
    Served(#[expect(dead_code, reason = "kept for its drop")] OwnedSemaphorePermit),
    Spare(#[expect(dead_code, reason = "kept for its drop")] OwnedSemaphorePermit),
    None,
}

impl Room {
    /// Room for so many connections.
    pub(crate) fn new(connections: usize) -> Self {
        Self {
            served: Arc::new(Semaphore::new(connections.min(Semaphore::MAX_PERMITS))),
            spare: Arc::new(Semaphore::new(SPARE_CONNECTIONS)),
        }
    }

    /// A seat for a connection, if there is one.
    pub(crate) fn take(&self) -> Seat {
        let free = |seats: &Arc<Semaphore>| Arc::clone(seats).try_acquire_owned().ok();
        free(&self.served)
            .map(Seat::Served)
            .or_else(|| free(&self.spare).map(Seat::Spare))
            .unwrap_or(Seat::None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_are_given_in_order_and_given_back() {
        let room = Room::new(2);
        let served = [room.take(), room.take()];
        assert!(served.iter().all(|seat| matches!(seat, Seat::Served(_))));
        let spare: Vec<Seat> = (0..SPARE_CONNECTIONS).map(|_| room.take()).collect();
        assert!(spare.iter().all(|seat| matches!(seat, Seat::Spare(_))));
        assert!(matches!(room.take(), Seat::None));
        drop(served);
        assert!(matches!(room.take(), Seat::Served(_)));
        drop(spare);
        drop(Room::new(usize::MAX));
    }
}

#![doc = include_str!("../README.md")]

mod acquire;
mod api;
mod attempt;
mod belief;
mod builder;
mod call;
mod claims;
mod client;
mod clock;
mod election;
mod engine;
mod error;
mod events;
mod guard;
mod heartbeat;
mod owner;
mod request;
mod scope;
mod set;
mod sse;
#[cfg(test)]
mod testing;
mod tls;
mod transport;

pub use api::ListQuery;
pub use builder::{ClientBuilder, DEFAULT_REQUEST_TIMEOUT, DEFAULT_URL};
pub use client::Client;
pub use clock::{BootClock, Clock, Moment};
pub use election::{Election, Leadership, Observer};
pub use error::{Error, Loss};
pub use events::{Events, Notice};
pub use ferrolho_core::wire::{LockList, Problem, Waiter};
pub use ferrolho_core::{
    Event, EventKind, FencingToken, Invalid, Lock, Metadata, Owner, Resource, Timestamp, Ttl,
};
pub use guard::{Guard, Lease};
pub use owner::default_owner;
pub use request::{LockRequest, Patience};
pub use scope::WorkError;
pub use set::{Hold, SetGuard};

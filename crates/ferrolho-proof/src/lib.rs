//! Judges what clients of a lock service were told.
//!
//! A [`Recorder`] writes down every call with its start and its end. [`Judge::check`] decides whether some order of the
//! calls explains all the answers under the rules of `ferrolho-core`, which are the sequential specification: they are
//! used here and not written again. A [`Witness`] judges mutual exclusion apart from that, by nothing but what clients
//! believe and the tokens that they show. Only tests depend on this crate: the simulation and the model beside it, and
//! tests of the real program.

mod check;
mod explain;
mod group;
mod history;
mod search;
mod state;
mod witness;

pub use check::{Judge, Verdict};
pub use explain::Refutation;
pub use history::{Answer, Ask, Call, Moment, Open, Recorder, at_micros};
pub use witness::{Broken, Witness};

//! The service over the memory engine, in paused time: what waits, who is next, what is left behind.

mod faults;
mod line;
mod sets;
mod support;

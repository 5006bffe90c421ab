//! The lock service and its HTTP face.

mod http;
mod pipeline;
mod server;
pub mod service;

pub use http::{Guard, Http, HttpOptions};
pub use server::{ConnectionLimits, serve};

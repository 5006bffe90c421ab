//! The lock service and its HTTP face.

pub mod audit;
pub mod auth;
mod connection;
mod http;
mod pipeline;
mod room;
mod server;
pub mod service;
mod tls;

pub use http::{Guard, Http, HttpOptions};
pub use server::{ConnectionLimits, serve};
pub use tls::{Tls, TlsFileError, TlsFiles};

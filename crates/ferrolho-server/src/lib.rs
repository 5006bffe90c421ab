//! The lock service and its HTTP face.

pub mod service;

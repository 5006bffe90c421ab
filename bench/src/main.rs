//! Draft.
fn main() {}

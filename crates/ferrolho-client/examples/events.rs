//! Shows the first ten things that happen to locks.
//!
//! `cargo run -p ferrolho-client --example events`, with a server at `FERROLHO_URL` or on the default address. Take
//! and release a few locks meanwhile, for example with the other examples.

use ferrolho_client::{Client, DEFAULT_URL, Error, Notice};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let url = std::env::var("FERROLHO_URL").unwrap_or_else(|_| DEFAULT_URL.to_owned());
    let client = Client::new(&url)?;
    let mut events = client.events("", None);
    let mut left = 10;
    while left > 0
        && let Some(notice) = events.next().await
    {
        match notice? {
            Notice::Reset => println!("from here on nothing is missed"),
            Notice::Event { event, .. } => {
                println!(
                    "{} {:?} {} by {}",
                    event.at, event.kind, event.resource, event.lock.owner
                );
                left -= 1;
            }
        }
    }
    Ok(())
}

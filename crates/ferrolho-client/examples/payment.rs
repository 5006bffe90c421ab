//! Pays under a lock, and lets the ledger refuse whoever comes too late.
//!
//! `cargo run -p ferrolho-client --example payment`, with a server at `FERROLHO_URL` or on the default address.

use std::time::Duration;

use ferrolho_client::{Client, DEFAULT_URL, FencingToken, WorkError};

/// Stands for the resource that the lock protects. It remembers the largest token that it has seen.
#[derive(Default)]
struct Ledger {
    largest: Option<FencingToken>,
    entries: Vec<String>,
}

impl Ledger {
    /// Takes an entry, unless a later holder has been here.
    fn write(&mut self, token: FencingToken, entry: &str) -> Result<(), String> {
        if self.largest > Some(token) {
            return Err(format!("token {token} is too old"));
        }
        self.largest = Some(token);
        self.entries.push(entry.to_owned());
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("FERROLHO_URL").unwrap_or_else(|_| DEFAULT_URL.to_owned());
    let client = Client::new(&url)?;
    let mut ledger = Ledger::default();
    let request = client
        .lock("payment:42")?
        .ttl(Duration::from_secs(5))?
        .wait(Duration::from_secs(30));
    let result = request
        .with_lock(async |guard| {
            println!(
                "{} has {} with token {}",
                client.owner(),
                guard.resource(),
                guard.fencing_token()
            );
            // The work. When the lock is lost it is stopped here.
            tokio::time::sleep(Duration::from_secs(1)).await;
            // Right before the step that matters: held for certain now?
            let token = guard.token_if_held().map_err(|loss| loss.to_string())?;
            ledger.write(token, "paid 42")
        })
        .await;
    match result {
        Ok(()) => println!("done: {:?}", ledger.entries),
        Err(WorkError::Work(why)) => println!("refused: {why}"),
        Err(error) => println!("not done: {error}"),
    }
    Ok(())
}

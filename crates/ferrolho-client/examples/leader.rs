//! Two candidates for one office, and somebody who looks on.
//!
//! `cargo run -p ferrolho-client --example leader`, with a server at `FERROLHO_URL` or on the default address.

use std::time::Duration;

use ferrolho_client::{Client, DEFAULT_URL, Error, Loss};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let url = std::env::var("FERROLHO_URL").unwrap_or_else(|_| DEFAULT_URL.to_owned());
    let onlooker = Client::new(&url)?;
    let mut terms = onlooker.election("scheduler")?.observe();
    tokio::spawn(async move {
        while let Some(Ok(leader)) = terms.next().await {
            match leader {
                Some(lock) => println!("leader: {} (term {})", lock.owner, lock.fencing_token),
                None => println!("no leader"),
            }
        }
    });
    let (one, two) = tokio::join!(serve(&url), serve(&url));
    one.and(two)
}

/// A candidate: leads for a second when elected, then makes way.
async fn serve(url: &str) -> Result<(), Error> {
    let client = Client::new(url)?;
    let election = client.election("scheduler")?.ttl(Duration::from_secs(5))?;
    let leadership = election.campaign().await?;
    let ended: Option<Loss> = tokio::select! {
        loss = leadership.lost() => Some(loss),
        () = tokio::time::sleep(Duration::from_secs(1)) => None,
    };
    match ended {
        Some(loss) => println!("{}: {loss}", client.owner()),
        None => leadership.resign().await?,
    }
    Ok(())
}

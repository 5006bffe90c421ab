//! Two clients who pass one lock to and fro, each through a server of its own.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Endpoint;
use super::client::{Client, Identity};
use super::crowd::PATIENCE;
use super::script::{Names, OPEN, RELEASE, Step, TAKE, WAIT};
use super::tally::Tally;

/// Passes the lock of this run on so often, and times each from the release to the answer of who waited at the other
/// endpoint. `stands_in_line` returns once somebody waits there.
pub(crate) fn relay(
    endpoints: [&Endpoint<'_>; 2],
    run: u32,
    times: u32,
    stands_in_line: impl Fn(&Endpoint<'_>) -> Result<()>,
) -> Result<Tally> {
    let connect = |number: u32, endpoint: &Endpoint<'_>| {
        let identity = Identity {
            run,
            client: number,
            names: Names::Shared,
        };
        let mut client = Client::connect(endpoint.address, (endpoint.dialect)(), identity)?;
        client.send(OPEN)?;
        hear(&mut client, OPEN)?;
        anyhow::Ok(client)
    };
    let [first, second] = endpoints;
    let (mut holder, mut next) = ((connect(0, first)?, first), (connect(1, second)?, second));
    holder.0.send(TAKE)?;
    hear(&mut holder.0, TAKE)?;
    let mut tally = Tally::new();
    for _ in 0..times {
        next.0.send(WAIT)?;
        stands_in_line(next.1)?;
        let released = Instant::now();
        holder.0.send(RELEASE)?;
        hear(&mut next.0, WAIT)?;
        tally.record(released.elapsed());
        hear(&mut holder.0, RELEASE)?;
        std::mem::swap(&mut holder, &mut next);
    }
    holder.0.send(RELEASE)?;
    hear(&mut holder.0, RELEASE)?;
    Ok(tally)
}

/// Waits for the answer to this step.
fn hear(client: &mut Client, step: Step) -> Result<()> {
    let patience = Timespec::try_from(PATIENCE)?;
    loop {
        if let Some(answer) = client.receive()? {
            let said = client.complaint.take().unwrap_or_default();
            ensure!(
                answer == step.expect,
                "{:?} was answered {answer:?} {said:?}",
                step.ask
            );
            return Ok(());
        }
        let mut readable = [PollFd::new(client.stream(), PollFlags::IN)];
        let count = poll(&mut readable, Some(&patience)).context("cannot wait for an answer")?;
        ensure!(count > 0, "no answer to {:?} within {PATIENCE:?}", step.ask);
    }
}

//! Breaks everything around a running ferrolho and watches whether its promises hold.
//!
//! Clients use the real binary, over cables that can fail, while a storm kills, stops and starves the servers and
//! their engine in an order that a seed decides. Judged is what a user can see: an outside witness that only one
//! is inside at a time and that tokens rise, acknowledged grants and releases that must still be so later, answers
//! that come in time, and that everything heals and nothing is left.

mod client;
mod court;
mod engine;
mod fault;
mod http;
mod pulse;
mod report;
mod run;
mod server;
mod storm;
mod weather;
mod witness;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Parser;
use ferrolho_testkit::Proxy;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use engine::{Engine, EngineName};
use http::{Answer, Caller, Request};
use pulse::Pulse;
use run::{Route, Run};
use server::Server;
use storm::{HEAL_LIMIT, Storm};

/// How many cables lead to each server.
const CABLES: usize = 4;

/// How long clients may take to come to an end.
const CLIENTS_END: Duration = Duration::from_secs(90);

/// How soon after the last client nothing must be left: the longest lifetime of a lock that was left to expire, the
/// place of a waiter that is kept, and some.
const NOTHING_LEFT: Duration = Duration::from_secs(30);

/// How many descriptors a server may have open when nobody calls any more.
const DESCRIPTORS_MAX: usize = 64;

/// Breaks everything around ferrolho and watches whether its promises hold.
#[derive(Debug, Parser)]
struct Args {
    /// The program under test.
    #[arg(long)]
    program: PathBuf,
    /// On which engine.
    #[arg(long, value_enum, default_value = "sqlite")]
    engine: EngineName,
    /// For how many minutes.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// How many clients.
    #[arg(long, default_value_t = 64)]
    clients: usize,
    /// Decides the order of the faults and what the clients do.
    #[arg(long)]
    seed: Option<u64>,
    /// Keep the history and the logs even when all is well.
    #[arg(long)]
    keep: bool,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(chaos(&args))
}

async fn chaos(args: &Args) -> Result<ExitCode> {
    let seed = args.seed.unwrap_or_else(rand::random);
    println!("chaos on {:?} for {} min, seed {seed}", args.engine, args.minutes);
    let folder = tempfile::Builder::new().prefix("ferrolho-chaos-").tempdir()?;
    let pulse = Pulse::start(folder.path())?;
    let Some(engine) = Engine::start(args.engine, folder.path()).await? else {
        return Ok(ExitCode::SUCCESS);
    };
    let (servers, cables) = start_servers(args, &engine, &pulse, folder.path()).await?;
    let run = Arc::new(Run::new(folder.path(), pulse, routes(&cables), seed));
    let mut storm = Storm::new(engine, servers, cables, StdRng::seed_from_u64(seed));
    let begun = Instant::now();
    let clients = client::start(&run, args.clients);
    storm
        .rage(&run, begun + Duration::from_secs_f64(args.minutes * 60.0))
        .await?;
    let took = begun.elapsed();
    run.end();
    let all = async {
        for client in clients {
            if let Err(error) = client.await {
                run.court.accuse(&format!("CLIENT ended badly: {error}"));
            }
        }
    };
    if tokio::time::timeout(CLIENTS_END, all).await.is_err() {
        run.court.accuse(&format!(
            "HANGS: some client has not come back within {CLIENTS_END:?}"
        ));
    }
    until_nothing_is_left(&run, &storm.servers).await;
    look_into_logs(&run, &storm.servers);
    run.court.time(
        "time that the machine stood still, in all",
        run.pulse.stalled_since(begun),
    );
    report::print(args.engine, took, seed, &run.court, &storm.servers);
    let is_well = run.court.violations().is_empty();
    if is_well && !args.keep {
        return Ok(ExitCode::SUCCESS);
    }
    run.court.keep()?;
    for (number, server) in storm.servers.iter().enumerate() {
        fs::write(folder.path().join(format!("log-{number}")), server.log())?;
    }
    drop(storm);
    println!(
        "violations, history and logs: {} (replay with --seed {seed})",
        folder.keep().display()
    );
    Ok(if is_well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn start_servers(
    args: &Args,
    engine: &Engine,
    pulse: &Pulse,
    folder: &std::path::Path,
) -> Result<(Vec<Server>, Vec<Vec<Proxy>>)> {
    let mut servers = Vec::new();
    let mut cables = Vec::new();
    for number in 0..args.engine.servers() {
        let mut server = Server::new(&args.program, engine.store(number), folder, number)?;
        server
            .start(pulse, HEAL_LIMIT)
            .await
            .with_context(|| server.log())?;
        let mut of_server = Vec::new();
        for _ in 0..CABLES {
            of_server.push(Proxy::start(server.address).await);
        }
        servers.push(server);
        cables.push(of_server);
    }
    Ok((servers, cables))
}

fn routes(cables: &[Vec<Proxy>]) -> Vec<Route> {
    let of_server = |(server, cables): (usize, &Vec<Proxy>)| {
        let addresses: Vec<_> = cables.iter().map(Proxy::address).collect();
        addresses
            .into_iter()
            .map(move |address| Route { server, address })
    };
    cables.iter().enumerate().flat_map(of_server).collect()
}

/// Waits until no server knows of a lock or a waiter any more, and looks at what they keep open.
async fn until_nothing_is_left(run: &Run, servers: &[Server]) {
    let begun = Instant::now();
    for (number, server) in servers.iter().enumerate() {
        let mut caller = Caller::new(server.address);
        let waiters = client::hot_locks().map(|name| (format!("/locks/{name}/waiters"), "waiters"));
        let locks = ("/locks?limit=1000".to_owned(), "locks");
        for (path, what) in std::iter::once(locks).chain(waiters) {
            loop {
                let answer = caller
                    .call(&Request::get(path.clone()), Duration::from_secs(5))
                    .await;
                let is_empty = |answer: &Answer| answer.body[what].as_array().is_some_and(Vec::is_empty);
                if answer.as_ref().is_ok_and(is_empty) {
                    break;
                }
                if run.pulse.awake_since(begun) > NOTHING_LEFT {
                    let body = answer.map(|answer| answer.body.to_string());
                    run.court.accuse(&format!(
                        "LEFT on server {number} after {NOTHING_LEFT:?}: {body:?}"
                    ));
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        if let Some((_, descriptors)) = server.usage()
            && descriptors > DESCRIPTORS_MAX
        {
            run.court.accuse(&format!(
                "LEFT on server {number}: {descriptors} open descriptors"
            ));
        }
    }
    run.court.time("until nothing is left", begun.elapsed());
}

/// A panic is a fault, whatever came of it.
fn look_into_logs(run: &Run, servers: &[Server]) {
    for (number, server) in servers.iter().enumerate() {
        for line in server.log().lines().filter(|line| line.contains("panicked at")) {
            run.court.accuse(&format!("PANIC of server {number}: {line}"));
        }
    }
}

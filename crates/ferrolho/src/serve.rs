//! `ferrolho serve`: the server, from its settings to its last answer.

use std::future::pending;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ferrolho_server::audit::Audit;
use ferrolho_server::auth::Authenticator;
use ferrolho_server::service::Service;
use ferrolho_server::{Http, HttpOptions, Tls};
use ferrolho_store::open;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::info;
use tracing_subscriber::EnvFilter;

pub(crate) use crate::config::ServeArgs;
use crate::config::{Config, LogFormat};
use crate::supervisor::Supervisor;

/// For how long after the signal to stop new connections are still taken, so that holders can release.
const DRAIN: Duration = Duration::from_secs(1);

/// How many connections may be waiting to be taken, as far as the system allows so many.
const BACKLOG_CONNECTIONS: i32 = 4096;

/// How often a worker looks first into the queue of what other threads have woken, the engine's answers among it: every
/// other time. More rarely, they would wait behind all new requests. Every time, that queue might never be empty, and
/// what the worker has at hand would be passed over for good.
const EVERY_OTHER: u32 = 2;

/// Runs the server until it is told to stop.
pub(crate) fn serve(args: &ServeArgs) -> ExitCode {
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ferrolho: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &ServeArgs) -> Result<()> {
    let config = Config::read(args)?;
    start_log(&config)?;
    raise_file_limit(config.connections.connections);
    let runtime = runtime(config.worker_threads).context("cannot start the runtime")?;
    runtime.block_on(serve_until_stopped(&config))
}

/// One worker is this thread itself, whose queue has room for everybody, in order. Several have room for 256 each and
/// share the rest.
fn runtime(workers: usize) -> io::Result<Runtime> {
    let mut builder = match workers {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    builder
        .worker_threads(workers)
        .global_queue_interval(EVERY_OTHER)
        .enable_all()
        .build()
}

async fn serve_until_stopped(config: &Config) -> Result<()> {
    let listener = listen(config.listen)?;
    let metrics_listener = config.metrics_listen.map(listen).transpose()?;
    let address = listener.local_addr()?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let auth = Arc::new(match &config.tokens {
        None => Authenticator::Off,
        Some(file) => Authenticator::from_file(file.clone())?,
    });
    let tls = match &config.tls {
        None => None,
        Some(files) => Some(Tls::from_files(files.clone())?),
    };
    let audit = match &config.audit_log {
        None => Audit::default(),
        Some(destination) => Audit::start(destination.clone())?,
    };
    let store = open(&config.store)
        .await
        .with_context(|| format!("cannot open {}", config.store))?;
    let service = Service::start(Arc::clone(&store), config.limits, audit.clone());
    let options = HttpOptions {
        max_ttl: config.max_ttl,
        body_timeout: config.body_timeout,
        guard: config.guard.clone(),
        auth: Arc::clone(&auth),
    };
    tokio::spawn(reload_on_hangup(
        signal(SignalKind::hangup())?,
        auth,
        tls.clone(),
        audit.clone(),
    ));
    let mut http = Http::new(Arc::clone(&service), options);
    let mut metrics = None;
    if let Some(listener) = metrics_listener {
        let address = listener.local_addr()?;
        info!("metrics are on http://{address}/metrics");
        let (others, only_metrics) = http.split_metrics(address.ip().is_loopback());
        http = others;
        metrics = Some((listener, only_metrics));
    }
    let stopping = Arc::clone(&service);
    let supervisor = Supervisor::from_env();
    let told = supervisor.clone();
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {},
            _ = interrupt.recv() => {},
        }
        info!("stopping: no new locks are taken, renewals and releases go on");
        told.stopping();
        stopping.shut_down();
        tokio::time::sleep(DRAIN).await;
    };
    let scheme = if tls.is_some() { "https" } else { "http" };
    let ready = format!("listening on {scheme}://{address} (store {})", config.store);
    announce(&format!("ferrolho {} {ready}", env!("CARGO_PKG_VERSION")));
    supervisor.ready(&ready);
    let serving = ferrolho_server::serve(listener, tls, http, config.connections, stop);
    // Metrics go on until the process ends, so that its stop can be watched too.
    let served = match metrics {
        None => serving.await,
        Some((listener, http)) => tokio::select! {
            served = serving => served,
            failed = ferrolho_server::serve(listener, None, http, config.connections, pending()) => failed,
        },
    };
    served.context("cannot serve")?;
    store.close().await;
    tokio::task::spawn_blocking(move || audit.close()).await?;
    info!("stopped");
    Ok(())
}

/// Reads what may change while the server runs again, whenever it is told to (SIGHUP). What cannot be read leaves
/// everything as it was.
async fn reload_on_hangup(mut hangup: Signal, auth: Arc<Authenticator>, tls: Option<Tls>, audit: Audit) {
    while hangup.recv().await.is_some() {
        audit.reopen();
        match auth.reload() {
            Ok(None) => {}
            Ok(Some(tokens)) => info!(tokens, "the tokens were read again"),
            Err(error) => tracing::error!(%error, "the tokens stay as they were"),
        }
        match tls.as_ref().map(Tls::reload) {
            None => {}
            Some(Ok(())) => info!("the certificate was read again"),
            Some(Err(error)) => tracing::error!(%error, "the certificate stays as it was"),
        }
    }
}

/// A socket that listens on this address.
fn listen(address: SocketAddr) -> Result<TcpListener> {
    let listener = TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    // The library listens with room for 128; who finds none tries again only after a second.
    rustix::net::listen(&listener, BACKLOG_CONNECTIONS)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Prints the ready line. Whoever closed our output does not want to read it.
fn announce(line: &str) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

fn start_log(config: &Config) -> Result<()> {
    let filter = EnvFilter::try_new(&config.log_level)
        .map_err(|error| anyhow::anyhow!("log_level {:?} is not understood: {error}", config.log_level))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match config.log_format {
        LogFormat::Text => log.with_ansi(rustix::termios::isatty(std::io::stderr())).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
    Ok(())
}

/// Takes as many open files as the system gives: every waiting caller needs one.
fn raise_file_limit(connections: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit on open files stays as it is");
    }
    let open_files = limit.maximum.and_then(|maximum| usize::try_from(maximum).ok());
    if let Some(open_files) = open_files.filter(|files| *files < connections) {
        tracing::warn!(
            open_files,
            connections,
            "the system allows fewer open files than max_connections needs; raise LimitNOFILE, or lower it"
        );
    }
}

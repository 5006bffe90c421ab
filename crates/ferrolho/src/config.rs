//! The server's settings: flags win, then the environment, then the file.
//!
//! Every setting has one name: `--max-ttl-seconds`, `FERROLHO_MAX_TTL_SECONDS` and `max_ttl_seconds` in the file
//! are the same. All three give text, which is checked once, in [`Config::read`]. A variable or flag that is empty
//! counts as not given.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use ferrolho_core::Ttl;
use ferrolho_server::audit::Destination;
use ferrolho_server::service::Limits;
use ferrolho_server::{ConnectionLimits, Guard, TlsFiles};
use ferrolho_store::StoreUrl;

/// Arguments of `ferrolho serve`. Each can also be given in the environment, or in the file of --config.
#[derive(clap::Args)]
pub(crate) struct ServeArgs {
    /// Read settings from this TOML file; its keys are the long flags with _ for -
    #[arg(long, value_name = "FILE", env = "FERROLHO_CONFIG")]
    config: Option<String>,
    /// Address and port to listen on; port 0 takes a free one [default: 127.0.0.1:7400]
    #[arg(long, value_name = "ADDRESS", env = "FERROLHO_LISTEN")]
    listen: Option<String>,
    /// Where the locks live: sqlite:PATH, memory:, postgres://…, etcd://… [default: sqlite:ferrolho.db]
    #[arg(long, value_name = "URL", env = "FERROLHO_STORE", hide_env_values = true)]
    store: Option<String>,
    /// The direct connection over which a PostgreSQL store hears of changes, when --store leads through a pooler:
    /// postgres://… [default: as --store]
    #[arg(
        long,
        value_name = "URL",
        env = "FERROLHO_STORE_LISTEN",
        hide_env_values = true
    )]
    store_listen: Option<String>,
    /// Whether etcd's history is compacted to the last 10 minutes: on, or off for a cluster that others use too
    /// [default: on]
    #[arg(long, value_name = "on|off", env = "FERROLHO_ETCD_COMPACT")]
    etcd_compact: Option<String>,
    /// Serve only callers with a token whose hash is in this file; `ferrolho token new` makes tokens
    #[arg(long, value_name = "FILE", env = "FERROLHO_TOKENS")]
    tokens: Option<String>,
    /// Serve HTTPS with the certificate in this PEM file, and those that lead to its authority
    #[arg(long, value_name = "FILE", env = "FERROLHO_TLS_CERT")]
    tls_cert: Option<String>,
    /// The private key of --tls-cert, PEM
    #[arg(long, value_name = "FILE", env = "FERROLHO_TLS_KEY")]
    tls_key: Option<String>,
    /// Let callers show certificates of the authorities in this PEM file in the place of tokens; their subjects stand in
    /// the file of --tokens
    #[arg(long, value_name = "FILE", env = "FERROLHO_TLS_CLIENT_CA")]
    tls_client_ca: Option<String>,
    /// Listen on other addresses than loopback though anybody may take any lock
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          env = "FERROLHO_ALLOW_ANONYMOUS")]
    allow_anonymous: Option<String>,
    /// Another name that callers may have in Host, with commas between several
    #[arg(long, value_name = "NAMES", env = "FERROLHO_ALLOWED_HOST")]
    allowed_host: Option<String>,
    /// Show /metrics on this address and nowhere else [default: at /metrics of --listen]
    #[arg(long, value_name = "ADDRESS", env = "FERROLHO_METRICS_LISTEN")]
    metrics_listen: Option<String>,
    /// The longest lifetime of a lock, in seconds, up to ten years [default: 86400]
    #[arg(long, value_name = "SECONDS", env = "FERROLHO_MAX_TTL_SECONDS")]
    max_ttl_seconds: Option<String>,
    /// The most requests that may wait at a time [default: 10000]
    #[arg(long, value_name = "REQUESTS", env = "FERROLHO_MAX_WAITERS")]
    max_waiters: Option<String>,
    /// The most requests that may wait at a time for one resource [default: 1000]
    #[arg(long, value_name = "REQUESTS", env = "FERROLHO_MAX_WAITERS_PER_RESOURCE")]
    max_waiters_per_resource: Option<String>,
    /// The most locks that one principal may hold or ask for at a time, on all servers of the store, where callers show
    /// tokens [default: 100000]
    #[arg(long, value_name = "LOCKS", env = "FERROLHO_MAX_LOCKS_PER_PRINCIPAL")]
    max_locks_per_principal: Option<String>,
    /// How many of the last events are kept for readers that come back [default: 10000]
    #[arg(long, value_name = "EVENTS", env = "FERROLHO_EVENT_BUFFER")]
    event_buffer: Option<String>,
    /// How many may read events at a time [default: 1000]
    #[arg(long, value_name = "READERS", env = "FERROLHO_MAX_EVENT_READERS")]
    max_event_readers: Option<String>,
    /// The most connections that are served at a time, to each address that is listened on [default: 20000]
    #[arg(long, value_name = "CONNECTIONS", env = "FERROLHO_MAX_CONNECTIONS")]
    max_connections: Option<String>,
    /// How long the head of a request may take to arrive, and a connection be idle, in seconds [default: 30]
    #[arg(long, value_name = "SECONDS", env = "FERROLHO_HEAD_TIMEOUT_SECONDS")]
    head_timeout_seconds: Option<String>,
    /// How long the body of a request may take to arrive, in seconds [default: 10]
    #[arg(long, value_name = "SECONDS", env = "FERROLHO_BODY_TIMEOUT_SECONDS")]
    body_timeout_seconds: Option<String>,
    /// How many threads serve requests [default: the cores but one, at least 1]
    #[arg(long, value_name = "THREADS", env = "FERROLHO_WORKER_THREADS")]
    worker_threads: Option<String>,
    /// Note who acquired, released, lost and was refused what in this file, a JSON line for each; - is standard output
    #[arg(long, value_name = "FILE", env = "FERROLHO_AUDIT_LOG")]
    audit_log: Option<String>,
    /// How the log on standard error looks: text or json [default: text]
    #[arg(long, value_name = "FORMAT", env = "FERROLHO_LOG_FORMAT")]
    log_format: Option<String>,
    /// What is logged: error, warn, info, debug (every request) or trace [default: info]
    #[arg(long, value_name = "LEVEL", env = "FERROLHO_LOG_LEVEL")]
    log_level: Option<String>,
}

/// How the log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// The settings, checked.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) store: StoreUrl,
    /// The file of those who may call, if not everybody may.
    pub(crate) tokens: Option<PathBuf>,
    /// The files for HTTPS.
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) guard: Guard,
    /// Where the metrics are, if not with everything else.
    pub(crate) metrics_listen: Option<SocketAddr>,
    pub(crate) max_ttl: Ttl,
    pub(crate) limits: Limits,
    pub(crate) connections: ConnectionLimits,
    pub(crate) body_timeout: Duration,
    pub(crate) worker_threads: usize,
    /// Where the audit trail goes, if one is kept.
    pub(crate) audit_log: Option<Destination>,
    pub(crate) log_format: LogFormat,
    pub(crate) log_level: String,
}

/// The settings as texts, under their names.
struct Settings(BTreeMap<&'static str, String>);

impl Config {
    /// Reads the settings from where they are given, and checks them.
    pub(crate) fn read(args: &ServeArgs) -> Result<Self> {
        let settings = Settings::gather(args)?;
        let listen: SocketAddr = settings.parse("listen", "127.0.0.1:7400")?;
        let allow_anonymous: bool = settings.parse("allow_anonymous", "false")?;
        let metrics_listen = settings.optional::<SocketAddr>("metrics_listen")?;
        let tokens = settings.optional::<PathBuf>("tokens")?;
        let tls = settings.tls()?;
        if tokens.is_none()
            && tls
                .as_ref()
                .is_some_and(|files| files.client_authorities.is_some())
        {
            bail!("tls_client_ca needs tokens: the file that says which subjects may do what");
        }
        if tokens.is_some() && allow_anonymous {
            bail!("tokens and allow_anonymous exclude each other: with tokens, every caller needs one");
        }
        let is_exposed =
            |address: &SocketAddr| !address.ip().is_loopback() && !allow_anonymous && tokens.is_none();
        if is_exposed(&listen) {
            bail!(
                "listen {listen} is reachable from elsewhere, where anybody could take and release any lock; \
                 listen on 127.0.0.1 or [::1], let callers show tokens with --tokens, or say --allow-anonymous"
            );
        }
        if let Some(address) = metrics_listen.filter(is_exposed) {
            bail!(
                "metrics_listen {address} is reachable from elsewhere; listen on 127.0.0.1 or [::1], let callers \
                 show tokens with --tokens, or say --allow-anonymous"
            );
        }
        let max_ttl: u32 = settings.parse("max_ttl_seconds", "86400")?;
        let locks_per_principal = settings.count("max_locks_per_principal", "100000")?;
        let names = settings.text("allowed_host", "");
        let mut store: StoreUrl = settings.parse("store", "sqlite:ferrolho.db")?;
        if let Some(direct) = settings.optional::<StoreUrl>("store_listen")? {
            store.listen_over(&direct)?;
        }
        match settings.text("etcd_compact", "on").as_str() {
            "on" => {}
            "off" => store.leave_etcd_history(),
            _ => bail!("etcd_compact is on or off"),
        }
        Ok(Self {
            listen,
            store,
            tls,
            guard: Guard {
                allowed_hosts: names
                    .split(',')
                    .map(str::trim)
                    .filter(|n| !n.is_empty())
                    .map(str::to_owned)
                    .collect(),
            },
            metrics_listen,
            max_ttl: Ttl::new(max_ttl.into(), Ttl::MAX)
                .map_err(|_| anyhow!("max_ttl_seconds must be from 1 to {}", Ttl::MAX))?,
            limits: Limits {
                waiters: settings.count("max_waiters", "10000")?,
                waiters_per_resource: settings.count("max_waiters_per_resource", "1000")?,
                events: settings.count("event_buffer", "10000")?,
                event_readers: settings.count("max_event_readers", "1000")?,
                locks_per_principal: tokens.is_some().then_some(locks_per_principal),
            },
            connections: ConnectionLimits {
                head_timeout: settings.seconds("head_timeout_seconds", "30")?,
                connections: settings.count("max_connections", "20000")?,
            },
            tokens,
            body_timeout: settings.seconds("body_timeout_seconds", "10")?,
            worker_threads: settings.count("worker_threads", &default_workers().to_string())?,
            audit_log: settings.optional::<PathBuf>("audit_log")?.map(destination),
            log_format: settings.parse("log_format", "text")?,
            log_level: settings.text("log_level", "info"),
        })
    }
}

fn destination(path: PathBuf) -> Destination {
    if path.as_os_str() == "-" {
        Destination::StandardOutput
    } else {
        Destination::File(path)
    }
}

/// The writer of the SQLite engine has a core to itself where there are two.
fn default_workers() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    cores.saturating_sub(1).max(1)
}

impl Settings {
    fn gather(args: &ServeArgs) -> Result<Self> {
        let given = [
            ("listen", &args.listen),
            ("store", &args.store),
            ("store_listen", &args.store_listen),
            ("etcd_compact", &args.etcd_compact),
            ("tokens", &args.tokens),
            ("tls_cert", &args.tls_cert),
            ("tls_key", &args.tls_key),
            ("tls_client_ca", &args.tls_client_ca),
            ("allow_anonymous", &args.allow_anonymous),
            ("allowed_host", &args.allowed_host),
            ("metrics_listen", &args.metrics_listen),
            ("max_ttl_seconds", &args.max_ttl_seconds),
            ("max_waiters", &args.max_waiters),
            ("max_waiters_per_resource", &args.max_waiters_per_resource),
            ("max_locks_per_principal", &args.max_locks_per_principal),
            ("event_buffer", &args.event_buffer),
            ("max_event_readers", &args.max_event_readers),
            ("max_connections", &args.max_connections),
            ("head_timeout_seconds", &args.head_timeout_seconds),
            ("body_timeout_seconds", &args.body_timeout_seconds),
            ("worker_threads", &args.worker_threads),
            ("audit_log", &args.audit_log),
            ("log_format", &args.log_format),
            ("log_level", &args.log_level),
        ];
        let file = args.config.as_deref().filter(|path| !path.is_empty());
        let mut in_file = file
            .map(|path| read_file(Path::new(path)))
            .transpose()?
            .unwrap_or_default();
        let mut settings = BTreeMap::new();
        for (name, value) in given {
            let value = value.clone().filter(|value| !value.is_empty());
            if let Some(value) = value.or(in_file.remove(name)) {
                settings.insert(name, value);
            }
        }
        if let Some((unknown, _)) = in_file.pop_first() {
            let names: Vec<&str> = given.iter().map(|(name, _)| *name).collect();
            bail!(
                "{}: there is no setting {unknown}; known are {}",
                file.unwrap_or_default(),
                names.join(", ")
            );
        }
        Ok(Self(settings))
    }

    fn text(&self, name: &str, default: &str) -> String {
        self.0.get(name).map_or(default, String::as_str).to_owned()
    }

    fn parse<T>(&self, name: &str, default: &str) -> Result<T>
    where
        T: FromStr,
        T::Err: std::fmt::Display,
    {
        // The value is not shown: it may hold a password.
        self.text(name, default)
            .parse()
            .map_err(|error| anyhow!("{name} is not valid: {error}"))
    }

    /// A setting that may be absent.
    fn optional<T>(&self, name: &str) -> Result<Option<T>>
    where
        T: FromStr,
        T::Err: std::fmt::Display,
    {
        self.0
            .contains_key(name)
            .then(|| self.parse(name, ""))
            .transpose()
    }

    fn tls(&self) -> Result<Option<TlsFiles>> {
        let client_authorities = self.optional("tls_client_ca")?;
        match (self.optional("tls_cert")?, self.optional("tls_key")?) {
            (Some(certificate), Some(key)) => Ok(Some(TlsFiles {
                certificate,
                key,
                client_authorities,
            })),
            (None, None) if client_authorities.is_none() => Ok(None),
            _ => bail!("HTTPS needs both tls_cert and tls_key, and so does tls_client_ca"),
        }
    }

    fn count(&self, name: &str, default: &str) -> Result<usize> {
        match self.parse(name, default)? {
            0 => bail!("{name} must be at least 1"),
            count => Ok(count),
        }
    }

    fn seconds(&self, name: &str, default: &str) -> Result<Duration> {
        Ok(Duration::from_secs(self.count(name, default)?.try_into()?))
    }
}

/// The settings in a file, as texts.
fn read_file(path: &Path) -> Result<BTreeMap<String, String>> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    let table: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| anyhow!("{shown} is not TOML: {}", error.message()))?;
    let as_text = |(name, value): (String, toml::Value)| {
        let text = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Boolean(flag) => flag.to_string(),
            toml::Value::Array(items) if items.iter().all(toml::Value::is_str) => items
                .iter()
                .filter_map(toml::Value::as_str)
                .collect::<Vec<_>>()
                .join(","),
            _ => bail!("{shown}: {name} must be a text, a whole number, true, false or a list of texts"),
        };
        Ok((name, text))
    };
    table.into_iter().map(as_text).collect()
}

impl FromStr for LogFormat {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("it is text or json"),
        }
    }
}

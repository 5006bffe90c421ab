//! Which server, and as whom: the options that all commands but `serve` share.

use std::ffi::OsString;
use std::fs;
use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use ferrolho_client::{Client, DEFAULT_URL, Error, Owner};

use crate::{exit, span, warnings};

/// Which server, and how to reach it.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerArgs {
    /// The server; several on one store with commas between them
    #[arg(long, value_name = "URL", env = "FERROLHO_URL", default_value = DEFAULT_URL)]
    url: String,

    /// The bearer token (the variable keeps it out of process lists)
    #[arg(long, env = "FERROLHO_TOKEN", hide_env_values = true)]
    token: Option<String>,

    /// Trust the certificates in this PEM file, and no others
    #[arg(long, value_name = "FILE", env = "FERROLHO_CA_FILE")]
    ca_file: Option<OsString>,

    /// A PEM file with this caller's own certificate and key, for servers that ask for one
    #[arg(long, value_name = "FILE", env = "FERROLHO_IDENTITY_FILE")]
    identity_file: Option<OsString>,

    /// The longest that one request may take, apart from time spent waiting
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = span::parse)]
    request_timeout: Duration,
}

impl ServerArgs {
    /// Where the commands that this program starts find the same servers.
    pub(crate) fn url(&self) -> &str {
        if self.url.trim().is_empty() {
            DEFAULT_URL
        } else {
            &self.url
        }
    }

    /// A client of this server, for this owner or for one of its own.
    pub(crate) fn client(&self, owner: Option<Owner>) -> Result<Client, Error> {
        let mut builder = Client::builder()
            .url(self.url())?
            .request_timeout(self.request_timeout);
        // A variable that is set to nothing counts as not set.
        if let Some(token) = self.token.as_deref().filter(|token| !token.is_empty()) {
            builder = builder.token(token)?;
        }
        if let Some(pem) = read(self.ca_file.as_ref())? {
            builder = builder.root_certificates(&pem);
        }
        if let Some(pem) = read(self.identity_file.as_ref())? {
            builder = builder.identity(&pem);
        }
        if let Some(owner) = owner {
            builder = builder.owner(owner);
        }
        builder.build()
    }
}

fn read(file: Option<&OsString>) -> Result<Option<Vec<u8>>, Error> {
    let Some(file) = file.filter(|file| !file.is_empty()) else {
        return Ok(None);
    };
    fs::read(file)
        .map(Some)
        .map_err(|error| Error::Setup(format!("cannot read {}: {error}", file.display())))
}

/// The owner, where one must be named.
#[derive(Debug, clap::Args)]
pub(crate) struct OwnerArg {
    /// The owner that holds the lock, as it was acquired
    #[arg(long, env = "FERROLHO_OWNER")]
    owner: Option<String>,
}

impl OwnerArg {
    /// The owner, or that one must be named.
    pub(crate) fn required(&self) -> Result<Owner, Error> {
        let missing = || Error::Setup("name the owner with --owner or FERROLHO_OWNER".to_owned());
        named(self.owner.as_deref())?.ok_or_else(missing)
    }
}

/// The owner in this text, if there is any.
pub(crate) fn named(owner: Option<&str>) -> Result<Option<Owner>, Error> {
    match owner {
        None | Some("") => Ok(None),
        Some(owner) => Ok(Some(Owner::new(owner)?)),
    }
}

/// Carries out a small command: what it returns, or what its error means, is how the program ends.
pub(crate) fn carry_out(command: impl Future<Output = Result<ExitCode, Error>>) -> ExitCode {
    warnings::show();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime
            .block_on(command)
            .unwrap_or_else(|error| exit::fail(&error)),
        Err(error) => exit::fail(&Error::Setup(error.to_string())),
    }
}

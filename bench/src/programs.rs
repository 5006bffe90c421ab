//! The programs that are measured and are not Debian's: ferrolho from this workspace, `lockserver` from the index.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::systems::{complete, find};

/// The version of the crate that is compared.
pub(crate) const LOCKSERVER_VERSION: &str = "0.1.3";

/// Where the programs are.
pub(crate) struct Programs {
    pub(crate) ferrolho: PathBuf,
    /// The directory that cargo builds into.
    target: PathBuf,
    /// Whether what is missing may be built.
    build: bool,
}

impl Programs {
    /// Finds, and with `build` builds, the programs. `given` is a ferrolho to measure instead of this workspace's.
    pub(crate) fn locate(given: Option<&Path>, build: bool) -> Result<Self> {
        // This program is `target/release/ferrolho-bench`.
        let own = std::env::current_exe()?;
        let release = own.parent().context("this program is in no directory")?;
        if cfg!(debug_assertions) {
            bail!("a load generator without optimisation measures itself: run it with --release");
        }
        let target = release
            .parent()
            .context("this program is in no target directory")?;
        let programs = Self {
            ferrolho: given.map_or_else(|| release.join("ferrolho"), Path::to_owned),
            target: target.to_owned(),
            build,
        };
        if given.is_none() && build {
            programs.build_ferrolho()?;
        }
        if !programs.ferrolho.is_file() {
            bail!("{} is not there", programs.ferrolho.display());
        }
        Ok(programs)
    }

    fn build_ferrolho(&self) -> Result<()> {
        let mut command = Self::cargo("build");
        command
            .args(["--release", "--package", "ferrolho", "--target-dir"])
            .arg(&self.target);
        // The etcd engine needs protoc to be built.
        if find("protoc", &[]).is_some() {
            command.args(["--features", "etcd"]);
        }
        complete(&mut command).context("ferrolho cannot be built")?;
        Ok(())
    }

    /// The lockserver program, built if need be.
    pub(crate) fn lockserver(&self) -> Result<PathBuf> {
        let root = self.target.join("peers");
        let program = root.join("bin/lockserver");
        if !program.is_file() && self.build {
            let mut command = Self::cargo("install");
            command
                .args([
                    "lockserver",
                    "--version",
                    LOCKSERVER_VERSION,
                    "--locked",
                    "--root",
                ])
                .arg(&root);
            complete(&mut command)
                .context("cannot be built (it needs Debian's packages libssl-dev and pkg-config)")?;
        }
        if !program.is_file() {
            bail!("not built");
        }
        Ok(program)
    }

    /// What ferrolho calls itself.
    pub(crate) fn ferrolho_version(&self) -> Result<String> {
        Ok(complete(Command::new(&self.ferrolho).arg("--version"))?
            .trim()
            .to_owned())
    }

    fn cargo(subcommand: &str) -> Command {
        let mut command = Command::new(option_env!("CARGO").unwrap_or("cargo"));
        command
            .arg(subcommand)
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")));
        command
    }
}

//! What the bench leaves behind: tables on standard output, and in a directory the same tables, plots, and the
//! figures of every single run.

mod plot;
mod table;
pub(crate) mod targets;

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

pub(crate) use plot::{Plot, Series};
pub(crate) use table::{Table, count, mebibytes, time};

use crate::machine::Machine;
use crate::rounds::Figures;
use crate::systems::{Field, System};

/// A report that grows while the bench runs.
pub(crate) struct Report {
    directory: Option<PathBuf>,
    /// The file's name without its ending; plots begin with it.
    name: &'static str,
    text: String,
    /// One line for each run.
    runs: String,
}

impl Report {
    /// An empty report, for a directory that is made if need be.
    pub(crate) fn new(directory: Option<&Path>, name: &'static str, machine: &Machine) -> Result<Self> {
        if let Some(directory) = directory {
            fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        }
        let mut report = Self {
            directory: directory.map(Path::to_owned),
            name,
            text: String::new(),
            runs: "scenario\tclients\trate\tsystem\tround\tper_second\tp50_us\tp99_us\tserver_us\tgenerator_us\t\
                   memory_bytes\tsyncs\n"
                .to_owned(),
        };
        report.say(&format!(
            "{} cores ({}), {}; a write of 4 KiB and its sync take {} in the median.\n",
            machine.cores,
            machine.processor,
            machine.kernel,
            time(machine.sync),
        ));
        Ok(report)
    }

    /// Adds text, and prints it.
    pub(crate) fn say(&mut self, text: &str) {
        // Who closed our output does not want to read it; the files are written all the same.
        let _ = writeln!(std::io::stdout(), "{text}");
        self.text.push_str(text);
        self.text.push('\n');
    }

    /// Adds a table.
    pub(crate) fn table(&mut self, table: &Table) {
        self.say(&table.markdown());
    }

    /// Adds a plot.
    pub(crate) fn plot(&mut self, name: &str, plot: &Plot) -> Result<()> {
        let file = format!("{}-{name}.svg", self.name);
        if let Some(directory) = &self.directory {
            plot.write(&directory.join(&file))?;
            let _ = writeln!(self.text, "![{}]({file})\n", plot.title);
        }
        Ok(())
    }

    /// Says which systems take part, what each keeps, and which are missing.
    pub(crate) fn field(&mut self, field: &Field) {
        let mut table = Table::new(
            "Systems",
            &["system", "version", "when a grant is answered, it is"],
        );
        for System {
            kind,
            version,
            durability,
            ..
        } in &field.systems
        {
            table
                .rows
                .push(vec![kind.name(), version.clone(), (*durability).to_owned()]);
        }
        for (kind, why) in &field.missing {
            table
                .rows
                .push(vec![kind.name(), "**missing**".to_owned(), why.clone()]);
        }
        self.table(&table);
    }

    /// Keeps the figures of every run.
    pub(crate) fn keep(&mut self, all: &[Figures]) {
        for figures in all {
            for (round, sample) in figures.samples.iter().enumerate() {
                let micros = |time: std::time::Duration| time.as_secs_f64() * 1e6;
                let _ = writeln!(
                    self.runs,
                    "{}\t{}\t{}\t{}\t{}\t{:.1}\t{:.1}\t{:.1}\t{:.2}\t{:.2}\t{}\t{:.4}",
                    figures.setting.scenario.name(),
                    figures.setting.clients,
                    figures.setting.rate.unwrap_or_default(),
                    figures.kind.name(),
                    round + 1,
                    sample.per_second,
                    micros(sample.tally.quantile(0.5)),
                    micros(sample.tally.quantile(0.99)),
                    micros(sample.processor),
                    micros(sample.generator),
                    sample.memory_bytes,
                    sample.syncs.unwrap_or(f64::NAN),
                );
            }
        }
    }

    /// Writes the files.
    pub(crate) fn finish(self) -> Result<()> {
        let Some(directory) = &self.directory else {
            return Ok(());
        };
        fs::write(directory.join(format!("{}.md", self.name)), &self.text)?;
        if self.runs.lines().count() > 1 {
            fs::write(directory.join(format!("{}.tsv", self.name)), &self.runs)?;
        }
        Ok(())
    }
}

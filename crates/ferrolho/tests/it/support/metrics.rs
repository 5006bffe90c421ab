//! The page of metrics, read with suspicion: a reader for the text format of Prometheus that accepts nothing odd.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::{Command, Stdio};

use super::{Answer, Server};

/// A page of metrics.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) text: String,
    /// Every sample by its name and labels, as they stand.
    samples: BTreeMap<String, f64>,
    /// Every family with its type.
    families: BTreeMap<String, String>,
}

impl Server {
    /// What `/metrics` says.
    pub(crate) fn metrics(&self) -> Metrics {
        Metrics::read(&self.get("/metrics"))
    }
}

impl Metrics {
    /// Reads a page. Panics when anything in it is not as the format has it.
    pub(crate) fn read(answer: &Answer) -> Self {
        assert_eq!(answer.status, 200, "{}", answer.text());
        let content_type = answer.header("content-type").unwrap();
        assert_eq!(content_type, "text/plain; version=0.0.4; charset=utf-8");
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        let mut page = Self {
            text: answer.text(),
            samples: BTreeMap::new(),
            families: BTreeMap::new(),
        };
        let (mut helped, mut family) = (String::new(), String::new());
        for line in answer.text().lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, text) = help.split_once(' ').unwrap();
                assert!(text.ends_with('.'), "{line}");
                name.clone_into(&mut helped);
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                assert_eq!(name, helped, "each type stands behind its help");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                let before = page.families.insert(name.to_owned(), kind.to_owned());
                assert_eq!(before, None, "{name} comes twice");
                name.clone_into(&mut family);
            } else {
                page.sample(&family, line);
            }
        }
        page.check_histograms();
        page
    }

    fn sample(&mut self, family: &str, line: &str) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let name = series.split('{').next().unwrap();
        let suffix = name.strip_prefix(family).unwrap_or_else(|| panic!("{line}"));
        let suffixes: &[&str] = match self.families[family].as_str() {
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        assert!(suffixes.contains(&suffix), "{line}");
        let value: f64 = value.parse().unwrap();
        assert!(value.is_finite(), "{line}");
        let before = self.samples.insert(series.to_owned(), value);
        assert_eq!(before, None, "{series} comes twice");
    }

    /// The last bucket of every histogram holds all that was counted.
    fn check_histograms(&self) {
        for (name, kind) in &self.families {
            if kind != "histogram" {
                continue;
            }
            let count = format!("{name}_count");
            for (series, value) in self.samples.range(count.clone()..) {
                let Some(labels) = series.strip_prefix(count.as_str()) else {
                    break;
                };
                let inner = labels.trim_matches(['{', '}']);
                let comma = if inner.is_empty() { "" } else { "," };
                let all = [
                    format!("{name}_bucket{{{inner}{comma}le=\"+Inf\"}}"),
                    format!("{name}_bucket{{le=\"+Inf\"{comma}{inner}}}"),
                ];
                let last = all.iter().find_map(|series| self.samples.get(series));
                assert_eq!(last, Some(value), "{series}");
            }
        }
    }

    /// The value of a sample, by its name and labels as they stand.
    pub(crate) fn value(&self, series: &str) -> f64 {
        let value = self.samples.get(series).copied();
        value.unwrap_or_else(|| panic!("there is no {series} in\n{}", self.text))
    }

    /// The values of all labels of this name, in all series.
    pub(crate) fn labels(&self, label: &str) -> BTreeSet<&str> {
        let begin = format!("{label}=\"");
        let values = self.samples.keys().filter_map(|series| {
            let (_, rest) = series.split_once(begin.as_str())?;
            rest.split_once('"').map(|(value, _)| value)
        });
        values.collect()
    }

    /// How many series there are.
    pub(crate) fn series(&self) -> usize {
        self.samples.len()
    }

    /// The names under which Prometheus knows what is here, those of samples that have not come yet too.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for (name, kind) in &self.families {
            if kind == "histogram" {
                names.extend(["_bucket", "_sum", "_count"].map(|suffix| format!("{name}{suffix}")));
            } else {
                names.insert(name.clone());
            }
        }
        names
    }
}

/// Runs promtool on this input. Without it the test goes on, unless everything must be there.
pub(crate) fn promtool(args: &[&str], input: &str) {
    let mut command = Command::new("promtool");
    command.args(args);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        return ferrolho_testkit::missing("Prometheus", "promtool");
    };
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

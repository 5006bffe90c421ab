//! Tables as Markdown, and figures as people read them.

use std::fmt::Write as _;
use std::time::Duration;

/// A table with a heading. Columns of figures, or of words, are told apart by what is in them.
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub(crate) fn new(title: impl Into<String>, columns: &[&str]) -> Self {
        Self {
            title: title.into(),
            columns: columns.iter().map(|&column| column.to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// As Markdown, with columns of even width so that it is a table on a terminal too.
    pub(crate) fn markdown(&self) -> String {
        let mut widths: Vec<usize> = self.columns.iter().map(|cell| cell.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = format!("### {}\n\n", self.title);
        let figures: Vec<bool> = (0..self.columns.len())
            .map(|place| self.has_figures(place))
            .collect();
        line(&mut text, &self.columns, &widths, &figures);
        let rules: Vec<String> = widths
            .iter()
            .zip(&figures)
            .map(|(width, figures)| match figures {
                true => format!("{}:", "-".repeat(width - 1)),
                false => "-".repeat(*width),
            })
            .collect();
        line(&mut text, &rules, &widths, &figures);
        for row in &self.rows {
            line(&mut text, row, &widths, &figures);
        }
        text
    }

    fn has_figures(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.all(|cell| cell.is_empty() || cell.starts_with(|first: char| !first.is_alphabetic()))
    }
}

fn line(text: &mut String, cells: &[String], widths: &[usize], figures: &[bool]) {
    for ((cell, width), figures) in cells.iter().zip(widths).zip(figures) {
        let fill = " ".repeat(width.saturating_sub(cell.chars().count()));
        // Writing to a string cannot fail.
        let _ = if *figures {
            write!(text, "| {fill}{cell} ")
        } else {
            write!(text, "| {cell}{fill} ")
        };
    }
    text.push_str("|\n");
}

/// A count with spaces between thousands.
pub(crate) fn count(number: f64) -> String {
    let digits = format!("{:.0}", number.max(0.0));
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A time with three digits.
pub(crate) fn time(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    match micros {
        m if m < 100.0 => format!("{m:.1} µs"),
        m if m < 1_000.0 => format!("{m:.0} µs"),
        m if m < 10_000.0 => format!("{:.2} ms", m / 1e3),
        m if m < 100_000.0 => format!("{:.1} ms", m / 1e3),
        m if m < 1_000_000.0 => format!("{:.0} ms", m / 1e3),
        m => format!("{:.2} s", m / 1e6),
    }
}

/// Bytes in MiB.
pub(crate) fn mebibytes(bytes: u64) -> String {
    format!("{:.0} MiB", bytes as f64 / 1_048_576.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_readable() {
        assert_eq!(count(1_234_567.4), "1 234 567");
        assert_eq!(count(12.0), "12");
        assert_eq!(time(Duration::from_micros(1_234)), "1.23 ms");
        assert_eq!(time(Duration::from_nanos(12_340)), "12.3 µs");
    }

    #[test]
    fn columns_are_even() {
        let mut table = Table::new("t", &["a", "bb"]);
        table.rows.push(vec!["xyz".into(), "1".into()]);
        assert_eq!(
            table.markdown(),
            "### t\n\n| a   | bb |\n| --- | -: |\n| xyz |  1 |\n"
        );
    }
}

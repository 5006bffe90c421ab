//! Line plots as SVG: how a figure goes with the load. Both axes are logarithmic, since both span decades.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

/// How large a plot is, in pixels.
const SIZE: (u32, u32) = (860, 480);

/// A line.
pub(crate) struct Series {
    pub(crate) name: String,
    /// Drawn with dashes: it keeps nothing on disk.
    pub(crate) dashed: bool,
    pub(crate) points: Vec<(f64, f64)>,
}

/// A plot.
pub(crate) struct Plot {
    pub(crate) title: String,
    pub(crate) across: String,
    pub(crate) up: String,
    pub(crate) series: Vec<Series>,
}

/// Colours that stay apart also for who sees few of them.
const COLOURS: [RGBColor; 10] = [
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(120, 120, 120),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
    RGBColor(148, 103, 189),
    RGBColor(140, 86, 75),
];

impl Plot {
    /// Writes it to a file.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let Some([left, right, low, high]) = self.bounds() else {
            return Ok(());
        };
        self.draw(path, left..right, low..high)
            .map_err(|error| anyhow!("cannot draw {}: {error}", path.display()))
    }

    fn bounds(&self) -> Option<[f64; 4]> {
        let all = || self.series.iter().flat_map(|series| &series.points);
        all().next()?;
        let least = |of: fn(&(f64, f64)) -> f64| all().map(of).fold(f64::MAX, f64::min);
        let most = |of: fn(&(f64, f64)) -> f64| all().map(of).fold(f64::MIN_POSITIVE, f64::max);
        let (left, right) = (least(|p| p.0).max(1e-9), most(|p| p.0));
        // Room above and below, and for a plot of a single point.
        Some([
            left * 0.9,
            right * 1.1,
            least(|p| p.1).max(1e-9) / 1.5,
            most(|p| p.1) * 1.5,
        ])
    }

    fn draw(
        &self,
        path: &Path,
        across: std::ops::Range<f64>,
        up: std::ops::Range<f64>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let area = SVGBackend::new(path, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let (area, legend) = area.split_horizontally(SIZE.0 - 190);
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(72)
            .build_cartesian_2d(across.log_scale(), up.log_scale())?;
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .bold_line_style(RGBColor(225, 225, 225))
            .x_desc(&self.across)
            .y_desc(&self.up)
            .x_label_formatter(&|value| short(*value))
            .y_label_formatter(&|value| short(*value))
            .label_style(("sans-serif", 13))
            .draw()?;
        for ((place, series), colour) in self.series.iter().enumerate().zip(COLOURS.iter().cycle()) {
            let points = series.points.iter().copied();
            let line = colour.stroke_width(2);
            if series.dashed {
                chart.draw_series(DashedLineSeries::new(points, 6, 4, line))?;
            } else {
                chart.draw_series(LineSeries::new(points, line))?;
            }
            let dots = series
                .points
                .iter()
                .map(|point| Circle::new(*point, 3, colour.filled()));
            chart.draw_series(dots)?;
            let y = 50 + 22 * i32::try_from(place)?;
            let key = [(0, y), (22, y)];
            legend.draw(&PathElement::new(key, line))?;
            legend.draw(&Circle::new((11, y), 3, colour.filled()))?;
            let name = if series.dashed {
                format!("{} (not durable)", series.name)
            } else {
                series.name.clone()
            };
            legend.draw(&Text::new(name, (28, y - 6), ("sans-serif", 12)))?;
        }
        area.present()?;
        Ok(())
    }
}

/// A value at an axis.
fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", v / 1e6),
        v if v >= 1e3 => format!("{}k", v / 1e3),
        v if v >= 1.0 => format!("{v:.0}"),
        v => format!("{v:.2}"),
    }
}

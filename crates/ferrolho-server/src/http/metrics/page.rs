//! Writing metrics, a family at a time. The names of counters are given without their `_total`, which the writer of
//! the format adds.

use std::fmt;

use ferrolho_store::meter::Counts;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// The page that is being written.
pub(super) struct Page<'a>(pub(super) DescriptorEncoder<'a>);

/// How many microseconds a second has.
const SECOND: f64 = 1e6;

impl Page<'_> {
    /// Counters of one name, each with its labels.
    pub(super) fn counters<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (L, u64)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, count) in rows {
            family
                .encode_family(&labels)?
                .encode_counter::<NoLabelSet, u64, f64>(&count, None)?;
        }
        Ok(())
    }

    /// A counter without labels.
    pub(super) fn counter(&mut self, name: &str, help: &str, count: u64) -> fmt::Result {
        self.0
            .encode_descriptor(name, help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, u64, f64>(&count, None)
    }

    /// A counter of seconds.
    pub(super) fn counter_of_seconds(&mut self, name: &str, help: &str, seconds: f64) -> fmt::Result {
        self.0
            .encode_descriptor(name, help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, f64, f64>(&seconds, None)
    }

    /// What is always 1, and says something by its labels.
    pub(super) fn info(&mut self, name: &str, help: &str, labels: &impl EncodeLabelSet) -> fmt::Result {
        self.0
            .encode_descriptor(name, help, None, MetricType::Gauge)?
            .encode_family(labels)?
            .encode_gauge(&1u32)
    }

    /// A number that goes up and down; nothing when it is not known.
    pub(super) fn gauge<V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        value: Option<V>,
    ) -> fmt::Result {
        let Some(value) = value else {
            return Ok(());
        };
        self.0
            .encode_descriptor(name, help, None, MetricType::Gauge)?
            .encode_gauge(&value)
    }

    /// Histograms of one name, each with its labels, counted in microseconds and shown in seconds.
    pub(super) fn spans<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (L, Counts)>,
    ) -> fmt::Result {
        self.histograms(name, help, rows, SECOND)
    }

    /// A histogram of sizes.
    pub(super) fn sizes(&mut self, name: &str, help: &str, counts: Counts) -> fmt::Result {
        self.histograms(name, help, [(NONE, counts)], 1.0)
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "sums beyond 2^53 may be rounded, as Prometheus itself rounds them"
    )]
    fn histograms<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        rows: impl IntoIterator<Item = (L, Counts)>,
        scale: f64,
    ) -> fmt::Result {
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (labels, counts) in rows {
            let buckets: Vec<(f64, u64)> = counts
                .buckets
                .iter()
                .map(|(bound, count)| (*bound as f64 / scale, *count))
                .collect();
            let sum = counts.sum as f64 / scale;
            family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
                sum,
                counts.count,
                &buckets,
                None,
            )?;
        }
        Ok(())
    }
}

/// No labels.
pub(super) const NONE: [(&str, &str); 0] = [];

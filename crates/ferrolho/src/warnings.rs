//! What the client library warns of while a command works, in this program's own form, on standard error.

use std::fmt;
use std::io;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{self as log, FmtContext};
use tracing_subscriber::registry::LookupSpan;

/// Shows warnings from now on.
pub(crate) fn show() {
    log::fmt()
        .with_max_level(Level::WARN)
        .with_writer(io::stderr)
        // Standard error may be closed.
        .log_internal_errors(false)
        .event_format(OneLine)
        .init();
}

/// `ferrolho: what happened`.
struct OneLine;

impl<S, N> FormatEvent<S, N> for OneLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(writer, "ferrolho: ")?;
        context.format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

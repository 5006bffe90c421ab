//! Lifetimes and waits as people write them: `90`, `30s`, `5m`, `1h30m`, `2d`.

use std::time::Duration;

use ferrolho_client::{Patience, Ttl};

/// A span of whole seconds: a number, or numbers with `s`, `m`, `h` or `d` behind each.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time: write whole seconds, or for example 30s, 5m, 1h30m");
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    let mut seconds: u64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        let unit = match rest.as_bytes()[digits] {
            b's' => 1,
            b'm' => 60,
            b'h' => 3600,
            b'd' => 86_400,
            _ => return Err(wrong()),
        };
        // The unit is one ASCII character.
        rest = &rest[digits + 1..];
        let part = number.checked_mul(unit).ok_or_else(wrong)?;
        seconds = seconds.checked_add(part).ok_or_else(wrong)?;
    }
    if text.is_empty() {
        Err(wrong())
    } else {
        Ok(Duration::from_secs(seconds))
    }
}

/// A lifetime.
pub(crate) fn parse_ttl(text: &str) -> Result<Ttl, String> {
    let seconds = parse(text)?.as_secs();
    Ttl::new(seconds.into(), Ttl::MAX).map_err(|error| error.message)
}

/// How long to wait: a span, or `forever`.
pub(crate) fn parse_wait(text: &str) -> Result<Patience, String> {
    if text == "forever" {
        return Ok(Patience::Forever);
    }
    let wait = parse(text)?;
    Ok(if wait.is_zero() {
        Patience::None
    } else {
        Patience::For(wait)
    })
}

/// A span for people: its two largest units.
pub(crate) fn show(span: Duration) -> String {
    let seconds = span.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m{:02}s", seconds % 60),
        (0, hours, minutes) => format!("{hours}h{minutes:02}m"),
        (days, hours, _) => format!("{days}d{hours:02}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_write_spans_in_these_ways() {
        let seconds = |text| parse(text).map(|span| span.as_secs());
        assert_eq!(seconds("90"), Ok(90));
        assert_eq!(seconds("0s"), Ok(0));
        assert_eq!(seconds("1h30m5s"), Ok(5405));
        assert_eq!(seconds("2d"), Ok(172_800));
        for wrong in [
            "",
            "s",
            "5 m",
            "-1",
            "1.5s",
            "500ms",
            "5m3",
            "1é",
            "é",
            "99999999999999999999s",
        ] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        assert!(seconds(&format!("{}d", u64::MAX)).is_err());
        assert!(parse_ttl("0").is_err());
        assert!(parse_ttl("4000d").is_err());
        assert_eq!(parse_wait("forever"), Ok(Patience::Forever));
        assert_eq!(parse_wait("0"), Ok(Patience::None));
    }

    #[test]
    fn and_read_them_in_these() {
        let show = |seconds| show(Duration::from_secs(seconds));
        assert_eq!(show(0), "0s");
        assert_eq!(show(61), "1m01s");
        assert_eq!(show(3600), "1h00m");
        assert_eq!(show(90_000), "1d01h");
    }
}

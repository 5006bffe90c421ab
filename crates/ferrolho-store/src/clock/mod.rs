//! The only clock of the project.
//!
//! Locks must not care when somebody sets the machine's time. So an engine that keeps its own clock reads the
//! wall clock once, and from then on adds what `CLOCK_BOOTTIME` says has passed: a clock that no step touches and
//! that runs on while the machine is suspended. The pair of both readings, the [`Anchor`], may be kept over a
//! restart, so that a step between two runs of one boot changes nothing either. Where the readings come from is
//! a [`TimeSource`]: the machine, tokio's time (which tests pause), or a hand that steps it. An engine whose clock is
//! elsewhere measures with [`Moment`].

mod moment;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ferrolho_core::Timestamp;
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

pub(crate) use moment::Moment;

/// How far an engine's clock and the wall clock may be apart before an operator is told.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);

/// The machine's wall clock, for what is shown to people and for comparing. No lock is judged by it.
pub fn wall_now() -> Timestamp {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the wall clock"
    )]
    let since_1970 = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp::from_micros(i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX))
}

/// Called when a clock was moved by hand.
pub type OnStep = Box<dyn Fn() + Send + Sync>;

/// Where a clock's readings come from.
pub trait TimeSource: fmt::Debug + Send + Sync + 'static {
    /// The wall clock: may be stepped either way at any time.
    fn wall(&self) -> Timestamp;

    /// How long the machine has been up, suspended or not: only ever grows within one boot.
    fn since_boot(&self) -> Duration;

    /// Which boot `since_boot` counts from.
    fn boot_id(&self) -> String;

    /// Asks to be told when the time was moved by hand, since whoever sleeps then must look again. Time that
    /// passes by itself is not told, and most sources know no other.
    fn on_step(&self, _tell: OnStep) {}
}

/// Two readings that belong together, of one boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Which boot.
    pub boot_id: String,
    /// The engine's time then.
    pub wall: Timestamp,
    /// What `CLOCK_BOOTTIME` said then.
    pub since_boot: Duration,
}

/// An engine's clock: the anchor's time and what has passed since. Never goes back.
#[derive(Clone, Debug)]
pub struct Clock {
    source: Arc<dyn TimeSource>,
    anchor: Anchor,
}

impl Clock {
    /// A clock that starts with the source's wall time.
    pub fn new(source: Arc<dyn TimeSource>) -> Self {
        Self::resume(source, None, Timestamp::from_micros(0))
    }

    /// This machine's clock.
    pub fn host() -> Self {
        Self::new(Arc::new(HostTime))
    }

    /// The clock of a store that has been open before: it goes on from its `anchor` if that is of this boot, and
    /// takes the wall time anew otherwise, but never earlier than what the store has `seen`.
    pub fn resume(source: Arc<dyn TimeSource>, anchor: Option<Anchor>, seen: Timestamp) -> Self {
        let since_boot = source.since_boot();
        let boot_id = source.boot_id();
        let resumed = anchor
            .filter(|anchor| anchor.boot_id == boot_id && anchor.since_boot <= since_boot)
            .map(|anchor| Self {
                source: Arc::clone(&source),
                anchor,
            })
            .filter(|clock| clock.now() >= seen);
        resumed.unwrap_or_else(|| {
            let wall = source.wall().max(seen);
            let anchor = Anchor {
                boot_id,
                wall,
                since_boot,
            };
            Self { source, anchor }
        })
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        let passed = self.source.since_boot().saturating_sub(self.anchor.since_boot);
        self.anchor.wall.plus(passed)
    }

    /// What the clock counts from, to be kept for [`Clock::resume`].
    pub fn anchor(&self) -> &Anchor {
        &self.anchor
    }

    /// How many microseconds this clock is ahead of the wall clock; negative when it is behind.
    pub fn ahead_of_wall_micros(&self) -> i64 {
        self.now().as_micros() - self.source.wall().as_micros()
    }

    /// What an operator should know when this clock and the wall clock are over a second apart.
    pub fn warning(&self) -> Option<String> {
        let ahead = self.ahead_of_wall_micros();
        let apart = Duration::from_micros(ahead.unsigned_abs());
        let side = if ahead > 0 { "behind" } else { "ahead of" };
        (apart > CLOCK_TOLERANCE).then(|| {
            format!(
                "the wall clock was set: it is {:.1} s {side} the clock that locks are judged by",
                apart.as_secs_f64()
            )
        })
    }

    /// Asks to be told when the time was moved by hand.
    pub fn on_step(&self, tell: OnStep) {
        self.source.on_step(tell);
    }
}

/// The machine's own readings.
#[derive(Clone, Copy, Debug)]
pub struct HostTime;

impl TimeSource for HostTime {
    fn wall(&self) -> Timestamp {
        wall_now()
    }

    fn since_boot(&self) -> Duration {
        let reading = clock_gettime(ClockId::Boottime);
        Duration::new(
            u64::try_from(reading.tv_sec).unwrap_or(0),
            u32::try_from(reading.tv_nsec).unwrap_or(0),
        )
    }

    /// The kernel's boot id and the time namespace, since a container may count its boot time from elsewhere.
    /// Without them no two starts count as one boot, which is safe: the wall clock is then taken anew.
    fn boot_id(&self) -> String {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let namespace = std::fs::read_link("/proc/self/ns/time");
        match (boot, namespace) {
            (Ok(boot), Ok(namespace)) => format!("{} {}", boot.trim(), namespace.display()),
            (Ok(boot), Err(_)) => boot.trim().to_owned(),
            (Err(_), _) => format!("unknown {:032x}", rand::random::<u128>()),
        }
    }
}

/// tokio's time, which stands still and jumps when a test has paused it: for simulations that repeat exactly.
#[derive(Clone, Copy, Debug)]
pub struct TokioTime {
    wall_at_start: Timestamp,
    start: Instant,
}

impl TokioTime {
    /// A source whose wall clock shows `wall` now.
    pub fn starting_at(wall: Timestamp) -> Self {
        Self {
            wall_at_start: wall,
            start: Instant::now(),
        }
    }
}

impl TimeSource for TokioTime {
    fn wall(&self) -> Timestamp {
        self.wall_at_start.plus(self.start.elapsed())
    }

    fn since_boot(&self) -> Duration {
        self.start.elapsed()
    }

    fn boot_id(&self) -> String {
        "tokio".to_owned()
    }
}

/// Time that stands still until a test moves it.
#[derive(Default)]
pub struct SteppedTime(Mutex<Stepped>);

#[derive(Default)]
struct Stepped {
    wall_micros: i64,
    since_boot: Duration,
    boots: u32,
    tell: Vec<OnStep>,
}

impl SteppedTime {
    /// A source whose wall clock shows `wall`.
    pub fn starting_at(wall: Timestamp) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Stepped {
            wall_micros: wall.as_micros(),
            ..Stepped::default()
        })))
    }

    /// Lets time pass.
    pub fn advance(&self, span: Duration) {
        self.change(|time| {
            time.since_boot += span;
            time.wall_micros += i64::try_from(span.as_micros()).unwrap_or(0);
        });
    }

    /// Sets the wall clock forward, or back when negative, as an operator would. No time passes.
    pub fn step_wall_micros(&self, micros: i64) {
        self.change(|time| time.wall_micros += micros);
    }

    /// Restarts the machine.
    pub fn reboot(&self) {
        self.change(|time| {
            time.boots += 1;
            time.since_boot = Duration::ZERO;
        });
    }

    fn change(&self, change: impl FnOnce(&mut Stepped)) {
        let mut time = self.0.lock();
        change(&mut time);
        for tell in &time.tell {
            tell();
        }
    }
}

impl fmt::Debug for SteppedTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SteppedTime").field(&self.wall()).finish()
    }
}

impl TimeSource for SteppedTime {
    fn wall(&self) -> Timestamp {
        Timestamp::from_micros(self.0.lock().wall_micros)
    }

    fn since_boot(&self) -> Duration {
        self.0.lock().since_boot
    }

    fn boot_id(&self) -> String {
        format!("boot {}", self.0.lock().boots)
    }

    fn on_step(&self, tell: OnStep) {
        self.0.lock().tell.push(tell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MICROS: i64 = 3_600_000_000;

    fn start() -> Timestamp {
        Timestamp::from_micros(1_800_000_000_000_000)
    }

    #[test]
    fn a_step_of_the_wall_clock_is_no_time() {
        let time = SteppedTime::starting_at(start());
        let clock = Clock::new(time.clone());
        time.step_wall_micros(HOUR_MICROS);
        assert_eq!(clock.now(), start());
        assert_eq!(clock.ahead_of_wall_micros(), -HOUR_MICROS);
        time.advance(Duration::from_secs(2));
        assert_eq!(clock.now(), start().plus(Duration::from_secs(2)));
        time.step_wall_micros(-2 * HOUR_MICROS);
        assert_eq!(clock.ahead_of_wall_micros(), HOUR_MICROS);
    }

    #[test]
    fn a_restart_in_one_boot_goes_on_from_the_anchor() {
        let time = SteppedTime::starting_at(start());
        let first = Clock::new(time.clone());
        time.step_wall_micros(HOUR_MICROS);
        time.advance(Duration::from_secs(5));
        let second = Clock::resume(time.clone(), Some(first.anchor().clone()), start());
        assert_eq!(second.now(), start().plus(Duration::from_secs(5)));
        assert_eq!(second.anchor(), first.anchor());
    }

    #[test]
    fn a_new_boot_takes_the_wall_clock_but_never_an_earlier_one() {
        let time = SteppedTime::starting_at(start());
        let first = Clock::new(time.clone());
        time.advance(Duration::from_secs(5));
        let seen = first.now();
        time.reboot();
        time.step_wall_micros(-HOUR_MICROS);
        let second = Clock::resume(time.clone(), Some(first.anchor().clone()), seen);
        assert_eq!(second.now(), seen);
        time.step_wall_micros(2 * HOUR_MICROS);
        let third = Clock::resume(time.clone(), Some(first.anchor().clone()), seen);
        assert_eq!(third.now(), time.wall());
    }

    #[test]
    fn the_host_only_moves_forward() {
        let clock = Clock::host();
        let first = clock.now();
        assert!(clock.now() >= first);
        assert_eq!(HostTime.boot_id(), HostTime.boot_id());
        assert!(clock.ahead_of_wall_micros().abs() < 60_000_000);
    }
}

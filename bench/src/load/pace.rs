//! When the cycles of an open loop begin: at a fixed rate, counted from the start.
//!
//! A timer of the kernel with the rate's period wakes the loop. It only wakes; what is due is read from the clock, so
//! a wake-up that is lost or late shifts nothing.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// The shortest period of wake-ups. Faster rates begin several cycles at a wake-up.
const SHORTEST_PERIOD: Duration = Duration::from_micros(20);

/// The beginnings of cycles.
pub(super) struct Pace {
    start: Instant,
    seconds_each: f64,
    /// How many have been taken.
    taken: u32,
    /// Closed when this is dropped, which ends the wake-ups.
    timer: OwnedFd,
}

impl Pace {
    /// Begins now, with `rate` cycles a second.
    pub(super) fn new(epoll: &OwnedFd, rate: f64, event: u64) -> Result<Self> {
        ensure!(rate.is_finite() && rate > 0.0, "a rate is more than 0 a second");
        let period = Duration::from_secs_f64(1.0 / rate).max(SHORTEST_PERIOD);
        let period = Timespec {
            tv_sec: i64::try_from(period.as_secs())?,
            tv_nsec: period.subsec_nanos().into(),
        };
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        let periodic = Itimerspec {
            it_interval: period,
            it_value: period,
        };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &periodic)?;
        epoll::add(epoll, &timer, EventData::new_u64(event), EventFlags::IN)?;
        Ok(Self {
            start: Instant::now(),
            seconds_each: 1.0 / rate,
            taken: 0,
            timer,
        })
    }

    /// Takes notice of a wake-up; the timer goes on only then.
    pub(super) fn wake(&self) {
        let mut wake_ups = [0; 8];
        // Whatever it says: what is due is read from the clock.
        let _ = rustix::io::read(&self.timer, &mut wake_ups);
    }

    /// When the next cycle should begin or have begun.
    pub(super) fn next(&self) -> Instant {
        self.start + Duration::from_secs_f64(f64::from(self.taken) * self.seconds_each)
    }

    /// The next cycle has begun.
    pub(super) fn take(&mut self) {
        self.taken += 1;
    }
}

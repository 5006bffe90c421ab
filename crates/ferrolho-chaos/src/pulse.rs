//! The machine's own pulse: when it stood still, or its disk did, nothing is to be blamed on anybody.
//!
//! A thread sleeps for a moment and syncs a block, again and again. What takes far longer than that is a stall.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often it beats.
const BEAT: Duration = Duration::from_millis(250);

/// How much longer a beat may take before it counts.
const SLACK: Duration = Duration::from_millis(500);

/// The stalls so far: when each ended, and how long it was.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pulse(Arc<Mutex<Vec<(Instant, Duration)>>>);

impl Pulse {
    /// Starts to beat, on the disk where this folder is, until the program ends.
    pub(crate) fn start(folder: &Path) -> io::Result<Self> {
        let mut file = File::create(folder.join("pulse"))?;
        let pulse = Self::default();
        let beating = pulse.clone();
        std::thread::Builder::new()
            .name("pulse".to_owned())
            .spawn(move || {
                loop {
                    let begun = Instant::now();
                    std::thread::sleep(BEAT);
                    // Whether it can be written does not matter, only how long that takes.
                    let _ = file
                        .rewind()
                        .and_then(|()| file.write_all(&[0; 512]))
                        .and_then(|()| file.sync_data());
                    let late = begun.elapsed().saturating_sub(BEAT);
                    if late > SLACK {
                        beating.add(late);
                    }
                }
            })?;
        Ok(pulse)
    }

    fn add(&self, late: Duration) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((Instant::now(), late));
    }

    /// For how long the machine has stood still since then.
    pub(crate) fn stalled_since(&self, since: Instant) -> Duration {
        let stalls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stalls
            .iter()
            .rev()
            .take_while(|(end, _)| *end >= since)
            .map(|(_, late)| *late)
            .sum()
    }

    /// How long it is since then, without the time in which the machine stood still.
    pub(crate) fn awake_since(&self, since: Instant) -> Duration {
        since.elapsed().saturating_sub(self.stalled_since(since))
    }
}

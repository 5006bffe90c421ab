//! The processes of a command: its group, and what else descends from it in the same session.
//!
//! The group is most of it, and one signal reaches all of it at once. Programs such as `timeout`, or a shell with
//! job control, put their children into groups of their own; these are found by their descent. The run adopts
//! orphans, so that they stay its descendants. A process that has begun a session of its own (`setsid`, a daemon)
//! has left on purpose: it is let go.

use std::collections::HashMap;
use std::fs;

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};

/// The processes of one command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tree {
    /// From whom they descend: the run.
    pub(crate) root: Pid,
    /// The command's own group, where it is known.
    pub(crate) group: Option<Pid>,
}

/// A line of `/proc/PID/stat`.
struct Process {
    pid: Pid,
    parent: i32,
    group: i32,
    session: i32,
    is_dead: bool,
}

impl Tree {
    /// Sends a signal to the whole group.
    pub(crate) fn signal_group(self, signal: Signal) {
        if let Some(group) = self.group {
            // It fails when nobody is left.
            let _gone = kill_process_group(group, signal);
        }
    }

    /// Sends a signal to all of it.
    pub(crate) fn signal(self, signal: Signal) {
        self.signal_group(signal);
        for straggler in self.stragglers() {
            let _gone = kill_process(straggler, signal);
        }
    }

    /// Whether nothing of it is alive.
    pub(crate) fn is_gone(self) -> bool {
        self.is_group_gone() && self.stragglers().is_empty()
    }

    /// Whether nothing of the group is alive.
    pub(crate) fn is_group_gone(self) -> bool {
        let Some(group) = self.group else { return true };
        // The dead who wait for their parents to take note of them can still be signalled.
        test_kill_process_group(group).is_err()
            || !processes().any(|process| process.group == group.as_raw_pid() && !process.is_dead)
    }

    /// The living descendants of the run in its session that are in other groups than the command's and the run's
    /// own. (In the run's own are children of whoever became the run.)
    fn stragglers(self) -> Vec<Pid> {
        let all: HashMap<i32, Process> = processes()
            .map(|process| (process.pid.as_raw_pid(), process))
            .collect();
        let Some(root) = all.get(&self.root.as_raw_pid()) else {
            return Vec::new();
        };
        let descends = |process: &Process| {
            let mut parent = process.parent;
            // Parents change while we look; a chain is never longer than there are processes.
            for _ in 0..all.len() {
                if parent == self.root.as_raw_pid() {
                    return true;
                }
                match all.get(&parent) {
                    Some(next) => parent = next.parent,
                    None => return false,
                }
            }
            false
        };
        let is_straggler = |process: &&Process| {
            process.session == root.session
                && self.group.is_none_or(|group| process.group != group.as_raw_pid())
                && process.group != root.group
                && !process.is_dead
                && descends(process)
        };
        all.values()
            .filter(is_straggler)
            .map(|process| process.pid)
            .collect()
    }
}

/// All processes that can be seen.
fn processes() -> impl Iterator<Item = Process> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| read(entry.ok()?.file_name().to_str()?.parse().ok()?))
}

fn read(pid: i32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in brackets and may hold anything; the last bracket ends it.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    let mut number = || fields.next()?.parse().ok();
    Some(Process {
        pid: Pid::from_raw(pid)?,
        parent: number()?,
        group: number()?,
        session: number()?,
        is_dead: matches!(state, "Z" | "X"),
    })
}

//! What can break, and how it is mended.

use crate::engine::{CableFault, Intrusion};
use crate::weather::Reach;

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Kill,
    Stop,
    Pause,
    Cable(CableFault),
    ClockStep,
    FullDisk,
    /// Another program uses the database.
    Intrusion(Intrusion),
    /// The way from a server to its engine, or to one member of it.
    EngineCable(CableFault),
    DatabaseRestart,
    DatabaseCrash,
    SessionsEnded,
    LeaderKilled,
    LeaderPaused,
    MemberKilled,
    MajorityKilled,
    ClusterRestart,
    /// The cluster forgets its history, and with it what watches that are behind still need.
    Compaction,
}

/// How it is mended.
#[derive(Debug)]
pub(crate) enum Mending {
    /// It is over already.
    None,
    Start(usize),
    Resume(usize),
    HealCable {
        server: usize,
        cable: usize,
    },
    HealEngineCables(usize),
    FreeDisk,
    EndIntrusion(rusqlite::Connection),
    BootDatabase,
    BootMembers(Vec<usize>),
    ResumeMember(usize),
}

impl Fault {
    pub(crate) fn reach(self, server: usize) -> Reach {
        match self {
            Self::Kill
            | Self::Stop
            | Self::Pause
            | Self::Cable(_)
            | Self::ClockStep
            | Self::EngineCable(_) => Reach::Server(server),
            _ => Reach::All,
        }
    }

    /// Its name in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kill => "fault: kill -9",
            Self::Stop => "fault: SIGTERM",
            Self::Pause => "fault: SIGSTOP and SIGCONT",
            Self::Cable(how) => how.name().0,
            Self::ClockStep => "fault: step of a wall clock",
            Self::FullDisk => "fault: full disk",
            Self::Intrusion(Intrusion::Reads) => "fault: another program reads for long",
            Self::Intrusion(Intrusion::Writes) => "fault: another program locks the file",
            Self::EngineCable(how) => how.name().1,
            Self::DatabaseRestart => "fault: database restarted",
            Self::DatabaseCrash => "fault: database crashed",
            Self::SessionsEnded => "fault: database sessions ended",
            Self::LeaderKilled => "fault: leader killed",
            Self::LeaderPaused => "fault: leader stopped and continued",
            Self::MemberKilled => "fault: member killed",
            Self::MajorityKilled => "fault: majority killed",
            Self::Compaction => "fault: history compacted",
            Self::ClusterRestart => "fault: all members killed",
        }
    }
}

impl CableFault {
    /// Its names in the table: before a server, and behind it.
    fn name(self) -> (&'static str, &'static str) {
        match self {
            Self::Cut => ("fault: connections cut", "fault: connections to the store cut"),
            Self::Refuse => ("fault: connections refused", "fault: store refuses connections"),
            Self::Hold => ("fault: network held up", "fault: network to the store held up"),
            Self::HoldAnswers => ("fault: answers held up", "fault: answers of the store held up"),
            Self::Lose => (
                "fault: connections half-open",
                "fault: connections to the store half-open",
            ),
            Self::LoseAnswers => ("fault: answers lost", "fault: answers of the store lost"),
        }
    }
}

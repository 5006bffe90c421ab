//! What the clients of a scenario do: a few steps before, a cycle of steps that is measured, a few steps after.

use clap::ValueEnum;

use crate::wire::{Answer, Ask};

/// A kind of work that is measured on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// Acquire and release, each time another name: one cycle is one pair
    Pairs,
    /// Acquire a lock that somebody else holds: every answer is a refusal
    Contended,
    /// Look at a lock that is held
    Reads,
    /// Renew a lock that is held
    Renewals,
    /// One lock that all clients wait for: from a release to the answer of who waited
    Handovers,
}

/// Which lock a client's steps are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// Another one for each cycle.
    Fresh,
    /// The same one all the time, another one for each client.
    Own,
    /// One lock for all clients.
    Shared,
}

/// A request and the only answer to it that is right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) ask: Ask,
    pub(crate) expect: Answer,
}

/// What each client does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    pub(crate) names: Names,
    pub(crate) before: &'static [Step],
    pub(crate) cycle: &'static [Step],
    pub(crate) after: &'static [Step],
    /// One more client, who is not measured, holds the shared lock meanwhile.
    pub(crate) keeper: bool,
    /// What is measured is not a cycle, but the time from one client's release to another's grant.
    pub(crate) handovers: bool,
}

pub(super) const OPEN: Step = Step {
    ask: Ask::Open,
    expect: Answer::Done,
};
pub(super) const TAKE: Step = Step {
    ask: Ask::Acquire,
    expect: Answer::Granted,
};
const BE_REFUSED: Step = Step {
    ask: Ask::Acquire,
    expect: Answer::Refused,
};
/// Asks for a lock that somebody else will give up.
pub(crate) const WAIT: Step = Step {
    ask: Ask::Wait,
    expect: Answer::Granted,
};
const RENEW: Step = Step {
    ask: Ask::Renew,
    expect: Answer::Done,
};
const LOOK: Step = Step {
    ask: Ask::Read,
    expect: Answer::Done,
};
pub(super) const RELEASE: Step = Step {
    ask: Ask::Release,
    expect: Answer::Done,
};

impl Scenario {
    /// Its name in tables and files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pairs => "pairs",
            Self::Contended => "contended",
            Self::Reads => "reads",
            Self::Renewals => "renewals",
            Self::Handovers => "handovers",
        }
    }

    /// What its clients do.
    pub(crate) fn script(self) -> Script {
        let nothing = Script {
            names: Names::Own,
            before: &[OPEN],
            cycle: &[],
            after: &[],
            keeper: false,
            handovers: false,
        };
        match self {
            Self::Pairs => Script {
                names: Names::Fresh,
                cycle: &[TAKE, RELEASE],
                ..nothing
            },
            Self::Contended => Script {
                names: Names::Shared,
                cycle: &[BE_REFUSED],
                keeper: true,
                ..nothing
            },
            Self::Reads => Script {
                before: &[OPEN, TAKE],
                cycle: &[LOOK],
                after: &[RELEASE],
                ..nothing
            },
            Self::Renewals => Script {
                before: &[OPEN, TAKE],
                cycle: &[RENEW],
                after: &[RELEASE],
                ..nothing
            },
            Self::Handovers => Script {
                names: Names::Shared,
                cycle: &[WAIT, RELEASE],
                handovers: true,
                ..nothing
            },
        }
    }
}

/// What the client who holds the shared lock does.
pub(crate) const KEEPER: Script = Script {
    names: Names::Shared,
    before: &[OPEN, TAKE],
    cycle: &[],
    after: &[RELEASE],
    keeper: false,
    handovers: false,
};

/// Clients who stand in line for the shared lock while the keeper has it. They are told to with [`WAIT`].
pub(crate) const QUEUE: Script = Script {
    before: &[OPEN],
    after: &[],
    keeper: true,
    ..KEEPER
};

//! A disk, and what a power cut may leave of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rand::Rng as _;
use rand::rngs::StdRng;

use crate::trace::Event;

/// What a disk writes whole or not at all.
const SECTOR: usize = 512;

/// Files with their contents.
pub(crate) type Image = BTreeMap<String, Vec<u8>>;

/// What has become of what was written and not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Survival {
    /// It is all there, as after a `kill -9`.
    All,
    /// Nothing of it is there.
    Nothing,
    /// Each write is there or not.
    SomeWrites,
    /// Each sector of each write is there or not.
    SomeSectors,
}

impl Survival {
    pub(crate) const EACH: [Self; 4] = [Self::All, Self::Nothing, Self::SomeWrites, Self::SomeSectors];

    /// Whether something is there that has a chance of one half.
    fn flip(self, dice: &mut StdRng) -> bool {
        match self {
            Self::All => true,
            Self::Nothing => false,
            Self::SomeWrites | Self::SomeSectors => dice.random(),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    files: Vec<Contents>,
    /// Names that are certain to be there, with the numbers of their files.
    names: BTreeMap<String, usize>,
    /// What was done to names since the directory was synced.
    pending_names: Vec<NameChange>,
}

#[derive(Clone, Debug, Default)]
struct Contents {
    synced: Vec<u8>,
    pending: Vec<Change>,
    /// How many of the pending changes the sync that is under way will make certain.
    covered: usize,
}

#[derive(Clone, Debug)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Truncate(usize),
}

#[derive(Clone, Debug)]
enum NameChange {
    Added(String, usize),
    Removed(String),
}

impl Disk {
    /// A disk with files that are certain to be there.
    pub(crate) fn holding(image: &Image) -> Self {
        let mut disk = Self::default();
        for (name, bytes) in image {
            disk.names.insert(name.clone(), disk.files.len());
            disk.files.push(Contents {
                synced: bytes.clone(),
                ..Contents::default()
            });
        }
        disk
    }

    pub(crate) fn apply(&mut self, event: &Event) {
        match event {
            Event::Made { name } => {
                if self.find(name).is_none() {
                    self.pending_names
                        .push(NameChange::Added(name.clone(), self.files.len()));
                    self.files.push(Contents::default());
                }
            }
            Event::Written { name, offset, bytes } => self.file(name).pending.push(Change::Write {
                offset: usize::try_from(*offset).unwrap(),
                bytes: bytes.clone(),
            }),
            Event::Truncated { name, length } => {
                let length = usize::try_from(*length).unwrap();
                self.file(name).pending.push(Change::Truncate(length));
            }
            Event::SyncBegun { name } => {
                let file = self.file(name);
                file.covered = file.pending.len();
            }
            Event::SyncDone { name } => self.file(name).sync(),
            Event::Removed { name } => self.pending_names.push(NameChange::Removed(name.clone())),
            Event::NamesSynced => {
                self.names = self.all_names();
                self.pending_names.clear();
            }
            Event::Received { .. } | Event::Answered { .. } => {}
        }
    }

    /// What a power cut leaves now.
    pub(crate) fn after_a_power_cut(&self, survival: Survival, dice: &mut StdRng) -> Image {
        let mut names = self.names.clone();
        for change in &self.pending_names {
            if survival.flip(dice) {
                change.apply(&mut names);
            }
        }
        names
            .into_iter()
            .map(|(name, file)| (name, self.files[file].after_a_power_cut(survival, dice)))
            .collect()
    }

    fn all_names(&self) -> BTreeMap<String, usize> {
        let mut names = self.names.clone();
        for change in &self.pending_names {
            change.apply(&mut names);
        }
        names
    }

    fn find(&self, name: &str) -> Option<usize> {
        for change in self.pending_names.iter().rev() {
            match change {
                NameChange::Added(added, file) if added == name => return Some(*file),
                NameChange::Removed(removed) if removed == name => return None,
                _ => {}
            }
        }
        self.names.get(name).copied()
    }

    fn file(&mut self, name: &str) -> &mut Contents {
        let file = self
            .find(name)
            .unwrap_or_else(|| panic!("{name} was not made before it was used"));
        &mut self.files[file]
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Added(name, file) => names.insert(name.clone(), *file),
            Self::Removed(name) => names.remove(name),
        };
    }
}

impl Contents {
    fn sync(&mut self) {
        for change in self.pending.drain(..std::mem::take(&mut self.covered)) {
            change.apply(&mut self.synced, |_| true);
        }
    }

    fn after_a_power_cut(&self, survival: Survival, dice: &mut StdRng) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        for change in &self.pending {
            if survival == Survival::SomeSectors {
                change.apply(&mut bytes, |_| dice.random());
            } else if survival.flip(dice) {
                change.apply(&mut bytes, |_| true);
            }
        }
        bytes
    }
}

impl Change {
    /// Carries it out on those sectors that are kept. Each is asked for once.
    fn apply(&self, file: &mut Vec<u8>, mut is_kept: impl FnMut(usize) -> bool) {
        match self {
            Self::Truncate(length) => {
                if is_kept(0) {
                    file.resize(*length, 0);
                }
            }
            Self::Write { offset, bytes } => {
                let mut at = *offset;
                let end = offset + bytes.len();
                while at < end {
                    let next = ((at / SECTOR + 1) * SECTOR).min(end);
                    if is_kept(at / SECTOR) {
                        if file.len() < next {
                            file.resize(next, 0);
                        }
                        file[at..next].copy_from_slice(&bytes[at - offset..next - offset]);
                    }
                    at = next;
                }
            }
        }
    }
}

/// Writes the files into an empty directory.
pub(crate) fn lay_out(image: &Image, directory: &Path) {
    for (name, bytes) in image {
        fs::write(directory.join(name), bytes).unwrap();
    }
}

/// What a directory holds, but for the index of the log.
pub(crate) fn read_in(directory: &Path) -> Image {
    fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| !path.to_str().unwrap().ends_with("-shm"))
        .map(|path| {
            (
                path.file_name().unwrap().to_str().unwrap().to_owned(),
                fs::read(&path).unwrap(),
            )
        })
        .collect()
}

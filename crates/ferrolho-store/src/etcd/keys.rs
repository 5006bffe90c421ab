//! Which key holds what.
//!
//! Under the prefix there are `lock/<resource>`, one key for each lock, read and written by exact key only, so
//! that names which are prefixes of each other have nothing to do with each other; `note`, which every
//! transaction writes and which says why locks ended; and `base`, the number that is added to every token.

use ferrolho_core::Resource;

/// The keys of one store.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    locks: Vec<u8>,
    pub(super) note: Vec<u8>,
    pub(super) base: Vec<u8>,
    /// What all of them begin with.
    pub(super) prefix: Vec<u8>,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        let key = |rest: &str| format!("{prefix}{rest}").into_bytes();
        Self {
            locks: key("lock/"),
            note: key("note"),
            base: key("base"),
            prefix: key(""),
        }
    }

    /// The key of a lock.
    pub(super) fn lock(&self, resource: &Resource) -> Vec<u8> {
        [&self.locks, resource.as_str().as_bytes()].concat()
    }

    /// The bounds of all locks: the first key that can be one, and the first behind them.
    pub(super) fn locks(&self) -> (Vec<u8>, Vec<u8>) {
        let mut end = self.locks.clone();
        if let Some(last) = end.last_mut() {
            *last += 1; // '/' becomes '0'
        }
        (self.locks.clone(), end)
    }

    /// Whose lock this key holds, if it is a lock's.
    pub(super) fn resource(&self, key: &[u8]) -> Option<Resource> {
        let name = key.strip_prefix(self.locks.as_slice())?;
        Resource::new(std::str::from_utf8(name).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_its_own_key_and_comes_back() {
        let keys = Keys::new("p/");
        let (start, end) = keys.locks();
        for name in ["a", "a/b", "a/", "/", "lock/a", "note", "語", "\u{10ffff}"] {
            let resource = Resource::new(name).unwrap();
            let key = keys.lock(&resource);
            assert!(start < key && key < end, "{name}");
            assert_eq!(keys.resource(&key), Some(resource));
        }
        assert_eq!(keys.resource(&keys.note), None);
        assert_eq!(keys.resource(b"p/lock/"), None);
        assert_eq!(keys.resource(b"p/lock/\xff"), None);
    }
}

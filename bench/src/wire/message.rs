//! Messages that begin with their own length, as PostgreSQL and ZooKeeper frame them: big-endian numbers.

/// Appends a message to `out` whose length, of four bytes, is known when `write` has written the rest.
/// `counts_itself` says whether the length counts its own four bytes.
pub(super) fn framed(out: &mut Vec<u8>, counts_itself: bool, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    int(out, 0);
    write(out);
    let length = out.len() - start - if counts_itself { 0 } else { 4 };
    if let Some(place) = out.get_mut(start..start + 4) {
        place.copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    }
}

/// Appends a number of four bytes.
pub(super) fn int(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_be_bytes());
}

/// Appends bytes after their length.
pub(super) fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    int(out, u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    out.extend_from_slice(bytes);
}

/// The number of four bytes at this place.
pub(super) fn int_at(input: &[u8], place: usize) -> Option<u32> {
    let four = input.get(place..place + 4)?;
    Some(u32::from_be_bytes(four.try_into().ok()?))
}

/// The same as a length.
pub(super) fn length_at(input: &[u8], place: usize) -> Option<usize> {
    usize::try_from(int_at(input, place)?).ok()
}

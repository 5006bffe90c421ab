//! The owner that a client takes when it is given none.

use ferrolho_core::Owner;

/// The longest part of the host's name that is used, in bytes, so that any host's name gives a legal owner.
const MAX_HOST_BYTES: usize = 64;

/// Host, process and a random part: `web-3-4711-9f86d081884c7d65`.
///
/// Host names repeat (containers, replicas), and process numbers too; the random part makes the owner new for
/// each start, so that two programs never take each other for themselves.
pub fn default_owner() -> Owner {
    let tail = format!("{}-{:016x}", std::process::id(), rand::random::<u64>());
    let name = format!("{}-{tail}", host());
    // Only a host with an unusable name gets here; the tail alone is always legal.
    Owner::new(&name)
        .or_else(|_| Owner::new(&tail))
        .unwrap_or_else(|_| unreachable!("a number is a legal owner"))
}

/// The host's name, its legal start.
fn host() -> String {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy();
    let mut host = String::new();
    for c in name.trim().chars().filter(|c| !c.is_control()) {
        if host.len() + c.len_utf8() > MAX_HOST_BYTES {
            break;
        }
        host.push(c);
    }
    host
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_new_and_says_where_it_comes_from() {
        let (a, b) = (default_owner(), default_owner());
        assert_ne!(a, b);
        assert!(a.as_str().contains(&format!("-{}-", std::process::id())), "{a}");
    }
}

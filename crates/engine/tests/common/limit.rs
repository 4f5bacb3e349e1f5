//! A limit of the address space, which makes allocations fail.
//!
//! Input: bytes. Output: none. Invariants: none of its own. Limits: it is the whole process's, so whoever sets it runs in a process of its
//! own.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Limits the address space of this process to what it uses now plus so many bytes; None ends the limit.
pub fn address_space(left: Option<u64>) {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    let maximum = getrlimit(Resource::As).maximum;
    let current = left.map_or(maximum, |left| Some(pages * 4096 + left));
    setrlimit(Resource::As, Rlimit { current, maximum }).unwrap();
}

//! Random numbers of a seed that is printed.
//!
//! Input: `DIORITE_SEED`, or the clock. Output: numbers. Invariant: the same seed gives the same numbers. Limits: for tests only.
#![allow(dead_code, clippy::unwrap_used, missing_docs, unreachable_pub)]

/// The seed, which is printed.
pub fn seed() -> u64 {
    let given = std::env::var("DIORITE_SEED").ok();
    let seed = given.and_then(|s| s.parse().ok()).unwrap_or_else(|| {
        let now = std::time::SystemTime::now();
        let since = now.duration_since(std::time::UNIX_EPOCH).unwrap();
        since.as_nanos() as u64
    });
    eprintln!("DIORITE_SEED={seed}");
    seed
}

/// A generator: splitmix64.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

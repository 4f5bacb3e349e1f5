//! Seeded randomness for tests.
//!
//! Input: `DIORITE_SEED`, or the clock. Output: numbers, and the seed on standard error. Invariant: the same seed gives the
//! same numbers. Limits: not for secrets.

/// A small generator (splitmix64).
#[derive(Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// A generator seeded by `DIORITE_SEED` or the clock; the seed is printed with `what`.
    pub(crate) fn from_env(what: &str) -> Rng {
        let clock = || {
            std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(1, |d| d.as_nanos() as u64)
        };
        let seed = std::env::var("DIORITE_SEED")
            .ok()
            .and_then(|s| s.parse().ok())
            .unwrap_or_else(clock);
        eprintln!("{what}: DIORITE_SEED={seed}");
        Rng(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not zero.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

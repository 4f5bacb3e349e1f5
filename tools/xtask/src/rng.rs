//! Seeded random numbers for tests.
//!
//! Input: `DIORITE_SEED`, or the clock. Output: numbers, and the seed on standard error. Invariant: the same seed gives the same numbers.
//! Limits: not for secrets.

/// A generator (splitmix64).
#[derive(Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator from this seed; the caller prints the seed.
    #[must_use]
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// A second generator, seeded from this one and independent from here on.
    #[must_use]
    pub fn fork(&mut self) -> Rng {
        Rng(self.next())
    }

    /// A generator of [`seed`], which is printed with `what`.
    #[must_use]
    pub fn from_env(what: &str) -> Rng {
        Rng(seed(what))
    }

    /// The next number. There is always one.
    #[expect(clippy::should_implement_trait, reason = "it has no end")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not zero.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Fills bytes with random ones.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        bytes
            .chunks_mut(8)
            .for_each(|c| c.copy_from_slice(&self.next().to_ne_bytes()[..c.len()]));
    }
    /// Random bytes.
    #[must_use]
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.fill(&mut bytes);
        bytes
    }
}

/// The seed of `DIORITE_SEED`, or the clock's; it is printed with `what`.
#[must_use]
pub fn seed(what: &str) -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed();
    seed_or(what, since.map_or(1, |d| d.as_nanos() as u64))
}

/// The seed of `DIORITE_SEED`, or else this one; it is printed with `what`.
#[must_use]
pub fn seed_or(what: &str, usual: u64) -> u64 {
    let given = std::env::var("DIORITE_SEED").ok();
    let seed = given.and_then(|s| s.parse().ok()).unwrap_or(usual);
    eprintln!("{what}: DIORITE_SEED={seed}");
    seed
}

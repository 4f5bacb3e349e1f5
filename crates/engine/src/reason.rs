//! Why a completion was handed to a worker.
//!
//! Input: none. Output: [`Reason`], under which deferred completions are counted. Invariants: none of its own. Limits: plain values.

/// Why a completion was handed to a worker; each reason has a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The policy defers every write.
    Policy,
    /// Blocks that were written have to be mapped, or the size has to change.
    Map,
    /// The request has to wait for a commit.
    Commit,
    /// The request has to wait for a flush.
    Flush,
    /// Cached pages have to be invalidated.
    CachedPages,
    /// A range operation: it changes the file's map or size, and moves no data.
    Range,
    /// The write failed: a thread that may block cleans up what it has left.
    Failed,
}

impl Reason {
    /// All reasons, in the order of their counters.
    pub const ALL: [Reason; 7] = [
        Reason::Policy,
        Reason::Map,
        Reason::Commit,
        Reason::Flush,
        Reason::CachedPages,
        Reason::Range,
        Reason::Failed,
    ];

    /// The name that counters are printed under.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Reason::Policy => "policy",
            Reason::Map => "map",
            Reason::Commit => "commit",
            Reason::Flush => "flush",
            Reason::CachedPages => "cached-pages",
            Reason::Range => "range",
            Reason::Failed => "failed",
        }
    }
}

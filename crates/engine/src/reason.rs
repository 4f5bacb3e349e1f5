//! Why a completion was not inline.
//!
//! Input: none. Output: [`Reason`], under which workers' completions are counted. Invariants: none of its own. Limits: plain values.

/// Why a completion was handed to a worker. Counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The policy defers every write.
    Policy,
    /// What was written has to be mapped, or the size to move.
    Map,
    /// A commit is owed.
    Commit,
    /// A flush is owed.
    Flush,
    /// Cached pages have to be invalidated.
    CachedPages,
    /// It changes the file's map or size, and moves no data.
    Range,
    /// The write failed; what it leaves behind is looked at by a thread that may block.
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

//! Performance targets: ratios within one run, on the default device. Each experiment has a table of its own.
//!
//! Input: none. Output: [`Goal`]s. Invariant: the meaning of an id never changes. Limits: targets are only for reports; no
//! test asserts a time.

/// The direction of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Good {
    /// The ratio should be at least the number.
    AtLeast,
    /// The ratio should be at most the number.
    AtMost,
}

/// One target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Goal {
    pub(super) id: &'static str,
    pub(super) good: Good,
    pub(super) value: f64,
    pub(super) what: &'static str,
}

pub(super) const fn least(id: &'static str, value: f64, what: &'static str) -> Goal {
    Goal {
        id,
        good: Good::AtLeast,
        value,
        what,
    }
}

pub(super) const fn most(id: &'static str, value: f64, what: &'static str) -> Goal {
    Goal {
        id,
        good: Good::AtMost,
        value,
        what,
    }
}

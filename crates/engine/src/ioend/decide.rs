//! The decision whether an ended write completes inline, in the thread that reaped its last bio, or on a worker, and for which reason.
//!
//! Input: [`Facts`] about the ended write and the volume's policy. Output: a [`Verdict`]. Invariants: the verdict starts as inline and is
//! only demoted; work that is owed for durability and work that is owed for visibility are separate facts. Limits: pure; not used for
//! reads, which owe nothing.

use crate::policy::CompletionPolicy;
use crate::reason::Reason;

/// Which pages of the inode are cached, relative to the ended write. Pages in its range must be invalidated, which may block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CachedPages {
    /// The inode has none.
    None,
    /// Some, but none in the range.
    Elsewhere,
    /// Some in the range.
    InRange,
}

/// The facts about an ended write on which the decision depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// One of its bios failed.
    pub(crate) failed: bool,
    /// It must be durable, and FUA was not enough for that: the device has to be flushed.
    pub(crate) owes_flush: bool,
    /// It must be durable, and a transaction has to be committed for that: rules C5 to C7, C13.
    pub(crate) owes_commit: bool,
    /// What it wrote has to be mapped, or the size to move, before anybody can see it.
    pub(crate) owes_map: bool,
    pub(crate) cached: CachedPages,
}

/// Inline, or deferred with the first reason that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Inline,
    Deferred(Reason),
}

/// Decides from policy and facts. Rules C1, C3, C4.
#[inline]
pub(crate) fn decide(policy: CompletionPolicy, facts: Facts) -> Verdict {
    let owed = [
        (facts.failed, Reason::Failed),
        (facts.owes_map, Reason::Map),
        (facts.owes_commit, Reason::Commit),
        (facts.owes_flush, Reason::Flush),
    ];
    if let Some((_, reason)) = owed.into_iter().find(|(owes, _)| *owes) {
        return Verdict::Deferred(reason);
    }
    let cached = match policy {
        CompletionPolicy::Deferred => return Verdict::Deferred(Reason::Policy),
        CompletionPolicy::InlineUnlessCached => facts.cached != CachedPages::None,
        CompletionPolicy::Inline | CompletionPolicy::InlineAlways => {
            facts.cached == CachedPages::InRange
        }
    };
    if cached {
        Verdict::Deferred(Reason::CachedPages)
    } else {
        Verdict::Inline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the order of the counters.
    #[test]
    fn reasons_have_their_names() {
        let names = "policy map commit flush cached-pages range failed";
        assert_eq!(Reason::ALL.map(Reason::name).join(" "), names);
        for (place, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place);
        }
    }

    /// Rule C1: inline only if there is no error, no sync owed and no cached page in the way; every combination.
    #[test]
    fn inline_only_when_nothing_is_owed() {
        use CachedPages as Pages;
        use CompletionPolicy as P;
        for policy in [
            P::Inline,
            P::InlineAlways,
            P::InlineUnlessCached,
            P::Deferred,
        ] {
            for cached in [Pages::None, Pages::Elsewhere, Pages::InRange] {
                for owed in 0..16u8 {
                    let facts = Facts {
                        failed: owed & 1 != 0,
                        owes_flush: owed & 2 != 0,
                        owes_commit: owed & 4 != 0,
                        owes_map: owed & 8 != 0,
                        cached,
                    };
                    let verdict = decide(policy, facts);
                    let in_the_way = match policy {
                        P::InlineUnlessCached => cached != Pages::None,
                        _ => cached == Pages::InRange,
                    };
                    let inline = owed == 0 && policy != P::Deferred && !in_the_way;
                    assert_eq!(verdict == Verdict::Inline, inline, "{policy:?} {facts:?}");
                }
            }
        }
    }

    /// A failed write owes no flush: there is nothing to make durable. A good one is never acknowledged without it.
    #[test]
    fn the_reason_says_what_is_owed() {
        let facts = Facts {
            failed: false,
            owes_flush: true,
            owes_commit: false,
            owes_map: false,
            cached: CachedPages::InRange,
        };
        assert_eq!(
            decide(CompletionPolicy::Inline, facts),
            Verdict::Deferred(Reason::Flush)
        );
        let facts = Facts {
            failed: true,
            ..facts
        };
        assert_eq!(
            decide(CompletionPolicy::Inline, facts),
            Verdict::Deferred(Reason::Failed)
        );
    }
}

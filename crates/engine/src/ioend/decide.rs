//! The one decision: does an ended write complete inline, where its last bio was reaped, or on a worker, and why.
//!
//! Input: [`Facts`] about the ended write and the volume's policy. Output: a [`Verdict`]. Invariants: it starts at inline
//! and is only demoted; "owes work to be durable" and "owes work to be visible" are asked apart. Limits: pure; reads
//! never come here, they owe nothing.

use crate::policy::CompletionPolicy;
use crate::reason::Reason;

/// Cached pages of the inode, as seen from the ended write. Pages over its range must be invalidated, which may block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CachedPages {
    /// The inode has none.
    None,
    /// Some, but none over the range.
    #[cfg_attr(
        not(test),
        expect(
            dead_code,
            reason = "direct I/O alone caches no pages; the table covers all cases"
        )
    )]
    Elsewhere,
    /// Some over the range.
    InRange,
}

/// What is known of an ended write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// A bio failed.
    pub(crate) failed: bool,
    /// Durability is owed that FUA alone has not given: a flush must follow.
    pub(crate) owes_flush: bool,
    /// A transaction must be durable first: rules C5 to C7, C13.
    pub(crate) owes_commit: bool,
    /// What it wrote has to be mapped, or the size to move, before anybody may see it.
    pub(crate) owes_map: bool,
    pub(crate) cached: CachedPages,
}

/// Inline, or deferred with the reason that weighed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Inline,
    Deferred(Reason),
}

/// Decides. Rules C1, C3, C4.
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

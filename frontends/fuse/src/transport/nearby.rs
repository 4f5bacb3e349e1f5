//! Whether the thread of a ring stays on the processor whose requests it executes.
//!
//! Input: whether requests were there at once, or had to be waited for. Output: when the thread may run elsewhere, and when it returns.
//! Invariants: it returns after [`AWAY`] requests, to be judged again. Limits: where requests are waited for, [`JUDGED`] of [`EACH`] are
//! judged, each of which takes a system call more.
//!
//! A caller that makes one call after the other sleeps until each reply: then its own processor is the best place. A caller that has many
//! requests under way, as asynchronous direct I/O has, goes on meanwhile: then caller and server are faster on two processors.

/// So many requests are judged together.
const JUDGED: u32 = 64;
/// If so many of them were there at once, the caller does not wait for each.
const MANY: u32 = JUDGED / 4;
/// Where requests are waited for, so many follow each other from the beginning of one judgement to the next.
const EACH: u32 = 1024;
/// So many requests are executed anywhere before the next judgement.
const AWAY: u32 = 16 * EACH;

/// Where the thread may run from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Where {
    /// On the processor whose requests it executes.
    Own,
    /// On any.
    Any,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Judge {
    seen: u32,
    at_once: u32,
    is_away: bool,
}

impl Judge {
    /// Whether the next request is judged.
    pub(super) fn is_asking(&self) -> bool {
        !self.is_away && self.seen < JUDGED
    }

    /// A request has come; `at_once`: it was judged, and was there already. Says where the thread runs, if that changes.
    pub(super) fn came(&mut self, at_once: bool) -> Option<Where> {
        self.at_once += u32::from(at_once && self.is_asking());
        self.seen += 1;
        let next = match self.is_away {
            false if self.seen == JUDGED && self.at_once >= MANY => Some(Where::Any),
            true if self.seen == AWAY => Some(Where::Own),
            false if self.seen == EACH => None,
            _ => return None,
        };
        *self = Judge {
            is_away: next == Some(Where::Any),
            ..Judge::default()
        };
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(judge: &mut Judge, count: u32, at_once: bool) -> Vec<(u32, Where)> {
        let came = |n| judge.came(at_once).map(|place| (n, place));
        (1..=count).filter_map(came).collect()
    }

    #[test]
    fn who_waits_for_each_reply_is_served_on_its_own_processor() {
        let mut judge = Judge::default();
        assert_eq!(after(&mut judge, 10 * EACH, false), []);
        // Requests that nobody waits for, as RELEASE, come between others.
        for n in 0..10 * EACH {
            assert_eq!(judge.came(n % 8 == 0), None);
        }
    }

    #[test]
    fn who_has_many_under_way_is_served_anywhere_for_a_time() {
        let mut judge = Judge::default();
        let changes = after(&mut judge, JUDGED + AWAY + JUDGED, true);
        let expected = [
            (JUDGED, Where::Any),
            (JUDGED + AWAY, Where::Own),
            (JUDGED + AWAY + JUDGED, Where::Any),
        ];
        assert_eq!(changes, expected);
    }

    #[test]
    fn few_requests_are_judged() {
        let mut judge = Judge::default();
        let mut asked = 0;
        for _ in 0..8 * EACH {
            asked += u32::from(judge.is_asking());
            judge.came(false);
        }
        assert_eq!(asked, 8 * JUDGED);
    }
}

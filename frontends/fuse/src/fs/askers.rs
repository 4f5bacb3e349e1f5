//! Callers that were sent the attributes of a directory and may not have received them yet.
//!
//! The kernel stores the attributes of a reply when its caller runs again. If another process has changed names of the directory meanwhile,
//! the stored attributes are old: the kernel drops attributes at the change, not at the late reply, unless a notice comes in between.
//!
//! Input: directories and threads of callers, as they ask and as they change names. Output: whether a notice is needed. Invariants: a
//! thread that changes names has taken what it asked for before; "needed" is never left out. Limits: many directories share a place; one
//! that does not have its place is taken to have been asked for by others.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

const PLACES: usize = 1024;
/// Nobody has asked since the last notice.
const NOBODY: u32 = 0;
/// Several have, or they are not known.
const MANY: u32 = u32::MAX;

/// See the module. Each place has a directory's number, and who has asked.
#[derive(Debug)]
pub(super) struct Askers(Box<[AtomicU64]>);

impl Default for Askers {
    fn default() -> Self {
        Askers((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }
}

fn packed(dir: u32, who: u32) -> u64 {
    u64::from(dir) << 32 | u64::from(who)
}

/// Who has asked, if the place is this directory's.
fn of(place: u64, dir: u32) -> Option<u32> {
    (place >> 32 == u64::from(dir)).then_some((place & u64::from(u32::MAX)) as u32)
}

impl Askers {
    fn place(&self, dir: u32) -> &AtomicU64 {
        &self.0[dir as usize % PLACES]
    }

    /// Call before the attributes are looked at. `thread` is 0 if it is not known.
    pub(super) fn ask(&self, dir: u32, thread: u32) {
        let add = |place| {
            let who = match of(place, dir) {
                Some(NOBODY) if thread != NOBODY => thread,
                Some(one) if one == thread && thread != NOBODY => one,
                _ => MANY,
            };
            Some(packed(dir, who))
        };
        let _always = self.place(dir).fetch_update(SeqCst, SeqCst, add);
    }

    /// Call when the names have changed. True: the caller sends a notice.
    pub(super) fn changed(&self, dir: u32, thread: u32) -> bool {
        let clear = |place| match of(place, dir) {
            Some(who) if who == NOBODY || who == thread => None,
            _ => Some(packed(dir, NOBODY)),
        };
        let place = self.place(dir);
        place.fetch_update(SeqCst, SeqCst, clear).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_needed_if_others_have_asked() {
        let askers = Askers::default();
        assert!(askers.changed(12, 7), "nothing is known");
        assert!(!askers.changed(12, 7));
        askers.ask(12, 7);
        assert!(!askers.changed(12, 7), "it has its answer");
        askers.ask(12, 8);
        assert!(askers.changed(12, 7));
        assert!(!askers.changed(12, 7));
        askers.ask(12, 8);
        askers.ask(12, 7);
        assert!(askers.changed(12, 7));
        askers.ask(12, 0);
        assert!(askers.changed(12, 0), "it is not known who that is");
        let other = 12 + u32::try_from(PLACES).expect("small");
        askers.ask(other, 7);
        assert!(askers.changed(12, 7), "the place was another's");
        askers.ask(other, 7);
        assert!(askers.changed(other, 7), "the place was another's");
        assert!(!askers.changed(other, 7));
    }
}

//! When a file's data was written last: a mark for each queue that writes, so that queues write no cache line of each other.
//!
//! Input: notes of writes, from a queue or from elsewhere. Output: the latest time, and whether it has to be written to the inode.
//! Invariants: while any queue's mark is owed, so is the file's; only a thread with the lock makes a mark owed or ends that, and a queue
//! whose mark is owed replaces the time without the lock. Limits: nanoseconds in 63 bits: until the year 2262.
//!
//! # A queue and the thread that writes the times
//!
//! A queue that finds its mark owed replaces the time by one atomic update of its own line. The writer of times takes the marks' values,
//! puts the latest into the inode, and then ends each mark only if it has that value still. If the queue's update came first, the mark
//! stays owed, and with it the file's. If the writer came first, the queue finds its mark not owed, and takes the lock: it waits until the
//! file's mark is settled, and then makes both owed. So whoever asks for owed times after a write has ended never misses its time.
//!
//! # Writes at a time that the inode has
//!
//! The clock has steps of milliseconds, so many writes have one time. Once it is in the inode, none of them owes it, whichever queue it
//! is of: an fsync after each of them commits only after the first. So the file's mark that is not owed has the time of the inode.

use crate::locks::WRITTEN;
use crate::turn::gate::Shard;
use diorite_block::sync::Mutex;
use diorite_block::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Bit 0 of a mark: the time has to be written to the inode. The other bits are nanoseconds since 1970.
pub(super) const OWED: u64 = 1;

/// In nanoseconds: a write may be noted after another one that asked the clock up to this much later. A larger step back means that the
/// clock was set back.
const RACE: u64 = 1_000_000_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Written {
    /// Owed if any mark is. Its time is that of what was noted here, by a queue's first note or from elsewhere; if it is not owed, the
    /// one that was put into the inode last, or 0.
    of_file: AtomicU64,
    queues: Mutex<Queues>,
}

#[derive(Debug, Default)]
struct Queues {
    /// The shards of queues that have written. Their marks are not owed before they are here.
    all: Vec<Arc<Shard>>,
    /// How often all marks were forgotten: what was noted before is not in the inode any more.
    forgotten: u64,
}

/// What was noted at one moment.
#[derive(Debug, Default)]
pub(super) struct Noted {
    /// The latest time, with [`OWED`].
    pub(super) latest: u64,
    forgotten: u64,
    of_file: u64,
    of_queues: Vec<(Arc<Shard>, u64)>,
}

/// A mark with this time, unless the one that it has is of a write a moment later.
fn later(noted: u64, now: u64) -> u64 {
    let last = noted >> 1;
    let time = if last > now && last - now < RACE {
        last
    } else {
        now
    };
    time << 1 | OWED
}

fn is_owed(mark: u64) -> bool {
    mark & OWED != 0
}

/// Is the mark's time in the inode, and as late as `now`, or that of a write a moment later?
fn is_settled(mark: u64, now: u64) -> bool {
    mark != 0 && !is_owed(mark) && later(mark, now) == mark | OWED
}

impl Written {
    pub(super) fn new(level: u8) -> Written {
        Written {
            of_file: AtomicU64::new(0),
            queues: Mutex::at_level(&WRITTEN, level, Queues::default()),
        }
    }

    /// Has any time to be written?
    pub(super) fn is_owed(&self) -> bool {
        is_owed(self.of_file.load(Ordering::Acquire))
    }

    /// Was this time noted here last, or put into the inode last?
    #[inline]
    pub(super) fn is_noted(&self, now: u64) -> bool {
        self.of_file.load(Ordering::Acquire) >> 1 == now
    }

    /// Notes a write of a queue whose mark is owed already, or whose last time is in the inode and no older. Returns false, and does
    /// nothing, if it is not so.
    pub(super) fn note_again(shard: &Shard, now: u64) -> bool {
        let mark = shard.written.load(Ordering::Acquire);
        if is_settled(mark, now) {
            return true;
        }
        let noted = |mark| is_owed(mark).then(|| later(mark, now));
        // AcqRel: with the compare-and-exchange of `settle` on the same word, one of the two sees the other.
        shard
            .written
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, noted)
            .is_ok()
    }

    fn add(queues: &mut Queues, shard: &Arc<Shard>) {
        if !queues.all.iter().any(|s| Arc::ptr_eq(s, shard)) {
            queues.all.push(shard.clone());
        }
    }

    /// Notes a write, of a queue or from elsewhere. Returns whether the inode owes its time, and nothing was owed before.
    pub(super) fn note(&self, shard: Option<&Arc<Shard>>, now: u64) -> bool {
        let mut queues = self.queues.lock();
        let update = |place: &AtomicU64| {
            let updated = place.fetch_update(Ordering::AcqRel, Ordering::Acquire, |mark| {
                Some(later(mark, now))
            });
            updated.unwrap_or_else(|mark| mark)
        };
        let last = self.of_file.load(Ordering::Acquire);
        if is_settled(last, now) {
            if let Some(shard) = shard {
                shard.written.store(last, Ordering::Release);
                Written::add(&mut queues, shard);
            }
            return false;
        }
        // The file's first: no queue's mark is owed without it.
        let before = update(&self.of_file);
        if let Some(shard) = shard {
            update(&shard.written);
            Written::add(&mut queues, shard);
        }
        !is_owed(before)
    }

    /// What is noted. `now` is asked if times differ: one that is still to come is from before the clock was set back.
    pub(super) fn noted(&self, now: impl FnOnce() -> u64) -> Noted {
        let queues = self.queues.lock();
        let load = |place: &AtomicU64| place.load(Ordering::Acquire);
        let of_file = load(&self.of_file);
        let forgotten = queues.forgotten;
        let owed = queues
            .all
            .iter()
            .map(|shard| (shard.clone(), load(&shard.written)));
        let of_queues: Vec<_> = owed.filter(|(_, mark)| is_owed(*mark)).collect();
        drop(queues);
        let marks = || of_queues.iter().map(|(_, mark)| *mark).chain([of_file]);
        let mut latest = marks().max().unwrap_or(of_file);
        if marks().any(|mark| mark != latest) {
            let limit = now().saturating_add(RACE) << 1 | OWED;
            latest = marks()
                .filter(|mark| *mark <= limit)
                .max()
                .unwrap_or(latest);
        }
        Noted {
            latest: latest | of_file & OWED,
            forgotten,
            of_file,
            of_queues,
        }
    }

    /// Ends the marks that are as they were noted, and those with the time that was put into the inode: they are in a transaction. Does
    /// nothing if all were forgotten since: the inode has got another time, and equal marks are of later writes.
    pub(super) fn settle(&self, noted: &Noted) {
        let queues = self.queues.lock();
        if queues.forgotten != noted.forgotten {
            return;
        }
        let end = |place: &AtomicU64, mark: u64, time: u64| {
            let ended = time & !OWED;
            let ended = place.compare_exchange(mark, ended, Ordering::AcqRel, Ordering::Relaxed);
            ended.is_ok()
        };
        for (shard, mark) in &noted.of_queues {
            end(&shard.written, *mark, *mark);
        }
        let left = |shard: &Arc<Shard>| {
            let mark = shard.written.load(Ordering::Acquire);
            is_owed(mark) && !(mark == noted.latest && end(&shard.written, mark, mark))
        };
        if !queues.all.iter().any(left) {
            end(&self.of_file, noted.of_file, noted.latest);
        }
    }

    /// Forgets all marks.
    pub(super) fn forget(&self) {
        let mut queues = self.queues.lock();
        queues.forgotten += 1;
        for shard in &queues.all {
            shard.written.store(0, Ordering::Release);
        }
        self.of_file.store(0, Ordering::Release);
    }

    /// Takes over the mark of a queue that lets the file go.
    pub(super) fn take_over(&self, shard: &Arc<Shard>) {
        let mut queues = self.queues.lock();
        let Some(at) = queues.all.iter().position(|s| Arc::ptr_eq(s, shard)) else {
            return;
        };
        let mark = queues.all.swap_remove(at).written.load(Ordering::Acquire);
        if is_owed(mark) {
            let noted = |of_file| Some(later(of_file, mark >> 1));
            let _always = self
                .of_file
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, noted);
        }
    }
}

#[cfg(all(test, not(any(feature = "_loom", feature = "_shuttle"))))]
mod tests {
    use super::*;
    use crate::turn::gate::Gate;

    /// A time that a queue notes while older ones are being written stays owed.
    #[test]
    fn a_time_noted_meanwhile_stays() {
        let (gate, written) = (Gate::new(1), Written::new(1));
        let (one, two) = (gate.add_shard(), gate.add_shard());
        assert!(!Written::note_again(&one, 5) && written.note(Some(&one), 5));
        assert!(!written.note(Some(&two), 6));
        let noted = written.noted(|| 10);
        assert_eq!(noted.latest, 6 << 1 | OWED);
        assert!(Written::note_again(&one, 7));
        written.settle(&noted);
        assert!(written.is_owed());
        // The second queue's was settled, so it has to take the lock for its next one.
        assert!(!Written::note_again(&two, 8));
        let noted = written.noted(|| 10);
        assert_eq!(noted.latest, 7 << 1 | OWED);
        written.settle(&noted);
        assert!(!written.is_owed() && !Written::note_again(&one, 9));
    }

    /// A time that is in the inode is owed by no queue, and by every queue once it was forgotten.
    #[test]
    fn a_time_of_the_inode_is_not_owed() {
        let (gate, written) = (Gate::new(1), Written::new(1));
        let (one, two) = (gate.add_shard(), gate.add_shard());
        assert!(written.note(Some(&one), 5) && !written.note(Some(&two), 5));
        let noted = written.noted(|| 10);
        assert!(!written.note(Some(&two), 5));
        written.settle(&noted);
        let three = gate.add_shard();
        for shard in [Some(&one), Some(&two), Some(&three), None] {
            assert!(!written.note(shard, 5) && !written.is_owed(), "{shard:?}");
        }
        // The clock of another thread's write, a moment earlier.
        assert!(!written.note(Some(&two), 4) && !written.is_owed());
        written.forget();
        assert!(written.note(Some(&three), 5) && written.is_owed());
        written.settle(&written.noted(|| 10));
        assert!(written.note(Some(&two), 6) && !written.note(Some(&one), 5));
        assert_eq!(written.noted(|| 10).latest, (6 << 1) | OWED);
    }

    /// The defect: the time was put into the inode, set to another, and noted again, all in one step of the clock. Then the first was
    /// taken for settled.
    #[test]
    fn a_time_that_was_forgotten_meanwhile_stays_owed() {
        let (gate, written) = (Gate::new(1), Written::new(1));
        let shard = gate.add_shard();
        written.note(Some(&shard), 5);
        let noted = written.noted(|| 10);
        written.forget();
        assert!(written.note(Some(&shard), 5));
        written.settle(&noted);
        assert!(written.is_owed() && is_owed(shard.written.load(Ordering::Acquire)));
    }

    /// After a settled time that is a moment later, writes of an earlier one take no lock.
    #[test]
    fn an_earlier_write_is_noted_without_the_lock() {
        let (gate, written) = (Gate::new(1), Written::new(1));
        let shard = gate.add_shard();
        assert!(!Written::note_again(&shard, 4));
        written.note(Some(&shard), 5);
        written.settle(&written.noted(|| 10));
        assert!(Written::note_again(&shard, 4) && Written::note_again(&shard, 5));
        assert!(!Written::note_again(&shard, 6) && !written.is_owed());
    }

    /// What a queue has noted outlives it; what was forgotten does not come back.
    #[test]
    fn marks_outlive_their_queues() {
        let (gate, written) = (Gate::new(1), Written::new(1));
        let shard = gate.add_shard();
        assert!(written.note(Some(&shard), 5) && Written::note_again(&shard, 9));
        written.take_over(&shard);
        assert_eq!(written.noted(|| 10).latest, 9 << 1 | OWED);
        written.note(Some(&shard), 11);
        written.forget();
        assert!(!written.is_owed() && !Written::note_again(&shard, 12));
    }

    /// A queue that has noted a time before the clock was set back does not keep a later write's time away.
    #[test]
    fn a_time_to_come_is_of_a_clock_set_back() {
        const HOUR: u64 = 3_600_000_000_000;
        let (gate, written) = (Gate::new(1), Written::new(1));
        let (one, two) = (gate.add_shard(), gate.add_shard());
        written.note(Some(&one), 2 * HOUR);
        written.note(Some(&two), HOUR);
        assert_eq!(written.noted(|| HOUR).latest, (HOUR << 1) | OWED);
        assert_eq!(written.noted(|| 2 * HOUR).latest, ((2 * HOUR) << 1) | OWED);
    }
}

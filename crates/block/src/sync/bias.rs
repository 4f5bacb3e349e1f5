//! The protocol by which readers of a [`super::Biased`] lock take it with plain stores, and a writer waits for them.
//!
//! Input: readers with a slot of their own; a writer that holds the lock exclusively. Output: permission to read. Invariants: a reader
//! stores the lock's name into its slot, then loads the bias; a writer clears the bias, then loads the slots. Between the two there is a
//! full barrier on each side, so at least one sees the other: the reader turns back, or the writer waits for it. The reader's barrier is
//! for the compiler only, because the writer's, membarrier(2), runs one on every processor that runs a thread of this process. Limits: a
//! slot holds one name, so a reader inside another read takes the lock itself. The idea is Dice and Kogan's BRAVO (USENIX ATC 2019).

use super::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Where one thread says which lock it reads under. Two lines, as processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ReaderSlot(AtomicUsize);

impl ReaderSlot {
    /// A slot in which nothing is read.
    #[must_use]
    pub fn new() -> ReaderSlot {
        ReaderSlot(AtomicUsize::new(0))
    }

    /// A slot in which nothing is read, for a static table.
    #[cfg(not(any(feature = "_loom", feature = "_shuttle")))]
    pub(super) const fn empty() -> ReaderSlot {
        ReaderSlot(AtomicUsize::new(0))
    }

    /// Is nothing read? Asked by the slot's thread.
    #[inline]
    pub(super) fn is_free(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Ends a read that [`Bias::enter`] has permitted.
    #[inline]
    pub fn leave(&self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Whether readers of a lock may take it by their slots.
#[derive(Debug)]
pub struct Bias(AtomicBool);

impl Default for Bias {
    fn default() -> Self {
        Bias(AtomicBool::new(false))
    }
}

impl Bias {
    /// Begins a read of the lock called `name`, which is not 0; [`ReaderSlot::leave`] must follow if it returns true. Call by the slot's
    /// thread, while nothing is read in it.
    #[inline]
    pub fn enter(&self, name: usize, slot: &ReaderSlot) -> bool {
        if !self.0.load(Ordering::Relaxed) {
            return false;
        }
        slot.0.store(name, Ordering::Relaxed);
        readers_barrier();
        let may = self.0.load(Ordering::Acquire);
        if !may {
            slot.leave();
        }
        may
    }

    /// Permits reads by slots. The caller has the lock, shared, so no writer has.
    pub fn grant(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Permits no more reads by slots, and waits for those under way. The caller has the lock exclusively.
    ///
    /// # Panics
    /// The host takes back a system call that it has had. A writer that went on without the barrier could meet a reader.
    pub fn revoke(&self, name: usize, slots: &[ReaderSlot]) {
        if !self.0.load(Ordering::Relaxed) {
            return;
        }
        self.0.store(false, Ordering::Relaxed);
        if !writers_barrier() {
            // Before the panic gives the lock back: the next writer has to ask for the barrier, too.
            self.0.store(true, Ordering::Release);
            panic!("membarrier(2) worked when the first lock was biased, and is refused now");
        }
        for slot in slots {
            let mut waited = 0u32;
            while slot.0.load(Ordering::Acquire) == name {
                pause(waited);
                waited = waited.saturating_add(1);
            }
        }
    }
}

/// Lets a reader go on: it copies a few kilobytes, unless it lost its processor meanwhile.
#[cfg(not(any(feature = "_loom", feature = "_shuttle")))]
pub(crate) fn pause(waited: u32) {
    match waited {
        0..100 => std::hint::spin_loop(),
        100..200 => std::thread::yield_now(),
        _ => std::thread::sleep(std::time::Duration::from_micros(50)),
    }
}

#[cfg(any(feature = "_loom", feature = "_shuttle"))]
pub(crate) fn pause(_: u32) {
    super::thread::yield_now();
}

#[cfg(any(feature = "_loom", feature = "_shuttle"))]
fn readers_barrier() {
    super::atomic::fence(Ordering::SeqCst);
}

#[cfg(any(feature = "_loom", feature = "_shuttle"))]
fn writers_barrier() -> bool {
    super::atomic::fence(Ordering::SeqCst);
    true
}

#[cfg(not(any(feature = "_loom", feature = "_shuttle")))]
pub(super) use host::{can_be_biased, slots, with_slot};
#[cfg(not(any(feature = "_loom", feature = "_shuttle")))]
use host::{readers_barrier, writers_barrier};

/// The host's barrier, and the slots of the threads of this process.
#[cfg(not(any(feature = "_loom", feature = "_shuttle")))]
mod host {
    use super::ReaderSlot;
    use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

    /// Threads beyond this number take the lock itself.
    const SLOTS: usize = 256;

    static TABLE: [ReaderSlot; SLOTS] = [const { ReaderSlot::empty() }; SLOTS];

    /// A bit for each slot that has a thread.
    static TAKEN: [AtomicU64; SLOTS / 64] = [const { AtomicU64::new(0) }; SLOTS / 64];

    /// The slot of a thread, given back when the thread ends.
    struct Mine(Option<usize>);

    impl Mine {
        fn take() -> Mine {
            let first = |taken: u64| {
                let free = !taken;
                (free != 0).then(|| taken | free & free.wrapping_neg())
            };
            let take = |word: &AtomicU64| {
                let taken = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, first);
                taken.ok().map(|taken| (!taken).trailing_zeros() as usize)
            };
            let mut words = TAKEN.iter().enumerate();
            Mine(words.find_map(|(n, word)| take(word).map(|bit| n * 64 + bit)))
        }
    }

    impl Drop for Mine {
        fn drop(&mut self) {
            if let Some(index) = self.0 {
                TAKEN[index / 64].fetch_and(!(1 << (index % 64)), Ordering::AcqRel);
            }
        }
    }

    thread_local! {
        static MINE: Mine = Mine::take();
    }

    pub(in super::super) fn slots() -> &'static [ReaderSlot] {
        &TABLE
    }

    /// The calling thread's slot, if it has one and reads nothing in it. None too while the thread ends.
    #[inline]
    pub(in super::super) fn with_slot() -> Option<&'static ReaderSlot> {
        let index = MINE.try_with(|mine| mine.0).ok()??;
        Some(&TABLE[index]).filter(|slot| slot.is_free())
    }

    /// Has the host the barrier? Without it no lock is ever biased.
    pub(in super::super) fn can_be_biased() -> bool {
        static CAN: OnceLock<bool> = OnceLock::new();
        *CAN.get_or_init(|| {
            membarrier_query().contains(MembarrierQuery::PRIVATE_EXPEDITED)
                && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
                && membarrier(MembarrierCommand::PrivateExpedited).is_ok()
        })
    }

    #[inline]
    pub(super) fn readers_barrier() {
        compiler_fence(Ordering::SeqCst);
    }

    /// False if the host refuses.
    pub(super) fn writers_barrier() -> bool {
        let barrier = || membarrier(MembarrierCommand::PrivateExpedited);
        // After a fork the child has to register itself.
        let again =
            || membarrier(MembarrierCommand::RegisterPrivateExpedited).and_then(|()| barrier());
        barrier().or_else(|_| again()).is_ok()
    }
}

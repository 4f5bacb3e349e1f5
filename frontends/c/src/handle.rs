//! Handles: numbers that C has in place of pointers, checked at each use.
//!
//! Input: objects, and numbers that a caller passes. Output: objects that are in use, and so alive, until their [`Held`] is dropped.
//! Invariants: a number that was closed, was never given out, belongs to another kind or to the process before a fork finds nothing;
//! finding waits for nobody. Limits: 2^20 handles of a kind are open at once; a number is given out again after 2^30 others of its place.
//!
//! A handle is, from the highest bit: 8 bits of the process (which changes with fork), 4 of the kind, 20 of the place in the kind's table,
//! and 32 of the place's generation. A place has one word: its generation in the upper half, and how many calls use it in the lower. Its
//! generation says by its lowest two bits what the place is:
//!
//! ```text
//! FREE --insert--> LIVE --close--> CLOSING --last use ends--> EMPTIED --> FREE (of the next generation)
//! ```
//!
//! A call adds itself to the count first, and looks then whether the generation is that of its handle; if not, it takes itself away
//! again. So whoever sees a live place is counted, and the object stays. Such a look at a place that is not live may come at any moment,
//! so an end of use that leaves a count of 0 in a closing place decides by one compare-and-swap who empties it.

use crate::error::Fault;
use std::cell::UnsafeCell;
use std::ops::Deref;
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Places of a piece of a table, and pieces.
const PLACES: usize = 1024;
const PIECES: usize = 1024;

/// What a place is: the lowest two bits of its generation.
const LIVE: u32 = 1;
const CLOSING: u32 = 2;
const STATES: u32 = 3;

/// One use in a place's word, and one generation.
const USE: u64 = 1;
const STEP: u64 = 1 << 32;

/// Which process of a family this is: it grows in the child of a fork.
static PROCESS: AtomicU32 = AtomicU32::new(1);

/// Held for a moment by who changes a table, and over a fork.
static CHANGING: AtomicBool = AtomicBool::new(false);

fn lock() {
    while CHANGING
        .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        std::thread::yield_now();
    }
}

fn unlock() {
    CHANGING.store(false, Ordering::Release);
}

extern "C" fn before_fork() {
    lock();
}

extern "C" fn in_parent() {
    unlock();
}

extern "C" fn in_child() {
    PROCESS.fetch_add(1, Ordering::Relaxed);
    unlock();
}

/// Is told of forks from the first handle on.
fn watch_forks() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: the three functions may be called at any time from now on: this code is never unloaded, as the handlers refer to it. It
        // can fail only for lack of memory; then a child is not told from its parent.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
    });
}

struct Place<T> {
    word: AtomicU64,
    object: UnsafeCell<Option<T>>,
}

/// The handles of one kind.
pub(crate) struct Table<T> {
    kind: u8,
    what: &'static str,
    pieces: [AtomicPtr<Place<T>>; PIECES],
    /// Changed under [`CHANGING`] only.
    room: UnsafeCell<Room>,
}

/// Which places are free.
struct Room {
    free: Vec<u32>,
    /// Places that were never used begin here.
    fresh: u32,
}

// SAFETY: `room` is touched under `CHANGING` only. The object of a place is written by the one who took the place from `room`, before the
// place is live; read by those who are counted in it while it is live; taken by the one who won the compare-and-swap of `end_use`.
unsafe impl<T: Send + Sync> Sync for Table<T> {}

impl<T: Send + Sync + 'static> Table<T> {
    /// An empty table; `kind` tells its handles from those of other tables, `what` names one in messages.
    pub(crate) const fn new(kind: u8, what: &'static str) -> Table<T> {
        Table {
            kind,
            what,
            pieces: [const { AtomicPtr::new(null_mut()) }; PIECES],
            room: UnsafeCell::new(Room {
                free: Vec::new(),
                fresh: 0,
            }),
        }
    }

    /// The upper 12 bits of this table's handles in this process.
    #[inline]
    fn mark(&self) -> u32 {
        (PROCESS.load(Ordering::Relaxed) & 0xff) << 4 | u32::from(self.kind)
    }

    #[inline]
    fn place(&self, index: u32) -> Option<&'static Place<T>> {
        let piece = self.pieces.get(index as usize / PLACES)?;
        let piece = piece.load(Ordering::Acquire);
        if piece.is_null() {
            return None;
        }
        // SAFETY: a piece has `PLACES` places, and is never freed.
        Some(unsafe { &*piece.add(index as usize % PLACES) })
    }

    /// Takes a free place. None if there is none.
    fn take_place(&self) -> Option<u32> {
        lock();
        // SAFETY: `CHANGING` is held.
        let room = unsafe { &mut *self.room.get() };
        let index = room.free.pop().or_else(|| {
            let index = room.fresh;
            let piece = self.pieces.get(index as usize / PLACES)?;
            if piece.load(Ordering::Relaxed).is_null() {
                let places = (0..PLACES).map(|_| Place {
                    word: AtomicU64::new(0),
                    object: UnsafeCell::new(None),
                });
                let places: Box<[Place<T>]> = places.collect();
                piece.store(Box::into_raw(places).cast(), Ordering::Release);
            }
            room.fresh += 1;
            Some(index)
        });
        unlock();
        index
    }

    /// Gives an object a handle.
    pub(crate) fn insert(&'static self, object: T) -> Result<u64, Fault> {
        watch_forks();
        let full = || Fault::new(libc::EMFILE, format!("too many {}s are open", self.what));
        let index = self.take_place().ok_or_else(full)?;
        let place = self.place(index).ok_or_else(full)?;
        // SAFETY: the place is not live, and this thread alone has taken it.
        unsafe { *place.object.get() = Some(object) };
        let word = place.word.fetch_add(STEP, Ordering::Release) + STEP;
        let generation = word >> 32;
        Ok(u64::from(self.mark()) << 52 | u64::from(index) << 32 | generation)
    }

    /// The object of a handle, which stays alive until the result is dropped.
    #[inline]
    pub(crate) fn hold(&'static self, handle: u64) -> Result<Held<T>, Fault> {
        let held = (handle >> 52) as u32 == self.mark();
        let held = held.then(|| self.place((handle >> 32) as u32 & 0xf_ffff));
        if let Some(Some(place)) = held {
            let before = place.word.fetch_add(USE, Ordering::Acquire);
            let held = Held {
                table: self,
                place,
                index: (handle >> 32) as u32 & 0xf_ffff,
            };
            let generation = (before >> 32) as u32;
            if generation == handle as u32 && generation & STATES == LIVE {
                return Ok(held);
            }
        }
        Err(self.unknown(handle))
    }

    /// Why a handle finds nothing.
    #[cold]
    fn unknown(&self, handle: u64) -> Fault {
        let what = self.what;
        let (process, kind) = ((handle >> 56) as u32, (handle >> 52) as u8 & 0xf);
        let message = if handle == 0 {
            format!("0 is no {what}")
        } else if kind == self.kind && process != PROCESS.load(Ordering::Relaxed) & 0xff {
            format!("the {what} was opened before fork(), and belongs to the parent process")
        } else if kind != self.kind {
            format!("the handle {handle:#x} is no {what}")
        } else {
            format!("the {what} {handle:#x} is closed, or was never open")
        };
        Fault::new(libc::EBADF, message)
    }

    /// Ends a handle: nobody finds the object from now on. It is dropped by the last who holds it.
    pub(crate) fn close(&'static self, handle: u64) -> Result<Held<T>, Fault> {
        let held = self.hold(handle)?;
        let mut word = held.place.word.load(Ordering::Relaxed);
        loop {
            if (word >> 32) as u32 != handle as u32 {
                // Another thread has closed it meanwhile.
                return Err(self.unknown(handle));
            }
            let closing = word + STEP;
            let order = Ordering::AcqRel;
            match held
                .place
                .word
                .compare_exchange_weak(word, closing, order, Ordering::Relaxed)
            {
                Ok(_) => return Ok(held),
                Err(now) => word = now,
            }
        }
    }
}

impl<T> Table<T> {
    /// The end of a use that may have been the last one of a closing place.
    #[cold]
    fn end_last_use(&self, place: &Place<T>, index: u32) {
        let word = place.word.load(Ordering::Acquire);
        if (word >> 32) as u32 & STATES != CLOSING || word as u32 != 0 {
            return;
        }
        let order = Ordering::AcqRel;
        if place
            .word
            .compare_exchange(word, word + STEP, order, Ordering::Relaxed)
            .is_err()
        {
            // Somebody looks at the place, and comes here afterwards.
            return;
        }
        // SAFETY: the place was closing and nobody used it; this thread alone has changed that.
        let object = unsafe { (*place.object.get()).take() };
        place.word.fetch_add(STEP, Ordering::Release);
        lock();
        // SAFETY: `CHANGING` is held.
        unsafe { (*self.room.get()).free.push(index) };
        unlock();
        // Last, as it may block, or call the host.
        drop(object);
    }
}

/// An object that is in use by a call.
pub(crate) struct Held<T: 'static> {
    table: &'static Table<T>,
    place: &'static Place<T>,
    index: u32,
}

impl<T> Deref for Held<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `hold` has seen a live place while this was counted in it, so the object is there and is not taken.
        unsafe { (*self.place.object.get()).as_ref().unwrap_unchecked() }
    }
}

impl<T> Drop for Held<T> {
    #[inline]
    fn drop(&mut self) {
        let before = self.place.word.fetch_sub(USE, Ordering::AcqRel);
        let is_last = before as u32 == 1;
        if is_last && (before >> 32) as u32 & STATES == CLOSING {
            self.table.end_last_use(self.place, self.index);
        }
    }
}

#[cfg(test)]
mod tests;

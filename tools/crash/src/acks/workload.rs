//! What it is: threads that write, sync and change names on one volume at the same time.
//! Input: a volume on disks with latencies, a seed. Output: what was requested and acknowledged, with positions in the disks' log.
//! Invariants: a request is noted before it is submitted, and its acknowledgement is noted before anything else afterwards; each
//! thread does only some kinds of work. Limits: every request must succeed; the host's scheduler decides which requests meet.

mod hand;
mod names;

use super::bed::{Bed, is_sync};
use super::disk::Disks;
use super::history::{Of, Promise, Start, Sync, Time, Write, time};
use super::judge::Told;
use super::names::{Change, Named};
use crate::error::Result;
use crate::rng::Rng;
use crate::shares::in_threads;
use diorite::Volume;
use hand::Hand;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The largest number of a file: files store their number in their permissions.
const MOST_FILES: usize = 0o777;

/// What all threads share.
pub(super) struct Scene<'a> {
    disks: &'a Disks,
    volume: &'a Volume,
    told: Mutex<Told>,
    threads: u32,
    /// Files that certainly have the flag S by now. No file loses it.
    sync: Vec<AtomicBool>,
}

/// Runs `threads` threads of `steps` steps each.
///
/// # Errors
/// A request failed.
pub fn run(
    (volume, bed, disks): (&Volume, &Bed, &Disks),
    seed: u64,
    (threads, steps): (u32, u32),
) -> Result<Told> {
    let mut told = Told {
        threads,
        ..Told::default()
    };
    told.history.files.clone_from(&bed.files);
    let scene = Scene {
        disks,
        volume,
        told: Mutex::new(told),
        threads,
        sync: bed.files.iter().map(|_| AtomicBool::new(false)).collect(),
    };
    let mut rng = Rng::new(seed);
    let hands: Vec<(u32, u64)> = (0..threads).map(|thread| (thread, rng.next())).collect();
    in_threads(hands.len(), |n| {
        let (thread, seed) = hands[n];
        Hand::new(&scene, thread, seed)?.work(steps)
    })?;
    Ok(scene
        .told
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner))
}

impl Scene<'_> {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Time {
        time(self.volume.now())
    }

    /// True if a file has the flag S.
    fn is_sync(&self, file: u32) -> bool {
        let set = self.sync.get(file as usize);
        is_sync(file) || set.is_some_and(|set| set.load(Ordering::SeqCst))
    }

    /// Notes that a file has the flag S from now on.
    fn note_sync(&self, file: u32) {
        if let Some(set) = self.sync.get(file as usize) {
            set.store(true, Ordering::SeqCst);
        }
    }

    /// Notes a write that is about to be requested; returns its number.
    fn write(&self, write: Write) -> u32 {
        let mut told = self.told();
        let asked = self.disks.mark();
        told.history.writes.push(Write { asked, ..write });
        u32::try_from(told.history.writes.len()).unwrap_or(u32::MAX)
    }

    /// Notes that the write was acknowledged.
    fn written(&self, number: u32, appended_at: Option<u64>) {
        let at = self.disks.mark();
        let mut told = self.told();
        let write = &mut told.history.writes[number as usize - 1];
        write.acked = Some(at);
        if let Some(first) = appended_at {
            let count = write.sectors.end - write.sectors.start;
            write.sectors = first..first + count;
        }
    }

    /// Notes a sync that is about to be requested; returns its number.
    fn sync(&self, of: Of, promise: Promise) -> usize {
        let mut told = self.told();
        let asked = self.disks.mark();
        told.history.syncs.push(Sync {
            of,
            promise,
            asked,
            acked: None,
        });
        told.history.syncs.len() - 1
    }

    fn synced(&self, number: usize) {
        let at = self.disks.mark();
        self.told().history.syncs[number].acked = Some(at);
    }

    /// A number for a file that is about to be created, if one is left.
    fn new_file(&self) -> Option<u32> {
        let mut told = self.told();
        let number = told.history.files.len();
        told.history.files.push(Start {
            path: None,
            size: 0,
            data: Vec::new(),
        });
        u32::try_from(number).ok().filter(|_| number <= MOST_FILES)
    }

    fn change(&self, thread: u32, change: Change) -> usize {
        let mut told = self.told();
        let asked = self.disks.mark();
        told.named.push(Named {
            thread,
            change,
            promised: change.is_promised(),
            asked,
            acked: None,
        });
        told.named.len() - 1
    }

    fn changed(&self, number: usize) {
        let at = self.disks.mark();
        self.told().named[number].acked = Some(at);
    }
}

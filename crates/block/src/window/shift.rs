//! The queue of a window whose requests are requests of the device below at another position.
//!
//! Input: bios. Output: the same bios, ended. Invariants: a bio goes down and comes back without a copy, only its position
//! differs; what does not fit the window is refused here. Limits: none of its own.

use super::Shared;
use crate::bio::{BioErrorKind, BioList};
use crate::device::{DeviceQueue, Waker};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{DEVICE_SHARED, Mutex};
use std::sync::Arc;
use std::time::Duration;

pub(super) struct ShiftQueue {
    below: Box<dyn DeviceQueue>,
    shared: Arc<Shared>,
    depth: u32,
    waker: Arc<Waker>,
    /// Bios that were refused here. No lock is held while the queue below is called.
    refused: Mutex<BioList>,
    /// The length of that list.
    count: AtomicU32,
}

impl ShiftQueue {
    pub(super) fn new(
        below: Box<dyn DeviceQueue>,
        shared: Arc<Shared>,
        depth: u32,
        waker: Arc<Waker>,
    ) -> ShiftQueue {
        let refused = Mutex::at_level(&DEVICE_SHARED, shared.lock_level, BioList::new());
        ShiftQueue {
            below,
            shared,
            depth,
            waker,
            refused,
            count: AtomicU32::new(0),
        }
    }

    /// Submits bios that fit the window. What the queue below has no room for stays in the list, as it was.
    fn pass(&self, bios: &mut BioList) {
        let offset = self.shared.offset;
        for bio in bios.iter_mut() {
            bio.pos = bio.pos.wrapping_add(offset);
        }
        self.below.submit(bios);
        for bio in bios.iter_mut() {
            bio.pos = bio.pos.wrapping_sub(offset);
        }
    }

    /// Ends the first bio with this error, if the queue has room for it. Returns whether it has.
    fn refuse(&self, bios: &mut BioList, error: BioErrorKind) -> bool {
        if self.in_flight() >= self.depth {
            return false;
        }
        let mut refused = self.refused.lock();
        refused.extend(bios.pop_front().map(|mut bio| {
            bio.result = Err(crate::bio::BioError::new(error));
            bio
        }));
        self.count.store(refused.len() as u32, Ordering::Release);
        drop(refused);
        self.waker.kick();
        true
    }
}

impl DeviceQueue for ShiftQueue {
    fn below(&self) -> Option<&dyn DeviceQueue> {
        Some(&*self.below)
    }

    fn submit(&self, bios: &mut BioList) {
        let geometry = self.shared.checked();
        loop {
            let bad = bios
                .iter()
                .enumerate()
                .find_map(|(n, bio)| Some((n, geometry.check(bio).err()?.kind)));
            let Some((good, error)) = bad else {
                return self.pass(bios);
            };
            let mut rest = bios.split_off(good);
            self.pass(bios);
            let is_done = !bios.is_empty() || !self.refuse(&mut rest, error);
            bios.append(&mut rest);
            if is_done {
                return;
            }
        }
    }

    fn reap(&self, out: &mut BioList) -> usize {
        let from = out.len();
        self.below.reap(out);
        for bio in out.range_mut(from..) {
            bio.pos = bio.pos.wrapping_sub(self.shared.offset);
        }
        if self.count.load(Ordering::Acquire) > 0 {
            let mut refused = self.refused.lock();
            out.append(&mut refused);
            self.count.store(0, Ordering::Release);
        }
        out.len() - from
    }

    fn wait(&self, min: u32, timeout: Option<Duration>) {
        if self.count.load(Ordering::Acquire) == 0 {
            self.below.wait(min, timeout);
        }
    }

    fn in_flight(&self) -> u32 {
        self.below.in_flight() + self.count.load(Ordering::Acquire)
    }
}

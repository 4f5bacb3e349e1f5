//! A device wrapper for tests. It holds back or fails writes by their first byte, or requests by their place, and reports pairs of
//! overlapping requests in flight of which one writes.
//!
//! Input: bios on their way to another device. Output: the same bios, later or failed; the overlaps that were seen. Invariants: a
//! bio is watched from before the device below gets it until it is reaped; every bio ends once. Limits: small queues; whether a bio
//! is still to be held is found by polling.

use diorite_block::{
    Bio, BioError, BioErrorKind, BioList, BioOp, Device, DeviceError, DeviceQueue, Geometry,
    QueueOptions,
};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Clone)]
pub struct Valve {
    below: Arc<dyn Device>,
    dma_align: u32,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    held: Vec<u8>,
    held_fua: bool,
    failing: Vec<u8>,
    held_reads: Range<u64>,
    failing_at: Range<u64>,
    lying: Vec<u8>,
    failing_reads: Range<u64>,
    held_flushes: bool,
    failing_flushes: usize,
    failing_fua: usize,
    holding: usize,
    flying: Vec<(Range<u64>, bool)>,
    not_to_wait: u64,
    most_at_once: usize,
    overlaps: Vec<String>,
}

impl std::fmt::Debug for Valve {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Valve").finish_non_exhaustive()
    }
}

impl Valve {
    pub fn new(below: Arc<dyn Device>) -> Valve {
        Valve {
            dma_align: below.geometry().dma_align,
            below,
            shared: Arc::default(),
        }
    }

    /// A valve that requires this alignment of memory.
    pub fn aligned(below: Arc<dyn Device>, dma_align: u32) -> Valve {
        Valve {
            dma_align,
            ..Valve::new(below)
        }
    }

    /// Holds writes that begin with one of these bytes; releases the others.
    pub fn hold(&self, first: &[u8]) {
        self.shared.lock().unwrap().held = first.to_vec();
    }

    /// Holds writes with FUA, or releases them. A commit whose write with FUA is held is between its flush and its end.
    pub fn hold_fua(&self, hold: bool) {
        self.shared.lock().unwrap().held_fua = hold;
    }

    /// Fails writes that begin with one of these bytes.
    pub fn fail(&self, first: &[u8]) {
        self.shared.lock().unwrap().failing = first.to_vec();
    }

    /// Holds reads of this range of the device; releases the others.
    pub fn hold_reads(&self, range: Range<u64>) {
        self.shared.lock().unwrap().held_reads = range;
    }

    /// Fails writes into this range of the device.
    pub fn fail_at(&self, range: Range<u64>) {
        self.shared.lock().unwrap().failing_at = range;
    }

    /// Executes writes that begin with one of these bytes, and reports that they failed: after an error a sector may be old, new or
    /// torn.
    pub fn lie(&self, first: &[u8]) {
        self.shared.lock().unwrap().lying = first.to_vec();
    }

    /// Fails reads of this range of the device.
    pub fn fail_reads(&self, range: Range<u64>) {
        self.shared.lock().unwrap().failing_reads = range;
    }

    /// Holds flushes, or releases them.
    pub fn hold_flushes(&self, hold: bool) {
        self.shared.lock().unwrap().held_flushes = hold;
    }

    /// Fails the next `count` flushes.
    pub fn fail_flushes(&self, count: usize) {
        self.shared.lock().unwrap().failing_flushes = count;
    }

    /// Fails the next `count` writes with FUA.
    pub fn fail_fua(&self, count: usize) {
        self.shared.lock().unwrap().failing_fua = count;
    }

    /// The number of requests that are held.
    pub fn holding(&self) -> usize {
        self.shared.lock().unwrap().holding
    }

    /// The number of requests that were submitted and not reaped.
    pub fn in_flight(&self) -> usize {
        self.shared.lock().unwrap().flying.len()
    }

    /// The number of requests so far with the flag `nowait`.
    pub fn not_to_wait(&self) -> u64 {
        self.shared.lock().unwrap().not_to_wait
    }

    /// The largest number of requests submitted in one call since the last call of this function.
    pub fn most_at_once(&self) -> usize {
        std::mem::take(&mut self.shared.lock().unwrap().most_at_once)
    }

    /// The overlaps so far.
    pub fn overlaps(&self) -> Vec<String> {
        self.shared.lock().unwrap().overlaps.clone()
    }
}

impl Shared {
    fn holds(&self, bio: &Bio) -> bool {
        match bio.op {
            BioOp::Read => meets(&self.held_reads, bio),
            BioOp::Flush => self.held_flushes,
            _ if self.held_fua && bio.flags.fua => true,
            _ => first_byte(bio).is_some_and(|b| self.held.contains(&b)),
        }
    }

    fn fails(&mut self, bio: &Bio) -> bool {
        if bio.op == BioOp::Flush {
            let fails = self.failing_flushes > 0;
            self.failing_flushes -= usize::from(fails);
            return fails;
        }
        if bio.flags.fua && self.failing_fua > 0 {
            self.failing_fua -= 1;
            return true;
        }
        let by_byte = first_byte(bio).is_some_and(|b| self.failing.contains(&b));
        by_byte || bio.op == BioOp::Write && meets(&self.failing_at, bio)
    }

    /// Is this bio to be executed and then reported as failed?
    fn denies(&self, bio: &Bio) -> bool {
        match bio.op {
            BioOp::Read => meets(&self.failing_reads, bio),
            _ => first_byte(bio).is_some_and(|b| self.lying.contains(&b)),
        }
    }

    fn watch(&mut self, bio: &Bio) {
        self.not_to_wait += u64::from(bio.flags.nowait);
        if bio.len == 0 {
            return;
        }
        let (range, writes) = (bio.pos..bio.pos + bio.len, bio.op != BioOp::Read);
        let meets = |(other, wrote): &&(Range<u64>, bool)| {
            (*wrote || writes) && other.start < range.end && range.start < other.end
        };
        if let Some((other, wrote)) = self.flying.iter().find(meets) {
            self.overlaps.push(format!(
                "{range:?} (writes: {writes}) beside {other:?} (writes: {wrote})"
            ));
        }
        self.flying.push((range, writes));
    }

    fn forget(&mut self, bio: &Bio) {
        if bio.len > 0 {
            let (range, writes) = (bio.pos..bio.pos + bio.len, bio.op != BioOp::Read);
            let at = self
                .flying
                .iter()
                .position(|(r, w)| *r == range && *w == writes);
            self.flying.swap_remove(at.unwrap());
        }
    }
}

fn meets(range: &Range<u64>, bio: &Bio) -> bool {
    range.start < bio.pos + bio.len && bio.pos < range.end
}

fn first_byte(bio: &Bio) -> Option<u8> {
    (bio.op == BioOp::Write).then(|| bio.buf.parts().next().map_or(0, |p| p[0]))
}

impl Device for Valve {
    fn below(&self) -> Option<&dyn Device> {
        Some(&*self.below)
    }

    fn geometry(&self) -> Geometry {
        Geometry {
            dma_align: self.dma_align,
            ..self.below.geometry()
        }
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        Ok(Box::new(ValveQueue {
            below: self.below.open_queue(options)?,
            shared: self.shared.clone(),
            kept: Mutex::default(),
        }))
    }
}

struct ValveQueue {
    below: Box<dyn DeviceQueue>,
    shared: Arc<Mutex<Shared>>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    held: BioList,
    failed: BioList,
}

impl ValveQueue {
    /// Passes on bios that need not be held any more.
    fn look_again(&self) {
        let mut kept = self.kept.lock().unwrap();
        let mut shared = self.shared.lock().unwrap();
        let (stay, mut go): (BioList, BioList) =
            kept.held.drain(..).partition(|bio| shared.holds(bio));
        shared.holding -= go.len();
        drop(shared);
        // Not if the list is empty: a device may wake its waiters at every submit.
        if !go.is_empty() {
            self.below.submit(&mut go);
        }
        self.shared.lock().unwrap().holding += go.len();
        kept.held = stay;
        kept.held.append(&mut go);
    }
}

impl DeviceQueue for ValveQueue {
    fn below(&self) -> Option<&dyn DeviceQueue> {
        Some(&*self.below)
    }

    fn submit(&self, bios: &mut BioList) {
        let mut pass = BioList::new();
        let mut kept = self.kept.lock().unwrap();
        let mut shared = self.shared.lock().unwrap();
        shared.most_at_once = shared.most_at_once.max(bios.len());
        for mut bio in bios.drain(..) {
            shared.watch(&bio);
            if shared.fails(&bio) {
                bio.result = Err(BioError::new(BioErrorKind::Io));
                kept.failed.push_back(bio);
            } else if shared.holds(&bio) {
                shared.holding += 1;
                kept.held.push_back(bio);
            } else {
                pass.push_back(bio);
            }
        }
        drop(shared);
        self.below.submit(&mut pass);
        // What the device has no room for goes back to the submitter.
        let mut shared = self.shared.lock().unwrap();
        pass.iter().for_each(|bio| shared.forget(bio));
        bios.append(&mut pass);
    }

    fn reap(&self, out: &mut BioList) -> usize {
        self.look_again();
        let from = out.len();
        self.below.reap(out);
        let shared = self.shared.lock().unwrap();
        for bio in out.range_mut(from..).filter(|bio| shared.denies(bio)) {
            bio.result = Err(BioError::new(BioErrorKind::Io));
        }
        drop(shared);
        out.append(&mut self.kept.lock().unwrap().failed);
        let mut shared = self.shared.lock().unwrap();
        out.range(from..).for_each(|bio| shared.forget(bio));
        out.len() - from
    }

    fn wait(&self, min: u32, timeout: Option<Duration>) {
        self.look_again();
        let kept = self.kept.lock().unwrap();
        let (held, failed) = (!kept.held.is_empty(), !kept.failed.is_empty());
        drop(kept);
        let short = Duration::from_millis(2);
        match (failed, held) {
            (true, _) => {}
            (false, true) => {
                std::thread::sleep(Duration::from_micros(100));
                self.below
                    .wait(min, Some(timeout.map_or(short, |t| t.min(short))));
            }
            (false, false) => self.below.wait(min, timeout),
        }
    }

    fn in_flight(&self) -> u32 {
        let kept = self.kept.lock().unwrap();
        let here = u32::try_from(kept.held.len() + kept.failed.len()).unwrap();
        self.below.in_flight() + here
    }
}

//! The thread-pool queue: every bio is a blocking call on one of the device's threads.
//!
//! Input: bios. Output: bios ended by the pool's threads. Invariant: a completion kicks the waker, so `wait` waits on the
//! waker. Limits: as many bios at once as the pool has threads; the rest wait in its list; without a thread,
//! `submit` blocks.

use super::core::Core;
use super::pool::Pool;
use super::round::plan;
use super::slots::{Giver, HostOp, Taker};
use super::target::Target;
use crate::bio::BioList;
use crate::device::{DeviceQueue, QueueOptions};
use crate::sync::{DEVICE_REAP, DEVICE_SUBMIT, Mutex};
use std::sync::Arc;
use std::time::Duration;

struct SubmitSide {
    taker: Taker,
    /// Slots to hand to the pool; kept for its capacity.
    batch: Vec<u32>,
}

/// A queue over the pool.
pub(super) struct ThreadsQueue {
    core: Arc<Core>,
    pool: Arc<Pool>,
    submit: Mutex<SubmitSide>,
    giver: Mutex<Giver>,
}

impl ThreadsQueue {
    /// A queue for the target; starts the pool's first thread.
    pub(super) fn new(
        target: Arc<Target>,
        pool: Arc<Pool>,
        options: &QueueOptions,
    ) -> ThreadsQueue {
        pool.prepare();
        let (core, taker, giver) = Core::new(target, options.waker.clone(), options.depth);
        let batch = Vec::with_capacity(options.depth as usize);
        ThreadsQueue {
            core: Arc::new(core),
            pool,
            submit: Mutex::new(&DEVICE_SUBMIT, SubmitSide { taker, batch }),
            giver: Mutex::new(&DEVICE_REAP, giver),
        }
    }
}

impl DeviceQueue for ThreadsQueue {
    fn below(&self) -> Option<&dyn DeviceQueue> {
        None
    }

    fn submit(&self, bios: &mut BioList) {
        let mut side = self.submit.lock();
        let SubmitSide { taker, batch } = &mut *side;
        while !bios.is_empty() {
            let Some(index) = self.core.slots.take(taker) else {
                break;
            };
            // SAFETY: the slot was taken a line above.
            let slot = unsafe { self.core.slots.slot(index) };
            let bio = bios.pop_front().expect("checked a few lines above");
            let op = plan(&self.core.target, &bio);
            slot.fill(bio, op);
            if slot.op == HostOp::Nothing {
                slot.bio_mut().result = slot.verdict;
                self.core.push_ended(index);
            } else {
                batch.push(index);
            }
        }
        if !batch.is_empty() {
            self.pool.run(&self.core, batch.drain(..));
        }
    }

    fn reap(&self, out: &mut BioList) -> usize {
        if self.core.ended() == 0 {
            return 0;
        }
        let mut giver = self.giver.lock();
        self.core.reap_ended(&mut giver, out)
    }

    fn wait(&self, min: u32, timeout: Option<Duration>) {
        self.core.wait(min, timeout);
    }

    fn in_flight(&self) -> u32 {
        self.core.slots.in_flight()
    }
}

impl Drop for ThreadsQueue {
    fn drop(&mut self) {
        super::core::drain_all(self);
    }
}

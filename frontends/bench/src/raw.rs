//! The raw rows: the load directly on a device's queue, without a volume.
//!
//! Input: requests of a region. Output: bios. Invariant: a constant is added to each position, so that the raw row uses the
//! same blocks of the device as the file's row. Limits: one contiguous range.

use super::failure::Failure;
use super::job::{Call, Job};
use super::lane::{Ended, Io, Lane, Target};
use super::polled::counters_of;
use diorite_block::{
    Bio, BioList, Blocking, Buf, Device, DeviceQueue, PolledQueue, PolledStats, QueueOptions, Waker,
};
use std::sync::Arc;

/// A range of a device.
pub(super) struct RawTarget {
    pub(super) device: Arc<dyn Device>,
    /// Where the region begins.
    pub(super) base: u64,
    pub(super) len: u64,
    /// Use rings that are bound to the thread that reaps. A volume's queues cannot use them, so rows that are compared with a
    /// volume's do not either.
    pub(super) owned_by_reaper: bool,
}

impl RawTarget {
    /// The whole device.
    pub(super) fn whole(device: Arc<dyn Device>) -> RawTarget {
        let len = device.geometry().size;
        RawTarget {
            device,
            base: 0,
            len,
            owned_by_reaper: false,
        }
    }
}

impl Target for RawTarget {
    type Lane = RawLane;

    fn lane(&self, job: &Job) -> Result<RawLane, Failure> {
        let options = QueueOptions::new(job.iodepth)?.owned_by_reaper(self.owned_by_reaper);
        let waker = options.waker.clone();
        let mut polled = None;
        let how = match (job.call, job.polled) {
            (Call::Queue, None) => How::Queue(self.device.open_queue(options)?),
            (Call::Queue, Some(longest)) => {
                let level = self.device.level();
                let queue = PolledQueue::open(&*self.device, options, level, longest)?;
                polled = Some(queue.stats());
                How::Queue(Box::new(queue))
            }
            (Call::Blocking, _) => How::Blocking(Blocking::new(self.device.clone())),
        };
        Ok(RawLane {
            how,
            waker,
            base: self.base,
            dsync: job.dsync,
            polled,
            batch: BioList::with_capacity(job.iodepth as usize),
            reaped: BioList::with_capacity(job.iodepth as usize),
        })
    }

    fn len(&self) -> u64 {
        self.len
    }
}

enum How {
    Queue(Box<dyn DeviceQueue>),
    Blocking(Blocking),
}

/// See [`RawTarget`].
pub(super) struct RawLane {
    how: How,
    waker: Arc<Waker>,
    base: u64,
    dsync: bool,
    polled: Option<Arc<PolledStats>>,
    batch: BioList,
    reaped: BioList,
}

impl Lane for RawLane {
    #[inline]
    fn push(&mut self, io: Io, buf: Buf) {
        let (pos, token) = (self.base + io.pos, u64::from(io.slot));
        let mut bio = if io.write {
            Bio::write(pos, buf, token)
        } else {
            Bio::read(pos, buf, token)
        };
        bio.flags.fua = self.dsync && io.write;
        bio.flags.polled = self.polled.is_some() && !bio.flags.fua;
        self.batch.push_back(bio);
    }

    #[inline]
    fn submit(&mut self) {
        if let How::Queue(queue) = &self.how {
            queue.submit(&mut self.batch);
        }
    }

    #[inline]
    fn reap(&mut self, min: usize, ended: &mut Vec<Ended>) {
        match &self.how {
            How::Queue(queue) => loop {
                queue.reap(&mut self.reaped);
                let missing = min.saturating_sub(self.reaped.len());
                if missing == 0 || queue.in_flight() == 0 {
                    break;
                }
                queue.wait(u32::try_from(missing).unwrap_or(u32::MAX), None);
                self.waker.clear();
            },
            How::Blocking(helper) => {
                let bios = self.batch.drain(..);
                self.reaped.extend(bios.map(|bio| helper.run(bio)));
            }
        }
        ended.extend(self.reaped.drain(..).map(|bio| Ended {
            slot: u32::try_from(bio.token).expect("the token is the slot that push was given"),
            buf: bio.buf,
            error: bio.result.err().map(|e| e.to_string()),
        }));
    }

    fn counters(&self) -> Vec<(String, u64)> {
        let waits = self.polled.as_ref().map(|stats| stats.waits());
        waits.map_or_else(Vec::new, counters_of)
    }
}

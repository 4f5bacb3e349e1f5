//! What a device that stands in front of another one does not answer itself.

use super::*;
use crate::MemDevice;
use std::sync::atomic::{AtomicU32, Ordering};

/// A device and its queue that note what reaches them.
struct Lowest(MemDevice, Arc<AtomicU32>);
struct LowestQueue(Box<dyn DeviceQueue>, Arc<AtomicU32>);

/// Has the methods that a device must have, and no more.
struct Front(Lowest);
struct FrontQueue(Box<dyn DeviceQueue>);

impl Device for Lowest {
    fn below(&self) -> Option<&dyn Device> {
        None
    }

    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn name(&self) -> String {
        self.0.name()
    }

    fn report(&self) -> DeviceReport {
        self.0.report()
    }

    fn level(&self) -> u8 {
        3
    }

    fn refresh(&self) -> Result<(), DeviceError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn rest(&self) -> Result<(), DeviceError> {
        self.1.fetch_add(10, Ordering::Relaxed);
        Ok(())
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        let below = self.0.open_queue(options)?;
        Ok(Box::new(LowestQueue(below, self.1.clone())))
    }
}

impl DeviceQueue for LowestQueue {
    crate::forward_queue! { 0 => submit, reap, wait, in_flight }

    fn below(&self) -> Option<&dyn DeviceQueue> {
        None
    }

    fn signal_waker(&self) {
        self.1.fetch_add(100, Ordering::Relaxed);
    }

    fn forget_memory(&self) {
        self.1.fetch_add(1000, Ordering::Relaxed);
    }
}

impl Device for Front {
    fn below(&self) -> Option<&dyn Device> {
        Some(&self.0)
    }

    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        Ok(Box::new(FrontQueue(self.0.open_queue(options)?)))
    }
}

impl DeviceQueue for FrontQueue {
    crate::forward_queue! { 0 => below, submit, reap, wait, in_flight }
}

/// Defect: these had empty defaults, so a device in front of another one that forgot to hand them on swallowed them: a caller slept for
/// ever, memory was kept, a device stayed marked as being written.
#[test]
fn what_is_not_answered_goes_down() {
    let seen = Arc::new(AtomicU32::new(0));
    let front = Front(Lowest(MemDevice::new(1 << 20), seen.clone()));
    let queue = front.open_queue(QueueOptions::waited_on(1));
    let queue = queue.expect("memory has queues");
    assert_eq!(front.level(), 3);
    front.refresh().expect("it is counted");
    front.rest().expect("it is counted");
    queue.signal_waker();
    queue.forget_memory();
    assert_eq!(seen.load(Ordering::Relaxed), 1111);
}

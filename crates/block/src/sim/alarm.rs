//! Makes a queue's descriptor readable when its requests have ended, on a disk whose requests end because time passes.
//!
//! Input: a queue's requests being served. Output: a kick of its waker when the first of them has ended. Invariants: one kick for each time
//! that a request becomes the first one; an owner that has cleared the waker and reaps afterwards finds what the kick was for. Limits: only
//! queues whose descriptor is polled have the thread; if the host gives none, the descriptor stays readable while anything is served.

use super::Disk;
use super::queue::{QueueCore, SPIN};
use crate::sync::bias;
use crate::sync::thread::{Builder, JoinHandle};
use std::sync::Arc;
use std::time::Duration;

/// Starts the thread of a queue, which ends with it. None if the host gives no thread.
pub(super) fn start(disk: &Arc<Disk>, core: &Arc<QueueCore>) -> Option<JoinHandle<()>> {
    let (disk, core) = (disk.clone(), core.clone());
    let thread = Builder::new().name("diorite-sim".into());
    thread.spawn(move || run(&disk, &core)).ok()
}

fn run(disk: &Disk, core: &QueueCore) {
    let mut state = core.lock();
    while !state.is_closed() {
        let due = state.first_due().filter(|_| !disk.held());
        let left = due.map(|due| due.saturating_sub(disk.now()));
        state = match left {
            Some(0) => {
                core.waker().kick();
                core.wait_for_change(state, None)
            }
            // The host's timers come late by more than that.
            Some(left) if disk.options.interrupts && left < SPIN => {
                drop(state);
                while due.is_some_and(|due| disk.now() < due) {
                    bias::pause(0);
                }
                core.lock()
            }
            left => core.wait_for_change(state, left.map(Duration::from_nanos)),
        };
    }
}

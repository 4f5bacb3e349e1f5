//! A file that is quiesced: requests wait for it without holding anything up (rules G12, G13).
//!
//! Input: a volume in memory. Output: none. Invariants: everything runs under a watchdog. Limits: one file.

use crate::common::fixture::{LIMIT, attached, even, made};
use crate::common::stage::Stage;
use crate::common::watch::Watchdog;
use crate::who_reaps::{collect, leave, policies};
use diorite::{Error, File, Request, RequestFlags, Wait};
use diorite_block::Buf;
use std::collections::VecDeque;
use std::time::Duration;

/// Rule G13: a closed gate keeps requests out; NOWAIT requests get EAGAIN at once (rule G12), others run when it opens. Any thread
/// may drop the guard.
#[test]
fn a_closed_gate_parks_and_opens() {
    let (_dir, image, _) = made(0);
    for policy in policies() {
        let _watchdog = Watchdog::new(LIMIT, format!("{policy}"));
        let stage = Stage::mem(&image);
        let (volume, file) = even(&stage, policy);
        let (queue, id) = attached(&volume, &file, 256);
        let guard = file.quiesce();
        leave(&queue, id, 64);
        let mut done = Vec::new();
        assert_eq!(queue.reap(&mut done, 1, Some(Duration::from_millis(30))), 0);
        assert_eq!((queue.in_use(), queue.counters().parked), (64, 64));
        let nowait = RequestFlags::default().nowait(true);
        let mut batch: VecDeque<Request> = [
            Request::read(id, 0, Buf::zeroed(4096), 100),
            Request::write(id, 0, Buf::zeroed(4096), 101),
            Request::write(id, 0, Buf::zeroed(512), 102),
        ]
        .into_iter()
        .map(|r| r.with_flags(nowait))
        .collect();
        queue.submit(&mut batch);
        queue.reap(&mut done, 3, Some(Duration::from_secs(10)));
        assert_eq!(done.len(), 3);
        for done in &done {
            let eagain = matches!(
                done.result,
                Err(Error::WouldBlock(Wait::Gate | Wait::Exclusive))
            );
            assert!(eagain, "{done:?}");
        }
        // A sync waits for acknowledged writes only, and none was acknowledged.
        file.sync().unwrap();
        let second = std::thread::scope(|s| {
            let waits = s.spawn(|| drop(file.quiesce()));
            std::thread::sleep(Duration::from_millis(10));
            drop(guard);
            waits.join()
        });
        second.unwrap();
        collect(&queue, 64);
        assert!(file.quiesce_then_reads());
    }
}

trait Probe {
    fn quiesce_then_reads(&self) -> bool;
}

impl Probe for File {
    /// Quiesces the file and reads afterwards: the gate is open again.
    fn quiesce_then_reads(&self) -> bool {
        drop(self.quiesce());
        self.read_buf(0, Buf::zeroed(512)).1.is_ok()
    }
}

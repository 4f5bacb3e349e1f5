//! Panics of a device while the thread unwinds already: a caller panics, and drops what changes and commits. Half a change is never
//! committed, although the journal cannot tell this panic from the caller's.

use super::bomb::{Bomb, quiet, staged};
use super::judge;
use super::panics::{is_over, open, panicked};
use crate::common::fixture::filled;
use crate::common::watch::within;
use diorite_block::BioOp;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `part` while the thread unwinds, as a value of the caller's does that is dropped.
fn while_unwinding(part: impl FnOnce()) {
    struct Late<F: FnOnce()>(Option<F>);
    impl<F: FnOnce()> Drop for Late<F> {
        fn drop(&mut self) {
            self.0.take().unwrap()();
        }
    }
    let late = Late(Some(part));
    let unwound = catch_unwind(AssertUnwindSafe(move || {
        let _late = late;
        panic!("the caller's own panic");
    }));
    unwound.unwrap_err();
}

/// Defect: the journal took the panic for the caller's, which began before the commit, and took further writes.
#[test]
fn a_commit_that_panics() {
    let (_dir, stage) = staged();
    let bomb = Bomb::new(&stage);
    within("a commit that panics", || {
        let volume = bomb.open(&quiet());
        let even = open(&volume, "/even");
        let file = open(&volume, "/empty");
        file.write_buf(0, filled(7, 4096)).1.unwrap();
        bomb.arm_journal();
        while_unwinding(|| panicked(file.sync()));
        assert!(bomb.has_panicked());
        drop(file);
        is_over(volume, even);
    });
    judge(&stage, "EIO");
}

/// Defect: the half handle was committed. For a directory e2fsck found "Directories count wrong" after a close without an error.
#[test]
fn half_a_handle() {
    for what in ["a file", "a directory"] {
        let (_dir, stage) = staged();
        let bomb = Bomb::new(&stage);
        within(what, || {
            let volume = bomb.open(&quiet());
            let even = open(&volume, "/even");
            let group = &volume.groups()[0];
            let bitmap = group.inode_bitmap.get() * 4096;
            bomb.arm(move |bio| bio.op == BioOp::Read && bio.pos == bitmap);
            while_unwinding(|| {
                let made = catch_unwind(AssertUnwindSafe(|| match what {
                    "a file" => drop(volume.create("/new", 0o644)),
                    _ => drop(volume.mkdir("/new", 0o755)),
                }));
                made.unwrap_err();
            });
            is_over(volume, even);
        });
        judge(&stage, "EIO");
    }
}

/// What a caller's panic drops is complete, unless it panics itself: the volume goes on, and nothing is recorded.
#[test]
fn what_does_not_panic_is_committed() {
    let (_dir, stage) = staged();
    let volume = stage.open(&quiet()).unwrap();
    let file = open(&volume, "/empty");
    while_unwinding(|| {
        file.write_buf(0, filled(7, 4096)).1.unwrap();
        volume.mkdir("/new", 0o755).unwrap();
        volume.sync().unwrap();
    });
    volume.create("/new/file", 0o644).unwrap();
    drop(file);
    volume.close().unwrap();
    stage.fsck();
}

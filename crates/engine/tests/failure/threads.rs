//! A host that gives no thread: operations that need one fail, those that run in the caller's thread succeed, and everything works
//! again once there are threads.
//!
//! The test runs itself in a process of its own, since the limit applies to a whole process: threads get large stacks, for which
//! the limit leaves no address space.

use super::{make, one};
use crate::common::fixture::{filled, writable};
use crate::common::limit::address_space;
use crate::common::scratch;
use crate::common::stage::Stage;
use crate::common::watch::within;
use diorite::{Error, OpenOptions, Queue, Request, RequestFlags};
use diorite_format::InodeFlags;
use std::process::Command;
use std::time::Duration;

const CHILD: &str = "DIORITE_WITHOUT_THREADS";
const STACK: u64 = 1 << 30;

fn refused(queue: &Queue, request: Request) {
    let result = one(queue, request).result;
    assert!(matches!(&result, Err(Error::Open(_))), "{result:?}");
}

/// The defects: if the first worker of a class could not be started, the submitter panicked, or the thread that drained its queue,
/// and the job stayed on the list; a keeper that could not be started once was never started again.
#[test]
fn a_host_without_threads_fails_what_needs_one() {
    if std::env::var(CHILD).is_ok() {
        return within("a host without threads", without_threads);
    }
    let name = "threads::a_host_without_threads_fails_what_needs_one";
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD, "")
        .env("RUST_MIN_STACK", STACK.to_string())
        .status()
        .unwrap();
    assert!(child.success(), "{child}");
}

fn without_threads() {
    let dir = scratch();
    let stage = Stage::mem(&make(dir.path(), "remount-ro", &[]));
    super::panics::with_a_node(&stage);
    let volume = stage.open(&OpenOptions::writable()).unwrap();
    drop(volume.create("/other", 0o644).unwrap());
    let journalled = volume.create("/journalled", 0o644).unwrap();
    let flags = journalled.metadata().flags;
    journalled
        .set_flags(flags.with(InodeFlags::JOURNAL_DATA))
        .unwrap();
    drop(journalled);
    volume.close().unwrap();
    // A new volume, which has started no thread when the limit comes.
    let volume = stage
        .open(&OpenOptions::writable().commit_interval(Duration::from_millis(10)))
        .unwrap();
    let file = volume.open_path("/empty", writable()).unwrap();
    let other = volume.open_path("/other", writable()).unwrap();
    let queue = volume.queue(8).unwrap();
    let id = queue.attach(&file).unwrap();
    let id_of_other = queue.attach(&other).unwrap();
    let journalled = volume.open_path("/journalled", writable()).unwrap();
    let id_of_journalled = queue.attach(&journalled).unwrap();
    let load = || Request::read(id, 8192, filled(0, 4096), 0);
    let prepare = || Request::append(id, filled(7, 4096), 0);
    let append = || Request::append(id_of_other, filled(7, 4096), 0);
    let complete = || append().with_flags(RequestFlags::none().dsync(true));
    let range = || Request::truncate(id_of_other, 1 << 16, 0);
    let buffered = || Request::append(id_of_journalled, filled(7, 512), 0);
    address_space(Some(STACK / 2));
    refused(&queue, load());
    refused(&queue, prepare());
    // The caller does the work of a worker: this loads the bitmap from which the next append claims its block.
    other.write_buf(0, filled(1, 4096)).1.unwrap();
    // Who reaps converts what was appended; a commit needs a worker.
    assert_eq!(one(&queue, append()).result.unwrap(), 4096);
    refused(&queue, complete());
    refused(&queue, range());
    refused(&queue, buffered());
    refused(&queue, Request::sync(id_of_other, false, 0));
    refused(&queue, Request::sync_volume(0));
    assert_eq!((other.size(), journalled.size()), (8192, 0));
    address_space(None);
    for request in [load(), prepare(), complete(), range(), buffered()] {
        one(&queue, request).result.unwrap();
    }
    // The keeper runs: it commits without a request.
    let before = volume.journal_stats().commits;
    other.write_buf(1 << 20, filled(1, 4096)).1.unwrap();
    while volume.journal_stats().commits == before {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop((queue, file, other, journalled));
    volume.close().unwrap();
    stage.fsck();
}

//! The lock that a read takes while it is mapped, tested by reads with `nowait`; and what a write asks again once it is in flight.

use crate::error::{Error, Wait};
use crate::inode::Handle;
use crate::op::{Fallocate, Op};
use crate::policy::{PRESETS, ReadLock};
use crate::request::RequestFlags;
use crate::slots::Attached;
use crate::slots::Slot;
use crate::testing::small_volume;
use crate::turn::Hold;
use diorite_block::Buf;
use diorite_format::InodeFlags;
use std::thread;

const NOWAIT: RequestFlags = RequestFlags {
    nowait: true,
    dsync: false,
    sync: false,
};

/// A read without a lock is kept out by no lock, one with a shared lock by an exclusive one, one with an exclusive lock by any.
#[test]
fn a_read_takes_the_lock_of_its_policy() {
    let volume = small_volume("16M", &[]);
    let file = volume.temporary("/", 0o600).unwrap();
    assert_eq!(file.write_buf(0, Buf::zeroed(4096)).1.unwrap(), 4096);
    let inode = file.inode();
    for (name, policy) in PRESETS {
        volume.set_policy(policy);
        let is_served = || match file.call(Op::Read, 0, Buf::zeroed(512), NOWAIT).1 {
            Ok(512) => true,
            Err(Error::WouldBlock(Wait::InodeLock)) => false,
            other => panic!("{name}: {other:?}"),
        };
        // By another thread than the one that has the lock.
        let beside = || thread::scope(|scope| scope.spawn(is_served).join().unwrap());
        let shared = {
            let _lock = inode.lock_shared(false).unwrap();
            beside()
        };
        let exclusive = {
            let _lock = inode.lock_exclusive(false).unwrap();
            beside()
        };
        let expected = match policy.read_lock {
            ReadLock::None => (true, true),
            ReadLock::Shared => (true, false),
            ReadLock::Exclusive => (false, false),
        };
        assert_eq!((shared, exclusive), expected, "{name}");
    }
}

/// After a write was admitted, and before it is counted in flight, the file's data begins to go through the journal, or a truncation of
/// the file fails. The write asks again, and wants the exclusive turn.
#[test]
fn who_is_in_flight_asks_again_whether_it_may_be() {
    let volume = small_volume("16M", &[]);
    let file = volume.create("/file", 0o600).unwrap();
    let inode = file.inode();
    let handle = Attached::new(Handle::new(file.open_file()), 1).handle();
    let may = |op, hold| {
        let mut slot = Slot::free(0);
        (slot.op, slot.hold, slot.len) = (op, hold, 1024);
        super::may_share(&slot, &handle).is_ok()
    };
    let (shared, alone) = (Hold::InFlight, Hold::Exclusive);
    assert!(may(Op::Append, shared) && may(Op::Append, alone));
    inode.note_cut(true);
    assert!(!may(Op::Append, shared) && may(Op::Append, alone));
    inode.publish_size(4096);
    assert!(may(Op::Write, shared), "it makes the file no longer");
    inode.publish_size(0);
    inode.note_cut(false);
    // Whoever makes the file longer, or gives it the same size, ends the truncation.
    let data = || Buf::zeroed(1024);
    let ways: [&dyn Fn(); 4] = [
        &|| assert!(file.append_buf(data()).1.is_ok()),
        &|| assert!(file.write_buf(8192, data()).1.is_ok()),
        &|| file.truncate(file.size()).unwrap(),
        &|| file.fallocate(Fallocate::PunchHole, 0, 1024).unwrap(),
    ];
    for lengthens in ways {
        inode.note_cut(true);
        if file.size() > 0 {
            file.write_buf(0, data()).1.unwrap();
            assert!(inode.is_cut(), "an overwrite has nothing to do with it");
        }
        lengthens();
        assert!(!inode.is_cut());
    }
    let flags = file.metadata().flags.with(InodeFlags::JOURNAL_DATA);
    file.set_flags(flags).unwrap();
    assert!(!may(Op::Append, shared) && may(Op::Append, alone));
}

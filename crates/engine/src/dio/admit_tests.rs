//! Which lock a read takes while it is mapped, asked for by reads that may not wait for it.

use crate::error::{Error, Wait};
use crate::op::Op;
use crate::policy::{PRESETS, ReadLock};
use crate::request::RequestFlags;
use crate::testing::small_volume;
use diorite_block::Buf;
use std::thread;

const NOWAIT: RequestFlags = RequestFlags {
    nowait: true,
    dsync: false,
    sync: false,
};

/// No lock is kept out by nobody, a shared one by who is alone, an exclusive one by everybody.
#[test]
fn a_read_takes_the_lock_of_its_policy() {
    let volume = small_volume("16M", &[]);
    let file = volume.temporary("/", 0o600).unwrap();
    assert_eq!(file.write_at(0, Buf::zeroed(4096)).1.unwrap(), 4096);
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

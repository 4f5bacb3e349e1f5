//! Random changes of what inodes have: mode, owner, time, flags, attributes, access control lists.
//!
//! Input: an inode, and what the model says that it has. Output: both changed alike. Invariants: a change that fails has changed
//! nothing. Limits: as many attributes as fit into the smallest block; longer ones only where a value may have an inode of its own.

use super::has::{ACCESS, DEFAULT, FLAGS, Has, List, OF_ALL, OF_HOLDERS, Sort};
use super::{Says, called};
use crate::common::Rng;
use diorite::{Error, OpenFlags, SetAttr, Volume, XattrWhen};
use diorite_format::features::{Compat, Incompat};
use diorite_format::{Ino, InodeFlags, Timestamp};

/// Makes one random change. Returns false if there was no room for it.
pub(super) fn step(volume: &Volume, ino: Ino, sort: Sort, has: &mut Has, rng: &mut Rng) -> bool {
    let mut now = has.clone();
    let done = match rng.below(8) {
        0 | 1 => set_some(volume, ino, sort, &mut now, rng),
        2 => set_flags(volume, ino, sort, &mut now, rng),
        3 if sort != Sort::Link => set_list(volume, ino, sort, &mut now, rng),
        _ => return set_attribute(volume, ino, sort, has, rng),
    };
    match called(done) {
        Says::NoRoom => false,
        Says::Said(said) => {
            assert_eq!(said, Ok(()), "{has:?} to {now:?}");
            *has = now;
            true
        }
    }
}

fn set_some(
    volume: &Volume,
    ino: Ino,
    sort: Sort,
    has: &mut Has,
    rng: &mut Rng,
) -> Result<(), Error> {
    let mut set = SetAttr::default();
    if rng.below(2) == 0 && sort != Sort::Link {
        let bits = if sort == Sort::Dir { 0o3777 } else { 0o777 };
        let mode = rng.below(0o10000) as u16 & bits;
        set.permissions = Some(mode);
        has.set_mode(mode);
    }
    if rng.below(2) == 0 {
        (has.uid, has.gid) = (rng.below(100_000) as u32, rng.below(100_000) as u32);
        (set.uid, set.gid) = (Some(has.uid), Some(has.gid));
    }
    if rng.below(2) == 0 {
        // A time that every size of inode can store.
        let time = Timestamp {
            secs: rng.below(1 << 31) as i64,
            nanos: 0,
        };
        set.mtime = Some(time);
        has.mtime = Some(time);
    }
    volume.set_attr(ino, &set)
}

fn set_flags(
    volume: &Volume,
    ino: Ino,
    sort: Sort,
    has: &mut Has,
    rng: &mut Rng,
) -> Result<(), Error> {
    let has_journal = volume
        .superblock()
        .features()
        .compat
        .has(Compat::HAS_JOURNAL);
    let mut settable = match sort {
        Sort::Dir => FLAGS,
        Sort::File => OF_ALL.with(OF_HOLDERS),
        Sort::Link | Sort::Other => OF_ALL,
    };
    if !has_journal {
        settable = settable.without(InodeFlags::JOURNAL_DATA);
    }
    // Some of the flags, mostly few.
    let wanted = rng.next() & rng.next() & u64::from(settable.bits());
    has.flags = InodeFlags::from_bits(wanted as u32);
    let file = volume.open_ino(ino, OpenFlags::default())?;
    let others = file.metadata().flags.without(FLAGS);
    volume.set_flags(ino, others.with(has.flags))
}

fn set_list(
    volume: &Volume,
    ino: Ino,
    sort: Sort,
    has: &mut Has,
    rng: &mut Rng,
) -> Result<(), Error> {
    let name = match sort == Sort::Dir && rng.below(2) == 0 {
        true => DEFAULT,
        false => ACCESS,
    };
    if rng.below(4) == 0 {
        has.xattrs.remove(name);
        return volume.remove_xattr(ino, name);
    }
    let list = List::new(rng.next(), rng.below(4) as u32);
    has.set_list(name, &list);
    volume.set_xattr(ino, name, &list.bytes())
}

/// Sets or removes one of a few attributes, which may exist or not.
fn set_attribute(volume: &Volume, ino: Ino, sort: Sort, has: &mut Has, rng: &mut Rng) -> bool {
    const NAMES: [&str; 4] = ["user.one", "user.2", "trusted.three", "security.4"];
    let plain = matches!(sort, Sort::Dir | Sort::File);
    let names = if plain { &NAMES[..] } else { &NAMES[2..] };
    let name = names[rng.below(names.len() as u64) as usize].as_bytes();
    let known = has.xattrs.contains_key(name);
    if rng.below(4) == 0 {
        let says = called(volume.remove_xattr(ino, name));
        let said = if known { Ok(()) } else { Err("NoAttribute") };
        if says == Says::Said(said) {
            has.xattrs.remove(name);
            return true;
        }
        assert_eq!(says, Says::NoRoom);
        return false;
    }
    let when = [
        XattrWhen::Always,
        XattrWhen::Always,
        XattrWhen::Missing,
        XattrWhen::Present,
    ];
    let when = when[rng.below(4) as usize];
    let value = some_value(volume, sort, rng);
    let said = match when {
        XattrWhen::Missing if known => Err("AttributeExists"),
        XattrWhen::Present if !known => Err("NoAttribute"),
        _ => Ok(()),
    };
    match called(volume.set_xattr_when(ino, name, &value, when)) {
        Says::NoRoom => return false,
        Says::Said(got) => assert_eq!(got, said, "{when:?}"),
    }
    if said.is_ok() {
        has.xattrs.insert(name.to_vec(), value);
    }
    true
}

fn some_value(volume: &Volume, sort: Sort, rng: &mut Rng) -> Vec<u8> {
    let sb = volume.superblock();
    // e2fsck 1.47 takes a short symbolic link whose attribute has a value in another inode for one with blocks, also one made by
    // the kernel.
    let has_inodes = sort != Sort::Link && sb.features().incompat.has(Incompat::EA_INODE);
    let len = match rng.below(if has_inodes { 7 } else { 5 }) {
        0 => 0,
        1 | 2 => rng.below(20),
        3 | 4 => rng.below(130),
        5 => 1000 + rng.below(3000),
        _ => rng.below(20_000),
    };
    let mut value = vec![0; len as usize];
    // Some values are equal, so that blocks and value inodes are shared.
    match rng.below(3) {
        0 => value.fill(b'v'),
        _ => rng.fill(&mut value),
    }
    value
}

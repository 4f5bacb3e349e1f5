//! Calls of names, attributes and flags, and calls by inode number.
//!
//! Input: a world and randomness. Output: a changed tree. Invariant: files of another volume are refused. Limits: by number, only calls
//! that change no contents.

use crate::common::Rng;
use crate::files::file;
use crate::values::{self, number, one, path, rarely};
use crate::world::{World, expect};
use diorite::format::Timestamp;
use diorite::xattr::XattrWhen;
use diorite::{FileType, Ino, InodeFlags, Rdev, RenameFlags, SetAttr};

pub fn name(world: &mut World, rng: &mut Rng) {
    let (path, volume) = (path(rng), &world.volume);
    match rng.below(8) {
        0 => drop(expect(volume.unlink(&path))),
        1 => drop(expect(volume.rmdir(&path))),
        2 => drop(expect(volume.mkdir(&path, number(rng) as u16))),
        3 => drop(expect(volume.symlink(&values::path(rng), &path))),
        4 => {
            let kind = one(
                rng,
                &[
                    FileType::Fifo,
                    FileType::CharDevice,
                    FileType::Regular,
                    FileType::Directory,
                ],
            );
            let device = Rdev {
                major: number(rng) as u32,
                minor: number(rng) as u32,
            };
            expect(volume.mknod(&path, kind, 0o600, device));
        }
        5 => {
            let found = expect(volume.resolve(&path, rarely(rng, 2)));
            if let Some(ino) = found {
                expect(volume.read_link(ino));
            }
        }
        _ => drop(expect(volume.create(&path, 0o644))),
    }
}

pub fn link(world: &mut World, rng: &mut Rng) {
    let (from, to) = (path(rng), path(rng));
    let flags = RenameFlags::default()
        .no_replace(rarely(rng, 4))
        .exchange(rarely(rng, 5))
        .whiteout(rarely(rng, 8));
    let file = file(world, rng);
    let (volume, foreign) = (&world.volume, &world.stranger);
    match (rng.below(6), file) {
        (0, _) => drop(expect(volume.link(&from, &to))),
        (1, Some(file)) => drop(expect(volume.link_file(&file, &to))),
        (2, Some(file)) => drop(expect(volume.replace_file(&file, &to))),
        (3, _) => {
            assert!(
                volume.link_file(foreign, &to).is_err(),
                "a file of another volume"
            );
            assert!(volume.replace_file(foreign, &to).is_err());
        }
        _ => drop(expect(volume.rename(&from, &to, flags))),
    }
}

pub fn attributes(world: &mut World, rng: &mut Rng) {
    let Some(file) = file(world, rng) else { return };
    let (volume, ino) = (&world.volume, file.ino());
    let odd = vec![b'n'; one(rng, &[249, 250, 251, 300])];
    let long = [b"user.".to_vec(), odd].concat();
    let name = one::<&[u8]>(
        rng,
        &[
            b"user.a",
            b"user.b",
            b"",
            b"user.",
            b"user",
            b"nobody.x",
            b"user.\xff",
            b"user.a\0b",
            b"system.posix_acl_access",
            b"system.data",
            b"security.capability",
            &long,
        ],
    );
    let value = vec![7; one(rng, &[0, 1, 100, 3000, 4096, 65536, 65537])];
    match rng.below(5) {
        0 => drop(expect(volume.xattrs(ino))),
        1 => drop(expect(volume.xattr(ino, name))),
        2 => drop(expect(volume.remove_xattr(ino, name))),
        _ => {
            let when = one(
                rng,
                &[XattrWhen::Always, XattrWhen::Missing, XattrWhen::Present],
            );
            expect(volume.set_xattr_when(ino, name, &value, when));
        }
    }
}

fn set_of(rng: &mut Rng) -> SetAttr {
    let time = |rng: &mut Rng| {
        rarely(rng, 2).then(|| Timestamp {
            secs: number(rng) as i64,
            nanos: one(rng, &[0, 999_999_999, 1_000_000_000, u32::MAX]),
        })
    };
    SetAttr::default()
        .permissions(rarely(rng, 2).then(|| number(rng) as u16))
        .uid(rarely(rng, 2).then(|| number(rng) as u32))
        .gid(rarely(rng, 2).then(|| number(rng) as u32))
        .atime(time(rng))
        .mtime(time(rng))
        .is_now(rarely(rng, 2))
}

pub fn flags(world: &mut World, rng: &mut Rng) {
    let Some(file) = file(world, rng) else { return };
    expect(file.set_attr(&set_of(rng)));
    let has = file.metadata().flags;
    let wanted = match rng.below(4) {
        0 => InodeFlags::from_bits(rng.next() as u32),
        1 => has.with(one(
            rng,
            &[
                InodeFlags::APPEND,
                InodeFlags::IMMUTABLE,
                InodeFlags::SYNC,
                InodeFlags::JOURNAL_DATA,
            ],
        )),
        _ => has,
    };
    expect(file.set_flags(wanted));
    if !rarely(rng, 3) {
        let plain = InodeFlags::APPEND.with(InodeFlags::IMMUTABLE);
        expect(file.set_flags(file.metadata().flags.without(plain)));
    }
}

/// Calls by inode number, which may be that of any inode; so only calls that change no contents.
pub fn by_number(world: &mut World, rng: &mut Rng) {
    let volume = &world.volume;
    let last = volume.superblock().geometry().inodes_count();
    let numbers = [
        0,
        1,
        2,
        3,
        7,
        8,
        9,
        10,
        11,
        last,
        last.wrapping_add(1),
        last / 2,
        u32::MAX,
    ];
    let ino = Ino::new(one(rng, &numbers));
    let not_root = ino != Ino::ROOT;
    match rng.below(9) {
        0 => drop(expect(volume.open_ino(ino, values::open_flags(rng)))),
        1 => {
            let entries = expect(volume.read_dir(ino));
            entries
                .into_iter()
                .flatten()
                .take(1000)
                .for_each(|e| drop(expect(e)));
        }
        2 => drop(expect(volume.read_link(ino))),
        3 => drop(expect(volume.xattrs(ino))),
        4 => drop(expect(volume.xattr(ino, "user.a"))),
        5 => drop(expect(volume.set_xattr(ino, "user.a", b"value"))),
        6 if not_root => drop(expect(volume.set_attr(ino, &set_of(rng)))),
        7 if not_root => {
            let flags = InodeFlags::from_bits(rng.next() as u32);
            expect(volume.set_flags(ino, flags.without(InodeFlags::IMMUTABLE)));
        }
        _ => drop(expect(volume.set_generation(ino, rng.next() as u32))),
    }
}

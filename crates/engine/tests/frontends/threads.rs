//! What a server's threads do at the same time.
//!
//! Input: a volume, a seed. Output: none. Invariant: all that is refused is refused by name, and nothing is left over. Limits: four
//! threads, six names.

use crate::common::attributes::acl;
use crate::common::fixture::writable;
use crate::common::names::fresh;
use crate::common::{Rng, fsck, scaled, words};
use crate::frontends::{group, permissions};
use diorite::dir::RenameFlags;
use diorite::{Caller, Error, Ino, OpenFlags, Volume};
use diorite_block::Buf;
use std::sync::Barrier;

/// What a server's threads do at the same time: names made, moved and removed by directories that others remove meanwhile; inodes known,
/// forgotten and used by their numbers after their names have gone; streams opened again where they stood. All that is refused is refused
/// by name; nothing is left over.
#[test]
fn servers_threads_at_once() {
    for kind in [
        "-t ext4 -b 1024",
        "-t ext4 -b 1024 -O inline_data,orphan_file -I 256",
    ] {
        let (_dir, image, volume) = fresh("32M", &words(kind));
        volume.sync().unwrap();
        let before = volume.usage();
        let mut rng = Rng::from_env("threads of a server");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let (volume, rng) = (volume.clone(), rng.fork());
                scope.spawn(move || serve(&volume, rng));
            }
        });
        remove_all(&volume, Ino::ROOT);
        volume.sync().unwrap();
        let after = volume.usage();
        assert_eq!(after.free_inodes, before.free_inodes, "{kind:?}");
        volume.close().unwrap();
        fsck(&image);
    }
}

/// A list is set by a member of the file's group while the group changes: set-group-id does not stay for a group that he is not in. In
/// either order it goes: with the change of the owner, as the group may execute the file, or with the list. Defect: it stayed.
#[test]
fn a_list_is_set_while_the_group_changes() {
    let (_dir, image, volume) = fresh("8M", &["-t", "ext4"]);
    let file = volume.create("/file", 0o660).unwrap();
    let caller = Caller {
        uid: 1234,
        gids: vec![7],
    };
    let member = volume.for_caller(&caller, 0);
    // user::rwx group::rwx other::---
    let list = acl(&[(1, 7, u32::MAX), (4, 7, u32::MAX), (32, 0, u32::MAX)]);
    let (rounds, together) = (scaled("DIORITE_ROUNDS", 20_000), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..rounds {
                together.wait();
                let set = member.set_xattr(file.ino(), "system.posix_acl_access", &list);
                together.wait();
                set.unwrap();
            }
        });
        let modes = (0..rounds).map(|_| {
            volume.set_attr(file.ino(), &group(7)).unwrap();
            volume.set_attr(file.ino(), &permissions(0o2660)).unwrap();
            together.wait();
            let set = volume.set_attr(file.ino(), &group(8));
            together.wait();
            set.unwrap();
            file.metadata().mode & 0o7777
        });
        let modes: Vec<u16> = modes.collect();
        assert_eq!(modes.iter().position(|mode| *mode != 0o770), None);
    });
    drop(file);
    volume.close().unwrap();
    fsck(&image);
}

/// One thread of such a server.
fn serve(volume: &Volume, mut rng: Rng) {
    let mut known = vec![Ino::ROOT];
    let mut streams: Vec<(Ino, u64)> = Vec::new();
    let names = [
        "a",
        "b",
        "c",
        "d",
        "e",
        "a longer name that takes more room in its directory",
    ];
    let refused = |error: Error| match error.root() {
        Error::NotFound { .. } | Error::Exists { .. } | Error::NotEmpty { .. } => {}
        Error::NotADirectory { .. } | Error::IsADirectory { .. } | Error::NotInUse { .. } => {}
        Error::NoInodes { .. } | Error::NoSpace { .. } => {}
        Error::NotPermitted {
            flag: "a directory" | "no regular file",
            ..
        } => {}
        Error::Invalid(why) if why.contains("inside of what is moved") => {}
        other => panic!("{other}"),
    };
    let (steps, mut did) = (scaled("DIORITE_STEPS", 8000), 0);
    for _ in 0..steps {
        let [one, two] = [0; 2].map(|_: u8| known[rng.below(known.len() as u64) as usize]);
        let [old, new] = [0; 2].map(|_: u8| names[rng.below(names.len() as u64) as usize]);
        let exchange = rng.below(3) == 0;
        let flags = RenameFlags::default()
            .exchange(exchange)
            .whiteout(!exchange && rng.below(20) == 0);
        let done = match rng.below(13) {
            0 | 1 => volume.mkdir((one, old), 0o755).map(drop),
            2 => volume.create((one, old), 0o644).map(drop),
            3 => volume.unlink((one, old)),
            4 => volume.rmdir((one, old)),
            5 | 6 => volume.rename((one, old), (two, new), flags),
            7 => volume.link_ino(one, (two, new)),
            8 | 9 => volume.lookup(one, old).and_then(|found| {
                let Some(ino) = found else { return Ok(()) };
                volume.know(ino)?;
                known.push(ino);
                Ok(())
            }),
            10 if known.len() > 1 => {
                let ino = known.swap_remove(1 + rng.below(known.len() as u64 - 1) as usize);
                volume.forget(ino, 1);
                streams.retain(|(dir, _)| *dir != ino);
                Ok(())
            }
            11 => volume.read_dir(one).map(|mut stream| {
                let _some = stream.by_ref().take(rng.below(4) as usize).count();
                streams.push((one, stream.position()));
            }),
            12 if !streams.is_empty() => {
                let (dir, position) = streams.swap_remove(rng.below(streams.len() as u64) as usize);
                volume
                    .read_dir_from(dir, position)
                    .and_then(|stream| stream.take(100).try_for_each(|entry| entry.map(drop)))
            }
            _ => volume.open_ino(one, writable()).and_then(|file| {
                file.write_buf(rng.below(3) * 5120, Buf::zeroed(5120))
                    .1
                    .map(drop)
            }),
        };
        match done {
            Ok(()) => did += 1,
            Err(error) => refused(error),
        }
    }
    assert!(did > steps / 4, "{did} of {steps} were done");
    for ino in known.drain(1..) {
        volume.forget(ino, 1);
    }
}

/// Removes all that is in a directory, but for lost+found.
fn remove_all(volume: &Volume, dir: Ino) {
    let entries: Vec<_> = volume.read_dir(dir).unwrap().map(Result::unwrap).collect();
    for entry in entries {
        if [&b"."[..], b"..", b"lost+found"].contains(&&entry.name[..]) {
            continue;
        }
        let file = volume.open_ino(entry.ino, OpenFlags::default()).unwrap();
        let is_dir = file.metadata().is_dir();
        drop(file);
        if is_dir {
            remove_all(volume, entry.ino);
            volume.rmdir((dir, &entry.name)).unwrap();
        } else {
            volume.unlink((dir, &entry.name)).unwrap();
        }
    }
}

/// An unlink of one name is nothing to those who look for another. The defect: it marked the inode as deleted before it counted the names,
/// so for a moment the other name was `NotInUse`.
#[test]
fn a_name_is_found_while_another_of_the_same_file_goes() {
    let (_dir, image, volume) = fresh("32M", &["-t", "ext4"]);
    volume.create("/kept", 0o600).unwrap();
    volume.mkdir("/d", 0o755).unwrap();
    let found = std::thread::scope(|scope| {
        let names = scope.spawn(|| {
            for _ in 0..scaled("DIORITE_NAMES", 10_000) {
                if volume.link("/kept", "/d/other").is_ok() {
                    volume.unlink("/d/other").unwrap();
                }
            }
        });
        let mut found = Ok(Ino::ROOT);
        while found.is_ok() && !names.is_finished() {
            found = volume.resolve("/kept", true);
        }
        found
    });
    found.unwrap();
    volume.close().unwrap();
    fsck(&image);
}

//! Trees of names at their limits: many threads, more links than can be counted, reused blocks, inheritance, the longest names.

use crate::common::kernel::mounted;
use crate::common::names::{fresh, open};
use crate::common::{Rng, fsck, scaled, words};
use diorite::dir::RenameFlags;
use diorite::{Error, OpenFlags, Volume};
use diorite_block::Buf;
use diorite_format::inode::Rdev;
use diorite_format::{FileType, Ino};
use std::os::unix::fs::MetadataExt;

/// Threads move directories into each other: none becomes its own descendant, and nothing is lost.
#[test]
fn towards_circles() {
    let (_dir, image, volume) = fresh("32M", &["-t", "ext4", "-b", "1024"]);
    let mut inos: Vec<Ino> = Vec::new();
    for n in 0..8 {
        inos.push(volume.mkdir(&format!("/d{n}"), 0o755).unwrap());
        volume.create(&format!("/d{n}/f{n}"), 0o600).unwrap();
    }
    let mut rng = Rng::from_env("towards circles");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (mut rng, volume) = (rng.fork(), &volume);
            scope.spawn(move || {
                let mut moved = 0;
                for _ in 0..scaled("DIORITE_STEPS", 1500) {
                    let place = |rng: &mut Rng| {
                        let parts = (0..rng.below(4)).map(|_| format!("/d{}", rng.below(8)));
                        parts.collect::<String>()
                    };
                    let name = format!("/d{}", rng.below(8));
                    let (from, to) = (place(&mut rng) + &name, place(&mut rng) + &name);
                    let flags = RenameFlags::default().exchange(rng.below(4) == 0);
                    match volume.rename(&from, &to, flags) {
                        Ok(()) => moved += 1,
                        Err(error) => match error.root() {
                            Error::NotFound { .. } | Error::Invalid(_) | Error::NotEmpty { .. } => {
                            }
                            other => panic!("{from} {to}: {other}"),
                        },
                    }
                }
                assert!(moved > 0);
            });
        }
    });
    // All directories are still there, once.
    let mut found = Vec::new();
    let mut todo = vec![String::new()];
    while let Some(path) = todo.pop() {
        for name in crate::common::names::by_diorite(&volume, &path) {
            let path = format!("{path}/{name}");
            if name.starts_with('d') {
                found.push(volume.resolve(path.as_bytes(), true).unwrap());
                todo.push(path);
            }
        }
    }
    found.sort();
    inos.sort();
    assert_eq!(found, inos);
    volume.close().unwrap();
    fsck(&image);
}

/// Threads work in directories of their own, and all in one: every name that was made or removed is there or gone, whichever thread
/// won.
#[test]
fn threads() {
    let (_dir, image, volume) = fresh("64M", &["-t", "ext4", "-b", "1024", "-N", "20000"]);
    volume.mkdir("/all", 0o755).unwrap();
    std::thread::scope(|scope| {
        for n in 0..4 {
            let volume = &volume;
            scope.spawn(move || {
                volume.mkdir(&format!("/own{n}"), 0o755).unwrap();
                for at in 0..600 {
                    volume.create(&format!("/own{n}/{at:0>40}"), 0o600).unwrap();
                    let won = volume.mkdir(&format!("/all/{}", at % 50), 0o755);
                    if won.is_ok() {
                        // The name belonged to another thread's directory a moment ago.
                        volume.rmdir(&format!("/all/{}", at % 50)).unwrap();
                    }
                    volume
                        .link(&format!("/own{n}/{at:0>40}"), &format!("/all/{n}.{at}"))
                        .unwrap();
                }
            });
        }
    });
    assert_eq!(
        crate::common::names::by_diorite(&volume, "/all").len(),
        2400
    );
    volume.close().unwrap();
    fsck(&image);
}

/// More subdirectories than can be counted: from then on the link count is 1, or one more is refused.
#[test]
fn many_subdirectories() {
    let args = words("-t ext4 -b 1024 -N 66000 -O ^has_journal");
    let (_dir, image, volume) = fresh("160M", &args);
    volume.mkdir("/d", 0o755).unwrap();
    let links = |volume: &Volume| {
        let ino = volume.resolve(b"/d", true).unwrap();
        volume
            .open_ino(ino, OpenFlags::default())
            .unwrap()
            .metadata()
            .links
    };
    for n in 0..64_998 {
        volume.mkdir(&format!("/d/{n}"), 0o755).unwrap();
    }
    assert_eq!(links(&volume), 65_000);
    volume.mkdir("/d/one more", 0o755).unwrap();
    assert_eq!(links(&volume), 1);
    volume.rmdir("/d/7").unwrap();
    assert_eq!(links(&volume), 1);
    volume.close().unwrap();
    fsck(&image);
    crate::common::run("tune2fs", &["-O", "^dir_nlink", image.to_str().unwrap()]);
    let volume = open(&image, true);
    volume.create("/f", 0o600).unwrap();
    volume.mkdir("/links", 0o700).unwrap();
    for n in 1..65_000 {
        volume.link("/f", &format!("/links/{n}")).unwrap();
    }
    let more = volume.link("/f", "/links/more");
    assert!(matches!(more, Err(Error::TooManyLinks { .. })));
    volume.close().unwrap();
}

/// A block that held names, or the target of a link, and then holds data, is not overwritten when the log is replayed.
#[test]
fn a_removed_directory_does_not_come_back() {
    let (dir, image, volume) = fresh("4M", &["-t", "ext4", "-b", "1024", "-N", "128"]);
    let write = OpenFlags::writable();
    volume.create("/f", 0o600).unwrap();
    for n in 0..20 {
        volume.mkdir(&format!("/{n}"), 0o755).unwrap();
        volume
            .symlink(&"t".repeat(500), &format!("/{n}/l"))
            .unwrap();
    }
    volume.sync().unwrap();
    for n in 0..20 {
        volume.unlink(&format!("/{n}/l")).unwrap();
        volume.rmdir(&format!("/{n}")).unwrap();
    }
    volume.sync().unwrap();
    // Allocates all space that is free now, in smaller and smaller pieces.
    let file = volume.open_path("/f", write).unwrap();
    let mut end = 0;
    for size in [65536, 4096, 1024] {
        loop {
            let mut buf = Buf::zeroed(size);
            buf.as_mut_slice().fill(0x5a);
            match file.write_buf(end, buf).1 {
                Ok(done) => end += done as u64,
                Err(error) => {
                    assert!(matches!(error.root(), Error::NoSpace { .. }), "{error}");
                    break;
                }
            }
        }
    }
    volume.sync().unwrap();
    let cut = dir.path().join("cut");
    std::fs::copy(&image, &cut).unwrap();
    volume.close().unwrap();
    let replayed = xtask::run::tool("e2fsck").arg("-fy").arg(&cut).output();
    assert!(replayed.unwrap().status.code().unwrap() <= 1);
    let volume = open(&cut, false);
    let file = volume.open_path("/f", OpenFlags::default()).unwrap();
    let mut bytes = vec![0; end as usize];
    assert_eq!(file.read_bytes(0, &mut bytes).unwrap() as u64, end);
    assert!(end > 2 << 20 && bytes.iter().all(|b| *b == 0x5a));
}

/// What a new inode inherits from its directory, as in the kernel.
#[test]
fn inheritance() {
    let (_dir, image, volume) = fresh("8M", &["-t", "ext4", "-b", "1024"]);
    volume.mkdir("/d", 0o2755).unwrap();
    volume.close().unwrap();
    let path = image.to_str().unwrap();
    // The flags A, d, S, D and extents.
    for (field, value) in [("flags", "0x900c8"), ("gid", "77")] {
        crate::common::run(
            "debugfs",
            &["-w", "-R", &format!("sif /d {field} {value}"), path],
        );
    }
    let volume = open(&image, true);
    volume.create("/d/f", 0o644).unwrap();
    volume.mkdir("/d/s", 0o755).unwrap();
    volume.symlink(&"t".repeat(80), "/d/l").unwrap();
    let look = |path: &str| {
        let ino = volume.resolve(path.as_bytes(), false).unwrap();
        let disk = volume
            .open_ino(ino, OpenFlags::default())
            .unwrap()
            .metadata();
        (disk.mode, disk.gid, disk.flags.bits())
    };
    assert_eq!(look("/d/f"), (0o100_644, 77, 0x800c8));
    assert_eq!(look("/d/s"), (0o042_755, 77, 0x900c8));
    assert_eq!(look("/d/l"), (0o120_777, 77, 0x800c0));
    volume.close().unwrap();
    fsck(&image);
}

/// The longest names and targets, special names, and open files whose last name was removed.
#[test]
fn edges() {
    let (_dir, image, volume) = fresh("8M", &["-t", "ext4", "-b", "1024"]);
    let longest = format!("/{}", "n".repeat(255));
    volume.mkdir(&longest, 0o755).unwrap();
    let too_long = |e: Error| assert!(matches!(e, Error::NameTooLong { .. }), "{e}");
    too_long(volume.mkdir(&format!("{longest}n"), 0o755).unwrap_err());
    volume.symlink(&"t".repeat(1023), "/long").unwrap();
    too_long(volume.symlink(&"t".repeat(1024), "/longer").unwrap_err());
    for special in ["/", "/.", "/.."] {
        assert!(matches!(
            volume.mkdir(special, 0o755),
            Err(Error::Exists { .. })
        ));
        assert!(matches!(
            volume.unlink(special),
            Err(Error::IsADirectory { .. })
        ));
        let moved = volume.rename(special, "/x", RenameFlags::default());
        assert!(matches!(moved, Err(Error::Busy { .. })));
    }
    assert!(matches!(volume.rmdir("/"), Err(Error::Busy { .. })));
    assert!(matches!(volume.rmdir("/."), Err(Error::Invalid(_))));
    assert!(matches!(volume.rmdir("/.."), Err(Error::NotEmpty { .. })));
    assert!(matches!(
        volume.unlink("/long/"),
        Err(Error::NotADirectory { .. })
    ));
    volume.mkdir("/slash/", 0o755).unwrap();
    for minor in [0, 255, 256, 0xF_FFFF] {
        let device = Rdev {
            major: 0xFFF,
            minor,
        };
        volume
            .mknod(
                &format!("/dev{minor}"),
                FileType::BlockDevice,
                0o600,
                device,
            )
            .unwrap();
    }
    let device = Rdev {
        major: 0x1000,
        minor: 0,
    };
    let refused = volume.mknod("/dev", FileType::CharDevice, 0o600, device);
    assert!(matches!(refused, Err(Error::Invalid(_))));
    let file = volume.create("/gone", 0o600).unwrap();
    volume.unlink("/gone").unwrap();
    let again = volume.link_file(&file, "/back");
    assert!(matches!(again, Err(Error::NotFound { .. })), "{again:?}");
    let temporary = volume.temporary("/", 0o600).unwrap();
    volume.link_file(&temporary, "/one").unwrap();
    volume.link_file(&temporary, "/two").unwrap();
    assert_eq!(temporary.metadata().links, 2);
    drop((file, temporary, volume.temporary("/slash", 0o600).unwrap()));
    // A directory is removed while it is read: as in the kernel, it has no names from then on, not even "." and "..".
    let reader = volume
        .read_dir(volume.resolve(b"/slash", true).unwrap())
        .unwrap();
    volume.rmdir("/slash").unwrap();
    assert_eq!(reader.count(), 0);
    volume.close().unwrap();
    fsck(&image);
    mounted(&image, "ro", |at| {
        for minor in [0u64, 255, 256, 0xF_FFFF] {
            let rdev = std::fs::metadata(at.join(format!("dev{minor}")))
                .unwrap()
                .rdev();
            let encoded = (minor & 0xFF) | 0xFFF << 8 | (minor & 0xF_FF00) << 12;
            assert_eq!(rdev, encoded, "{minor}");
        }
    });
}

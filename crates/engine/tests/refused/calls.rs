//! The public calls: with arguments that are right, and with arguments that are refused.
//!
//! Input: a world. Output: what the call says. Invariants: a call of [`GOOD`] succeeds on a fresh world and one of [`BAD`] never does;
//! both may be made on any world. Limits: calls that consume the volume are made through a clone, while others hold it.

use crate::refused::world::{MIB, WRITE, World, pattern};
use diorite::format::features::{Compat, Features};
use diorite::{
    Error, Fallocate, FileType, Ino, InodeFlags, OpenFlags, Rdev, RenameFlags, Request, Seek,
    SetAttr, Timestamp, Tuning, XattrWhen,
};
use diorite_block::Buf;
use std::io::{IoSlice, IoSliceMut};

pub type Call = (&'static str, fn(&World) -> Result<(), Error>);

const KEEP: Fallocate = Fallocate::Allocate { keep_size: true };
const EXCHANGE: RenameFlags = RenameFlags::none()
    .no_replace(false)
    .exchange(true)
    .whiteout(false);
const NO_REPLACE: RenameFlags = RenameFlags::none()
    .no_replace(true)
    .exchange(false)
    .whiteout(false);
const PLAIN: RenameFlags = RenameFlags::none()
    .no_replace(false)
    .exchange(false)
    .whiteout(false);
const NODE: Rdev = Rdev { major: 1, minor: 3 };
/// No inode has this number.
const NOBODY: Ino = Ino::new(60);

fn buf(len: usize) -> Buf {
    let mut buf = Buf::zeroed(len);
    buf.copy_in(0, &pattern(len));
    buf
}

fn request(world: &World, request: Request) -> Result<(), Error> {
    assert!(world.queue.push(request).is_ok());
    let done = world.queue.reap_one(None).unwrap();
    done.result.map(drop)
}

fn owned(uid: u32) -> SetAttr {
    SetAttr::default()
        .uid(uid)
        .permissions(0o600)
        .mtime(Timestamp { secs: 5, nanos: 6 })
}

/// Sets one more flag.
fn with_flag(world: &World, ino: Ino, flag: InodeFlags) -> Result<(), Error> {
    let flags = world.volume.metadata(ino)?.0.flags;
    world.volume.set_flags(ino, flags.with(flag))
}

pub const GOOD: &[Call] = &[
    ("resolve", |w| w.volume.resolve("/link", true).map(drop)),
    ("lookup", |w| w.volume.lookup(Ino::ROOT, "d").map(drop)),
    ("metadata", |w| w.volume.metadata(w.forgotten).map(drop)),
    ("open_ino", |w| w.volume.open_ino(w.known, WRITE).map(drop)),
    ("open_path", |w| {
        w.volume.open_path("/d/inner", WRITE).map(drop)
    }),
    ("read_dir", |w| {
        w.volume.read_dir(Ino::ROOT)?.try_for_each(|e| e.map(drop))
    }),
    ("read_dir_from", |w| {
        w.volume
            .read_dir_from(Ino::ROOT, 1)?
            .try_for_each(|e| e.map(drop))
    }),
    ("read_link", |w| {
        let link = w.volume.resolve("/link", false)?;
        w.volume.read_link(link).map(drop)
    }),
    ("create", |w| w.volume.create("/d/new", 0o600).map(drop)),
    ("mkdir", |w| w.volume.mkdir("/d/new", 0o700).map(drop)),
    ("symlink", |w| w.volume.symlink("short", "/d/new").map(drop)),
    ("symlink, long", |w| {
        w.volume.symlink(&[b'x'; 500], "/d/new").map(drop)
    }),
    ("mknod", |w| {
        w.volume
            .mknod("/d/new", FileType::CharDevice, 0o600, NODE)
            .map(drop)
    }),
    ("temporary", |w| w.volume.temporary("/d", 0o600).map(drop)),
    ("temporary_in", |w| {
        w.volume.temporary_in(Ino::ROOT, 0o600).map(drop)
    }),
    ("unlink", |w| w.volume.unlink("/file")),
    ("unlink, of the last name", |w| w.volume.unlink("/d/inner")),
    ("rmdir", |w| w.volume.rmdir("/empty")),
    ("link", |w| w.volume.link("/file", "/empty/new")),
    ("link_ino", |w| w.volume.link_ino(w.known, "/empty/new")),
    ("link_file", |w| w.volume.link_file(&w.file, "/empty/new")),
    ("replace_file", |w| {
        let file = w.volume.temporary("/", 0o600)?;
        file.write_bytes(0, &pattern(3000))?;
        w.volume.replace_file(&file, "/d/inner")
    }),
    ("rename", |w| {
        w.volume.rename("/d/inner", "/empty/new", PLAIN)
    }),
    ("rename, of a directory", |w| {
        w.volume.rename("/d", "/empty/new", PLAIN)
    }),
    ("rename, over a file", |w| {
        w.volume.rename("/dirty", "/d/inner", PLAIN)
    }),
    ("rename, exchange", |w| {
        w.volume.rename("/dirty", "/d/inner", EXCHANGE)
    }),
    ("set_attr", |w| w.volume.set_attr(w.known, &owned(7))),
    ("set_flags", |w| with_flag(w, w.known, InodeFlags::SYNC)),
    ("set_flags, data through the journal", |w| {
        with_flag(w, w.file.ino(), InodeFlags::JOURNAL_DATA)
    }),
    ("set_label", |w| w.volume.set_label("label")),
    ("set_uuid", |w| {
        // Checksums have the UUID in them.
        match w.volume.set_uuid([7; 16]) {
            Err(Error::NotSupported(_)) => Ok(()),
            other => other,
        }
    }),
    ("tune", |w| {
        w.volume.tune(&Tuning {
            mount_count: Some(3),
            ..Tuning::default()
        })
    }),
    ("xattrs", |w| w.volume.xattrs(w.file.ino()).map(drop)),
    ("xattr", |w| {
        w.volume.xattr(w.file.ino(), "user.a").map(drop)
    }),
    ("set_xattr", |w| {
        w.volume.set_xattr(w.file.ino(), "user.b", b"x")
    }),
    ("set_xattr, in a block", |w| {
        w.volume.set_xattr(w.file.ino(), "user.b", &[7; 700])
    }),
    ("set_xattr_when", |w| {
        let ino = w.file.ino();
        let when = XattrWhen::Present;
        w.volume.set_xattr_when(ino, "user.a", b"new", when)
    }),
    ("remove_xattr", |w| {
        w.volume.remove_xattr(w.file.ino(), "user.a")
    }),
    ("know", |w| w.volume.know(w.known).map(drop)),
    ("queue", |w| w.volume.queue(4).map(drop)),
    ("sync", |w| w.volume.sync()),
    ("write_back", |w| {
        w.volume.write_back(&[&w.file]);
        Ok(())
    }),
    ("make_clean", |w| w.volume.make_clean()),
    ("grow", |w| w.volume.grow(10 * MIB).map(drop)),
    ("grown_bytes", |w| w.volume.grown_bytes(10 * MIB).map(drop)),
    ("grow_writes", |w| w.volume.grow_writes(10 * MIB).map(drop)),
    ("note_checked", |w| w.volume.note_checked()),
    ("trim", |w| w.volume.trim(0..u64::MAX, 0).map(drop)),
    ("zero_free", |w| w.volume.zero_free(|_| ()).map(drop)),
    ("look_at_free", |w| w.volume.look_at_free(|_| ()).map(drop)),
    ("atomic, commit", |w| {
        let atomic = w.volume.atomic()?;
        // One that is dropped closes the volume.
        let made = w.volume.mkdir("/d/new", 0o755);
        made.map(drop).and(atomic.commit())
    }),
    ("read_bytes", |w| {
        w.file.read_bytes(3, &mut [0; 3000]).map(drop)
    }),
    ("write_bytes", |w| {
        w.file.write_bytes(3, &[1; 3000]).map(drop)
    }),
    ("write_bytes, behind the end", |w| {
        w.file.write_bytes(50_000, &[1; 3000]).map(drop)
    }),
    ("append_bytes", |w| {
        w.file.append_bytes(&[1; 3000]).map(drop)
    }),
    ("read_vectored_at", |w| {
        let (mut a, mut b) = ([0; 10], [0; 1000]);
        let mut out = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
        w.file.read_vectored_at(&mut out, 3).map(drop)
    }),
    ("write_vectored_at", |w| {
        let data = [IoSlice::new(&[1; 10]), IoSlice::new(&[2; 1000])];
        w.file.write_vectored_at(&data, 30_000).map(drop)
    }),
    ("truncate", |w| w.file.truncate(3000)),
    ("truncate, longer", |w| w.file.truncate(100_000)),
    ("fallocate", |w| w.file.fallocate(KEEP, 30_000, 100_000)),
    ("fallocate, punch", |w| {
        w.file.fallocate(Fallocate::PunchHole, 1500, 5000)
    }),
    ("fallocate, zero", |w| {
        let mode = Fallocate::ZeroRange { keep_size: false };
        w.file.fallocate(mode, 1500, 50_000)
    }),
    ("fallocate, write zeros", |w| {
        let mode = Fallocate::WriteZeroes { keep_size: false };
        w.file.fallocate(mode, 1500, 50_000)
    }),
    ("fallocate, collapse", |w| {
        w.file.fallocate(Fallocate::CollapseRange, 1024, 2048)
    }),
    ("fallocate, insert", |w| {
        w.file.fallocate(Fallocate::InsertRange, 1024, 2048)
    }),
    ("seek_next", |w| w.file.seek_next(0, Seek::Hole).map(drop)),
    ("keep_inside", |w| {
        w.nameless.keep_inside(&[1; 20]).map(drop)
    }),
    ("file set_attr", |w| w.nameless.set_attr(&owned(7))),
    ("file set_flags", |w| {
        w.nameless
            .set_flags(w.nameless.metadata().flags.with(InodeFlags::SYNC))
    }),
    ("read_at", |w| w.file.read_buf(1024, buf(1024)).1.map(drop)),
    ("write_at", |w| {
        w.file.write_buf(1024, buf(1024)).1.map(drop)
    }),
    ("write_at, into a hole", |w| {
        w.file.write_buf(65_536, buf(4096)).1.map(drop)
    }),
    ("append", |w| w.file.append_buf(buf(1024)).1.map(drop)),
    ("write_last", |w| {
        w.file.write_last(20_480, buf(1024), 700).1.map(drop)
    }),
    ("file sync", |w| w.file.sync()),
    ("file sync_data", |w| w.file.sync_data()),
    ("file write_back", |w| w.file.write_back()),
    ("mappings", |w| w.file.mappings(0, 1 << 20).map(drop)),
    ("queue read", |w| {
        request(w, Request::read(w.id, 0, buf(512), 1))
    }),
    ("queue write", |w| {
        request(w, Request::write(w.id, 40_960, buf(512), 1))
    }),
    ("queue append", |w| {
        request(w, Request::append(w.id, buf(512), 1))
    }),
    ("queue sync", |w| request(w, Request::sync(w.id, false, 1))),
    ("queue sync_volume", |w| request(w, Request::sync_volume(1))),
    ("queue fallocate", |w| {
        request(w, Request::fallocate(w.id, KEEP, 40_960, 10_000, 1))
    }),
    ("queue attach", |w| w.queue.attach(&w.nameless).map(drop)),
];

pub const BAD: &[Call] = &[
    ("resolve", |w| w.volume.resolve("/none/x", true).map(drop)),
    ("lookup", |w| w.volume.lookup(w.known, "d").map(drop)),
    ("lookup, of a long name", |w| {
        w.volume.lookup(Ino::ROOT, &[b'x'; 256]).map(drop)
    }),
    ("metadata", |w| w.volume.metadata(NOBODY).map(drop)),
    ("open_ino", |w| w.volume.open_ino(NOBODY, WRITE).map(drop)),
    ("open_path, of a directory", |w| {
        w.volume.open_path("/d", WRITE).map(drop)
    }),
    ("read_dir", |w| w.volume.read_dir(w.known).map(drop)),
    ("read_link", |w| w.volume.read_link(w.known).map(drop)),
    ("create", |w| w.volume.create("/file", 0o600).map(drop)),
    ("create, in nothing", |w| {
        w.volume.create("/none/x", 0o600).map(drop)
    }),
    ("mkdir", |w| w.volume.mkdir("/file", 0o700).map(drop)),
    ("symlink", |w| {
        w.volume.symlink(&[b'x'; 5000], "/d/new").map(drop)
    }),
    ("mknod", |w| {
        w.volume
            .mknod("/d/new", FileType::Directory, 0, NODE)
            .map(drop)
    }),
    ("temporary", |w| {
        w.volume.temporary("/file", 0o600).map(drop)
    }),
    ("unlink", |w| w.volume.unlink("/none")),
    ("unlink, of a directory", |w| w.volume.unlink("/d")),
    ("rmdir", |w| w.volume.rmdir("/d")),
    ("rmdir, of a file", |w| w.volume.rmdir("/file")),
    ("link, over a name", |w| w.volume.link("/file", "/dirty")),
    ("link, of a directory", |w| w.volume.link("/d", "/new")),
    ("link_ino, of one that was forgotten", |w| {
        w.volume.link_ino(NOBODY, "/new")
    }),
    ("link_file", |w| w.volume.link_file(&w.file, "/dirty")),
    ("link_file, of another volume", |w| {
        w.volume.link_file(&w.stranger, "/new")
    }),
    ("replace_file, over a directory", |w| {
        w.volume.replace_file(&w.file, "/d")
    }),
    ("replace_file, of another volume", |w| {
        w.volume.replace_file(&w.stranger, "/dirty")
    }),
    ("rename, into itself", |w| {
        w.volume.rename("/d", "/d/x", PLAIN)
    }),
    ("rename, over a full directory", |w| {
        w.volume.rename("/empty", "/d", PLAIN)
    }),
    ("rename, over a name", |w| {
        w.volume.rename("/dirty", "/file", NO_REPLACE)
    }),
    ("rename, exchange with nothing", |w| {
        w.volume.rename("/dirty", "/none", EXCHANGE)
    }),
    ("set_attr", |w| w.volume.set_attr(NOBODY, &owned(7))),
    ("set_flags", |w| {
        w.volume
            .set_flags(w.known, InodeFlags::DIRSYNC.with(InodeFlags::ENCRYPT))
    }),
    ("set_generation", |w| w.volume.set_generation(w.known, 7)),
    ("set_label", |w| w.volume.set_label(&[b'x'; 17])),
    ("tune, of a value", |w| {
        w.volume.tune(&Tuning {
            errors_behavior: Some(9),
            ..Tuning::default()
        })
    }),
    ("tune, of a feature in use", |w| {
        let features = Features {
            compat: Compat::HAS_JOURNAL,
            ..Features::default()
        };
        w.volume.tune(&Tuning {
            clear: features,
            label: Some(*b"never seen here!"),
            ..Tuning::default()
        })
    }),
    ("xattr", |w| {
        w.volume.xattr(w.file.ino(), "user.none").map(drop)
    }),
    ("set_xattr, of a long name", |w| {
        w.volume.set_xattr(w.file.ino(), &[b'u'; 300], b"")
    }),
    ("set_xattr, of a large value", |w| {
        w.volume.set_xattr(w.file.ino(), "user.b", &[7; 70_000])
    }),
    ("set_xattr, of a damaged ACL", |w| {
        w.volume
            .set_xattr(w.file.ino(), "system.posix_acl_access", b"acl")
    }),
    ("set_xattr_when", |w| {
        let ino = w.file.ino();
        let when = XattrWhen::Missing;
        w.volume.set_xattr_when(ino, "user.a", b"new", when)
    }),
    ("remove_xattr", |w| {
        w.volume.remove_xattr(w.file.ino(), "user.none")
    }),
    ("know", |w| w.volume.know(NOBODY).map(drop)),
    ("grow, to less", |w| w.volume.grow(MIB).map(drop)),
    ("grow, over the device", |w| {
        w.volume.grow(1 << 40).map(drop)
    }),
    ("grow, a little over the device", |w| {
        w.volume.grow(20 * MIB).map(drop)
    }),
    ("grow_writes", |w| w.volume.grow_writes(MIB).map(drop)),
    ("shrink, in use", |w| {
        w.volume.clone().shrink(6 * MIB, &mut |_| true).map(drop)
    }),
    ("shrink, to more", |w| {
        w.volume.clone().shrink(12 * MIB, &mut |_| true).map(drop)
    }),
    ("write_bytes, too far", |w| {
        w.file.write_bytes(u64::MAX - 9, &[1; 30]).map(drop)
    }),
    ("write_bytes, not for writing", |w| {
        let file = w.volume.open_path("/file", OpenFlags::default())?;
        file.write_bytes(0, &[1; 30]).map(drop)
    }),
    ("truncate", |w| w.file.truncate(u64::MAX)),
    ("fallocate, of nothing", |w| w.file.fallocate(KEEP, 0, 0)),
    ("fallocate, too far", |w| {
        w.file.fallocate(KEEP, 1 << 60, 1 << 60)
    }),
    ("fallocate, collapse", |w| {
        w.file.fallocate(Fallocate::CollapseRange, 1000, 2048)
    }),
    ("fallocate, collapse at the end", |w| {
        w.file.fallocate(Fallocate::CollapseRange, 1024, 1 << 20)
    }),
    ("fallocate, insert", |w| {
        w.file.fallocate(Fallocate::InsertRange, 1000, 2048)
    }),
    ("read_at", |w| w.file.read_buf(100, buf(512)).1.map(drop)),
    ("write_at", |w| w.file.write_buf(100, buf(512)).1.map(drop)),
    ("write_at, too far", |w| {
        w.file.write_buf(1 << 60, buf(512)).1.map(drop)
    }),
    ("append, at no multiple", |w| {
        w.nameless.append_buf(buf(512)).1.map(drop)
    }),
    ("write_last, inside", |w| {
        w.file.write_last(1024, buf(1024), 700).1.map(drop)
    }),
    ("queue, of another file", |w| {
        w.queue.attach(&w.stranger).map(drop)
    }),
    ("queue write", |w| {
        request(w, Request::write(w.id, 100, buf(512), 1))
    }),
    ("queue truncate", |w| {
        request(w, Request::truncate(w.id, u64::MAX, 1))
    }),
    ("queue, detached", |w| {
        let id = w.queue.attach(&w.nameless)?;
        w.queue.detach(id);
        request(w, Request::write(id, 0, buf(512), 1))
    }),
];

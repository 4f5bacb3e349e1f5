//! One operation of each kind, on the files of the stage.
//!
//! Input: the volume. Output: whether it succeeded. Invariant: with enough room each succeeds, or the volume does not support it at
//! all. Limits: none of its own.

use super::stage::{file, list, write};
use diorite::dir::RenameFlags;
use diorite::{Error, Fallocate, SetAttr, Volume};
use diorite_format::inode::Rdev;
use diorite_format::{FileType, Ino};

/// May it fail for space?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fails {
    May,
    Never,
}

pub(super) type Operation = (&'static str, fn(&Volume) -> Result<(), Error>, Fails);

const PLAIN: RenameFlags = RenameFlags::none()
    .no_replace(false)
    .exchange(false)
    .whiteout(false);

/// Another name, as long as those in the full directory.
const ONE_MORE: &str = "/full/one more 000000000000000000000000000000000000000000000000000";

fn ino(volume: &Volume, path: &str) -> Result<Ino, Error> {
    volume.resolve(path.as_bytes(), false)
}

fn rename(volume: &Volume, from: &str, to: &str) -> Result<(), Error> {
    volume.rename(from, to, PLAIN)
}

fn set(volume: &Volume, path: &str, name: &str, len: usize) -> Result<(), Error> {
    volume.set_xattr(ino(volume, path)?, name.as_bytes(), &vec![b'n'; len])
}

fn range(volume: &Volume, path: &str, mode: Fallocate, blocks: (u64, u64)) -> Result<(), Error> {
    file(volume, path)?.fallocate(mode, blocks.0 * 1024, blocks.1 * 1024)
}

/// As [`range`], rounded to clusters.
fn shift(volume: &Volume, mode: Fallocate, (start, len): (u64, u64)) -> Result<(), Error> {
    let unit = u64::from(volume.superblock().geometry().cluster_ratio());
    let blocks = (start / unit * unit, len.next_multiple_of(unit));
    range(volume, "/pieces", mode, blocks)
}

const KEEP: Fallocate = Fallocate::Allocate { keep_size: true };
const ZERO: Fallocate = Fallocate::ZeroRange { keep_size: false };
const ZEROES: Fallocate = Fallocate::WriteZeroes { keep_size: false };

pub(super) const OPERATIONS: &[Operation] = &[
    (
        "create",
        |v| v.create("/dir/new", 0o644).map(drop),
        Fails::May,
    ),
    (
        "create in a full block",
        |v| v.create(ONE_MORE, 0o644).map(drop),
        Fails::May,
    ),
    (
        "create where a leaf splits",
        |v| {
            let name = v.read_link(ino(v, "/splits")?)?;
            v.create(&name, 0o644).map(drop)
        },
        Fails::May,
    ),
    (
        "create with a list that needs a block",
        |v| v.create("/lists/new", 0o644).map(drop),
        Fails::May,
    ),
    (
        "mkdir",
        |v| v.mkdir("/dir/new", 0o755).map(drop),
        Fails::May,
    ),
    (
        "mkdir in a full block",
        |v| v.mkdir(ONE_MORE, 0o755).map(drop),
        Fails::May,
    ),
    (
        "mkdir with lists that need a block",
        |v| v.mkdir("/lists/new", 0o755).map(drop),
        Fails::May,
    ),
    (
        "symlink",
        |v| v.symlink("to", "/dir/new").map(drop),
        Fails::May,
    ),
    (
        "symlink, long, in a full block",
        |v| v.symlink(&"t".repeat(500), ONE_MORE).map(drop),
        Fails::May,
    ),
    (
        "mknod in a full block",
        |v| {
            let device = Rdev { major: 8, minor: 1 };
            v.mknod(ONE_MORE, FileType::BlockDevice, 0o600, device)
                .map(drop)
        },
        Fails::May,
    ),
    (
        "link in a full block",
        |v| v.link("/file", ONE_MORE),
        Fails::May,
    ),
    (
        "a temporary file",
        |v| v.temporary("/lists", 0o600).map(drop),
        Fails::May,
    ),
    (
        "rename into a full block",
        |v| rename(v, "/file", ONE_MORE),
        Fails::May,
    ),
    (
        "rename of a directory into a full block",
        |v| rename(v, "/dir", ONE_MORE),
        Fails::May,
    ),
    (
        "rename to a longer name",
        |v| {
            rename(
                v,
                "/full/00000000000000000000000000000000000000000000000000000000001",
                &format!("{ONE_MORE}{}", "m".repeat(99)),
            )
        },
        Fails::May,
    ),
    (
        "rename over",
        |v| rename(v, "/file", "/victim"),
        Fails::Never,
    ),
    (
        "rename over a directory",
        |v| rename(v, "/dir", "/empty"),
        Fails::Never,
    ),
    (
        "exchange",
        |v| {
            let exchange = PLAIN.exchange(true);
            v.rename(
                "/dir",
                "/full/00000000000000000000000000000000000000000000000000000000002",
                exchange,
            )
        },
        Fails::Never,
    ),
    (
        "whiteout with a list that needs a block",
        |v| {
            let whiteout = PLAIN.whiteout(true);
            v.rename("/lists/hidden", ONE_MORE, whiteout)
        },
        Fails::May,
    ),
    ("unlink", |v| v.unlink("/file"), Fails::Never),
    ("unlink of a long link", |v| v.unlink("/long"), Fails::Never),
    ("rmdir", |v| v.rmdir("/empty"), Fails::Never),
    (
        "an attribute inside",
        |v| set(v, "/file", "user.a", 10),
        Fails::May,
    ),
    (
        "an attribute in a block",
        |v| set(v, "/file", "user.a", 400),
        Fails::May,
    ),
    (
        "an attribute of a link",
        |v| set(v, "/short", "trusted.a", 400),
        Fails::May,
    ),
    (
        "an attribute in a shared block",
        |v| set(v, "/one", "user.more", 20),
        Fails::May,
    ),
    (
        "a large attribute",
        |v| match set(v, "/file", "user.large", 5000) {
            Err(Error::AttributesFull { .. }) => Err(Error::NotSupported(String::new())),
            other => other,
        },
        Fails::May,
    ),
    (
        "an attribute removed from a shared block",
        |v| v.remove_xattr(ino(v, "/one")?, b"user.shared"),
        Fails::May,
    ),
    (
        "a list in a block",
        |v| v.set_xattr(ino(v, "/file")?, b"system.posix_acl_access", &list(60)),
        Fails::May,
    ),
    (
        "chmod with a list in a shared block",
        |v| {
            let set = SetAttr::default().permissions(0o751);
            v.set_attr(ino(v, "/one")?, &set)
        },
        Fails::May,
    ),
    (
        "a write into a hole",
        |v| write(v, "/sparse", 7, 1),
        Fails::May,
    ),
    (
        "a long write into a hole",
        |v| write(v, "/sparse", 2, 20),
        Fails::May,
    ),
    ("an append", |v| write(v, "/file", 4, 3), Fails::May),
    (
        "a write far behind the end",
        |v| write(v, "/file", 9000, 1),
        Fails::May,
    ),
    (
        "a write that splits",
        |v| write(v, "/ahead", 7, 1),
        Fails::May,
    ),
    (
        "a write over holes and data",
        |v| write(v, "/pieces", 2, 16),
        Fails::May,
    ),
    (
        "a write into a full leaf",
        |v| write(v, "/many", 3001, 1),
        Fails::May,
    ),
    (
        "a write through the journal",
        |v| write(v, "/journalled", 1, 30),
        Fails::May,
    ),
    (
        "a write through the journal far behind the end",
        |v| write(v, "/journalled", 9000, 1),
        Fails::May,
    ),
    ("an overwrite", |v| write(v, "/pieces", 1, 2), Fails::Never),
    (
        "truncate",
        |v| file(v, "/pieces")?.truncate(1500),
        Fails::Never,
    ),
    (
        "truncate, longer",
        |v| file(v, "/pieces")?.truncate(90_000),
        Fails::Never,
    ),
    (
        "punch in a full leaf",
        |v| range(v, "/many", Fallocate::PunchHole, (40, 8)),
        Fails::Never,
    ),
    (
        "punch that splits",
        |v| range(v, "/pieces", Fallocate::PunchHole, (1, 1)),
        Fails::May,
    ),
    (
        "punch of bytes",
        |v| file(v, "/pieces")?.fallocate(Fallocate::PunchHole, 900, 2000),
        Fails::May,
    ),
    (
        "allocate",
        |v| range(v, "/sparse", KEEP, (3, 5)),
        Fails::May,
    ),
    (
        "allocate between",
        |v| range(v, "/pieces", KEEP, (0, 20)),
        Fails::May,
    ),
    (
        "zero range that splits",
        |v| range(v, "/pieces", ZERO, (1, 2)),
        Fails::May,
    ),
    (
        "zero range of bytes",
        |v| file(v, "/pieces")?.fallocate(ZERO, 700, 2100),
        Fails::May,
    ),
    (
        "zero range over holes",
        |v| range(v, "/pieces", ZERO, (3, 10)),
        Fails::May,
    ),
    (
        "written zeros that split",
        |v| range(v, "/ahead", ZEROES, (3, 5)),
        Fails::May,
    ),
    (
        "written zeros in a block behind the end",
        |v| file(v, "/beyond")?.fallocate(ZEROES, 5 * 1024 + 100, 200),
        Fails::May,
    ),
    (
        "allocate in a full leaf",
        |v| range(v, "/many", KEEP, (41, 1)),
        Fails::May,
    ),
    (
        "collapse that splits",
        |v| shift(v, Fallocate::CollapseRange, (6, 1)),
        Fails::May,
    ),
    (
        "collapse of a hole",
        |v| range(v, "/many", Fallocate::CollapseRange, (4, 8)),
        Fails::May,
    ),
    (
        "insert that splits",
        |v| shift(v, Fallocate::InsertRange, (8, 4)),
        Fails::May,
    ),
];

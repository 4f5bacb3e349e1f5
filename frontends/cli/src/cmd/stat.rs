//! `diorite stat`: prints the metadata of files in coreutils' format, and the fields that only ext4 has.
//!
//! Input: an image and paths. Output: for each file a paragraph, a JSON object, or a filled template. Invariant: symbolic links
//! are not followed without -L. Limits: extents are counted up to a million.

use crate::args::{Global, StatArgs};
use crate::images::image::{self, bytes};
use crate::output::Out;
use crate::output::report::{Reason, Report};
use crate::walking::extents::Extents;
use crate::words::directives::{OfStat, Stamp};
use crate::words::inode_fields::{JsonFile, More, mode_string};
use crate::words::names::{in_quotes, quoted};
use crate::words::template::{Field, Template};
use crate::words::times::Clock;
use diorite::xattr::Xattr;
use diorite::{Error, File, Volume};
use diorite_format::{FileType, Inode, MapKind, Timestamp};
use std::process::ExitCode;
use std::sync::Arc;

/// The maximum number of extents that are counted.
const MOST_EXTENTS: u64 = 1_000_000;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &StatArgs) -> ExitCode {
    let mut report = Report::new("stat", &args.img);
    let Some(volume) = image::open(&args.img, global, &mut report) else {
        return report.exit_code();
    };
    let mut out = Out::new();
    let clock = Clock::local();
    let template = args.format.as_ref().or(args.printf.as_ref());
    for path in args.paths.iter().map(|p| bytes(p)) {
        if let Some(template) = template {
            match formatted(&volume, path, (args.dereference, template), &clock) {
                Ok(text) => out.bytes(&text),
                Err(reason) => {
                    out.flush();
                    report.file(path, reason);
                }
            }
            continue;
        }
        match Found::look(&volume, path, args.dereference) {
            Ok(found) if args.json.on => out.json(&found.json(path)),
            Ok(found) => found.print(path, &clock, &mut out),
            Err(reason) => {
                out.flush();
                report.file(path, reason);
            }
        }
    }
    out.finish();
    report.exit_code()
}

/// Fills a template for one file.
fn formatted(
    volume: &Volume,
    path: &[u8],
    (follow, template): (bool, &Template<OfStat>),
    clock: &Clock,
) -> Result<Vec<u8>, Reason> {
    let inode = image::find(volume, path, follow)?.metadata();
    let target = image::target(volume, &inode).transpose()?;
    let block_size = volume.superblock().block_size();
    Ok(template.fill(|field| match field.prints {
        OfStat::Path => path.to_vec(),
        OfStat::QuotedPath => {
            let target = target.as_ref().map(|t| format!(" -> {}", in_quotes(t)));
            (in_quotes(path) + &target.unwrap_or_default()).into_bytes()
        }
        OfStat::BlockSize => block_size.to_string().into_bytes(),
        OfStat::Inode(common) => common.of(&inode).into_bytes(),
        OfStat::Sector => b"512".to_vec(),
        OfStat::Mode => format!("{:x}", inode.mode).into_bytes(),
        OfStat::Type => words(&inode).into(),
        OfStat::Major => format!("{:x}", numbers(&inode).0).into_bytes(),
        OfStat::Minor => format!("{:x}", numbers(&inode).1).into_bytes(),
        OfStat::Device => device_number(&inode).to_string().into_bytes(),
        OfStat::DeviceHex => format!("{:x}", device_number(&inode)).into_bytes(),
        OfStat::Time(stamp) => time_of(&inode, stamp)
            .map_or_else(|| "-".to_owned(), |time| clock.full(time))
            .into_bytes(),
        OfStat::Seconds(stamp) => time_of(&inode, stamp)
            .map_or_else(|| "0".to_owned(), |time| seconds(field, time))
            .into_bytes(),
    }))
}

/// A time of a file; an inode may have none for its birth.
fn time_of(inode: &Inode, stamp: Stamp) -> Option<Timestamp> {
    match stamp {
        Stamp::Birth => inode.crtime,
        Stamp::Access => Some(inode.atime),
        Stamp::Modification => Some(inode.mtime),
        Stamp::Change => Some(inode.ctime),
    }
}

/// The major and minor number of a device; zeros for other files.
fn numbers(inode: &Inode) -> (u32, u32) {
    let rdev = inode.rdev();
    rdev.map_or((0, 0), |rdev| (rdev.major, rdev.minor))
}

/// The device number in the kernel's encoding for programs.
fn device_number(inode: &Inode) -> u64 {
    let (major, minor) = numbers(inode);
    u64::from(minor & 0xff) | u64::from(major) << 8 | u64::from(minor & !0xff) << 12
}

/// Seconds since 1970, with as many digits as asked for.
fn seconds(field: &Field<OfStat>, time: Timestamp) -> String {
    match field.precision {
        None | Some(0) => time.secs.to_string(),
        Some(digits) => {
            // Nanoseconds count upwards, before 1970 too: half a second before is -1 and a half, and shown as -0.5.
            let (sign, secs, nanos) = match (time.secs < 0, time.nanos) {
                (true, 1..) => (
                    "-",
                    time.secs.unsigned_abs() - 1,
                    1_000_000_000 - time.nanos,
                ),
                (true, 0) => ("-", time.secs.unsigned_abs(), 0),
                (false, nanos) => ("", time.secs.unsigned_abs(), nanos),
            };
            let nanos = format!("{nanos:09}");
            format!("{sign}{secs}.{}", &nanos[..digits])
        }
    }
}

/// The metadata of one file.
struct Found {
    inode: Arc<Inode>,
    block_size: u32,
    target: Option<Vec<u8>>,
    xattrs: Vec<Xattr>,
    extents: u64,
    counted_all: bool,
}

impl Found {
    fn look(volume: &Volume, path: &[u8], follow: bool) -> Result<Found, Reason> {
        let file = image::find(volume, path, follow)?;
        let block_size = volume.superblock().block_size();
        let (extents, counted_all) = count(&file, block_size)?;
        Ok(Found {
            target: image::target(volume, &file.metadata()).transpose()?,
            xattrs: volume.xattrs(file.ino())?,
            inode: file.metadata(),
            block_size,
            extents,
            counted_all,
        })
    }

    fn json<'a>(&'a self, path: &'a [u8]) -> JsonFile<'a> {
        JsonFile {
            dir: None,
            name: path,
            inode: &self.inode,
            target: self.target.as_deref(),
            more: Some(More {
                block_size: self.block_size,
                extents: self.extents,
                counted_all: self.counted_all,
                xattrs: &self.xattrs,
            }),
        }
    }

    fn print(&self, path: &[u8], clock: &Clock, out: &mut Out) {
        let inode = &*self.inode;
        let terminal = out.is_terminal();
        out.bytes(b"  File: ");
        out.bytes(&quoted(path, terminal));
        if let Some(target) = &self.target {
            out.bytes(b" -> ");
            out.bytes(&quoted(target, terminal));
        }
        out.bytes(b"\n");
        let (size, blocks, io) = (inode.size, inode.blocks, self.block_size);
        let word = words(inode);
        out.line(format_args!(
            "  Size: {size:<10}\tBlocks: {blocks:<10} IO Block: {io:<6} {word}"
        ));
        out.line(device(inode));
        let perms = mode_string(inode.file_type, inode.mode);
        let (mode, uid, gid) = (inode.mode & 0o7777, inode.uid, inode.gid);
        out.line(format_args!(
            "Access: ({mode:04o}/{perms})  Uid: ({uid:5})   Gid: ({gid:5})"
        ));
        let times = [
            ("Access", inode.atime),
            ("Modify", inode.mtime),
            ("Change", inode.ctime),
        ];
        for (label, time) in times {
            out.line(format_args!("{label}: {}", clock.full(time)));
        }
        let birth = inode
            .crtime
            .map_or_else(|| "-".to_owned(), |t| clock.full(t));
        out.line(format_args!(" Birth: {birth}"));
        self.print_more(out);
    }

    fn print_more(&self, out: &mut Out) {
        let inode = &*self.inode;
        let flags = inode.flags;
        out.line(format_args!(
            " Flags: {} ({:#x})",
            flags.letters(),
            flags.bits()
        ));
        if inode.projid != 0 {
            out.line(format_args!("Project: {}", inode.projid));
        }
        let more = if self.counted_all { "" } else { " or more" };
        out.line(format_args!("Extents: {}{more}", self.extents));
        for xattr in &self.xattrs {
            out.bytes(b" Xattr: ");
            let name = quoted(&xattr.name, out.is_terminal()).into_owned();
            out.bytes(&name);
            out.line(format_args!(" ({} bytes)", xattr.value.len()));
        }
    }
}

fn device(inode: &Inode) -> String {
    let (ino, links) = (inode.ino.get(), inode.links);
    match inode.rdev() {
        Some(r) => format!(
            "Inode: {ino:<11} Links: {links:<5} Device type: {},{}",
            r.major, r.minor
        ),
        None => format!("Inode: {ino:<11} Links: {links}"),
    }
}

fn words(inode: &Inode) -> &'static str {
    match inode.file_type {
        Some(FileType::Regular) if inode.size == 0 => "regular empty file",
        Some(FileType::Regular) => "regular file",
        Some(FileType::Directory) => "directory",
        Some(FileType::Symlink) => "symbolic link",
        Some(FileType::Fifo) => "fifo",
        Some(FileType::CharDevice) => "character special file",
        Some(FileType::BlockDevice) => "block special file",
        Some(FileType::Socket) => "socket",
        None => "reserved inode",
    }
}

/// The number of extents, and whether all were counted.
fn count(file: &File, block_size: u32) -> Result<(u64, bool), Error> {
    match file.metadata().map_kind() {
        MapKind::Extents | MapKind::Indirect => {}
        MapKind::Inline | MapKind::FastSymlink | MapKind::Device | MapKind::None => {
            return Ok((0, true));
        }
    }
    let mut count = 0;
    for extent in Extents::all(file, block_size) {
        extent?;
        if count == MOST_EXTENTS {
            return Ok((count, false));
        }
        count += 1;
    }
    Ok((count, true))
}

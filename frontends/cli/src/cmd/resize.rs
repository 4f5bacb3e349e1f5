//! `diorite grow`, `diorite shrink` and `diorite minimise`: the size of the file system in an image.
//!
//! Input: an image, and a size. Output: what it was, and is. Invariants: a file of the host is made longer before the file system grows,
//! but not for a size that the file system cannot have, and cut only when the smaller one is durable; if the file system cannot grow, its
//! file gets its length again, unless a commit has failed after which it may have either size. One that was killed can be repeated. Limits:
//! the size of a partition, of a file in another image, or of the disk in a qcow2 image is not changed; what a shrinking that was killed
//! before its file was cut has left there cannot be told from other data, and stays.

pub(crate) mod stand_in;

use crate::args::{Global, GrowArgs, MinimiseArgs, ShrinkArgs};
use crate::images::image;
use crate::output::Out;
use crate::output::progress::Progress;
use crate::output::report::{Reason, Report, without_number};
use crate::words::sizes::human;
use diorite::{Error, Volume};
use diorite_block::Locator;
use diorite_block::locator::{FileLocator, parse_size};
use diorite_block::open_storage;
use rustix::fs::{OFlags, SeekFrom};
use rustix::io::Errno;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;

/// Rounds in which a file system becomes smaller, and those in which it did not.
const TRIES: u32 = 64;

/// What is printed.
struct Shown {
    block_size: u32,
    before: u64,
    after: u64,
}

/// Runs `grow`.
pub(crate) fn grow(global: &Global, args: &GrowArgs) -> ExitCode {
    let mut report = Report::new("grow", &args.img).with_undo(global.undo.as_ref());
    if let Some(volume) = image::open_for_writing(&args.img, global, &mut report) {
        let before = volume.superblock().geometry().volume_bytes();
        let out_of_range = || Reason::new("the size is out of range");
        let size = args
            .size
            .map(|size| size.of(before).ok_or_else(out_of_range));
        let done = match size.transpose() {
            Ok(size) => larger(global, (volume, &args.img), size, (args.quiet, &mut report)),
            Err(why) => {
                image::close(volume, &mut report);
                Err(why)
            }
        };
        show(
            done.map(Some),
            (&args.img, args.quiet, args.json.on),
            &mut report,
        );
    }
    report.exit_code()
}

/// How a file system becomes larger.
struct Growth {
    /// The size, of which all is of use.
    wanted: u64,
    /// Its file, if that has to become longer.
    file: Option<FileLocator>,
    /// Whether something has to move for its group descriptors.
    moves: bool,
}

impl Growth {
    /// Judges it before anything changes. To `size` bytes or to those of its device.
    fn judge(volume: &Volume, img: &str, size: Option<u64>) -> Result<Growth, Reason> {
        let device = volume.device();
        let wanted = size.unwrap_or(device.geometry().size);
        let file = whole_file(img).filter(|_| wanted > device.geometry().size);
        if file.is_none() && wanted > device.geometry().size {
            return Err(Reason::new(format!(
                "it is to have {wanted} bytes, and its partition, device or disk has {}; that has to become larger first \
                 ('sfdisk', 'qemu-img resize')",
                device.geometry().size
            )));
        }
        if file.is_some() && i64::try_from(wanted).is_err() {
            return Err(Reason::new("no file can be as large"));
        }
        check_behind(volume, img, size.is_none(), wanted)?;
        let (wanted, moves) = match volume.grown_bytes(wanted) {
            Err(Error::NotSupported(_)) => (volume.enlarged_bytes(wanted)?, true),
            grown => (grown?, false),
        };
        // It becomes no longer than is of use.
        let file = file.filter(|_| wanted > device.geometry().size);
        Ok(Growth {
            wanted,
            file,
            moves,
        })
    }
}

/// Makes the file system larger, to `size` bytes or to those of its device, and its file before. Closes the volume.
fn larger(
    global: &Global,
    (volume, img): (Volume, &str),
    size: Option<u64>,
    (quiet, report): (bool, &mut Report),
) -> Result<Shown, Reason> {
    let lengthened = Growth::judge(&volume, img, size).and_then(|growth| {
        let len = growth.file.as_ref().map(|file| {
            if let Some(undo) = &global.undo {
                undo.before_size(growth.wanted)?;
            }
            set_len(file, growth.wanted)
        });
        len.transpose().map(|len| (growth, len))
    });
    let (growth, len) = match lengthened {
        Ok(found) => found,
        Err(why) => {
            image::close(volume, report);
            return Err(why);
        }
    };
    let before = shown(&volume, volume.superblock().geometry().volume_bytes());
    // The image stays in use until its file has its length again.
    let device = volume.device().clone();
    let ready = device.refresh().map_err(Error::from);
    let (now, grown) = match growth.moves {
        true => enlarged(volume, ready, growth.wanted, (quiet, report)),
        false => {
            let grown = ready.and_then(|()| volume.grow(growth.wanted));
            let now = volume.superblock().geometry().volume_bytes();
            let is_told = grown.is_err() && now != before.before && volume.sync().is_ok();
            image::close(volume, report);
            (now, grown.map_err(|error| half_done(&error, now, is_told)))
        }
    };
    if let (Some(file), Some(len), Err(_)) = (&growth.file, len, &grown)
        && now == before.before
    {
        // Best effort: what is behind the old length is a hole.
        let _ = set_len(file, len);
    }
    drop(device);
    let after = grown?;
    Ok(Shown { after, ..before })
}

fn half_done(error: &Error, now: u64, is_told: bool) -> Reason {
    match is_told {
        true => Reason::new(format!(
            "it has {now} bytes ({}) now, but not all copies of its superblock and descriptors: {}; repeating this writes them",
            human(now),
            Reason::from(error)
        )),
        false => Reason::from(error),
    }
}

/// Makes the file system larger where something has to move. Returns the size that it has then, whether that went well, and the result.
fn enlarged(
    volume: Volume,
    ready: Result<(), Error>,
    bytes: u64,
    (quiet, report): (bool, &mut Report),
) -> (u64, Result<u64, Reason>) {
    let size = u64::from(volume.superblock().block_size());
    let (before, device) = (
        volume.superblock().geometry().volume_bytes(),
        volume.device().clone(),
    );
    let grown = ready.and_then(|()| {
        with_progress((quiet, report), size, |progress| {
            volume.enlarge(bytes, progress)
        })
    });
    let blocking = diorite_block::Blocking::new(device);
    let found = diorite::probe::find_superblock(&blocking);
    let now = found.map_or(before, |found| found.sb.geometry().volume_bytes());
    (now, grown.map_err(|error| Reason::from(&error)))
}

/// Shows the progress of a change that moves blocks of so many bytes.
fn with_progress<R>(
    (quiet, report): (bool, &mut Report),
    size: u64,
    change: impl FnOnce(&mut dyn FnMut(&diorite::Moved) -> bool) -> R,
) -> R {
    let progress = Progress::new(quiet, report);
    let mut expected = false;
    let done = change(&mut |moved| {
        if !std::mem::replace(&mut expected, true) {
            progress.expect(Some(moved.of_blocks * size));
        }
        progress.entry(moved.blocks * size);
        true
    });
    progress.finish();
    done
}

/// Refuses to grow over what lies behind the file system in its file. What a growth that was interrupted has left there is not in the way:
/// one to the size that is wanted, or to the length that it gave the file.
fn check_behind(volume: &Volume, img: &str, to_the_end: bool, wanted: u64) -> Result<(), Reason> {
    let before = volume.superblock().geometry().volume_bytes();
    let Ok(Locator::File(file)) = Locator::parse(img) else {
        return Ok(());
    };
    let is_file = std::fs::metadata(&file.path).is_ok_and(|meta| meta.is_file());
    if file.part.is_some() || file.size.is_some() || file.is_qcow2() || !is_file {
        return Ok(());
    }
    if file.offset > 0 && to_the_end {
        return Err(Reason::new(
            "an image that begins inside a file may have others behind it: say a size, or ?part= if it is a partition",
        ));
    }
    if wanted <= before || is_last_in(&file, before, &Pieces::new())? {
        return Ok(());
    }
    for growth in [wanted, volume.device().geometry().size] {
        // Sizes that cannot be are refused later, by name.
        let own = volume.grow_writes(growth).unwrap_or_default();
        if is_last_in(&file, before, &own)? {
            return Ok(());
        }
    }
    let end = file.offset.saturating_add(before);
    Err(Reason::new(format!(
        "its file has other data behind the file system, which ends at byte {end}; 'truncate -s {end}' removes it"
    )))
}

/// Runs `shrink`.
pub(crate) fn shrink(global: &Global, args: &ShrinkArgs) -> ExitCode {
    let mut report = Report::new("shrink", &args.img).with_undo(global.undo.as_ref());
    let mut size = None;
    // A relative size is of what the file system has at first.
    let mut target = |volume: &Volume| {
        let now = volume.superblock().geometry().volume_bytes();
        let out_of_range = || Reason::new("the size is out of range");
        let bytes = size.map_or_else(|| args.size.of(now).ok_or_else(out_of_range), Ok)?;
        let least = volume.tightest_bytes(0);
        if size.is_none() && bytes < least {
            return Err(Reason::new(format!(
                "its files and its own structures need about {least} bytes ({}); `minimise` makes it as small as it can be",
                human(least)
            )));
        }
        Ok(*size.insert(bytes))
    };
    let done = in_rounds(global, (&args.img, args.quiet), &mut report, &mut target);
    let done = done.and_then(|shown| match shown {
        Some(shown) if size.is_some_and(|size| shown.after > size) => {
            let (bytes, text) = (shown.after, human(shown.after));
            Err(Reason::new(format!(
                "its files need more; it has {bytes} bytes ({text}) now"
            )))
        }
        shown => Ok(shown),
    });
    show(done, (&args.img, args.quiet, args.json.on), &mut report);
    report.exit_code()
}

/// Runs `minimise`.
pub(crate) fn minimise(global: &Global, args: &MinimiseArgs) -> ExitCode {
    let mut report = Report::new("minimise", &args.img).with_undo(global.undo.as_ref());
    let mut target = |volume: &Volume| {
        let headroom = headroom(volume, &args.headroom)?;
        let space = volume.space();
        let free = space.free.saturating_mul(u64::from(space.block_size));
        match free < headroom {
            true => Err(Reason::new(format!(
                "{headroom} bytes are to be free, and only {free} are: 'diorite grow' makes it larger"
            ))),
            false => Ok(volume.least_bytes(headroom)),
        }
    };
    let done = match args.dry_run {
        true => planned(global, &args.img, &mut report, &mut target),
        false => {
            let spare = |volume: &Volume| headroom(volume, &args.headroom);
            let how = (&*args.img, args.quiet);
            in_rounds(global, how, &mut report, &mut target)
                .and_then(|done| squeezed(global, how, &mut report, (done, &spare)))
        }
    };
    show(done, (&args.img, args.quiet, args.json.on), &mut report);
    report.exit_code()
}

/// Bytes that are to be free in a volume.
type Spare<'a> = &'a dyn Fn(&Volume) -> Result<u64, Reason>;

/// Takes away what was left for maps that need more blocks when files move, as far as they did not need it.
fn squeezed(
    global: &Global,
    (img, quiet): (&str, bool),
    report: &mut Report,
    (done, headroom): (Option<Shown>, Spare<'_>),
) -> Result<Option<Shown>, Reason> {
    let Some(mut done) = done else {
        return Ok(None);
    };
    let size = u64::from(done.block_size);
    let mut more = 0;
    for _ in 0..TRIES {
        let Some(volume) = image::open_for_writing(img, global, report) else {
            return Ok(None);
        };
        let wanted = headroom(&volume).map(|bytes| volume.tightest_bytes(bytes) + more);
        if wanted.as_ref().map_or(true, |bytes| *bytes >= done.after) {
            image::close(volume, report);
            return wanted.map(|_| Some(done));
        }
        match smaller(global, (volume, img), wanted?, (quiet, report)) {
            Ok(now) => (done.after, more) = (now.after, 0),
            Err(Error::NoSpace { .. } | Error::NoInodes { .. }) => more = (2 * more).max(size),
            Err(other) => return Err(Reason::from(other)),
        }
    }
    Ok(Some(done))
}

/// The size that a file system is to have.
type Target<'a> = &'a mut dyn FnMut(&Volume) -> Result<u64, Reason>;

/// A size that is certain to be reached, where `least` is aimed at: maps may need a few blocks more when their files are in more pieces.
fn safe(volume: &Volume, least: u64) -> u64 {
    let size = u64::from(volume.superblock().block_size());
    let blocks = least / size;
    (blocks + blocks / 100 + 32) * size
}

/// What would be, with nothing changed. None if the image could not be opened.
fn planned(
    global: &Global,
    img: &str,
    report: &mut Report,
    target: Target<'_>,
) -> Result<Option<Shown>, Reason> {
    let Some(volume) = image::open(img, global, report) else {
        return Ok(None);
    };
    let before = volume.superblock().geometry().volume_bytes();
    let after = target(&volume).map(|bytes| safe(&volume, bytes).min(before));
    let same = shown(&volume, before);
    Ok(Some(Shown {
        after: after?,
        ..same
    }))
}

/// Makes a file system smaller, in as many rounds as are of use: structures of groups that go lie among the files of those that stay, and
/// their space can be used only when these groups are gone. None if the image could not be opened.
fn in_rounds(
    global: &Global,
    (img, quiet): (&str, bool),
    report: &mut Report,
    target: Target<'_>,
) -> Result<Option<Shown>, Reason> {
    let (mut at_first, mut more) = (None, 0);
    for _ in 0..TRIES {
        let Some(volume) = image::open_for_writing(img, global, report) else {
            return Ok(None);
        };
        let now = shown(&volume, volume.superblock().geometry().volume_bytes());
        let before = *at_first.get_or_insert(now.before);
        let size = u64::from(now.block_size);
        let wanted = match target(&volume) {
            Ok(bytes) => bytes.saturating_add(more),
            Err(why) => {
                image::close(volume, report);
                return Err(why);
            }
        };
        if wanted >= now.before {
            let device = volume.device().clone();
            image::close(volume, report);
            cut(global, img, (now.before, now.before), report).map_err(Reason::from)?;
            drop(device);
            return match more == 0 || now.before < before {
                true => Ok(Some(Shown { before, ..now })),
                false => Err(Reason::new("its files need the space")),
            };
        }
        match smaller(global, (volume, img), wanted, (quiet, report)) {
            Ok(done) if more == 0 => return Ok(Some(Shown { before, ..done })),
            Ok(_) => more = 0,
            Err(Error::NoSpace { asked, free }) => {
                let missing = asked.saturating_sub(free).saturating_mul(size);
                // Twice as much each time: a few tries find what the tables of many groups need.
                more = more.saturating_add(missing.max(1 << 16).max(wanted / 256).max(more));
            }
            Err(other) => return Err(Reason::from(other)),
        }
    }
    Err(Reason::new("it does not become smaller any more"))
}

fn shown(volume: &Volume, before: u64) -> Shown {
    Shown {
        block_size: volume.superblock().block_size(),
        before,
        after: before,
    }
}

/// Bytes that are to be free.
fn headroom(volume: &Volume, text: &str) -> Result<u64, Reason> {
    let Some(percent) = text.strip_suffix('%') else {
        return parse_size(text).map_err(Reason::new);
    };
    let percent: f64 = percent
        .parse()
        .ok()
        .filter(|p| (0.0..=10_000.0).contains(p))
        .ok_or_else(|| Reason::new(format!("the headroom {text:?} is no percentage")))?;
    let space = volume.space();
    let used = (space.blocks - space.free.min(space.blocks)) * u64::from(space.block_size);
    Ok((used as f64 * percent / 100.0) as u64)
}

/// Makes the file system smaller, and cuts its file.
fn smaller(
    global: &Global,
    (volume, img): (Volume, &str),
    bytes: u64,
    (quiet, report): (bool, &mut Report),
) -> Result<Shown, Error> {
    let before = volume.superblock().geometry().volume_bytes();
    let shown = shown(&volume, before);
    // The image stays in use until its file is cut.
    let device = volume.device().clone();
    let size = u64::from(shown.block_size);
    let after = with_progress((quiet, report), size, |progress| {
        volume.shrink(bytes, progress)
    })?;
    cut(global, img, (before, after), report)?;
    drop(device);
    Ok(Shown { after, ..shown })
}

/// Cuts the file of an image that has `after` bytes now and had `before`, if nothing else is in it.
fn cut(
    global: &Global,
    img: &str,
    (before, after): (u64, u64),
    report: &mut Report,
) -> Result<(), Error> {
    let Some(file) = whole_file(img) else {
        return Ok(());
    };
    let len = std::fs::metadata(&file.path).map_or(0, |meta| meta.len());
    if len <= after {
        return Ok(());
    }
    let cut = is_last_in(&file, before, &Pieces::new()).and_then(|is_last| match is_last {
        true => {
            if let Some(undo) = &global.undo {
                undo.before_cut(after..len)?;
            }
            set_len(&file, after).map(drop)
        }
        false => {
            report.warn(format_args!(
                "its file has other data behind the file system, and keeps its length; 'truncate -s {after}' removes it"
            ));
            Ok(())
        }
    });
    cut.map_err(|why| Error::Invalid(why.to_string()))
}

/// The file of the host that the image is the whole of. The length of a qcow2 file is not that of the disk; and a file in which the image
/// begins later is a disk with other things in it.
pub(super) fn whole_file(img: &str) -> Option<FileLocator> {
    match Locator::parse(img).ok()? {
        Locator::File(file) if file.part.is_none() && file.size.is_none() && file.offset == 0 => {
            let meta = std::fs::metadata(&file.path).ok()?;
            (meta.is_file() && !file.is_qcow2()).then_some(file)
        }
        _ => None,
    }
}

/// Bytes of an image, by where each piece begins.
type Pieces = BTreeMap<u64, Vec<u8>>;

/// Whether the file has nothing behind the image of `bytes` bytes but zeros, what is `own`, and the mark of resize2fs at its end.
fn is_last_in(file: &FileLocator, bytes: u64, own: &Pieces) -> Result<bool, Reason> {
    let looked = || -> std::io::Result<bool> {
        let host = File::from(open_storage(&file.path, OFlags::RDONLY)?);
        let last = host.metadata()?.len().saturating_sub(1);
        let mut at = file.offset.saturating_add(bytes);
        let mut piece = vec![0; 1 << 16];
        loop {
            at = match rustix::fs::seek(&host, SeekFrom::Data(at)) {
                Ok(data) => data,
                // Nothing but a hole, or the end.
                Err(Errno::NXIO) => return Ok(true),
                Err(_) => at,
            };
            match host.read_at(&mut piece, at)? {
                0 => return Ok(true),
                n if !is_own(&piece[..n], at - file.offset, own) => {
                    // resize2fs makes a file longer with a digit 0 at its end, and may use less of it.
                    let before = &piece[..n - 1];
                    let by_resize2fs = at + n as u64 == last + 1 && piece[n - 1] == b'0';
                    return Ok(by_resize2fs && is_own(before, at - file.offset, own));
                }
                n => at += n as u64,
            }
        }
    };
    looked().map_err(|e| Reason::new(format!("its file cannot be read: {e}")))
}

/// Whether each of the bytes at `at` is 0, or what is `own` there: of an interrupted write a part may be there.
fn is_own(bytes: &[u8], at: u64, own: &Pieces) -> bool {
    let expected = |at: u64| {
        let (start, piece) = own.range(..=at).next_back()?;
        piece.get(usize::try_from(at - start).ok()?)
    };
    let mut all = (at..).zip(bytes);
    all.all(|(at, byte)| *byte == 0 || expected(at) == Some(byte))
}

/// Gives the file such a length that the image in it has `bytes` bytes. Returns how many it had.
pub(super) fn set_len(file: &FileLocator, bytes: u64) -> Result<u64, Reason> {
    let set = || -> std::io::Result<u64> {
        let host = File::from(open_storage(&file.path, OFlags::WRONLY)?);
        let before = host.metadata()?.len().saturating_sub(file.offset);
        host.set_len(file.offset.saturating_add(bytes))?;
        host.sync_all()?;
        Ok(before)
    };
    set().map_err(|e| {
        let why = without_number(&e.to_string());
        Reason::new(format!("its file cannot get {bytes} bytes: {why}"))
    })
}

fn show(
    done: Result<Option<Shown>, Reason>,
    (img, quiet, json): (&str, bool, bool),
    report: &mut Report,
) {
    let shown = match done {
        Ok(Some(shown)) => shown,
        Ok(None) => return,
        Err(why) => return report.image(why),
    };
    let size = u64::from(shown.block_size);
    let mut out = Out::new();
    if json {
        out.json(&json!({
            "image": img,
            "block_size": shown.block_size,
            "blocks_before": shown.before / size,
            "blocks": shown.after / size,
            "bytes": shown.after,
        }));
    } else if !quiet {
        let (before, after) = (shown.before / size, shown.after / size);
        let text = human(shown.after);
        out.line(match before == after {
            true => format!("{img}: {after} blocks of {size} bytes ({text}), as before"),
            false => format!("{img}: {after} blocks of {size} bytes ({text}), {before} before"),
        });
    }
    out.finish();
}

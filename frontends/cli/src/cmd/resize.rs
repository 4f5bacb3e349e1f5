//! `diorite grow`, `diorite shrink` and `diorite minimise`: the size of the file system in an image.
//!
//! Input: an image, and a size. Output: what it was, and is. Invariants: a file of the host is made longer before the file system grows,
//! and cut only when the smaller one is durable; if the file system cannot grow, its file gets its length again. Limits: the size of a
//! partition, or of a file in another image, is not changed.

use crate::args::{Global, GrowArgs, MinimiseArgs, ShrinkArgs};
use crate::image;
use crate::output::Out;
use crate::progress::Progress;
use crate::report::{Reason, Report};
use crate::sizes::human;
use diorite::{Error, Volume};
use diorite_block::Locator;
use diorite_block::locator::{FileLocator, parse_size};
use serde_json::json;
use std::io::{Read, Seek, SeekFrom};
use std::process::ExitCode;

/// How many times a little more space is tried.
const TRIES: u32 = 32;

/// What is printed.
struct Shown {
    block_size: u32,
    before: u64,
    after: u64,
}

/// Runs `grow`.
pub(crate) fn grow(global: &Global, args: &GrowArgs) -> ExitCode {
    let mut report = Report::new("grow", &args.img);
    if let Some(volume) = image::open_for_writing(&args.img, global, &mut report) {
        let done = larger(&volume, args);
        image::close(volume, &mut report);
        show(done, (&args.img, args.quiet, args.json), &mut report);
    }
    report.exit_code()
}

fn larger(volume: &Volume, args: &GrowArgs) -> Result<Shown, Reason> {
    let before = volume.superblock().geometry().volume_bytes();
    let device = volume.device();
    let wanted = match args.size {
        Some(size) => size
            .of(before)
            .ok_or_else(|| Reason::new("the size is out of range"))?,
        None => device.geometry().size,
    };
    let file = whole_file(&args.img).filter(|_| wanted > device.geometry().size);
    let len = match &file {
        Some(file) => Some(set_len(file, wanted)?),
        None => None,
    };
    let grown = device
        .refresh()
        .map_err(Error::from)
        .and_then(|()| volume.grow(wanted));
    if let (Some(file), Some(len), Err(_)) = (&file, len, &grown)
        && volume.superblock().geometry().volume_bytes() == before
    {
        // Best effort: what is behind the old length is a hole.
        let _ = set_len(file, len);
    }
    Ok(Shown {
        block_size: volume.superblock().block_size(),
        before,
        after: grown.map_err(Reason::from)?,
    })
}

/// Runs `shrink`.
pub(crate) fn shrink(global: &Global, args: &ShrinkArgs) -> ExitCode {
    let mut report = Report::new("shrink", &args.img);
    if let Some(volume) = image::open_for_writing(&args.img, global, &mut report) {
        let before = volume.superblock().geometry().volume_bytes();
        let done = match args.size.of(before) {
            Some(bytes) if bytes >= before => {
                let same = shown(&volume, before);
                image::close(volume, &mut report);
                Ok(same)
            }
            Some(bytes) => {
                smaller(volume, &args.img, bytes, (args.quiet, &mut report)).map_err(Reason::from)
            }
            None => Err(Reason::new("the size is out of range")),
        };
        show(done, (&args.img, args.quiet, args.json), &mut report);
    }
    report.exit_code()
}

/// Runs `minimise`.
pub(crate) fn minimise(global: &Global, args: &MinimiseArgs) -> ExitCode {
    let mut report = Report::new("minimise", &args.img);
    let mut more = 0;
    for tries in 0..TRIES {
        let Some(volume) = image::open_for_writing(&args.img, global, &mut report) else {
            break;
        };
        let before = volume.superblock().geometry().volume_bytes();
        let least = headroom(&volume, &args.headroom).and_then(|headroom| {
            let least = volume.least_bytes(headroom.saturating_add(more));
            Ok(least.map_err(Reason::from)?)
        });
        let done = match least {
            Ok(least) if least >= before || args.dry_run => {
                let same = Shown {
                    after: least.min(before),
                    ..shown(&volume, before)
                };
                image::close(volume, &mut report);
                Ok(same)
            }
            Ok(least) => match smaller(volume, &args.img, least, (args.quiet, &mut report)) {
                // Maps have grown while blocks moved.
                Err(Error::NoSpace { .. }) if tries + 1 < TRIES => {
                    more = more.saturating_mul(2).max(least / 256).max(1 << 18);
                    continue;
                }
                done => done.map_err(Reason::from),
            },
            Err(why) => Err(why),
        };
        show(done, (&args.img, args.quiet, args.json), &mut report);
        break;
    }
    report.exit_code()
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
    volume: Volume,
    img: &str,
    bytes: u64,
    (quiet, report): (bool, &mut Report),
) -> Result<Shown, Error> {
    let before = volume.superblock().geometry().volume_bytes();
    let shown = shown(&volume, before);
    // The image stays in use until its file is cut.
    let device = volume.device().clone();
    let progress = Progress::new(quiet, report);
    let size = u64::from(shown.block_size);
    let mut expected = false;
    let after = volume.shrink(bytes, &mut |moved| {
        if !std::mem::replace(&mut expected, true) {
            progress.expect(Some(moved.of_blocks * size));
        }
        progress.entry(moved.blocks * size);
        true
    });
    progress.finish();
    let after = after?;
    if let Some(file) = whole_file(img).filter(|_| after < before) {
        let cut = is_last_in(&file, before).and_then(|is_last| match is_last {
            true => set_len(&file, after).map(drop),
            false => {
                report.warn("its file has other data behind the file system, and keeps its length");
                Ok(())
            }
        });
        cut.map_err(|why| Error::Invalid(why.to_string()))?;
    }
    drop(device);
    Ok(Shown { after, ..shown })
}

/// The file of the host that the image is the whole of; where in it the image begins.
fn whole_file(img: &str) -> Option<FileLocator> {
    match Locator::parse(img).ok()? {
        Locator::File(file) if file.part.is_none() && file.size.is_none() => {
            let meta = std::fs::metadata(&file.path).ok()?;
            meta.is_file().then_some(file)
        }
        _ => None,
    }
}

/// Whether the file has nothing but zeros behind the image of `bytes` bytes.
fn is_last_in(file: &FileLocator, bytes: u64) -> Result<bool, Reason> {
    let looked = || -> std::io::Result<bool> {
        let mut host = std::fs::File::open(&file.path)?;
        host.seek(SeekFrom::Start(file.offset.saturating_add(bytes)))?;
        let mut piece = vec![0; 1 << 16];
        loop {
            match host.read(&mut piece)? {
                0 => return Ok(true),
                n if piece[..n].iter().any(|byte| *byte != 0) => return Ok(false),
                _ => {}
            }
        }
    };
    looked().map_err(|e| Reason::new(format!("its file cannot be read: {e}")))
}

/// Gives the file such a length that the image in it has `bytes` bytes. Returns how many it had.
fn set_len(file: &FileLocator, bytes: u64) -> Result<u64, Reason> {
    let set = || -> std::io::Result<u64> {
        let host = std::fs::OpenOptions::new().write(true).open(&file.path)?;
        let before = host.metadata()?.len().saturating_sub(file.offset);
        host.set_len(file.offset.saturating_add(bytes))?;
        host.sync_all()?;
        Ok(before)
    };
    set().map_err(|e| Reason::new(format!("its file cannot get {bytes} bytes: {e}")))
}

fn show(done: Result<Shown, Reason>, (img, quiet, json): (&str, bool, bool), report: &mut Report) {
    let shown = match done {
        Ok(shown) => shown,
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

//! `diorite undo`: takes back what a command has changed, from its undo file; in place of e2undo, too.
//!
//! Input: an undo file of diorite or e2fsprogs, and the image. Output: the image as it was before. Invariants: the image is locked before
//! anything is judged, and nothing is written before everything has been checked; a file gets its old length again, unless somebody has
//! changed its length since; one that was killed can be repeated. Limits: undo files of e2fsprogs say nothing of lengths, so what their
//! resize2fs has cut off is lost, and what it has made longer stays so.

use super::resize::{set_len, whole_file};
use crate::args::{Global, UndoArgs};
use crate::images::device;
use crate::images::undo_file;
use crate::output::report::{Reason, Report};
use crate::output::{self, Out, complain_best_effort};
use diorite::{Error, Undo, UndoFile, exact_size, open_device};
use diorite_block::{Device, Locator};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &UndoArgs) -> ExitCode {
    let mut report = Report::new("undo", &args.img);
    if let Err(why) = undo(global, args, &mut report) {
        report.image(why);
    }
    report.exit_code()
}

fn undo(global: &Global, args: &UndoArgs, report: &mut Report) -> Result<(), Reason> {
    // Its offset says which device it is for; nothing else of it counts before the device is locked.
    let head = UndoFile::open(&args.file).map_err(Reason::from)?;
    if args.header {
        let mut out = Out::new();
        head.describe().into_iter().for_each(|line| out.line(line));
        out.finish();
        return Ok(());
    }
    let mut locator = Locator::parse(&args.img).map_err(|e| Reason::new(e.to_string()))?;
    if let Locator::File(file) = &mut locator
        && file.offset == 0
        && file.part.is_none()
    {
        file.offset = args.offset.or(head.offset()).unwrap_or(0);
    }
    let own = own_undo(args, &locator)?;
    let global = Global {
        undo: own.clone(),
        ..global.clone()
    };
    if !args.dry_run {
        output::outlive_failures();
    }
    let options = device::options(&global, !args.dry_run);
    let device = open_device(&locator, &options).map_err(Reason::from)?;
    let done = judged(args, &locator, &device, report).and_then(|file| match args.dry_run {
        true => Ok(()),
        false => put_back(args, &locator, (&file, &device), own.as_ref()),
    });
    drop(device);
    if let Some(own) = own {
        undo_file::tell(&own, &args.img, done.is_ok())?;
    }
    done
}

fn own_undo(args: &UndoArgs, target: &Locator) -> Result<Option<Undo>, Reason> {
    let Some(file) = &args.undo else {
        return Ok(None);
    };
    let undo = undo_file::of(file, "e2undo", &args.img, target.clone()).map_err(Reason::new)?;
    // Also under another name of it.
    let inode = |path: &Path| {
        let meta = path.metadata().ok();
        meta.map(|meta| (meta.dev(), meta.ino()))
    };
    let own = inode(undo.path());
    match own.is_some() && own == inode(&args.file) {
        true => Err(Reason::new("-z names the undo file that is read")),
        false => Ok(Some(undo)),
    }
}

/// The length that the image's file had, if it has the one that the change left.
fn old_length(file: &UndoFile, locator: &Locator, now: u64) -> Option<u64> {
    whole(locator)?;
    file.old_length(now)
}

fn whole(locator: &Locator) -> Option<diorite_block::locator::FileLocator> {
    let Locator::File(file) = locator else {
        return None;
    };
    whole_file(&file.path.to_string_lossy())?;
    (file.part.is_none() && file.size.is_none() && !file.is_qcow2()).then(|| file.clone())
}

/// The undo file, if it is for this device.
fn judged(
    args: &UndoArgs,
    locator: &Locator,
    device: &Arc<dyn Device>,
    report: &Report,
) -> Result<UndoFile, Reason> {
    let file = UndoFile::open(&args.file).map_err(Reason::from)?;
    let now = exact_size(locator, device.as_ref());
    let before = old_length(&file, locator, now).unwrap_or(now);
    let mut doubts = file.judge(device, now.max(before)).map_err(Reason::from)?;
    if before < now {
        doubts.extend(file.judge_cut(device, before).map_err(Reason::from)?);
    }
    doubts.extend(file.judge_lost(device, before).map_err(Reason::from)?);
    if args.dry_run && args.verbose {
        file.pieces().iter().for_each(say);
    }
    match doubts.first() {
        Some(doubt) if !args.force => {
            let file = args.file.display();
            Err(Reason::new(format!(
                "{file}: {doubt}; nothing was changed, -f puts it back all the same"
            )))
        }
        _ => {
            for doubt in doubts {
                report.warn(format_args!("{}: {doubt}; run e2fsck", args.file.display()));
            }
            Ok(file)
        }
    }
}

fn put_back(
    args: &UndoArgs,
    locator: &Locator,
    (file, device): (&UndoFile, &Arc<dyn Device>),
    own: Option<&Undo>,
) -> Result<(), Reason> {
    let now = exact_size(locator, device.as_ref());
    let longer = file.stays_longer(device, now)?;
    let length = whole(locator).zip(old_length(file, locator, now));
    if let Some((host, before)) = length.as_ref().filter(|(_, before)| *before > now) {
        if let Some(own) = own {
            own.before_size(*before)?;
        }
        set_len(host, *before)?;
        device.refresh().map_err(Error::from)?;
    }
    let each = |piece: &diorite::Piece| {
        if args.verbose {
            say(piece);
        }
    };
    let shorter = length.filter(|(_, before)| *before < now);
    let cut = || -> Result<(), Reason> {
        match &shorter {
            Some((host, before)) => {
                if let Some(own) = own {
                    own.before_cut(*before..now)?;
                }
                set_len(host, *before)?;
                Ok(device.refresh().map_err(Error::from)?)
            }
            None => Ok(()),
        }
    };
    file.restore(device, each, cut)?;
    let whole = whole(locator).filter(|host| host.offset == 0);
    if let (Some(bytes), Some(_)) = (longer, whole) {
        complain_best_effort(format_args!(
            "diorite: undo: {}: the file stays {now} bytes long, of which the file system has {bytes}: the undo file says no length",
            args.img
        ));
    }
    Ok(())
}

fn say(piece: &diorite::Piece) {
    complain_best_effort(format_args!(
        "{} bytes at {}, from {} of the undo file",
        piece.len, piece.pos, piece.at
    ));
}

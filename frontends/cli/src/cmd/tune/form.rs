//! Changes of more than the superblock.
//!
//! Input: an image, and a [`Change`]. Output: the image in its new form. Invariants: what lies in the superblock alone is judged before
//! anything is written, unless it depends on features that the same command switches. Limits: a volume that needs recovery and has features
//! with which diorite does not write is left to e2fsck.

use super::shown::{Steps, unwritten};
use super::words::Change;
use crate::args::Global;
use crate::cmd::mkfs::{Journal, identity};
use crate::images::device;
use crate::images::image;
use crate::output::report::{Reason, Report};
use crate::words::names;
use diorite::{Conversion, Error, OpenOptions, Tuning, Volume, convert, probe};
use diorite_block::{Blocking, Locator};
use diorite_format::features::{Compat, Features, Incompat, RoCompat};
use diorite_format::superblock::JournalPlace;
use diorite_format::{FormatError, Superblock};

/// Changes the image: its form first, if that is asked for.
pub(super) fn change(global: &Global, img: &str, change: &Change, report: &mut Report) {
    let sb = match found(global, img) {
        Ok(sb) => sb,
        Err(error) => return image::refused(img, report, &error),
    };
    let conversion = match change.conversion(&sb) {
        Ok(conversion) => conversion,
        Err(why) => return report.image(Reason::new(why)),
    };
    let rest = change.rest(&sb, &conversion);
    let is_of_superblock = conversion.is_nothing() && change.journal_device().is_none();
    if is_of_superblock {
        if is_marked(&sb, change) || !is_unwritten(global, img, change) {
            return super::superblock(global, img, change, &rest, report);
        }
        // Parameters of a volume on which no file may be written.
        let conversion = Conversion {
            tuning: rest,
            ..conversion
        };
        return finish(global, img, (&sb, change, &conversion), report);
    }
    let is_unwritten = is_never_written(&conversion) || is_unwritten(global, img, change);
    let (conversion, rest) = together(conversion, rest, is_unwritten);
    if let Err(error) = prepare(global, img, (&sb, change), &rest) {
        return image::refused(img, report, &error);
    }
    finish(global, img, (&sb, change, &conversion), report);
    if !report.has_failed() && rest != Tuning::default() {
        super::superblock(global, img, change, &rest, report);
    }
}

/// Whether the change gives the volume features with which no file is written.
fn is_never_written(conversion: &Conversion) -> bool {
    let quota = RoCompat::QUOTA.with(RoCompat::PROJECT).bits();
    conversion.set.ro_compat.bits() & quota != 0 || conversion.set.incompat.has(Incompat::MMP)
}

/// Parameters that no feature depends on are changed with the form, in one step; all are if the volume cannot be opened to change them
/// before the form or behind it.
fn together(conversion: Conversion, rest: Tuning, is_unwritten: bool) -> (Conversion, Tuning) {
    let none = Features::default();
    let has_features = rest.set != none || rest.clear != none;
    if conversion.is_nothing() || has_features && !is_unwritten {
        return (conversion, rest);
    }
    let all = Conversion {
        tuning: rest,
        ..conversion
    };
    (all, Tuning::default())
}

/// The superblock as it is on the device.
fn found(global: &Global, img: &str) -> Result<Superblock, Error> {
    let device = probe::open(&Locator::parse(img)?, &device::options(global, false))?;
    Ok(probe::find_superblock(&Blocking::new(device))?.sb)
}

fn writable(global: &Global, change: &Change) -> OpenOptions {
    image::writable(global).ignore_read_only(change.clears_read_only())
}

fn is_unsupported(error: &Error) -> bool {
    matches!(error.root(), Error::Format(error) if matches!(**error, FormatError::Unsupported(_)))
}

/// Whether it is marked read-only, and stays so.
fn is_marked(sb: &Superblock, change: &Change) -> bool {
    sb.features().ro_compat.has(RoCompat::READONLY) && !change.clears_read_only()
}

/// Whether the volume has features with which no file is written.
fn is_unwritten(global: &Global, img: &str, change: &Change) -> bool {
    match Volume::open(img, &writable(global, change)) {
        Ok(volume) => volume.close().is_err(),
        Err(error) => is_unsupported(&error),
    }
}

/// Recovers the volume, and judges what lies in the superblock alone.
fn prepare(
    global: &Global,
    img: &str,
    (sb, change): (&Superblock, &Change),
    rest: &Tuning,
) -> Result<(), Error> {
    match Volume::open(img, &writable(global, change)) {
        Ok(volume) => {
            let judged = match change.switches_checksums() {
                true => Ok(()),
                false => volume.check_tune(rest),
            };
            let closed = volume.close();
            judged.and(closed)
        }
        Err(error) if is_unsupported(&error) && !is_marked(sb, change) => {
            match rest.set == Features::default() {
                true => Ok(()),
                false => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

/// Gives the volume its new form.
fn finish(
    global: &Global,
    img: &str,
    (sb, change, conversion): (&Superblock, &Change, &Conversion),
    report: &mut Report,
) {
    let done = convert_with(global, img, (sb, change, conversion), report);
    if let Err(why) = done {
        return report.image(why);
    }
    if let Ok(after) = found(global, img) {
        for note in unwritten(sb, &after) {
            report.warn(note);
        }
    }
}

fn convert_with(
    global: &Global,
    img: &str,
    (sb, change, conversion): (&Superblock, &Change, &Conversion),
    report: &Report,
) -> Result<(), Reason> {
    let new = match change.journal_device() {
        Some(word) => Some(Journal::open(global, word, false)?),
        None => None,
    };
    let old = old_journal(global, sb, conversion, report)?;
    let mut conversion = conversion.clone();
    if conversion.set.incompat.has(Incompat::MMP) {
        conversion.mmp_names = identity::mmp_names(img);
    }
    if let Some(journal) = &new {
        conversion.journal_device = Some(journal.uuid(sb.block_size())?);
    }
    let locator = Locator::parse(img).map_err(|e| Reason::new(e.to_string()))?;
    image::writable(global);
    let opened = device::open(&locator, &device::options(global, true))?;
    let uuid = conversion.uuid.unwrap_or(*sb.uuid());
    // A journal that names a volume which does not use it yet does no harm.
    if let Some(journal) = new {
        journal.finish(&uuid)?;
    }
    let clock = OpenOptions::default().clock;
    let mut steps = Steps::new();
    let done = convert(&opened.device, &conversion, &clock, &mut |step| {
        steps.show(step)
    });
    steps.end();
    let closed = opened.close();
    done.and(closed)?;
    match old {
        Some(journal) if conversion.clear.compat.has(Compat::HAS_JOURNAL) => journal.forget(),
        Some(journal) => journal.finish(&uuid),
        None => Ok(()),
    }
}

/// The device with the journal of the volume, if what it says of the volume is to change. If it is to go and cannot be found, a warning
/// says so.
fn old_journal(
    global: &Global,
    sb: &Superblock,
    conversion: &Conversion,
    report: &Report,
) -> Result<Option<Journal>, Reason> {
    let JournalPlace::External { uuid, .. } = sb.journal() else {
        return Ok(None);
    };
    let goes = conversion.clear.compat.has(Compat::HAS_JOURNAL);
    if !goes && conversion.uuid.is_none() {
        return Ok(None);
    }
    let word = match &global.journal {
        Some(word) => word.clone(),
        None => format!("UUID={}", names::uuid(&uuid).unwrap_or_default()),
    };
    match Journal::open(global, &word, true) {
        Ok(journal) => Ok(Some(journal)),
        Err(_) if goes && global.journal.is_none() => {
            report.warn("the device with the journal was not found (--journal names it): it still names this file system");
            Ok(None)
        }
        Err(why) => Err(why),
    }
}

//! `check --repair`: writes what provably follows from what a check has found consistent, and nothing if anything else is wrong.
//!
//! Input: an image, opened for writing once for all of this. Output: what was done, and the report of the check afterwards. Invariants: the
//! check decides before anything is written; recorded errors are forgotten only after a second check that found nothing. Limits: counts of
//! groups and of the superblock, blocks that nobody uses, the name of an orphan file that is not there, a superblock with a wrong checksum
//! that has a copy, the journal, orphans, recorded errors; everything else is left to e2fsck.

use super::{DAMAGED, FAILED};
use crate::args::Global;
use crate::images::image;
use diorite::{Error, Locator, OpenOptions, Repair, Volume};
use diorite_block::Device;
use diorite_check::{CheckOptions, Report as Found, Watch, check_device};
use std::sync::Arc;

/// Exit code of e2fsck: errors were found and corrected.
const CORRECTED: u8 = 1;

/// How a repair ended.
pub(super) struct Repaired {
    /// What was done, one line each.
    pub(super) done: Vec<String>,
    /// The last check.
    pub(super) found: Found,
    /// What is left to e2fsck, if anything is.
    pub(super) left: Option<&'static str>,
    pub(super) code: u8,
}

/// Checks an image, and repairs it. Blocks.
pub(super) fn repair(
    global: &Global,
    img: &str,
    options: &CheckOptions,
    watch: Watch<'_>,
) -> Result<Repaired, Error> {
    let open = image::writable(global).repair(Repair::default());
    // Nobody else writes between the check and the repair.
    let device = diorite::probe::open(&Locator::parse(img)?, &open)?;
    let found = check_device(&device, options, watch)?;
    if !found.is_repairable() {
        return Ok(Repaired {
            done: Vec::new(),
            code: if found.unfinished {
                DAMAGED | FAILED
            } else {
                DAMAGED
            },
            found,
            left: Some("nothing was repaired, since not all of it can be"),
        });
    }
    if found.is_clean() && found.stale == diorite_check::Stale::default() {
        return Ok(Repaired {
            done: Vec::new(),
            found,
            left: None,
            code: 0,
        });
    }
    write(&device, open, found, options, watch)
}

fn write(
    device: &Arc<dyn Device>,
    open: OpenOptions,
    found: Found,
    options: &CheckOptions,
    watch: Watch<'_>,
) -> Result<Repaired, Error> {
    let before = found.stale;
    let mut done = Vec::new();
    let (groups, unused) = (found.counts.clone(), found.unused.clone());
    done.extend(
        found
            .kept()
            .map(|(_, finding)| format!("corrected: {finding}")),
    );
    let mended = open.clone().repair(Repair {
        groups,
        unused,
        orphan_file: before.orphan_file,
    });
    let volume = Volume::open_device(device.clone(), &mended)?;
    let known = device.report().fallbacks;
    let about_image = volume.notes().iter().filter(|note| !known.contains(note));
    done.extend(about_image.cloned());
    volume.close()?;
    let found = check_device(device, options, watch)?;
    if !found.is_clean() {
        return Ok(Repaired {
            done,
            found,
            left: Some("something is wrong yet"),
            code: DAMAGED,
        });
    }
    let volume = Volume::open_device(device.clone(), &open)?;
    volume.note_checked()?;
    volume.close()?;
    if before.totals {
        done.push("corrected: the free counts of the superblock".to_owned());
    }
    if before.state {
        done.push("the volume is marked as clean, and recorded errors are forgotten".to_owned());
    }
    let corrected = done.iter().any(|line| line.starts_with("corrected")) || before.state;
    // Writing has changed what the check noted.
    let found = check_device(device, options, watch)?;
    Ok(Repaired {
        done,
        found,
        left: None,
        code: if corrected { CORRECTED } else { 0 },
    })
}

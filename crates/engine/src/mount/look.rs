//! Reads what is needed first of a volume: superblock, features, group descriptors, state.
//!
//! Input: a device. Output: [`Mounted`], from which the file system is assembled. Invariants: reads only; a device whose logical block is
//! larger than the file system's block is refused, so no request fails later for that. Limits: superblock and descriptors are read once.

use crate::disk::{Descriptors, Parts, Zone, find_superblock, read_groups};
use crate::error::Error;
use crate::options::OpenOptions;
use diorite_block::device::DeviceErrorKind;
use diorite_block::{Blocking, Device, DeviceError};
use diorite_format::features::RoCompat;
use diorite_format::superblock::JournalPlace;
use diorite_format::{Access, Superblock};
use std::sync::Arc;

/// What was read of a volume.
pub(super) struct Mounted {
    pub(super) parts: Parts,
    pub(super) notes: Vec<String>,
    pub(super) data_journalled: bool,
}

/// Reads and checks the parts of a volume, with the superblock if it is not `known`. Whether its state allows to open it is left to
/// [`check_state`].
pub(super) fn look(
    device: &Arc<dyn Device>,
    known: Option<&Superblock>,
    options: &OpenOptions,
    mut notes: Vec<String>,
    expected: Descriptors,
) -> Result<Mounted, Error> {
    let device = device.clone();
    let blocking = Blocking::new(device.clone());
    let sb = match known {
        Some(sb) => sb.clone(),
        None => find_superblock(&blocking)?.sb,
    };
    let access = if options.write {
        Access::Write
    } else {
        Access::Read
    };
    let mut features = *sb.features();
    if options.ignore_read_only {
        features.ro_compat = features.ro_compat.without(RoCompat::READONLY);
    }
    features
        .check(access)
        .map_err(|e| Error::from(diorite_format::FormatError::from(e)))?;
    let geometry = device.geometry();
    sb.check_device(geometry.size)?;
    if geometry.logical > sb.block_size() {
        let (logical, block) = (geometry.logical, sb.block_size());
        let what = format!(
            "{}: logical block {logical} is larger than the file system's block {block}",
            device.name()
        );
        return Err(DeviceError::new(DeviceErrorKind::Unsupported, what).into());
    }
    let report = match options.write {
        true => device.report(),
        false => device.report_so_far(),
    };
    notes.extend(report.fallbacks);
    let groups = read_groups(&blocking, &sb, expected)?;
    let zone = Zone::of_groups(&sb, &groups)?;
    if expected == Descriptors::Whole {
        check_overlaps(&zone, options, &mut notes)?;
    }
    let by_default = sb.info().default_mount_opts & DATA_MODE == DATA_JOURNAL;
    let data_journalled = options.data_journal.unwrap_or(by_default);
    Ok(Mounted {
        parts: Parts {
            device,
            blocking,
            sb,
            groups,
            zone,
        },
        notes,
        data_journalled,
    })
}

/// Structures that have a block in common are refused for writing, as each change of one damages the other, and noted for reading.
fn check_overlaps(
    zone: &Zone,
    options: &OpenOptions,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    let Some(first) = zone.overlaps().next() else {
        return Ok(());
    };
    let what = format!("structures of the file system overlap: {first}");
    if options.write {
        let what = format!("opening for writing is refused: {what}");
        return Err(Error::refused(what, "run e2fsck"));
    }
    notes.push(what);
    Ok(())
}

/// `s_default_mount_opts`: the data mode, and its value for data=journal (man 5 ext4).
const DATA_MODE: u32 = 0x60;
const DATA_JOURNAL: u32 = 0x20;

/// Can metadata be changed? Only in a volume opened for writing, and not if its log is on a device that nobody named.
pub(super) fn can_change(sb: &Superblock, options: &OpenOptions) -> bool {
    let apart = matches!(sb.journal(), JournalPlace::External { .. });
    options.write && (!apart || options.names_journal())
}

/// Checks the state of a volume. Recorded errors, orphans and a log that cannot be reached are refused for writing, and noted for
/// reading. A short last cluster is refused for writing, as a file's blocks of one cluster would come into two.
pub(super) fn check_state(
    sb: &Superblock,
    options: &OpenOptions,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    let in_file = sb.features().ro_compat.has(RoCompat::ORPHAN_PRESENT);
    let orphans = in_file || !sb.last_orphan().is_none();
    let (blocks, ratio) = (sb.geometry().blocks_count(), sb.geometry().cluster_ratio());
    if options.write && blocks % u64::from(ratio) != 0 {
        return Err(Error::refused(
            format!(
                "opening for writing is refused: the last cluster is short ({blocks} blocks, clusters of {ratio})"
            ),
            "resize it with resize2fs",
        ));
    }
    let unnamed = match sb.journal() {
        JournalPlace::Internal(_) => false,
        JournalPlace::None => true,
        JournalPlace::External { .. } => !options.names_journal(),
    };
    let findings = [
        (
            sb.needs_recovery() && unnamed,
            "the journal needs recovery, and is not in the volume",
            "name its device (--journal)",
        ),
        (
            options.repair.is_none() && (sb.has_error_state() || sb.recorded_errors().is_some()),
            "errors are recorded in the superblock",
            "run e2fsck",
        ),
        (
            orphans && !can_change(sb, options),
            "there are orphaned inodes",
            "name the journal's device (--journal)",
        ),
    ];
    for (found, what, help) in findings {
        if found && options.write {
            return Err(Error::refused(
                format!("opening for writing is refused: {what}"),
                help,
            ));
        }
        if found {
            notes.push(format!("{what}; what is read may be out of date"));
        }
    }
    Ok(())
}

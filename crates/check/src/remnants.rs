//! Remnants: a journal and usage files of quotas that the superblock names without having their features.
//!
//! Input: the superblock; the inodes in use. Output: findings and notes. Invariant: a remnant that is what it is said to be, or that
//! names no inode in use, harms nothing; one that names somebody's file is damage. Limits: the contents of a remnant are not judged.

use super::context::Check;
use super::maps::runs_of;
use super::reader::Reader;
use super::report::Kind;
use diorite::Error;
use diorite_format::features::{Compat, RoCompat};
use diorite_format::journal::JournalSuper;
use diorite_format::{Ino, quota};

/// Judges them all. Must run behind the pass over the inodes.
pub(super) fn all(check: &Check<'_>) -> Result<(), Error> {
    let features = check.source.sb.features();
    let info = check.source.sb.info();
    if !features.compat.has(Compat::HAS_JOURNAL) && info.journal_inum != 0 {
        let ino = Ino::new(info.journal_inum);
        if is_journal(check, ino)? {
            check.found.note(format_args!(
                "there is a journal in inode {ino}, and not the feature has_journal"
            ));
        } else {
            let what = format_args!(
                "superblock: a journal in inode {ino}, which holds none, and not the feature has_journal"
            );
            check.found.add(Kind::Superblock, what);
        }
    }
    if !features.ro_compat.has(RoCompat::QUOTA) {
        let named = quota::Kind::ALL.into_iter().zip(info.quota_inodes);
        named.for_each(|(kind, number)| usage_file(check, kind, Ino::new(number)));
    }
    Ok(())
}

/// Whether an inode is a file that begins like a journal.
fn is_journal(check: &Check<'_>, ino: Ino) -> Result<bool, Error> {
    let sb = &check.source.sb;
    let mut reader = Reader::new(check.source);
    if sb.check_ino(ino.get()).is_err() {
        return Ok(false);
    }
    let Some((inode, _)) = reader.inode(ino)? else {
        return Ok(false);
    };
    if !inode.is_file() || inode.links == 0 {
        return Ok(false);
    }
    let first = runs_of(check, &mut reader, &inode)?.first().copied();
    let Some(run) = first.filter(|run| run.file == 0) else {
        return Ok(false);
    };
    let blocks = inode.size >> sb.geometry().block_bits();
    let raw = reader.block(run.at)?;
    Ok(JournalSuper::parse(raw, sb.block_size(), blocks).is_ok())
}

fn usage_file(check: &Check<'_>, kind: quota::Kind, ino: Ino) {
    if ino.is_none() {
        return;
    }
    let (sb, name) = (&check.source.sb, kind.name());
    let named = ino == Ino::ROOT || ino.get() >= sb.geometry().first_ino();
    let somebodys =
        named && sb.check_ino(ino.get()).is_ok() && check.link_counts.get(ino).is_some();
    let what = format!("usage of each {name} in inode {ino}, and not the feature quota");
    if somebodys {
        check
            .found
            .add(Kind::Superblock, format_args!("superblock: {what}"));
    } else {
        check.found.note(what);
    }
}

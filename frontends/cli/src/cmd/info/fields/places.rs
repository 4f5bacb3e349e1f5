//! Where the volume's metadata is and how it is found: inodes, journal, hashes, checksums, quota.
//!
//! Input: a checked superblock. Output: lines. Invariant: a line appears only if the volume has the structure that it
//! describes. Limits: the labels are those of `dumpe2fs` 1.47.

use super::{List, or};
use crate::words::names::uuid;
use diorite_format::Superblock;
use diorite_format::features::{Compat, Incompat, RoCompat};
use diorite_format::superblock::JournalPlace;
use serde_json::json;

pub(super) fn inodes(sb: &Superblock, list: &mut List) {
    let (g, info) = (sb.geometry(), sb.info());
    if info.revision == 0 {
        return;
    }
    list.number("First inode", "first_inode", g.first_ino());
    list.number("Inode size", "inode_size", g.inode_size());
    list.number_if(
        "Required extra isize",
        "required_extra_isize",
        info.min_extra_isize,
    );
    list.number_if(
        "Desired extra isize",
        "desired_extra_isize",
        info.want_extra_isize,
    );
}

pub(super) fn journal(sb: &Superblock, list: &mut List) {
    let info = sb.info();
    if let Some(id) = uuid(&info.journal_uuid) {
        list.text("Journal UUID", "journal_uuid", &id);
    }
    if let JournalPlace::Internal(ino) = sb.journal() {
        list.number("Journal inode", "journal_inode", ino.get());
    }
    if info.journal_dev != 0 {
        let dev = info.journal_dev;
        list.field(
            "Journal device",
            "journal_device",
            &format!("{dev:#06x}"),
            json!(dev),
        );
    }
    list.number_if("First orphan inode", "first_orphan", sb.last_orphan().get());
}

pub(super) fn hashes(sb: &Superblock, list: &mut List) {
    let seed = sb.hash().seed.map(u32::to_le_bytes).concat();
    let seed = uuid(&seed.try_into().expect("four words are 16 bytes"));
    if sb.features().compat.has(Compat::DIR_INDEX) || seed.is_some() {
        let name = match sb.hash().default_version {
            0 | 3 => "legacy",
            1 | 4 => "half_md4",
            2 | 5 => "tea",
            _ => "unknown",
        };
        list.text("Default directory hash", "directory_hash", name);
    }
    if let Some(seed) = seed {
        list.text("Directory Hash Seed", "directory_hash_seed", &seed);
    }
    match sb.info().journal_backup_type {
        0 => {}
        1 => list.text("Journal backup", "journal_backup", "inode blocks"),
        n => list.text("Journal backup", "journal_backup", &format!("type {n}")),
    }
    if sb.features().compat.has(Compat::SPARSE_SUPER2) {
        let groups = sb.backup_groups();
        let groups: Vec<u32> = groups.iter().map(|g| g.get()).filter(|g| *g != 0).collect();
        let words: Vec<String> = groups.iter().map(u32::to_string).collect();
        let words = words.join(" ");
        list.field(
            "Backup block groups",
            "backup_groups",
            or(&words, "none"),
            json!(groups),
        );
    }
}

pub(super) fn mmp_and_quota(sb: &Superblock, list: &mut List) {
    let info = sb.info();
    if sb.features().incompat.has(Incompat::MMP) {
        list.number("MMP block number", "mmp_block", sb.mmp_block().get());
        list.number("MMP update interval", "mmp_interval", info.mmp_interval);
    }
    let [user, group, project] = info.quota_inodes;
    list.number_if("User quota inode", "user_quota_inode", user);
    list.number_if("Group quota inode", "group_quota_inode", group);
    list.number_if("Project quota inode", "project_quota_inode", project);
}

pub(super) fn checksums(sb: &Superblock, list: &mut List) {
    let (info, features) = (sb.info(), sb.features());
    if features.ro_compat.has(RoCompat::METADATA_CSUM) {
        let known = info.checksum_type == 1;
        list.text(
            "Checksum type",
            "checksum_type",
            if known { "crc32c" } else { "unknown" },
        );
        list.hex("Checksum", "checksum", info.checksum);
    }
    if features.incompat.has(Incompat::CSUM_SEED) {
        list.hex("Checksum seed", "checksum_seed", sb.csum_seed());
    }
    match info.encoding {
        None => {}
        Some((1, _)) => list.text("Character encoding", "encoding", "utf8-12.1"),
        Some((n, _)) => list.text(
            "Character encoding",
            "encoding",
            &format!("UNKNOWN_ENCODING_{n}"),
        ),
    }
    if let Some(ino) = sb.orphan_file() {
        list.number("Orphan file inode", "orphan_file_inode", ino.get());
    }
}

//! Where the volume keeps things, and how it finds them: inodes, journal, hashes, checksums, quota.
//!
//! Input: a checked superblock. Output: [`Field`]s. Invariant: a line appears if the volume has what it is about. Limits: as
//! `dumpe2fs` 1.47 names them.

use super::{Field, or, uuid};
use diorite_format::Superblock;
use diorite_format::features::{Compat, Incompat, RoCompat};
use diorite_format::superblock::JournalPlace;
use serde_json::json;

pub(super) fn inodes(sb: &Superblock) -> Vec<Field> {
    let (g, info) = (sb.geometry(), sb.info());
    if info.revision == 0 {
        return Vec::new();
    }
    let mut fields = vec![
        Field::number("First inode", "first_inode", g.first_ino()),
        Field::number("Inode size", "inode_size", g.inode_size()),
    ];
    if info.min_extra_isize != 0 {
        fields.push(Field::number(
            "Required extra isize",
            "required_extra_isize",
            info.min_extra_isize,
        ));
    }
    if info.want_extra_isize != 0 {
        fields.push(Field::number(
            "Desired extra isize",
            "desired_extra_isize",
            info.want_extra_isize,
        ));
    }
    fields
}

pub(super) fn journal(sb: &Superblock) -> Vec<Field> {
    let info = sb.info();
    let mut fields = Vec::new();
    if let Some(id) = uuid(&info.journal_uuid) {
        fields.push(Field::text("Journal UUID", "journal_uuid", &id));
    }
    if let JournalPlace::Internal(ino) = sb.journal() {
        fields.push(Field::number("Journal inode", "journal_inode", ino.get()));
    }
    if info.journal_dev != 0 {
        let dev = info.journal_dev;
        fields.push(Field::new(
            "Journal device",
            "journal_device",
            format!("{dev:#06x}"),
            json!(dev),
        ));
    }
    if !sb.last_orphan().is_none() {
        fields.push(Field::number(
            "First orphan inode",
            "first_orphan",
            sb.last_orphan().get(),
        ));
    }
    fields
}

pub(super) fn hashes(sb: &Superblock) -> Vec<Field> {
    let mut fields = Vec::new();
    let seed = sb.hash().seed.map(u32::to_le_bytes).concat();
    let seed: [u8; 16] = seed.try_into().expect("four words are 16 bytes");
    if sb.features().compat.has(Compat::DIR_INDEX) || seed != [0; 16] {
        let name = match sb.hash().default_version {
            0 | 3 => "legacy",
            1 | 4 => "half_md4",
            2 | 5 => "tea",
            _ => "unknown",
        };
        fields.push(Field::text(
            "Default directory hash",
            "directory_hash",
            name,
        ));
    }
    if let Some(seed) = uuid(&seed) {
        fields.push(Field::text(
            "Directory Hash Seed",
            "directory_hash_seed",
            &seed,
        ));
    }
    match sb.info().journal_backup_type {
        0 => {}
        1 => fields.push(Field::text(
            "Journal backup",
            "journal_backup",
            "inode blocks",
        )),
        n => fields.push(Field::text(
            "Journal backup",
            "journal_backup",
            &format!("type {n}"),
        )),
    }
    if sb.features().compat.has(Compat::SPARSE_SUPER2) {
        let groups: Vec<u32> = sb
            .backup_groups()
            .iter()
            .map(|g| g.get())
            .filter(|g| *g != 0)
            .collect();
        let words: Vec<String> = groups.iter().map(u32::to_string).collect();
        fields.push(Field::new(
            "Backup block groups",
            "backup_groups",
            or(&words.join(" "), "none").to_owned(),
            json!(groups),
        ));
    }
    fields
}

pub(super) fn extras(sb: &Superblock) -> Vec<Field> {
    let (info, features) = (sb.info(), sb.features());
    let mut fields = Vec::new();
    if features.incompat.has(Incompat::MMP) {
        fields.push(Field::number(
            "MMP block number",
            "mmp_block",
            sb.mmp_block().get(),
        ));
        fields.push(Field::number(
            "MMP update interval",
            "mmp_interval",
            info.mmp_interval,
        ));
    }
    let quotas = [
        ("User quota inode", "user_quota_inode"),
        ("Group quota inode", "group_quota_inode"),
        ("Project quota inode", "project_quota_inode"),
    ];
    for ((label, key), ino) in quotas
        .into_iter()
        .zip(info.quota_inodes)
        .filter(|(_, ino)| *ino != 0)
    {
        fields.push(Field::number(label, key, ino));
    }
    if features.ro_compat.has(RoCompat::METADATA_CSUM) {
        let kind = if info.checksum_type == 1 {
            "crc32c"
        } else {
            "unknown"
        };
        fields.push(Field::text("Checksum type", "checksum_type", kind));
        fields.push(Field::hex("Checksum", "checksum", info.checksum));
    }
    if features.incompat.has(Incompat::CSUM_SEED) {
        fields.push(Field::hex("Checksum seed", "checksum_seed", sb.csum_seed()));
    }
    if let Some((encoding, _)) = info.encoding {
        let name = if encoding == 1 {
            "utf8-12.1".to_owned()
        } else {
            format!("UNKNOWN_ENCODING_{encoding}")
        };
        fields.push(Field::text("Character encoding", "encoding", &name));
    }
    if let Some(ino) = sb.orphan_file() {
        fields.push(Field::number(
            "Orphan file inode",
            "orphan_file_inode",
            ino.get(),
        ));
    }
    fields
}

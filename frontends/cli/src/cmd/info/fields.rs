//! The superblock's lines: labels, order and conditions of `dumpe2fs -h`, and the names that scripts use.
//!
//! Input: a checked superblock. Output: [`Field`]s. Invariants: one list makes the text and the JSON, so they agree; a label
//! appears exactly when `dumpe2fs` 1.47 prints it (found by experiment). Limits: names of users and groups are those of
//! the host for root only, else left out; multiple-mount protection's own block is not printed.

use crate::times::Clock;
use diorite_format::Superblock;
use diorite_format::features::{Compat, Incompat, RoCompat};
use diorite_format::superblock::{ErrorRecord, JournalPlace, SuperInfo};
use serde_json::{Value, json};

/// One line.
#[derive(Clone)]
pub(super) struct Field {
    /// As `dumpe2fs` writes it; empty for what only JSON has.
    label: &'static str,
    /// The field's name in JSON; empty for what only the text has.
    pub(super) key: &'static str,
    text: String,
    pub(super) value: Value,
}

impl Field {
    pub(super) fn new(label: &'static str, key: &'static str, text: String, value: Value) -> Field {
        Field {
            label,
            key,
            text,
            value,
        }
    }

    pub(super) fn number(label: &'static str, key: &'static str, n: impl Into<Value>) -> Field {
        let value = n.into();
        Field::new(label, key, value.to_string(), value)
    }

    pub(super) fn text(label: &'static str, key: &'static str, text: &str) -> Field {
        Field::new(label, key, text.to_owned(), json!(text))
    }

    fn hex(label: &'static str, key: &'static str, n: u32) -> Field {
        Field::new(label, key, format!("{n:#010x}"), json!(n))
    }

    /// The line, its value in the 27th column; none for what only JSON has.
    pub(super) fn line(&self) -> Option<String> {
        let label = format!("{}:", self.label);
        (!self.label.is_empty()).then(|| format!("{label:<26}{}", self.text))
    }
}

/// A UUID as text; null if it is all zeros.
pub(super) fn uuid(raw: &[u8; 16]) -> Option<String> {
    if *raw == [0; 16] {
        return None;
    }
    let hex = crate::names::hex(raw);
    Some(
        [
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..],
        ]
        .join("-"),
    )
}

/// All lines of the superblock, in order.
pub(super) fn of(sb: &Superblock, clock: &Clock) -> Vec<Field> {
    let mut fields = identity(sb);
    fields.extend(behaviour(sb));
    fields.extend(counts(sb));
    fields.extend(groups(sb));
    fields.extend(history(sb.info(), clock));
    fields.extend(inodes(sb));
    fields.extend(journal(sb));
    fields.extend(hashes(sb));
    fields.extend(errors(sb.info(), clock));
    fields.extend(extras(sb));
    fields
}

fn or<'a>(text: &'a str, none: &'a str) -> &'a str {
    if text.is_empty() { none } else { text }
}

fn identity(sb: &Superblock) -> Vec<Field> {
    let info = sb.info();
    let id = uuid(sb.uuid());
    let revision = match info.revision {
        0 => "0 (original)".to_owned(),
        n => format!("{n} (dynamic)"),
    };
    let names = sb.features().names().join(" ");
    vec![
        Field::new(
            "Filesystem volume name",
            "label",
            or(&info.label, "<none>").to_owned(),
            json!(info.label),
        ),
        Field::new(
            "Last mounted on",
            "last_mounted",
            or(&info.last_mounted, "<not available>").to_owned(),
            json!(info.last_mounted),
        ),
        Field::new(
            "Filesystem UUID",
            "uuid",
            id.clone().unwrap_or_else(|| "<none>".to_owned()),
            json!(id),
        ),
        Field::new(
            "Filesystem magic number",
            "magic",
            "0xEF53".to_owned(),
            json!(0xEF53),
        ),
        Field::new(
            "Filesystem revision #",
            "revision",
            revision,
            json!(info.revision),
        ),
        // JSON has them one by one.
        Field::new(
            "Filesystem features",
            "",
            or(&names, "(none)").to_owned(),
            Value::Null,
        ),
    ]
}

/// `s_flags`, `s_default_mount_opts` and their names (man 5 ext4; man 8 tune2fs; unknown bits by experiment).
const FLAGS: [(u32, &str); 3] = [
    (1, "signed_directory_hash"),
    (2, "unsigned_directory_hash"),
    (4, "test_filesystem"),
];
const MOUNT_OPTS: [(u32, &str); 8] = [
    (0x1, "debug"),
    (0x2, "bsdgroups"),
    (0x4, "user_xattr"),
    (0x8, "acl"),
    (0x10, "uid16"),
    (0x100, "nobarrier"),
    (0x200, "block_validity"),
    (0x400, "discard"),
];
const NODELALLOC: u32 = 0x800;
const DATA_MODE: u32 = 0x60;

fn mount_opts(bits: u32) -> Vec<String> {
    let data = match bits & DATA_MODE {
        0x20 => Some("journal_data"),
        0x40 => Some("journal_data_ordered"),
        0x60 => Some("journal_data_writeback"),
        _ => None,
    };
    let mut names: Vec<String> = data.into_iter().map(str::to_owned).collect();
    for n in 0..32 {
        let bit = 1u32 << n;
        if bits & bit == 0 || bit & DATA_MODE != 0 {
            continue;
        }
        let known = MOUNT_OPTS
            .iter()
            .find(|(b, _)| *b == bit)
            .map(|(_, name)| *name);
        let name = known.or((bit == NODELALLOC).then_some("nodelalloc"));
        names.push(name.map_or_else(|| format!("MNTOPT_{n}"), str::to_owned));
    }
    names
}

fn behaviour(sb: &Superblock) -> Vec<Field> {
    let info = sb.info();
    let list = |names: Vec<String>| (or(&names.join(" "), "(none)").to_owned(), json!(names));
    let flags = FLAGS.iter().filter(|(bit, _)| info.flags & bit != 0);
    let (flags, flags_json) = list(flags.map(|(_, n)| (*n).to_owned()).collect());
    let (opts, opts_json) = list(mount_opts(info.default_mount_opts));
    let mut fields = Vec::new();
    if info.flags != 0 {
        fields.push(Field::new("Filesystem flags", "flags", flags, flags_json));
    }
    fields.push(Field::new(
        "Default mount options",
        "default_mount_options",
        opts,
        opts_json,
    ));
    if !info.mount_opts.is_empty() {
        fields.push(Field::text(
            "Mount options",
            "mount_options",
            &info.mount_opts,
        ));
    }
    let valid = if sb.state() & 1 != 0 {
        "clean"
    } else {
        "not clean"
    };
    let state = if sb.has_error_state() {
        format!("{valid} with errors")
    } else {
        valid.to_owned()
    };
    let errors = match info.errors_behavior {
        1 => "Continue",
        2 => "Remount read-only",
        3 => "Panic",
        _ => "Unknown (continue)",
    };
    let os = match info.creator_os {
        0 => "Linux",
        1 => "GNU/Hurd",
        2 => "Masix",
        3 => "FreeBSD",
        4 => "Lites",
        _ => "(unknown os)",
    };
    fields.push(Field::text("Filesystem state", "state", &state));
    fields.push(Field::text("Errors behavior", "errors_behavior", errors));
    fields.push(Field::text("Filesystem OS type", "os", os));
    fields
}

fn counts(sb: &Superblock) -> Vec<Field> {
    let (g, info) = (sb.geometry(), sb.info());
    let mut fields = vec![
        Field::number("Inode count", "inode_count", g.inodes_count()),
        Field::number("Block count", "block_count", g.blocks_count()),
        Field::number(
            "Reserved block count",
            "reserved_block_count",
            g.r_blocks_count(),
        ),
    ];
    if info.overhead_clusters != 0 {
        fields.push(Field::number(
            "Overhead clusters",
            "overhead_clusters",
            info.overhead_clusters,
        ));
    }
    fields.extend([
        Field::number("Free blocks", "free_blocks", g.free_blocks_count()),
        Field::number("Free inodes", "free_inodes", g.free_inodes_count()),
        Field::number("First block", "first_block", g.first_data_block().get()),
        Field::number("Block size", "block_size", g.block_size()),
    ]);
    fields.push(if info.bigalloc {
        Field::number("Cluster size", "cluster_size", g.cluster_size())
    } else {
        Field::number("Fragment size", "fragment_size", g.cluster_size())
    });
    if sb.features().incompat.has(Incompat::BIT64) {
        fields.push(Field::number(
            "Group descriptor size",
            "group_descriptor_size",
            g.desc_size(),
        ));
    }
    if g.reserved_gdt_blocks() != 0 {
        fields.push(Field::number(
            "Reserved GDT blocks",
            "reserved_gdt_blocks",
            g.reserved_gdt_blocks(),
        ));
    }
    fields
}

fn groups(sb: &Superblock) -> Vec<Field> {
    let (g, info) = (sb.geometry(), sb.info());
    let mut fields = vec![Field::number(
        "Blocks per group",
        "blocks_per_group",
        g.blocks_per_group(),
    )];
    fields.push(if info.bigalloc {
        Field::number(
            "Clusters per group",
            "clusters_per_group",
            g.clusters_per_group(),
        )
    } else {
        Field::number(
            "Fragments per group",
            "fragments_per_group",
            g.clusters_per_group(),
        )
    });
    fields.push(Field::number(
        "Inodes per group",
        "inodes_per_group",
        g.inodes_per_group(),
    ));
    fields.push(Field::number(
        "Inode blocks per group",
        "inode_blocks_per_group",
        g.inode_table_blocks(),
    ));
    let optional = [
        (
            "First meta block group",
            "first_meta_bg",
            info.first_meta_bg,
        ),
        ("RAID stride", "raid_stride", u32::from(info.raid_stride)),
        (
            "RAID stripe width",
            "raid_stripe_width",
            info.raid_stripe_width,
        ),
        (
            "Flex block group size",
            "flex_bg_size",
            flex_size(g.flex_bits()),
        ),
    ];
    fields.extend(
        optional
            .iter()
            .filter(|(_, _, n)| *n != 0)
            .map(|(l, k, n)| Field::number(l, k, *n)),
    );
    fields
}

fn flex_size(bits: u8) -> u32 {
    if bits == 0 {
        0
    } else {
        1u32.checked_shl(bits.into()).unwrap_or(0)
    }
}

fn history(info: &SuperInfo, clock: &Clock) -> Vec<Field> {
    let time = |label, key, secs: i64| Field::new(label, key, clock.ctime(secs), json!(secs));
    let or_never = |label, key, secs: i64| match secs {
        0 => Field::new(label, key, "n/a".to_owned(), Value::Null),
        secs => time(label, key, secs),
    };
    let mut fields = Vec::new();
    if info.mkfs_time != 0 {
        fields.push(time("Filesystem created", "created", info.mkfs_time));
    }
    let interval = info.check_interval;
    fields.extend([
        or_never("Last mount time", "last_mount_time", info.mount_time),
        or_never("Last write time", "last_write_time", info.write_time),
        Field::number("Mount count", "mount_count", info.mount_count),
        Field::number(
            "Maximum mount count",
            "max_mount_count",
            info.max_mount_count,
        ),
        time("Last checked", "last_checked", info.check_time),
        Field::new(
            "Check interval",
            "check_interval",
            format!("{interval} ({})", interval_words(interval)),
            json!(interval),
        ),
    ]);
    if interval != 0 {
        let next = info.check_time.saturating_add(i64::from(interval));
        fields.push(time("Next check after", "next_check", next));
    }
    if info.kbytes_written != 0 {
        let (kib, words) = (info.kbytes_written, kib_words(info.kbytes_written));
        fields.push(Field::new(
            "Lifetime writes",
            "lifetime_writes_kib",
            words,
            json!(kib),
        ));
    }
    let root = |id: u32, what: &str| match id {
        0 => format!("0 ({what} root)"),
        n => n.to_string(),
    };
    let (uid, gid) = (info.reserved_uid, info.reserved_gid);
    fields.push(Field::new(
        "Reserved blocks uid",
        "reserved_uid",
        root(uid, "user"),
        json!(uid),
    ));
    fields.push(Field::new(
        "Reserved blocks gid",
        "reserved_gid",
        root(gid, "group"),
        json!(gid),
    ));
    fields
}

/// `6 months`, `1 week, 2 days`, ...: each unit that is left over, largest first.
fn interval_words(mut secs: u32) -> String {
    const UNITS: [(u32, &str); 6] = [
        (30 * 86_400, "month"),
        (7 * 86_400, "week"),
        (86_400, "day"),
        (3_600, "hour"),
        (60, "minute"),
        (1, "second"),
    ];
    let mut words = Vec::new();
    for (unit, name) in UNITS {
        let n = secs / unit;
        secs %= unit;
        if n > 0 {
            let s = if n == 1 { "" } else { "s" };
            words.push(format!("{n} {name}{s}"));
        }
    }
    or(&words.join(", "), "<none>").to_owned()
}

/// KiB in the unit that leaves a number of readable length.
fn kib_words(kib: u64) -> String {
    const LARGE: u64 = 13 << 10;
    match kib {
        n if n < LARGE => format!("{n} kB"),
        n if n >> 10 < LARGE => format!("{} MB", (n + (1 << 9)) >> 10),
        n if n >> 20 < LARGE => format!("{} GB", (n + (1 << 19)) >> 20),
        n => format!("{} TB", n.saturating_add(1 << 29) >> 30),
    }
}

fn inodes(sb: &Superblock) -> Vec<Field> {
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

fn journal(sb: &Superblock) -> Vec<Field> {
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

fn hashes(sb: &Superblock) -> Vec<Field> {
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

/// Labels and names of a recorded error's parts: time, function, line, inode, block, code.
type ErrorNames = [(&'static str, &'static str); 6];
const FIRST: ErrorNames = [
    ("First error time", "first_error_time"),
    ("First error function", "first_error_function"),
    ("First error line #", "first_error_line"),
    ("First error inode #", "first_error_inode"),
    ("First error block #", "first_error_block"),
    ("First error err", "first_error_code"),
];
const LAST: ErrorNames = [
    ("Last error time", "last_error_time"),
    ("Last error function", "last_error_function"),
    ("Last error line #", "last_error_line"),
    ("Last error inode #", "last_error_inode"),
    ("Last error block #", "last_error_block"),
    ("Last error err", "last_error_code"),
];

fn errors(info: &SuperInfo, clock: &Clock) -> Vec<Field> {
    let Some(errors) = &info.errors_recorded else {
        return Vec::new();
    };
    let mut fields = vec![Field::number("FS Error count", "error_count", errors.count)];
    for (names, error) in [(FIRST, &errors.first), (LAST, &errors.last)] {
        if error.time != 0 {
            fields.extend(error_fields(&names, error, clock));
        }
    }
    fields
}

fn error_fields(names: &ErrorNames, error: &ErrorRecord, clock: &Clock) -> Vec<Field> {
    let [time, function, line, ino, block, code] = *names;
    let mut fields = vec![
        Field::new(time.0, time.1, clock.ctime(error.time), json!(error.time)),
        Field::text(function.0, function.1, &error.function),
        Field::number(line.0, line.1, error.line),
    ];
    let optional = [
        (ino, u64::from(error.ino)),
        (block, error.block),
        (code, u64::from(error.code)),
    ];
    fields.extend(
        optional
            .iter()
            .filter(|(_, n)| *n != 0)
            .map(|(name, n)| Field::number(name.0, name.1, *n)),
    );
    fields
}

fn extras(sb: &Superblock) -> Vec<Field> {
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

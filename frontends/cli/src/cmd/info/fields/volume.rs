//! What the volume is: its name, its behaviour, its sizes.
//!
//! Input: a checked superblock. Output: [`Field`]s. Invariant: the conditions under which a line appears are those of
//! `dumpe2fs` 1.47. Limits: bits of mount options that have no name are shown by number.

use super::{Field, or, uuid};
use diorite_format::Superblock;
use diorite_format::features::Incompat;
use serde_json::{Value, json};

pub(super) fn identity(sb: &Superblock) -> Vec<Field> {
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

pub(super) fn behaviour(sb: &Superblock) -> Vec<Field> {
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

pub(super) fn counts(sb: &Superblock) -> Vec<Field> {
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

pub(super) fn groups(sb: &Superblock) -> Vec<Field> {
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

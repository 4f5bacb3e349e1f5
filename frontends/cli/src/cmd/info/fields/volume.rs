//! The identity of the volume: its name, its behaviour, its sizes.
//!
//! Input: a checked superblock. Output: lines. Invariant: the conditions under which a line appears are those of `dumpe2fs`
//! 1.47. Limits: bits of mount options that have no name are shown by number.

use super::{List, or};
use crate::words::names::uuid;
use diorite_format::Superblock;
use diorite_format::features::Incompat;
use serde_json::{Value, json};

pub(super) fn identity(sb: &Superblock, list: &mut List) {
    let info = sb.info();
    let (label, mounted, id) = (&info.label, &info.last_mounted, uuid(sb.uuid()));
    let shown = id.as_deref().unwrap_or("<none>");
    let revision = match info.revision {
        0 => "0 (original)".to_owned(),
        n => format!("{n} (dynamic)"),
    };
    let (names, none) = (sb.features().names().join(" "), "<not available>");
    list.field(
        "Filesystem volume name",
        "label",
        or(label, "<none>"),
        json!(label),
    );
    list.field(
        "Last mounted on",
        "last_mounted",
        or(mounted, none),
        json!(mounted),
    );
    list.field("Filesystem UUID", "uuid", shown, json!(id));
    list.field("Filesystem magic number", "magic", "0xEF53", json!(0xEF53));
    list.field(
        "Filesystem revision #",
        "revision",
        &revision,
        json!(info.revision),
    );
    // JSON has the features in an array of their own.
    list.field("Filesystem features", "", or(&names, "(none)"), Value::Null);
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

pub(super) fn behaviour(sb: &Superblock, list: &mut List) {
    let info = sb.info();
    let flags = FLAGS.iter().filter(|(bit, _)| info.flags & bit != 0);
    let flags: Vec<&str> = flags.map(|(_, name)| *name).collect();
    let opts = mount_opts(info.default_mount_opts);
    let shown = |words: String| or(&words, "(none)").to_owned();
    if info.flags != 0 {
        list.field(
            "Filesystem flags",
            "flags",
            &shown(flags.join(" ")),
            json!(flags),
        );
    }
    let words = shown(opts.join(" "));
    list.field(
        "Default mount options",
        "default_mount_options",
        &words,
        json!(opts),
    );
    if !info.mount_opts.is_empty() {
        list.text("Mount options", "mount_options", &info.mount_opts);
    }
    let valid = if sb.state() & 1 != 0 {
        "clean"
    } else {
        "not clean"
    };
    let errors = if sb.has_error_state() {
        " with errors"
    } else {
        ""
    };
    list.text("Filesystem state", "state", &format!("{valid}{errors}"));
    list.text(
        "Errors behavior",
        "errors_behavior",
        errors_word(info.errors_behavior),
    );
    list.text("Filesystem OS type", "os", os_word(info.creator_os));
}

fn errors_word(code: u16) -> &'static str {
    match code {
        1 => "Continue",
        2 => "Remount read-only",
        3 => "Panic",
        _ => "Unknown (continue)",
    }
}

fn os_word(code: u32) -> &'static str {
    match code {
        0 => "Linux",
        1 => "GNU/Hurd",
        2 => "Masix",
        3 => "FreeBSD",
        4 => "Lites",
        _ => "(unknown os)",
    }
}

pub(super) fn counts(sb: &Superblock, list: &mut List) {
    let (g, info) = (sb.geometry(), sb.info());
    list.number("Inode count", "inode_count", g.inodes_count());
    list.number("Block count", "block_count", g.blocks_count());
    list.number(
        "Reserved block count",
        "reserved_block_count",
        g.r_blocks_count(),
    );
    list.number_if(
        "Overhead clusters",
        "overhead_clusters",
        info.overhead_clusters,
    );
    list.number("Free blocks", "free_blocks", g.free_blocks_count());
    list.number("Free inodes", "free_inodes", g.free_inodes_count());
    list.number("First block", "first_block", g.first_data_block().get());
    list.number("Block size", "block_size", g.block_size());
    if info.bigalloc {
        list.number("Cluster size", "cluster_size", g.cluster_size());
    } else {
        list.number("Fragment size", "fragment_size", g.cluster_size());
    }
    if sb.features().incompat.has(Incompat::BIT64) {
        list.number(
            "Group descriptor size",
            "group_descriptor_size",
            g.desc_size(),
        );
    }
    list.number_if(
        "Reserved GDT blocks",
        "reserved_gdt_blocks",
        g.reserved_gdt_blocks(),
    );
}

pub(super) fn groups(sb: &Superblock, list: &mut List) {
    let (g, info) = (sb.geometry(), sb.info());
    let per_group = g.clusters_per_group();
    list.number("Blocks per group", "blocks_per_group", g.blocks_per_group());
    if info.bigalloc {
        list.number("Clusters per group", "clusters_per_group", per_group);
    } else {
        list.number("Fragments per group", "fragments_per_group", per_group);
    }
    list.number("Inodes per group", "inodes_per_group", g.inodes_per_group());
    list.number(
        "Inode blocks per group",
        "inode_blocks_per_group",
        g.inode_table_blocks(),
    );
    list.number_if("First meta block group", "first_meta_bg", g.first_meta_bg());
    list.number_if("RAID stride", "raid_stride", info.raid_stride);
    list.number_if(
        "RAID stripe width",
        "raid_stripe_width",
        info.raid_stripe_width,
    );
    list.number_if(
        "Flex block group size",
        "flex_bg_size",
        flex_size(g.flex_bits()),
    );
}

fn flex_size(bits: u8) -> u32 {
    if bits == 0 {
        0
    } else {
        1u32.checked_shl(bits.into()).unwrap_or(0)
    }
}

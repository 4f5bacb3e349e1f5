//! The words of mke2fs as options of a new file system.
//!
//! Input: the command line, a [`Config`], the size. Output: [`MkfsOptions`]. Invariant: a word that is not known is refused by name.
//! Limits: what a feature needs is judged by the engine. Source: man 8 mke2fs; answers to wrong words by experiment with mke2fs 1.47.

mod lists;

use super::config::Config;
use super::huge::Huge;
use crate::args::FormatArgs;
use diorite::mkfs::{MkfsOptions, NewJournal};
use diorite_block::locator::parse_size;
use diorite_format::Features;
use diorite_format::features::{Compat, Incompat, RoCompat, Set, verdicts};
use lists::{extended, journal};

/// Bytes of a label.
pub(crate) const LABEL: usize = 16;
const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

/// Bits of `s_default_mount_opts`, by the names of tune2fs -o.
pub(crate) const MOUNT_OPTS: [(&str, u32); 12] = [
    ("debug", 0x1),
    ("bsdgroups", 0x2),
    ("user_xattr", 0x4),
    ("acl", 0x8),
    ("uid16", 0x10),
    ("journal_data", 0x20),
    ("journal_data_ordered", 0x40),
    ("journal_data_writeback", 0x60),
    ("nobarrier", 0x100),
    ("block_validity", 0x200),
    ("discard", 0x400),
    ("nodelalloc", 0x800),
];

/// Options that are no part of the file system itself.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    /// Byte of the device at which it begins.
    pub(crate) offset: u64,
    /// Attributes of a source directory are not copied.
    pub(crate) no_xattrs: bool,
    /// The SELinux label of the root directory.
    pub(crate) root_label: Option<String>,
    /// Large files that it has from the beginning.
    pub(crate) huge: Option<Huge>,
    /// The device with the journal: a locator, `UUID=...` or `LABEL=...`.
    pub(crate) journal_device: Option<String>,
}

impl Beside {
    /// The label of the root directory, as a file_contexts file has it.
    pub(crate) fn labels(&self) -> Option<String> {
        let label = self.root_label.as_ref()?;
        Some(format!("/ -d {label}\n"))
    }
}

/// Whether a list of extended options says where the file system begins.
pub(crate) fn offset(args: &FormatArgs) -> Result<u64, String> {
    let said = args
        .extended
        .iter()
        .find_map(|word| word.strip_prefix("offset="));
    said.map_or(Ok(0), parse_size)
}

/// The types that apply, least specific first: the kind of file system, and what it is for.
pub(crate) fn types(args: &FormatArgs, config: &Config, bytes: u64) -> (Vec<String>, Vec<String>) {
    let of_name = match args.stand_in.as_deref() {
        None => "ext4",
        Some(name) => name
            .strip_prefix("mkfs.")
            .or_else(|| config.get(&[], "fs_type"))
            .unwrap_or(if args.asks_journal() { "ext3" } else { "ext2" }),
    };
    let kind = args.fs_type.clone().unwrap_or_else(|| of_name.to_owned());
    let by_size = match bytes {
        b if b < 3 * MIB => "floppy",
        b if b < 512 * MIB => "small",
        b if b < 4 * TIB => "default",
        b if b < 16 * TIB => "big",
        _ => "huge",
    };
    let usage = match args.usage.is_empty() {
        true => vec![by_size.to_owned()],
        false => args.usage.clone(),
    };
    let hurd = creator_os(args, config) == Ok(HURD);
    let usage = usage.into_iter().chain(hurd.then(|| "hurd".to_owned()));
    let known = |name: &&String| !config.has_type(name) && !matches!(&name[..], "ext2" | "default");
    let unknown = std::iter::once(&kind)
        .chain(&args.usage)
        .filter(known)
        .cloned();
    let unknown = unknown.collect();
    (std::iter::once(kind).chain(usage).collect(), unknown)
}

/// The options for a file system of `bytes` bytes.
pub(crate) fn options(
    args: &FormatArgs,
    config: &Config,
    types: &[String],
    sector: u32,
    mut options: MkfsOptions,
) -> Result<(MkfsOptions, Beside), String> {
    options.creator_os = creator_os(args, config)?;
    options.features = features(args, config, types, options.creator_os)?;
    from_config(&mut options, config, types)?;
    if args.block_size.is_none_or(|size| size < 0) {
        options.block_size = Some(options.block_size.unwrap_or(4096).max(sector));
    }
    from_args(&mut options, args, config, types)?;
    let mut beside = Beside {
        huge: Huge::of(config, types)?,
        ..Beside::default()
    };
    if beside.huge.is_some() && !options.features.incompat.has(Incompat::EXTENTS) {
        return Err("make_hugefiles needs the feature extent".to_owned());
    }
    let usual = config.of_types(types, "options").unwrap_or_default();
    let usual = usual.split(',').map(str::trim);
    let asked = args.extended.iter().map(String::as_str);
    for word in usual.chain(asked).filter(|word| !word.is_empty()) {
        extended(&mut options, &mut beside, word)?;
    }
    let has_projects = options.features.ro_compat.has(RoCompat::PROJECT);
    if has_projects && asked_inode_size(args).is_none() {
        // The number of a project is behind the first 128 bytes.
        options.inode_size = options.inode_size.max(256);
    }
    let mut names = args.extended.iter().map(|word| word.split('=').next());
    let has_encoding = options.features.incompat.has(Incompat::CASEFOLD);
    if !has_encoding && names.any(|name| name == Some("encoding_flags")) {
        return Err("-E encoding_flags needs an encoding: -E encoding=utf8".to_owned());
    }
    let block = options.block_size.unwrap_or(4096);
    for word in args.journal_options.iter().filter(|word| !word.is_empty()) {
        journal(&mut options, &mut beside, word, block)?;
    }
    let is_sized = options.journal != NewJournal::Usual || options.journal_at.is_some();
    if beside.journal_device.is_some() && is_sized {
        let why = "a journal on a device of its own (-J device=) has its size and place there";
        return Err(why.to_owned());
    }
    Ok((options, beside))
}

/// The features of the configuration and of the command line.
fn features(
    args: &FormatArgs,
    config: &Config,
    types: &[String],
    creator_os: u32,
) -> Result<Features, String> {
    let mut features = Features::default();
    let has_revision_0 = args.revision == Some(0);
    if has_revision_0 && args.asks_journal() {
        return Err("Journals not supported with revision 0 filesystems".to_owned());
    }
    if !has_revision_0 {
        let lists = config.features(types, !args.features.is_empty());
        let mut words = lists.into_iter().flat_map(|list| list.split(','));
        words.try_for_each(|word| feature(&mut features, word))?;
    }
    if args.asks_journal() {
        feature(&mut features, "has_journal")?;
    }
    if creator_os == HURD {
        for name in NOT_OF_HURD {
            feature(&mut features, &format!("^{name}"))?;
        }
    }
    let asked = |name: &str| args.features.iter().any(|word| word == name);
    for word in &args.features {
        feature(&mut features, word)?;
    }
    if has_revision_0 && features != Features::default() {
        let why = "Filesystem features not supported with revision 0 filesystems";
        return Err(why.to_owned());
    }
    if creator_os == HURD
        && let Some(name) = NOT_OF_HURD.iter().find(|name| asked(name))
    {
        return Err(format!("The HURD does not support the {name} feature."));
    }
    settle(&mut features, asked);
    Ok(features)
}

/// Drops what nobody asked for and what cannot be without something that was left out, as mke2fs does.
fn settle(features: &mut Features, asked: impl Fn(&str) -> bool) {
    let sums = features.ro_compat.has(RoCompat::METADATA_CSUM);
    if sums {
        features.ro_compat = features.ro_compat.without(RoCompat::GDT_CSUM);
    } else if !asked("metadata_csum_seed") {
        features.incompat = features.incompat.without(Incompat::CSUM_SEED);
    }
    if !features.compat.has(Compat::HAS_JOURNAL) && !asked("orphan_file") {
        features.compat = features.compat.without(Compat::ORPHAN_FILE);
    }
}

/// Adds a feature, or takes it away.
pub(crate) fn feature(features: &mut Features, word: &str) -> Result<(), String> {
    let (name, add) = match word.strip_prefix('^') {
        Some(name) => (name, false),
        None => (word, true),
    };
    let name = match name {
        "" => return Ok(()),
        "none" if add => {
            *features = Features::default();
            return Ok(());
        }
        "extents" => "extent",
        "uninit_groups" => "uninit_bg",
        name => name,
    };
    let known = verdicts().iter().find(|row| row.name == name);
    let Some(row) = known else {
        return Err(format!("Invalid filesystem option set: {word}"));
    };
    let compat = Compat::from_bits(if row.set == Set::Compat { row.bit } else { 0 });
    let incompat = Incompat::from_bits(if row.set == Set::Incompat { row.bit } else { 0 });
    let ro = RoCompat::from_bits(if row.set == Set::RoCompat { row.bit } else { 0 });
    *features = match add {
        true => Features {
            compat: features.compat.with(compat),
            incompat: features.incompat.with(incompat),
            ro_compat: features.ro_compat.with(ro),
        },
        false => Features {
            compat: features.compat.without(compat),
            incompat: features.incompat.without(incompat),
            ro_compat: features.ro_compat.without(ro),
        },
    };
    Ok(())
}

fn from_config(options: &mut MkfsOptions, config: &Config, types: &[String]) -> Result<(), String> {
    let number = |key| config.number(types, key);
    let narrow =
        |key: &str, n: i64| u32::try_from(n).map_err(|_| format!("{key} = {n}: out of range"));
    // -1: as large as is usual.
    if let Some(size) = number("blocksize")? {
        options.block_size = Some(if size < 0 {
            4096
        } else {
            narrow("blocksize", size)?
        });
    }
    if let Some(size) = number("inode_size")? {
        options.inode_size =
            u16::try_from(size).map_err(|_| format!("inode_size = {size}: out of range"))?;
    }
    if let Some(size) = number("cluster_size")? {
        options.cluster_size = Some(narrow("cluster_size", size)?);
    }
    // -1: as many as is usual.
    if let Some(groups) = number("flex_bg_size")?.filter(|groups| *groups >= 0) {
        let groups = narrow("flex_bg_size", groups)?;
        options.groups_per_flex = 1 << groups.max(1).ilog2();
    }
    if let Some(count) = number("num_backup_sb")? {
        options.backups = narrow("num_backup_sb", count)?;
    }
    if let Some(percent) = config.get(types, "reserved_ratio") {
        options.reserved_percent = percent
            .parse()
            .map_err(|_| format!("reserved_ratio = {percent}: not a number"))?;
    }
    let flag = |key, usual: bool| config.flag(types, key, usual);
    options.packed_meta_blocks = flag("packed_meta_blocks", false);
    options.zero_tables = !flag("lazy_itable_init", true);
    options.discard = flag("discard", true);
    if let Some(names) = config.get(types, "default_mntopts") {
        options.default_mount_opts = 0;
        for word in names.split([',', ' ']).filter(|name| !name.is_empty()) {
            let name = word.strip_prefix('^').unwrap_or(word);
            let known = MOUNT_OPTS.iter().find(|(known, _)| *known == name);
            let (_, bit) = known.ok_or_else(|| format!("Invalid mount option set: {word}"))?;
            match name == word {
                true => options.default_mount_opts |= bit,
                false => options.default_mount_opts &= !bit,
            }
        }
    }
    if flag("enable_periodic_fsck", false) {
        // As mke2fs: not all volumes of a host at the same time; but the same of the same UUID.
        let spread = options
            .uuid
            .iter()
            .map(|byte| u16::from(*byte))
            .sum::<u16>()
            % 20;
        options.checks = Some((20 + spread, 180 * 24 * 3600));
    }
    if let Some(name) = config.get(types, "hash_alg") {
        options.hash_version = hash(name)?;
    }
    if let Some(name) = config.get(types, "errors") {
        options.errors_behavior = behaviour(name)?;
    }
    Ok(())
}

/// The number of a hash of names.
pub(crate) fn hash(name: &str) -> Result<u8, String> {
    let all = ["legacy", "half_md4", "tea"];
    let at = all.iter().position(|known| *known == name);
    at.map(|n| n as u8)
        .ok_or_else(|| format!("the hash of names {name} is unknown"))
}

/// The number of what drivers do after an error.
pub(crate) fn behaviour(name: &str) -> Result<u16, String> {
    let all = ["continue", "remount-ro", "panic"];
    let at = all.iter().position(|known| *known == name);
    at.map(|n| n as u16 + 1)
        .ok_or_else(|| format!("bad error behavior - {name}"))
}

fn from_args(
    options: &mut MkfsOptions,
    args: &FormatArgs,
    config: &Config,
    types: &[String],
) -> Result<(), String> {
    match args.block_size {
        // At least so many bytes.
        Some(n) if n < 0 => {
            let usual = i64::from(options.block_size.unwrap_or(4096));
            options.block_size = Some(usual.max(-n) as u32);
        }
        Some(n) => {
            options.block_size =
                Some(u32::try_from(n).map_err(|_| format!("invalid block size - {n}"))?);
        }
        None => {}
    }
    let bigalloc = options.features.ro_compat.has(RoCompat::BIGALLOC);
    if let Some(size) = args.cluster_size {
        if !bigalloc {
            return Err("-C needs the feature bigalloc: -O bigalloc".to_owned());
        }
        options.cluster_size =
            Some(u32::try_from(size).map_err(|_| format!("invalid cluster size - {size}"))?);
    }
    let block = options.block_size.unwrap_or(4096).max(1);
    let ratio = match (bigalloc, options.cluster_size) {
        (false, _) => 1,
        (true, None) => 16,
        (true, Some(cluster)) => (cluster / block).max(1),
    };
    let usual = config.number(types, "inode_ratio")?;
    let usual =
        usual.map(|n| u64::try_from(n).map_err(|_| format!("inode_ratio = {n}: out of range")));
    let cluster = u64::from(block) * u64::from(ratio);
    let usual = usual.transpose()?.map(|n| n.max(cluster));
    options.inode_ratio = args.inode_ratio.or(usual);
    options.inodes = args.inodes.filter(|count| *count > 0);
    options.inode_size = asked_inode_size(args).unwrap_or(options.inode_size);
    if let Some(number) = args.revision {
        revision(options, number);
    }
    let per_group = args.blocks_per_group.filter(|n| *n > 0);
    options.blocks_per_group = per_group.map(|n| n.saturating_mul(ratio));
    if let Some(groups) = args.groups_per_flex {
        if !options.features.incompat.has(Incompat::FLEX_BG) {
            return Err("-G needs the feature flex_bg: -O flex_bg".to_owned());
        }
        options.groups_per_flex = groups;
    }
    options.reserved_percent = args.reserved.unwrap_or(options.reserved_percent);
    if let Some(label) = &args.label {
        options.label = cut(label);
    }
    if let Some(dir) = &args.last_mounted {
        options.last_mounted = cut(dir);
    }
    if let Some(name) = &args.errors {
        options.errors_behavior = behaviour(name)?;
    }
    Ok(())
}

/// The size of inodes that the command line has; 0 is none.
fn asked_inode_size(args: &FormatArgs) -> Option<u16> {
    args.inode_size.filter(|size| *size > 0)
}

/// The number of the Hurd among makers, and features that it has not.
const HURD: u32 = 1;
const NOT_OF_HURD: [&str; 3] = ["filetype", "huge_file", "metadata_csum"];

/// The number of the operating system that is named as the maker.
fn creator_os(args: &FormatArgs, config: &Config) -> Result<u32, String> {
    let said = args.creator_os.as_deref();
    let Some(name) = said.or_else(|| config.get(&[], "creator_os")) else {
        return Ok(0);
    };
    let all = ["linux", "hurd", "masix", "freebsd", "lites"];
    let lower = name.to_lowercase();
    let at = all
        .iter()
        .position(|known| *known == lower.trim_start_matches("gnu/"));
    let number = at.map(|n| n as u32).or_else(|| name.parse().ok());
    number.ok_or_else(|| format!("could not parse creator os - {name}"))
}

/// Revision 0 has no features, no sizes of inodes, and no mount options of its own.
fn revision(options: &mut MkfsOptions, number: u32) {
    options.revision = number;
    if number == 0 {
        options.inode_size = 128;
        options.features = Features::default();
        options.default_mount_opts = 0;
    }
}

/// The beginning of a text, as a field of the superblock.
pub(crate) fn cut<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [0; N];
    let len = text.len().min(N);
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
    field
}

/// What is said of a text that is cut.
pub(crate) fn too_long(text: Option<&str>, name: &str, most: usize) -> Option<String> {
    let text = text.filter(|text| text.len() > most)?;
    Some(format!(
        "{name} too long, truncated to {:?}",
        String::from_utf8_lossy(&text.as_bytes()[..most])
    ))
}

/// Text as a field of the superblock.
pub(crate) fn field<const N: usize>(text: &str, what: &str) -> Result<[u8; N], String> {
    let mut field = [0; N];
    match text.len() <= N {
        true => field[..text.len()].copy_from_slice(text.as_bytes()),
        false => return Err(format!("the {what} {text:?} has more than {N} bytes")),
    }
    Ok(field)
}

/// The size that was given: in KiB without a unit, or in blocks if their size was given.
pub(crate) fn size(text: &str, block: Option<i64>) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(count) => {
            let unit = block.map_or(1024, i64::unsigned_abs);
            count
                .checked_mul(unit)
                .ok_or_else(|| format!("invalid size: {text}"))
        }
        // As of mke2fs: a sector is 512 bytes.
        Err(_) => parse_size(text),
    }
}

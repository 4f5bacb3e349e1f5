//! The numbers of a new file system: from choices and a size to block counts, groups, inodes and the sizes of its files.
//!
//! Input: [`MkfsOptions`], the device's size. Output: a [`Plan`]. Invariant: a superblock made from it is valid, and its features fit each
//! other. Limit: whether the metadata finds room is seen when it is placed. Source: man mke2fs; the figures that depend on the size by
//! experiment with mke2fs 1.47, which the tests repeat.

mod groups;

pub use groups::own_blocks;

use crate::error::Error;
use crate::options::{self, MkfsOptions, NewJournal, QuotaTypes};
use diorite_format::csum;
use diorite_format::features::{Access, Compat, Features, Incompat, RoCompat};
use diorite_format::superblock::{HashSettings, NewSuper};
use diorite_format::{FsBlock, Ino, Superblock, Timestamp};
use groups::settle_groups;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Free blocks that a last group must have beyond its own metadata; otherwise it is left out.
pub const LEAST_IN_GROUP: u64 = 50;
/// Inodes that no file of a tree has: the reserved ones, and the orphan file.
const OWN_INODES: u64 = 12;
/// Blocks of a group, at least.
const LEAST_BLOCKS: u32 = 256;
/// The largest journal, in blocks.
const MOST_JOURNAL: u32 = 10_240_000;
const LEAST_JOURNAL: u32 = 1024;
/// `lost+found` has room for names before it is needed: up to so many bytes, and blocks.
const LOST_FOUND: (u32, u32) = (16 << 10, 12);

/// A file system to be made.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Counts of what is used are filled in later.
    pub(crate) sb: NewSuper,
    /// Blocks of the journal, those for fast commits included.
    pub(crate) journal_blocks: u32,
    pub(crate) fast_commit_blocks: u32,
    pub(crate) orphan_blocks: u32,
    pub(crate) lost_found_blocks: u32,
    /// Usage files of users, groups and projects.
    pub(crate) quota: QuotaTypes,
}

fn invalid<T>(why: String) -> Result<T, Error> {
    Err(Error::Invalid(why))
}

fn no_room<T>(why: String) -> Result<T, Error> {
    Err(Error::NoRoom(why))
}

impl Plan {
    /// `files`: how many files go in.
    pub(crate) fn new(options: &MkfsOptions, device: u64, files: usize) -> Result<Plan, Error> {
        check_features(&options.features)?;
        let has = Has(&options.features);
        let bytes = options.bytes.unwrap_or(device);
        if bytes > device {
            return invalid(format!(
                "the file system is to have {bytes} bytes, and the device has {device}"
            ));
        }
        let block = block_size(options, bytes)?;
        let bits = block.trailing_zeros();
        let cluster = cluster_size(options, block)?;
        let blocks = bytes >> bits;
        let wide = has.incompat(Incompat::BIT64);
        if !wide && blocks > u64::from(u32::MAX) {
            return invalid(format!(
                "{blocks} blocks need the feature 64bit: without it there are at most {}",
                u32::MAX
            ));
        }
        let mut sb = blank(options, block, cluster)?;
        // As mke2fs, no short last cluster: the kernel gives it away as a whole, and then stops.
        sb.blocks_count = blocks - blocks % u64::from(cluster / block);
        let quota = quota_types(options)?;
        let own = OWN_INODES + u64::from(quota[2]);
        settle_groups(
            &mut sb,
            options,
            bytes,
            files as u64 + options.spare_inodes + own,
        )?;
        if !(0.0..=50.0).contains(&options.reserved_percent) {
            return invalid(format!(
                "{} % of the blocks are to be reserved: 0 to 50 can be",
                options.reserved_percent
            ));
        }
        sb.reserved_blocks = (options.reserved_percent * sb.blocks_count as f64 / 100.0) as u64;
        let mut plan = Plan {
            journal_blocks: 0,
            fast_commit_blocks: 0,
            orphan_blocks: 0,
            lost_found_blocks: (LOST_FOUND.0 / block).clamp(2, LOST_FOUND.1),
            quota,
            sb,
        };
        plan.settle_journal(options)?;
        plan.settle_orphan_file(options)?;
        Ok(plan)
    }

    pub(crate) fn made_at(&self) -> Timestamp {
        Timestamp {
            secs: self.sb.time,
            nanos: 0,
        }
    }

    fn settle_journal(&mut self, options: &MkfsOptions) -> Result<(), Error> {
        let sb = &mut self.sb;
        if !Has(&sb.features).compat(Compat::HAS_JOURNAL) {
            return Ok(());
        }
        let blocks = match options.journal {
            NewJournal::Usual => options::usual_journal(sb.blocks_count),
            NewJournal::Blocks(n) => n,
            NewJournal::External {
                uuid,
                block_size,
                device,
            } => {
                let own = 1u32 << sb.block_bits;
                if block_size != own {
                    return invalid(format!(
                        "the journal device has blocks of {block_size} bytes, and the file system of {own}: both must have the same (-b)"
                    ));
                }
                sb.journal_uuid = uuid;
                sb.journal_device = device;
                return Ok(());
            }
        };
        if options.journal_at.is_some_and(|at| at >= sb.blocks_count) {
            return invalid(format!(
                "the journal is to be at block {}, and the file system has {}",
                options.journal_at.unwrap_or(0),
                sb.blocks_count
            ));
        }
        if blocks == 0 {
            // As mke2fs: too small for one.
            let of_journals = Compat::HAS_JOURNAL
                .with(Compat::ORPHAN_FILE)
                .with(Compat::FAST_COMMIT);
            sb.features.compat = sb.features.compat.without(of_journals);
            return Ok(());
        }
        if !(LEAST_JOURNAL..=MOST_JOURNAL).contains(&blocks) {
            return invalid(format!(
                "the journal is to have {blocks} blocks: {LEAST_JOURNAL} to {MOST_JOURNAL} can be"
            ));
        }
        let of_fast_commits = match Has(&sb.features).compat(Compat::FAST_COMMIT) {
            // As mke2fs: 0 is as many as usual, whatever the size of the journal.
            true => match options.fast_commit_blocks {
                None | Some(0) => options::usual_journal(sb.blocks_count) / 64,
                Some(more) => more,
            },
            false => 0,
        };
        let most = sb.blocks_count / 2;
        if u64::from(blocks) + u64::from(of_fast_commits) > most {
            let with = match of_fast_commits {
                0 => String::new(),
                more => format!(" and {more} for fast commits"),
            };
            return no_room(format!(
                "a journal of {blocks} blocks{with} is too large for a file system of {}",
                sb.blocks_count
            ));
        }
        self.fast_commit_blocks = of_fast_commits;
        self.journal_blocks = blocks + of_fast_commits;
        Ok(())
    }

    fn settle_orphan_file(&mut self, options: &MkfsOptions) -> Result<(), Error> {
        if Has(&self.sb.features).compat(Compat::ORPHAN_FILE) {
            let most = most_orphan_blocks(self.sb.block_bits);
            let usual = (self.sb.blocks_count / 4096).clamp(32, most) as u32;
            self.orphan_blocks = options.orphan_file_blocks.unwrap_or(usual);
            if self.orphan_blocks == 0 || u64::from(self.orphan_blocks) > 16 * most {
                return invalid(format!(
                    "the orphan file is to have {} blocks: 1 to {} can be",
                    self.orphan_blocks,
                    16 * most
                ));
            }
        }
        Ok(())
    }
}

/// Blocks of the largest orphan file that is made unasked.
fn most_orphan_blocks(block_bits: u32) -> u64 {
    ((2 * MIB) >> block_bits).max(32)
}

/// Blocks of the orphan file that mke2fs and tune2fs choose.
pub fn usual_orphan_blocks(sb: &Superblock) -> u32 {
    let most = most_orphan_blocks(sb.geometry().block_bits());
    (sb.geometry().blocks_count() / 4096).clamp(32, most) as u32
}

/// A superblock with what does not follow from the size.
pub(crate) fn blank(options: &MkfsOptions, block: u32, cluster: u32) -> Result<NewSuper, Error> {
    let has = Has(&options.features);
    Ok(NewSuper {
        features: options.features,
        revision: options.revision,
        block_bits: block.trailing_zeros(),
        cluster_bits: cluster.trailing_zeros(),
        blocks_count: 0,
        reserved_blocks: 0,
        free_blocks: 0,
        first_data_block: u32::from(block == 1024 && !has.ro(RoCompat::BIGALLOC)),
        blocks_per_group: blocks_per_group(options, block, cluster)?,
        group_count: 0,
        inodes_per_group: 0,
        free_inodes: 0,
        inode_size: inode_size(options, block)?,
        desc_size: desc_size(options, block)?,
        reserved_gdt_blocks: 0,
        flex_bits: flex_bits(options)?,
        first_meta_bg: 0,
        backup_groups: [0; 2],
        uuid: options.uuid,
        csum_seed: csum::crc32c(csum::SEED, &options.uuid),
        hash: hash(options)?,
        label: options.label,
        last_mounted: options.last_mounted,
        time: options.time,
        errors_behavior: options.errors_behavior,
        checks: options.checks,
        creator_os: options.creator_os,
        default_mount_opts: options.default_mount_opts,
        extra_isize: if options.inode_size > 128 { 32 } else { 0 },
        raid_stride: options.raid_stride,
        raid_stripe_width: options.raid_stripe_width,
        mmp_interval: match has.incompat(Incompat::MMP) {
            true => options.mmp_interval,
            false => 0,
        },
        mmp_block: FsBlock::NONE,
        journal: Ino::new(0),
        journal_backup: [0; 17],
        journal_uuid: [0; 16],
        journal_device: 0,
        orphan_file: Ino::new(0),
        quota_files: [Ino::new(0); 3],
        overhead_clusters: 0,
        kbytes_written: 0,
        encoding: options.encoding,
        is_test: options.is_test,
        is_suspect: false,
    })
}

/// Questions to a set of features.
pub(crate) struct Has<'a>(pub(crate) &'a Features);

impl Has<'_> {
    pub(crate) fn compat(&self, one: Compat) -> bool {
        self.0.compat.has(one)
    }

    pub(crate) fn incompat(&self, one: Incompat) -> bool {
        self.0.incompat.has(one)
    }

    pub(crate) fn ro(&self, one: RoCompat) -> bool {
        self.0.ro_compat.has(one)
    }
}

fn check_features(features: &Features) -> Result<(), Error> {
    let has = Has(features);
    // What mke2fs can make and diorite only reads, or writes not at all.
    let unmade = [
        (has.ro(RoCompat::REPLICA), "replica"),
        (has.ro(RoCompat::HAS_SNAPSHOT), "snapshot"),
        (has.ro(RoCompat::SHARED_BLOCKS), "shared_blocks"),
        (has.incompat(Incompat::JOURNAL_DEV), "journal_dev"),
        (has.incompat(Incompat::COMPRESSION), "compression"),
        (has.incompat(Incompat::DIRDATA), "dirdata"),
        (has.incompat(Incompat::RECOVER), "needs_recovery"),
        (has.compat(Compat::LAZY_BG), "lazy_bg"),
        (has.compat(Compat::EXCLUDE_INODE), "exclude_inode"),
    ];
    if let Some((_, name)) = unmade.iter().find(|(asked, _)| *asked) {
        return Err(Error::NotSupported(format!(
            "a file system with the feature {name} cannot be made"
        )));
    }
    let met = |one: bool, name: &str, other: bool, needs: &str| match one && !other {
        true => invalid(format!("the feature {name} needs {needs}")),
        false => Ok(()),
    };
    let extents = has.incompat(Incompat::EXTENTS);
    let journal = has.compat(Compat::HAS_JOURNAL);
    let sums = has.ro(RoCompat::METADATA_CSUM);
    met(has.ro(RoCompat::BIGALLOC), "bigalloc", extents, "extent")?;
    met(has.incompat(Incompat::BIT64), "64bit", extents, "extent")?;
    met(
        has.incompat(Incompat::CSUM_SEED),
        "metadata_csum_seed",
        sums,
        "metadata_csum",
    )?;
    met(
        has.compat(Compat::ORPHAN_FILE),
        "orphan_file",
        journal,
        "has_journal",
    )?;
    met(
        has.compat(Compat::FAST_COMMIT),
        "fast_commit",
        journal,
        "has_journal",
    )?;
    met(has.ro(RoCompat::VERITY), "verity", extents, "extent")?;
    let resizes = has.compat(Compat::RESIZE_INODE);
    if resizes && has.incompat(Incompat::META_BG) {
        return invalid("the features resize_inode and meta_bg exclude each other".to_owned());
    }
    met(
        resizes,
        "resize_inode",
        has.ro(RoCompat::SPARSE_SUPER),
        "sparse_super",
    )?;
    features
        .check(Access::Read)
        .map_err(|e| Error::NotSupported(e.to_string()))
}

pub(crate) fn block_size(options: &MkfsOptions, bytes: u64) -> Result<u32, Error> {
    let size = options
        .block_size
        .unwrap_or(if bytes < 512 * MIB { 1024 } else { 4096 });
    match size.is_power_of_two() && (1024..=65536).contains(&size) {
        true => Ok(size),
        false => invalid(format!(
            "blocks of {size} bytes: a power of two from 1024 to 65536 can be"
        )),
    }
}

fn cluster_size(options: &MkfsOptions, block: u32) -> Result<u32, Error> {
    if !Has(&options.features).ro(RoCompat::BIGALLOC) {
        return Ok(block);
    }
    let size = options.cluster_size.unwrap_or(block.saturating_mul(16));
    match size.is_power_of_two() && size > block && size <= 1 << 28 {
        true => Ok(size),
        false => invalid(format!(
            "clusters of {size} bytes: a power of two above the block size of {block} can be, up to 256 MiB"
        )),
    }
}

fn blocks_per_group(options: &MkfsOptions, block: u32, cluster: u32) -> Result<u32, Error> {
    let ratio = cluster / block;
    // The free clusters of a group are counted in 16 bits without 64bit.
    let most = (block * 8).min(65528);
    let Some(asked) = options.blocks_per_group else {
        return Ok(most.saturating_mul(ratio));
    };
    let most = most.saturating_mul(ratio);
    match asked >= LEAST_BLOCKS && asked <= most && asked % (8 * ratio) == 0 {
        true => Ok(asked),
        false => invalid(format!(
            "groups of {asked} blocks: a multiple of {} from {LEAST_BLOCKS} to {most} can be",
            8 * ratio
        )),
    }
}

fn inode_size(options: &MkfsOptions, block: u32) -> Result<u16, Error> {
    let size = options.inode_size;
    if options.revision == 0 && size != 128 {
        return invalid(format!("inodes of {size} bytes: revision 0 has 128"));
    }
    match size.is_power_of_two() && size >= 128 && u32::from(size) <= block {
        true => Ok(size),
        false => invalid(format!(
            "inodes of {size} bytes: a power of two from 128 to the block size of {block} can be"
        )),
    }
}

fn desc_size(options: &MkfsOptions, block: u32) -> Result<u16, Error> {
    let wide = Has(&options.features).incompat(Incompat::BIT64);
    match (options.desc_size, wide) {
        (None, true) => Ok(64),
        (None, false) => Ok(32),
        (Some(_), false) => invalid("desc_size needs the feature 64bit".to_owned()),
        (Some(size), true)
            if size.is_power_of_two() && (64..=block.min(1024)).contains(&size.into()) =>
        {
            Ok(size)
        }
        (Some(size), true) => invalid(format!(
            "group descriptors of {size} bytes: a power of two from 64 to {} can be",
            block.min(1024)
        )),
    }
}

fn quota_types(options: &MkfsOptions) -> Result<QuotaTypes, Error> {
    let has = Has(&options.features);
    let projects = has.ro(RoCompat::PROJECT);
    if projects && options.inode_size <= 128 {
        return invalid("the feature project needs inodes of more than 128 bytes".to_owned());
    }
    if !has.ro(RoCompat::QUOTA) {
        return Ok([false; 3]);
    }
    let types = options.quota_types.unwrap_or([true, true, projects]);
    match types[2] && !projects {
        true => invalid("a usage file of projects needs the feature project".to_owned()),
        false => Ok(types),
    }
}

fn flex_bits(options: &MkfsOptions) -> Result<u8, Error> {
    if !Has(&options.features).incompat(Incompat::FLEX_BG) {
        return Ok(0);
    }
    let groups = options.groups_per_flex;
    match groups.is_power_of_two() {
        true => Ok(groups.trailing_zeros() as u8),
        false => invalid(format!(
            "{groups} groups in a flexible group: a power of two can be"
        )),
    }
}

fn hash(options: &MkfsOptions) -> Result<HashSettings, Error> {
    if options.hash_version > 2 {
        return invalid(format!(
            "the hash of names {} is unknown",
            options.hash_version
        ));
    }
    let word = |n: usize| {
        let bytes = &options.hash_seed[4 * n..4 * n + 4];
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    };
    Ok(HashSettings {
        seed: [word(0), word(1), word(2), word(3)],
        default_version: options.hash_version,
        unsigned_chars: false,
    })
}

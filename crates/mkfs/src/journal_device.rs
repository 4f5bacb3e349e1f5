//! Journals on devices of their own: new ones, and which volume uses one.
//!
//! Input: a device. Output: a journal with nothing in it, or its user's name in it. Invariants: a new one is complete or absent, since the
//! superblock is written last; a log that is not empty is given to no volume. Limit: one volume uses it, as the kernel and e2fsck want it.
//! Source: the kernel's ext4 documentation, "journal (jbd2)", "External Journal"; man mke2fs (-O journal_dev, -J device=); bytes of what
//! mke2fs makes.

use crate::error::{Error, read_bytes};
use crate::make::{Made, SIGNATURES, check_writable, is_known_empty};
use crate::options::MkfsOptions;
use crate::plan::{self, Has};
use crate::write::Out;
use diorite_block::{BioOp, Blocking, Device};
use diorite_format::features::{Compat, Features, Incompat, RoCompat};
use diorite_format::journal::{self, JournalSuper};
use diorite_format::superblock::{JournalDevice, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use std::sync::Arc;

/// Blocks of the smallest one.
const LEAST: u64 = 1024;

/// A journal on a device of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnJournal {
    /// Its UUID, by which a volume names it.
    pub uuid: [u8; 16],
    /// Bytes of its blocks.
    pub block_size: u32,
    /// UUIDs of the volumes that use it.
    pub users: Vec<[u8; 16]>,
    /// Nothing in it waits to be replayed.
    pub is_empty: bool,
}

/// Makes a journal on a device of its own: of the options, block size, label, UUID and bytes count. Blocks.
///
/// ```
/// use diorite_block::{Device, MemDevice};
/// use diorite_mkfs::{MkfsOptions, journal_device, mkfs_journal_device};
/// use std::sync::Arc;
///
/// let device: Arc<dyn Device> = Arc::new(MemDevice::new(8 << 20));
/// let options = MkfsOptions::new([7; 16], [2; 16], 1_700_000_000).block_size(4096);
/// mkfs_journal_device(&device, &options)?;
/// let journal = journal_device(&device)?;
/// assert_eq!((journal.uuid, journal.block_size), ([7; 16], 4096)); // what the volume's `NewJournal::External` names
/// # Ok::<(), diorite_mkfs::Error>(())
/// ```
///
/// # Errors
/// `Invalid`, `NoRoom`, `ReadOnly`; errors of the device, which then holds no journal.
pub fn mkfs_journal_device(device: &Arc<dyn Device>, options: &MkfsOptions) -> Result<Made, Error> {
    let made = journal_device_plan(device.geometry().size, options)?;
    check_writable(device, made.block_size)?;
    let mut sb = plan::blank(
        &MkfsOptions {
            features: made.features,
            ..options.clone()
        },
        made.block_size,
        made.block_size,
    )?;
    sb.blocks_count = made.blocks;
    let block = u64::from(made.block_size);
    let all = 0..made.blocks * block;
    let blocking = Blocking::new(device.clone());
    let mut out = Out::new(&blocking);
    if !is_known_empty(device, &all)? {
        // First what makes it anything else, so that a crash leaves nothing of that which looks whole.
        out.end_superblock(&all)?;
        out.zero(0..SIGNATURES.min(all.end))?;
        out.flush()?;
        if options.discard {
            out.discard(all.clone());
        }
        out.zero(all)?;
        // What follows lies in it.
        out.flush()?;
    }
    let at = u64::from(sb.first_data_block) + 1;
    let mut raw = vec![0; made.block_size as usize];
    let new = journal::write::NewJournal {
        block_size: made.block_size,
        maxlen: made.journal_blocks,
        first: at as u32 + 1,
        users: 0,
        fc_blocks: 0,
        uuid: sb.uuid,
    };
    journal::write::init_super(&new, &mut raw);
    out.put(at * block, &raw)?;
    out.flush()?;
    sb.kbytes_written = out.written().div_ceil(1024) + 1;
    raw.fill(0);
    let start = SUPERBLOCK_OFFSET / block * block;
    let from = (SUPERBLOCK_OFFSET - start) as usize;
    raw[from..from + SUPERBLOCK_SIZE].copy_from_slice(&sb.encode());
    out.put(start, &raw)?;
    out.flush()?;
    Ok(made)
}

/// What [`mkfs_journal_device`] would make on a device of `bytes` bytes, without one.
///
/// # Errors
/// As [`mkfs_journal_device`], but those of a device.
pub fn journal_device_plan(bytes: u64, options: &MkfsOptions) -> Result<Made, Error> {
    let asked = options.bytes.unwrap_or(bytes);
    if asked > bytes {
        return Err(Error::Invalid(format!(
            "the journal is to have {asked} bytes, and the device has {bytes}"
        )));
    }
    let block_size = plan::block_size(options, asked)?;
    let blocks = asked / u64::from(block_size);
    if blocks < LEAST {
        return Err(Error::NoRoom(format!(
            "a journal of {blocks} blocks: it has at least {LEAST}, which are {} bytes",
            LEAST * u64::from(block_size)
        )));
    }
    let journal_blocks = u32::try_from(blocks).map_err(|_| {
        Error::Invalid(format!("a journal of {blocks} blocks: {} can be", u32::MAX))
    })?;
    let sums = Has(&options.features).ro(RoCompat::METADATA_CSUM);
    Ok(Made {
        block_size,
        blocks,
        free_blocks: 0,
        reserved_blocks: 0,
        available_blocks: 0,
        inodes: 0,
        free_inodes: 0,
        groups: 0,
        journal_blocks,
        backups: Vec::new(),
        features: Features {
            compat: Compat::from_bits(0),
            incompat: Incompat::JOURNAL_DEV,
            ro_compat: match sums {
                true => RoCompat::METADATA_CSUM,
                false => RoCompat::from_bits(0),
            },
        },
        bad_copies: Vec::new(),
    })
}

/// The block with the journal's superblock: where it lies, and its bytes.
fn read(blocking: &Blocking) -> Result<(JournalDevice, u64, Vec<u8>), Error> {
    let raw = read_bytes(blocking, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE)?;
    let raw: &[u8; SUPERBLOCK_SIZE] = raw[..].try_into().expect("so many were read");
    let device = JournalDevice::parse(raw)?;
    let size = device.block_size as usize;
    if !size.is_multiple_of(blocking.device().geometry().logical as usize) {
        return Err(Error::Invalid(format!(
            "the journal has blocks of {size} bytes, and the device larger ones"
        )));
    }
    let pos = u64::from(device.journal_block) * u64::from(device.block_size);
    let block = read_bytes(blocking, pos, size)?;
    Ok((device, pos, block))
}

fn parse(device: &JournalDevice, blocking: &Blocking, raw: &[u8]) -> Result<JournalSuper, Error> {
    let blocks = blocking.device().geometry().size / u64::from(device.block_size);
    Ok(JournalSuper::parse(raw, device.block_size, blocks)?)
}

/// Looks at the journal on a device. Blocks.
///
/// # Errors
/// There is none; errors of the device.
pub fn journal_device(device: &Arc<dyn Device>) -> Result<OwnJournal, Error> {
    let blocking = Blocking::new(device.clone());
    let (found, _, raw) = read(&blocking)?;
    let log = parse(&found, &blocking, &raw)?;
    Ok(OwnJournal {
        uuid: found.uuid,
        block_size: found.block_size,
        is_empty: log.is_empty() && log.fast_commit_blocks() == 0,
        users: log.users,
    })
}

/// Makes a volume the only user of the journal on a device, durably. Blocks.
///
/// # Errors
/// As [`journal_device`]; `Invalid`: something waits in it to be replayed.
pub fn set_journal_user(device: &Arc<dyn Device>, volume: &[u8; 16]) -> Result<(), Error> {
    edit(device, |raw| journal::write::set_user(raw, volume))
}

/// Makes the journal on a device one that no volume uses, durably. Blocks.
///
/// # Errors
/// As [`set_journal_user`].
pub fn forget_journal_user(device: &Arc<dyn Device>) -> Result<(), Error> {
    edit(device, journal::write::forget_users)
}

fn edit(device: &Arc<dyn Device>, change: impl FnOnce(&mut [u8])) -> Result<(), Error> {
    let blocking = Blocking::new(device.clone());
    let (found, pos, mut raw) = read(&blocking)?;
    if !parse(&found, &blocking, &raw)?.is_empty() {
        let why =
            "the journal has changes that were not replayed: e2fsck -j of its volume does that";
        return Err(Error::Invalid(why.to_owned()));
    }
    change(&mut raw);
    let written = blocking.write_bytes(pos, &raw);
    written.map_err(|e| Error::of_bio(&blocking, BioOp::Write, pos, raw.len() as u64, e))?;
    let flushed = blocking.flush();
    flushed.map_err(|e| Error::of_bio(&blocking, BioOp::Flush, 0, 0, e))
}

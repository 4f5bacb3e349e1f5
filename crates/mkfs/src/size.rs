//! How large a file system has to be for a tree.
//!
//! Input: options, a tree, what is to stay free. Output: options with a size. Invariants: a file system of that size holds the tree, and
//! its headroom is available beside the reserve of root; one that is smaller by more than [`TOLERANCE`] does not, or leaves less. Limit: it
//! is found by placing everything a few times.

use crate::error::Error;
use crate::make::{Layout, complete};
use crate::options::{Headroom, MkfsOptions};
use crate::tree::Tree;

/// Bytes that may be free beyond the headroom.
const TOLERANCE: u64 = 256 << 10;
/// Sizes that are tried.
const TRIES: u32 = 48;
/// Bytes per inode, at most: see [`MkfsOptions::inode_ratio`].
const LARGEST_RATIO: u64 = 64 << 20;
const LEAST: u64 = 64 << 10;
const MOST: u64 = 1 << 46;

/// Smallest size that is known to do, and largest that is known not to.
struct Bounds {
    fits: Option<(u64, MkfsOptions)>,
    fails: u64,
}

/// The smallest size, in bytes, of a file system that holds the tree and leaves `headroom` available to ordinary users: beside the reserve
/// of root, and with inodes for it. The number of inodes is that of the options, or else what the tree and the headroom need. `lost+found`
/// is added. Returns the options with that size.
///
/// ```
/// use diorite_mkfs::{Headroom, MkfsOptions, Node, NodeId, NodeKind, Tree, mkfs_sized};
///
/// let node = |kind| Node { kind, mode: 0o755, uid: 0, gid: 0, mtime: Default::default(), attributes: Vec::new() };
/// let mut tree = Tree::new(node(NodeKind::Directory));
/// let file = tree.add(node(NodeKind::plain_file(10 << 20)))?;
/// tree.link(NodeId::ROOT, b"ten-mebibytes", file)?;
/// let options = MkfsOptions::new([1; 16], [2; 16], 1_700_000_000);
/// let sized = mkfs_sized(&options, &mut tree, Headroom::Bytes(1 << 20))?;
/// assert!(sized.bytes.is_some_and(|bytes| (11 << 20..20 << 20).contains(&bytes)));
/// # Ok::<(), diorite_mkfs::Error>(())
/// ```
///
/// # Errors
/// As [`crate::mkfs_filled`], but those of a device and of contents.
pub fn mkfs_sized(
    options: &MkfsOptions,
    tree: &mut Tree,
    headroom: Headroom,
) -> Result<MkfsOptions, Error> {
    complete(tree, options)?;
    smallest(options, tree, headroom)
}

fn smallest(options: &MkfsOptions, tree: &Tree, headroom: Headroom) -> Result<MkfsOptions, Error> {
    match headroom {
        Headroom::Bytes(bytes) => of_bytes(options, tree, bytes),
        Headroom::Percent(percent) => {
            let least = of_bytes(options, tree, 0)?;
            let taken = Layout::new(&least, least.bytes.unwrap_or(MOST), tree)?.bytes_of_files();
            let wanted = u128::from(taken) * u128::from(percent) / 100;
            of_bytes(options, tree, u64::try_from(wanted).unwrap_or(u64::MAX))
        }
    }
}

fn of_bytes(options: &MkfsOptions, tree: &Tree, headroom: u64) -> Result<MkfsOptions, Error> {
    if headroom > MOST {
        let why = format!("{headroom} bytes are to stay free: {MOST} can be found room for");
        return Err(Error::Invalid(why));
    }
    let mut options = options.clone();
    // What depends on the size is chosen for the size that the tree needs, so the block size must not change on the way.
    let block = u64::from(*options.block_size.get_or_insert(4096));
    if options.inodes.is_none() && options.inode_ratio.is_none() {
        // Of no use by itself, so the number is that of the files, and of those that the headroom may get.
        options.inode_ratio = Some(LARGEST_RATIO);
        options.spare_inodes += headroom.div_ceil(options.headroom_ratio.max(1024));
    }
    let mut bounds = Bounds {
        fits: None,
        fails: LEAST,
    };
    let mut size = (1u64 << 20).max(headroom);
    let mut last = None;
    for _ in 0..TRIES {
        options.bytes = Some(size);
        let next = match Layout::new(&options, size, tree) {
            Ok(layout) => {
                let made = layout.made();
                // A last group without use is left out, and so are its bytes.
                options.bytes = Some(made.blocks * block);
                let free = made.available_blocks * block;
                if free < headroom {
                    bounds.fails = bounds.fails.max(size);
                    size + (headroom - free)
                } else {
                    let better = bounds
                        .fits
                        .as_ref()
                        .is_none_or(|(best, _)| made.blocks * block < *best);
                    if better {
                        bounds.fits = Some((made.blocks * block, options.clone()));
                    }
                    if free - headroom <= TOLERANCE {
                        break;
                    }
                    (made.blocks * block).saturating_sub(free - headroom)
                }
            }
            Err(Error::TooSmall { blocks, inodes, .. }) => {
                bounds.fails = bounds.fails.max(size);
                if let (Some(asked), 1..) = (options.inodes, inodes) {
                    last = Some(Error::NoRoom(format!(
                        "no size is large enough: {inodes} inodes are missing for the files, since {asked} were asked for"
                    )));
                }
                let per_inode = u64::from(options.inode_size) + block;
                size + blocks * block + inodes * per_inode + headroom.min(block)
            }
            Err(error @ Error::NoRoom(_)) => {
                bounds.fails = bounds.fails.max(size);
                last = Some(error);
                size.saturating_mul(2)
            }
            Err(error) => return Err(error),
        };
        let next = match &bounds.fits {
            Some((best, _)) if next <= bounds.fails || next >= *best => {
                bounds.fails.midpoint(*best)
            }
            _ => next,
        };
        // Up while none is known that does, so that every try is larger than the one before.
        size = match bounds.fits {
            None => next.next_multiple_of(block),
            Some(_) => next / block * block,
        };
        let settled = bounds
            .fits
            .as_ref()
            .is_some_and(|(best, _)| best - bounds.fails <= TOLERANCE);
        if settled || size > MOST {
            break;
        }
    }
    match bounds.fits {
        Some((_, options)) => Ok(options),
        None => Err(last.unwrap_or_else(|| Error::Invalid("no size is large enough".to_owned()))),
    }
}

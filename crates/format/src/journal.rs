//! The journal's superblock (jbd2), big-endian, in the first block of the journal.
//! Input: that block. Output: [`JournalSuper`]: whether there is something to replay, and the form of the log. Invariant:
//! first, start and the fast-commit area lie inside the journal; no unknown incompat feature is set. Limit: the submodules
//! parse the blocks of the log. Source: the kernel's ext4 documentation, "journal (jbd2)"; compared with `dumpe2fs` and
//! `debugfs -R "logdump -S"` in tests.

use crate::csum;
use crate::error::{Corrupt, FormatError, Result, Unsupported, bad, want};
use crate::layout::jsb;
use crate::le::{be32, bytes, u8_at};
use crate::num;
use crate::types::Tid;

mod block;
mod commit;
mod descriptor;
mod fast;
mod revoke;
#[cfg(test)]
mod tests;
pub mod write;

pub use block::{LogBlockKind, LogForm, LogHeader};
pub use commit::{Commit, CommitSum, TransactionSum};
pub use descriptor::Tag;
pub use fast::{FastCommit, FastCommits, FastName, FastRecord, FastScan};

/// First word of every journal block that is not a copy of a block.
pub const MAGIC: u32 = 0xC03B_3998;
/// Block types of the two versions of the first block.
const VERSION_1: u32 = 3;
const VERSION_2: u32 = 4;
/// Bytes of the superblock.
pub const SUPER_SIZE: usize = jsb::SIZE;
/// Blocks of the fast-commit area if the superblock says 0.
const DEFAULT_FC_BLOCKS: u32 = 256;
/// jbd2's code of crc32c.
const CRC32C: u8 = 4;

/// The journal's feature words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalFeatures {
    /// Compat word: bit 0, checksums in commit blocks (v1).
    pub compat: u32,
    /// Incompat word.
    pub incompat: u32,
    /// Ro-compat word; no bit is defined.
    pub ro_compat: u32,
}

impl JournalFeatures {
    /// The log may have revocation blocks.
    #[must_use]
    pub const fn revoke(self) -> bool {
        self.incompat & 0x1 != 0
    }

    /// Block numbers have 64 bits.
    #[must_use]
    pub const fn is_64bit(self) -> bool {
        self.incompat & 0x2 != 0
    }

    /// Commit blocks may be written without waiting for the rest.
    #[must_use]
    pub const fn async_commit(self) -> bool {
        self.incompat & 0x4 != 0
    }

    /// The journal has an area for fast commits.
    #[must_use]
    pub const fn fast_commit(self) -> bool {
        self.incompat & 0x20 != 0
    }

    /// How blocks of the log are checksummed.
    #[must_use]
    pub const fn checksum(self) -> JournalChecksum {
        if self.incompat & 0x10 != 0 {
            JournalChecksum::V3
        } else if self.incompat & 0x8 != 0 {
            JournalChecksum::V2
        } else if self.compat & 0x1 != 0 {
            JournalChecksum::V1
        } else {
            JournalChecksum::None
        }
    }

    /// Names as `dumpe2fs` prints them.
    #[must_use]
    pub fn names(self) -> Vec<String> {
        let known = [
            (self.compat & 0x1 != 0, "journal_checksum"),
            (self.revoke(), "journal_incompat_revoke"),
            (self.is_64bit(), "journal_64bit"),
            (self.async_commit(), "journal_async_commit"),
            (self.incompat & 0x8 != 0, "journal_checksum_v2"),
            (self.incompat & 0x10 != 0, "journal_checksum_v3"),
            (self.fast_commit(), "fast_commit"),
        ];
        let mut names: Vec<String> = known
            .iter()
            .filter(|(set, _)| *set)
            .map(|(_, n)| (*n).to_owned())
            .collect();
        names.extend(unknown(self.incompat & !0x3F));
        names
    }
}

fn unknown(bits: u32) -> impl Iterator<Item = String> {
    (0..32)
        .filter(move |n| 1u32.checked_shl(*n).is_some_and(|b| bits & b != 0))
        .map(|n| format!("FEATURE_I{n}"))
}

/// How blocks of the log are checksummed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JournalChecksum {
    /// Not at all.
    None,
    /// One checksum per transaction.
    V1,
    /// Per block, 16 bits in the tag.
    V2,
    /// Per block, 32 bits in the tag.
    V3,
}

/// A checked journal superblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalSuper {
    /// Bytes per block: the volume's block size.
    pub block_size: u32,
    /// Blocks in the journal, this one included.
    pub maxlen: u32,
    /// First block of the log.
    pub first: u32,
    /// First transaction expected in the log.
    pub sequence: Tid,
    /// Block where the log starts; 0 = the log is empty.
    pub start: u32,
    /// Error that aborted the journal (a negated errno), 0 = none.
    pub errno: i32,
    /// The features; all clear in version 1.
    pub features: JournalFeatures,
    /// The journal's UUID.
    pub uuid: [u8; 16],
    /// UUIDs of the volumes that use it (an external journal may have several).
    pub users: Vec<[u8; 16]>,
    /// Where writing ended, a hint; 0 = not recorded.
    pub head: u32,
    /// 3 for version 1, 4 for version 2.
    pub block_type: u32,
    /// This block's own checksum as stored; 0 before checksums of version 2.
    pub checksum: u32,
    /// Blocks reserved for fast commits as stored, whether or not the journal uses them yet.
    pub fc_blocks_stored: u32,
    fc_blocks: u32,
}

impl JournalSuper {
    /// Checks the first block of a journal. `volume_block_size` is that of the volume, `journal_blocks` the length
    /// of the journal file or device in blocks.
    ///
    /// # Errors
    /// `Short` and the `Journal...` variants; `Unsupported` for unknown incompat features or checksum types.
    pub fn parse(raw: &[u8], volume_block_size: u32, journal_blocks: u64) -> Result<Self> {
        want("a journal superblock", raw, SUPER_SIZE)?;
        let b = raw.get(..SUPER_SIZE).unwrap_or(&[]);
        let (magic, block_type) = (be32(b, jsb::MAGIC), be32(b, jsb::BLOCKTYPE));
        if magic != MAGIC {
            return bad(Corrupt::JournalMagic { found: magic });
        }
        if block_type != VERSION_1 && block_type != VERSION_2 {
            return bad(Corrupt::JournalType { found: block_type });
        }
        let features = if block_type == VERSION_2 {
            parse_features(b)?
        } else {
            JournalFeatures::default()
        };
        verify_sum(b, features)?;
        let this = Self {
            block_size: be32(b, jsb::BLOCKSIZE),
            maxlen: be32(b, jsb::MAXLEN),
            first: be32(b, jsb::FIRST),
            sequence: Tid::new(be32(b, jsb::SEQUENCE)),
            start: be32(b, jsb::START),
            errno: i32::from_be_bytes(bytes(b, jsb::ERRNO)),
            features,
            uuid: if block_type == VERSION_2 {
                bytes(b, jsb::UUID)
            } else {
                [0; 16]
            },
            users: if block_type == VERSION_2 {
                parse_users(b)
            } else {
                Vec::new()
            },
            head: be32(b, jsb::HEAD),
            block_type,
            checksum: be32(b, jsb::CHECKSUM),
            fc_blocks_stored: be32(b, jsb::NUM_FC_BLKS),
            fc_blocks: if features.fast_commit() {
                fc_blocks(b)
            } else {
                0
            },
        };
        this.check(volume_block_size, journal_blocks)?;
        Ok(this)
    }

    fn check(&self, volume_block_size: u32, journal_blocks: u64) -> Result<()> {
        let wrong = |what, found: u32, why| {
            bad(Corrupt::JournalField {
                what,
                found: u64::from(found),
                why,
            })
        };
        if self.block_size != volume_block_size {
            return wrong("the block size", self.block_size, "the volume has another");
        }
        if u64::from(self.maxlen) > journal_blocks {
            return wrong("the length", self.maxlen, "the journal file is shorter");
        }
        if self.first == 0 || self.first >= self.log_end() {
            return wrong(
                "the first block of the log",
                self.first,
                "outside the journal",
            );
        }
        if self.start != 0 && (self.start < self.first || self.start >= self.log_end()) {
            return wrong("the start of the log", self.start, "outside the log");
        }
        Ok(())
    }

    /// Whether the log has nothing to replay, apart from fast commits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.start == 0
    }

    /// The block after the last of the log; the fast-commit area, if any, begins there.
    #[must_use]
    pub const fn log_end(&self) -> u32 {
        self.maxlen.saturating_sub(self.fc_blocks)
    }

    /// Blocks of the fast-commit area; 0 = none. Its contents are valid only after the last full commit, so the recovery of a
    /// volume with such an area must read it, too.
    #[must_use]
    pub const fn fast_commit_blocks(&self) -> u32 {
        self.fc_blocks
    }

    /// Seed of the log's crc32c sums.
    #[must_use]
    pub fn csum_seed(&self) -> u32 {
        csum::crc32c(csum::SEED, &self.uuid)
    }
}

fn parse_features(b: &[u8]) -> Result<JournalFeatures> {
    let features = JournalFeatures {
        compat: be32(b, jsb::FEATURE_COMPAT),
        incompat: be32(b, jsb::FEATURE_INCOMPAT),
        ro_compat: be32(b, jsb::FEATURE_RO_COMPAT),
    };
    let names: Vec<String> = unknown(features.incompat & !0x3F).collect();
    if !names.is_empty() {
        return Err(FormatError::Unsupported(Unsupported {
            feature: format!("journal {}", names.join(" ")),
            read_only_would_do: false,
            help: "this feature of the journal is newer than this program",
        }));
    }
    if features.incompat & 0x18 == 0x18 {
        let found = u64::from(features.incompat);
        return bad(Corrupt::JournalField {
            what: "the feature word",
            found,
            why: "both checksum v2 and v3",
        });
    }
    Ok(features)
}

fn verify_sum(b: &[u8], features: JournalFeatures) -> Result<()> {
    if !matches!(
        features.checksum(),
        JournalChecksum::V2 | JournalChecksum::V3
    ) {
        return Ok(());
    }
    let (stored, computed) = (
        be32(b, jsb::CHECKSUM),
        csum::crc32c_with_hole(csum::SEED, b, jsb::CHECKSUM, 4),
    );
    if stored != computed {
        return bad(Corrupt::JournalChecksum { stored, computed });
    }
    let kind = u8_at(b, jsb::CHECKSUM_TYPE);
    if kind != CRC32C {
        return Err(FormatError::Unsupported(Unsupported {
            feature: format!("journal checksum type {kind}"),
            read_only_would_do: false,
            help: "only crc32c, type 4, is known",
        }));
    }
    Ok(())
}

fn fc_blocks(b: &[u8]) -> u32 {
    match be32(b, jsb::NUM_FC_BLKS) {
        0 => DEFAULT_FC_BLOCKS,
        n => n,
    }
}

/// At most 48.
fn parse_users(b: &[u8]) -> Vec<[u8; 16]> {
    let count = num::usize32(be32(b, jsb::NR_USERS).min(48));
    let list = b.get(jsb::USERS..).unwrap_or(&[]);
    list.chunks_exact(16)
        .take(count)
        .map(|c| bytes(c, 0))
        .collect()
}

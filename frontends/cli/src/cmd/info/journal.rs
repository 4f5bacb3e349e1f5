//! The journal's fields: its features, its length, and its first block and sequence number.
//!
//! Input: an open volume. Output: [`Field`]s. Invariant: only the first block of the journal is read. Limits: of an external
//! journal only the superblock's fields are printed.

use super::fields::{Field, List};
use crate::words::names::uuid;
use diorite::{Error, Volume};
use diorite_format::journal::{JournalChecksum, JournalSuper};
use serde_json::json;

/// The fields, none without an internal journal.
pub(super) fn fields(volume: &Volume) -> Result<Vec<Field>, Error> {
    let journal = volume.journal_superblock()?;
    Ok(journal.as_ref().map(describe).unwrap_or_default())
}

fn describe(j: &JournalSuper) -> Vec<Field> {
    let mut list = List::default();
    let names = j.features.names();
    let words = names.join(" ");
    let shown = if names.is_empty() { "(none)" } else { &words };
    list.field("Journal features", "journal_features", shown, json!(names));
    let kib = u64::from(j.maxlen) * u64::from(j.block_size) / 1024;
    let size = if kib < 8192 {
        format!("{kib}k")
    } else {
        format!("{}M", kib >> 10)
    };
    list.field(
        "Total journal size",
        "journal_bytes",
        &size,
        json!(kib * 1024),
    );
    list.number("Total journal blocks", "journal_blocks", j.maxlen);
    // As `dumpe2fs` counts: the blocks that mke2fs reserved for fast commits, although the journal does not use them before the
    // first mount.
    let set_aside = j.fast_commit_blocks().max(j.fc_blocks_stored);
    let most = j.maxlen.saturating_sub(set_aside);
    list.number("Max transaction length", "journal_max_transaction", most);
    list.number(
        "Fast commit length",
        "journal_fast_commit_blocks",
        set_aside,
    );
    list.hex("Journal sequence", "journal_sequence", j.sequence.get());
    list.number("Journal start", "journal_start", j.start);
    if matches!(
        j.features.checksum(),
        JournalChecksum::V2 | JournalChecksum::V3
    ) {
        list.text("Journal checksum type", "journal_checksum_type", "crc32c");
        list.hex("Journal checksum", "journal_checksum", j.checksum);
    }
    if j.errno != 0 {
        list.number("Journal errno", "journal_errno", j.errno);
    }
    // Only in JSON: `dumpe2fs` prints it only for external journals.
    list.field("", "journal_own_uuid", "", json!(uuid(&j.uuid)));
    list.0
}

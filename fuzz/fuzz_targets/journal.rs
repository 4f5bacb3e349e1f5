//! A journal's superblock and a block of its log, with every form of tags and checksums. Whatever they contain, the results are
//! bounded by the block.
//!
//! The first byte chooses the form; the rest is the block, filled up with zeros.
#![no_main]

use diorite_format::journal::{FastScan, JournalChecksum, JournalSuper, LogForm, LogHeader, TransactionSum};
use diorite_format::superblock::JournalDevice;
use diorite_format::Tid;
use libfuzzer_sys::fuzz_target;

const BLOCK: usize = 1024;

fuzz_target!(|data: &[u8]| {
    let [form, bytes @ ..] = data else { return };
    let mut block = [0; BLOCK];
    let len = bytes.len().min(BLOCK);
    block[..len].copy_from_slice(&bytes[..len]);
    let sums = [JournalChecksum::None, JournalChecksum::V1, JournalChecksum::V2, JournalChecksum::V3];
    let form = LogForm {
        block_size: BLOCK as u32,
        is_64bit: form & 4 != 0,
        checksum: sums[usize::from(form & 3)],
        seed: u32::from(*form),
    };
    let _ = (LogHeader::parse(&block), JournalDevice::parse(&block));
    fast_commits(&block);
    if let Ok(journal) = JournalSuper::parse(&block, BLOCK as u32, 4096) {
        assert!(journal.first < journal.log_end() && journal.log_end() <= 4096);
        assert!(journal.fast_commit_start().is_none_or(|at| at < journal.maxlen));
    }
    let tags = form.tags(&block).expect("the block is whole");
    assert!(tags.len() <= BLOCK / 8);
    for tag in tags {
        let _ = tag.verify(&form, Tid::new(1), 1, &block);
        tag.unescape(&mut block);
    }
    let _ = form.verify_descriptor(1, &block);
    assert!(form.revoked(1, &block).is_ok_and(|r| r.len() <= BLOCK / 4) || form.revoked(1, &block).is_err());
    let _ = form.commit(&block, TransactionSum::default().with(&block));
});

/// A block of fast commits, parsed as the first block and as a later one. The results are bounded by its bytes.
fn fast_commits(block: &[u8; BLOCK]) {
    let tid = u32::from_le_bytes([block[8], block[9], block[10], block[11]]);
    let mut scan = FastScan::new(Tid::new(tid));
    let _ = scan.block(block).and_then(|_| scan.block(block));
    let found = scan.finish().commits;
    assert!(found.iter().map(Vec::len).sum::<usize>() <= 2 * BLOCK / 12);
}

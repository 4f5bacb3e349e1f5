//! Logs written by debugfs, in every form of tags and checksums: each block is parsed and every checksum is valid.
#![allow(clippy::unwrap_used)]

mod common;

use common::run;
use diorite_format::journal::{
    CommitSum, JournalChecksum, JournalSuper, LogBlockKind, LogHeader, TransactionSum,
};
use std::path::{Path, PathBuf};

const BLOCK: usize = 1024;

struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The journal of a volume in which debugfs wrote three blocks (the first begins with the magic number), then a transaction
/// that revokes one of them.
fn journal(dir: &Path, features: &str, open: &str) -> Option<Vec<u8>> {
    let at = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let args = ["-q", "-F", "-t", "ext4", "-b", "1024", "-O", features];
    run("mke2fs", &[&args[..], &[&at("img"), "16M"]].concat())?;
    let mut data = vec![b'Q'; 3 * BLOCK];
    data[..4].copy_from_slice(&0xC03B_3998u32.to_be_bytes());
    std::fs::write(dir.join("data"), &data).unwrap();
    let script = format!(
        "{open}\njw -b 5000,5001,5002 {}\njw -r 5001,5002\njc\ndump <8> {}\n",
        at("data"),
        at("journal")
    );
    std::fs::write(dir.join("script"), script).unwrap();
    run("debugfs", &["-w", "-f", &at("script"), &at("img")])?;
    Some(std::fs::read(dir.join("journal")).unwrap())
}

fn check(bytes: &[u8], checksum: JournalChecksum, is_64bit: bool) {
    let block = |n: usize| &bytes[n * BLOCK..(n + 1) * BLOCK];
    let journal = JournalSuper::parse(block(0), 1024, (bytes.len() / BLOCK) as u64).unwrap();
    let form = journal.form();
    assert_eq!((form.checksum, form.is_64bit), (checksum, is_64bit));
    let kinds = [1, 5, 6, 7].map(|n| LogHeader::parse(block(n)).unwrap().kind);
    let (descriptor, commit) = (LogBlockKind::Descriptor, LogBlockKind::Commit);
    assert_eq!(kinds, [descriptor, commit, LogBlockKind::Revoke, commit]);
    form.verify_descriptor(1, block(1)).unwrap();
    let tags = form.tags(block(1)).unwrap();
    let what: Vec<_> = tags.iter().map(|t| (t.block.get(), t.escaped)).collect();
    assert_eq!(what, [(5000, true), (5001, false), (5002, false)]);
    let mut sum = TransactionSum::default().with(block(1));
    for (at, tag) in (2..).zip(&tags) {
        let mut copy = block(at).to_vec();
        sum = sum.with(&copy);
        tag.verify(&form, journal.sequence, at as u32, &copy)
            .unwrap();
        tag.unescape(&mut copy);
        assert_eq!(copy[..4] == 0xC03B_3998u32.to_be_bytes(), tag.escaped);
        copy[100] ^= 1;
        let flipped = tag.verify(&form, journal.sequence, at as u32, &copy);
        assert_eq!(flipped.is_err(), form.sums_blocks());
    }
    let revoked: Vec<u64> = form
        .revoked(6, block(6))
        .unwrap()
        .iter()
        .map(|b| b.get())
        .collect();
    assert_eq!(revoked, [5001, 5002]);
    let good = form.commit(block(5), sum).unwrap();
    let want = match checksum {
        JournalChecksum::None => CommitSum::None,
        _ => CommitSum::Good,
    };
    assert_eq!(good.sum, want);
    assert!(good.seconds > 1_600_000_000);
    flips(block(1), block(5), &form, sum);
}

/// A flipped byte anywhere in a block with a checksum of its own is detected.
fn flips(
    descriptor: &[u8],
    commit: &[u8],
    form: &diorite_format::journal::LogForm,
    sum: TransactionSum,
) {
    for at in 0..BLOCK {
        let (mut d, mut c) = (descriptor.to_vec(), commit.to_vec());
        d[at] ^= 0x40;
        c[at] ^= 0x40;
        let bad = matches!(form.commit(&c, sum).unwrap().sum, CommitSum::Bad { .. });
        assert_eq!(form.verify_descriptor(1, &d).is_err(), form.sums_blocks());
        assert!(bad || !form.sums_blocks(), "byte {at}");
    }
}

#[test]
fn every_form() {
    let dir = std::env::temp_dir().join(format!("diorite-journal-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let dir = Scratch(dir);
    // Volumes without metadata_csum get v1 whatever version is requested.
    for (features, open, checksum) in [
        ("^metadata_csum", "jo", JournalChecksum::None),
        ("^metadata_csum", "jo -c", JournalChecksum::V1),
        ("metadata_csum", "jo -c -v 2", JournalChecksum::V2),
        ("metadata_csum", "jo -c -v 3", JournalChecksum::V3),
    ] {
        for is_64bit in [false, true] {
            let bits = if is_64bit { "64bit" } else { "^64bit" };
            let Some(bytes) = journal(&dir.0, &format!("{features},{bits}"), open) else {
                return;
            };
            check(&bytes, checksum, is_64bit);
        }
    }
}

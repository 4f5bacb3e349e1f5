//! What the tests of images share: the tools of QEMU, devices, numbers by chance.
#![allow(dead_code, unreachable_pub, missing_docs)]

use diorite_block::locator::register_qcow2;
use diorite_block::{Buf, Device, DeviceError, Locator, OpenOptions, locator};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Runs a tool of QEMU; what it printed, or None if it is not installed.
pub fn qemu(args: &[&str]) -> Option<String> {
    let Ok(out) = xtask::run::tool("qemu-img").args(args).output() else {
        xtask::skip::skipped("qemu-img is not installed");
        return None;
    };
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{args:?}: {err}{said}");
    Some(said)
}

/// As [`qemu`], of one that may fail.
pub fn qemu_says(args: &[&str]) -> String {
    let out = xtask::run::tool("qemu-img").args(args).output().unwrap();
    String::from_utf8_lossy(&out.stdout).into_owned()
}

pub fn open(path: &Path, params: &str, read_only: bool) -> Result<Arc<dyn Device>, DeviceError> {
    register_qcow2(diorite_qcow2::open);
    let text = format!("{}?format=qcow2{params}", path.display());
    let options = OpenOptions::default().read_only(read_only);
    locator::open(&Locator::parse(&text)?, &options)
}

/// The seed where `DIORITE_SEED` gives none.
pub const SEED: u64 = 0x2545_f491_4f6c_dd1d;

pub fn buf(len: usize, byte: u8) -> Buf {
    let mut buf = Buf::zeroed(len);
    buf.as_mut_slice().fill(byte);
    buf
}

pub fn at(dir: &tempfile::TempDir, name: &str) -> (PathBuf, String) {
    let path = dir.path().join(name);
    let text = path.to_str().unwrap().to_owned();
    (path, text)
}

pub fn be64(bytes: &[u8], at: usize) -> usize {
    u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap()) as usize
}

/// The bytes of a file, where its tables are, and its counts of 16 bits.
pub struct Image {
    pub bytes: Vec<u8>,
    pub cluster: usize,
}

impl Image {
    pub fn read(path: &Path) -> Image {
        let bytes = fs::read(path).unwrap();
        let bits = u32::from_be_bytes(bytes[20..24].try_into().unwrap());
        Image {
            bytes,
            cluster: 1 << bits,
        }
    }

    /// The first table of counts, the first block of counts, the table of tables, its first table, the first entry of that for data.
    pub fn places(&self) -> [usize; 5] {
        let offset = 0x00ff_ffff_ffff_fe00;
        let counts = be64(&self.bytes, 48);
        let l1 = be64(&self.bytes, 40);
        let first = |table: usize, len: usize| {
            let entries = (0..len / 8).map(|n| table + n * 8);
            let mut taken = entries.filter(|at| be64(&self.bytes, *at) & offset != 0);
            taken.next().unwrap()
        };
        let entries = u32::from_be_bytes(self.bytes[36..40].try_into().unwrap()) as usize;
        let l2 = be64(&self.bytes, first(l1, entries * 8)) & offset;
        let block = be64(&self.bytes, counts);
        [counts, block, l1, l2, first(l2, self.cluster)]
    }

    /// Where the count of the cluster at an offset is; in the first block.
    pub fn count_of(&self, offset: usize) -> usize {
        let n = offset / self.cluster;
        assert!(n < self.cluster / 2, "the first block counts it");
        self.places()[1] + n * 2
    }
}

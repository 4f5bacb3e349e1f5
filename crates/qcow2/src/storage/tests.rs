//! Power cuts: what a file may be after one has tables that lead to its bytes only, and all that was flushed.
//!
//! The defect: the end of a file and a table that leads there became durable in any order, so after a cut a table led behind the end; and
//! a table of clusters could be durable before what it leads to, which then had the bytes of whatever was there before.

use super::{Shared, Watch, lock};
use crate::counts::repair;
use crate::device::disk;
use crate::disk::Disk;
use crate::header::{DIRTY, FEATURES_AT, Header, be64};
use crate::judge::judge;
use diorite_block::RunsBios;
use diorite_block::{Bio, BioOp, Buf};
use imago::file::File;
use imago::io_buffers::IoVector;
use imago::qcow2::Qcow2;
use imago::{FormatCreateBuilder, StorageOpenOptions};
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock, Mutex};
use xtask::rng::{Rng, seed_or};

/// What was done with a file, in order.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Write(u64, Vec<u8>),
    Sync,
}

pub(super) type Log = Arc<Mutex<Vec<Step>>>;

fn note(shared: &Shared, step: Step) {
    if let Some(log) = shared.log.get() {
        lock(log).push(step);
    }
}

pub(super) fn written(shared: &Shared, bytes: &IoVector<'_>, at: u64) {
    let mut copy = vec![0; bytes.len() as usize];
    bytes.copy_into_slice(&mut copy);
    note(shared, Step::Write(at, copy));
}

pub(super) fn zeroed(shared: &Shared, at: u64, len: u64) {
    note(shared, Step::Write(at, vec![0; len as usize]));
}

pub(super) fn synced(shared: &Shared) -> io::Result<()> {
    note(shared, Step::Sync);
    match shared.fails.swap(false, Ordering::SeqCst) {
        true => Err(io::Error::from_raw_os_error(5)),
        false => Ok(()),
    }
}

const SIZE: u64 = 6 << 20;
const BLOCK: u64 = 4096;
/// What a block is full of: half of each sector cannot be compressed.
fn pattern(byte: u8) -> &'static [u8] {
    static ALL: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| (0..=255).map(patterned).collect());
    &ALL[usize::from(byte)]
}

fn patterned(byte: u8) -> Vec<u8> {
    let mut dice = Rng::new(u64::from(byte) << 32 | 1);
    let mut block = vec![byte; BLOCK as usize];
    if byte != 0 {
        for sector in block.chunks_mut(512) {
            sector[..256].fill_with(|| dice.below(1 << 40) as u8);
        }
    }
    block
}

/// What free clusters hold that were in use before.
const STALE: u8 = 0xa5;

fn file(path: &Path) -> File {
    let open = fs::File::options().read(true).write(true).open(path);
    let options = StorageOpenOptions::new().write(true).filename(path);
    File::from_open_file(open.expect("a file"), options).expect("a file")
}

fn header(path: &Path) -> Header {
    let bytes = fs::read(path).expect("a file");
    Header::parse(&bytes[..bytes.len().min(65536)], bytes.len() as u64).expect("a header")
}

fn opened(path: &Path) -> Result<Disk, String> {
    let header = header(path);
    let host = fs::File::open(path).expect("a file");
    let judged = judge(&host, &header)?;
    Ok(disk(file(path), &header, Some(judged), None, None).expect("it was judged"))
}

fn run(disk: &Disk, mut bio: Bio) -> Buf {
    disk.run(&mut bio);
    bio.result.expect("the host's file works");
    bio.buf
}

/// What blocks may hold: the last one is what was written last, all of them may be there after a cut.
type Model = Vec<Vec<u8>>;

/// Writes to a disk, with flushes, and what was durable after which step.
fn written_disk(path: &Path, log: &Log, kind: Kind, dice: &mut Rng) -> Vec<(usize, Model)> {
    let disk = opened(path).expect("a new file");
    disk.below.log(log.clone());
    let blocks = kind.size() / BLOCK;
    let mut now: Model = (0..blocks).map(|block| vec![kind.first(block)]).collect();
    let mut all = Vec::new();
    for step in 0..160_u64 {
        all.push((lock(log).len(), now.clone()));
        let block = kind.block(step, dice);
        let byte = (step % 150) as u8 + 1;
        match dice.below(12) {
            0 => {
                run(&disk, Bio::flush(0));
                for values in &mut now {
                    values.drain(..values.len() - 1);
                }
            }
            1 => {
                now[block as usize].push(0);
                run(
                    &disk,
                    Bio::range(BioOp::WriteZeroes, block * BLOCK, BLOCK, 0),
                );
            }
            _ => {
                now[block as usize].push(byte);
                let mut buf = Buf::zeroed(BLOCK as usize);
                buf.as_mut_slice().copy_from_slice(pattern(byte));
                run(&disk, Bio::write(block * BLOCK, buf, 0));
            }
        }
    }
    all.push((lock(log).len(), now));
    all
}

/// The file after a cut behind a number of steps: what was synced, and any of the rest, of which the end may be lost.
fn cut(base: &[u8], steps: &[Step], dice: &mut Rng) -> Vec<u8> {
    let mut bytes = base.to_vec();
    let synced = steps.iter().rposition(|step| matches!(step, Step::Sync));
    let synced = synced.map_or(0, |at| at + 1);
    let mut durable = bytes.len();
    for (n, step) in steps.iter().enumerate() {
        if let Step::Write(at, written) = step {
            if n >= synced && dice.below(2) == 0 {
                continue;
            }
            let (at, end) = (*at as usize, *at as usize + written.len());
            bytes.resize(bytes.len().max(end), 0);
            bytes[at..end].copy_from_slice(written);
        }
        if n + 1 == synced {
            durable = bytes.len();
        }
    }
    if dice.below(2) == 0 {
        bytes.truncate(durable + dice.below((bytes.len() - durable) as u64 + 1) as usize);
    }
    bytes
}

/// Repairs a file as opening does, and compares the disk in it.
fn judged(path: &Path, model: &Model, what: &str) {
    let found = header(path);
    if found.is_dirty() {
        let host = fs::File::options().read(true).write(true).open(path);
        repair(&host.expect("a file"), &found).unwrap_or_else(|e| panic!("{what}: {e}"));
    }
    let said = xtask::run::tool("qemu-img")
        .args(["check", "-f", "qcow2"])
        .arg(path)
        .output();
    if let Ok(said) = said {
        let said = String::from_utf8_lossy(&said.stdout).into_owned()
            + &String::from_utf8_lossy(&said.stderr);
        assert!(!said.contains("ERROR"), "{what}: {said}");
    }
    let disk = opened(path).unwrap_or_else(|e| panic!("{what}: {e}"));
    let size = model.len() * BLOCK as usize;
    let read = run(&disk, Bio::read(0, Buf::zeroed(size), 0));
    for (n, block) in read.as_slice().chunks(BLOCK as usize).enumerate() {
        let is = |byte: &u8| block == pattern(*byte);
        // A block may be torn into the sectors of several writes.
        let sectors = |byte: &u8| -> Vec<bool> {
            let pairs = block.chunks(512).zip(pattern(*byte).chunks(512));
            pairs.map(|(found, of)| found == of).collect()
        };
        let each: Vec<Vec<bool>> = model[n].iter().map(sectors).collect();
        let torn = (0..8).all(|sector| each.iter().any(|of| of[sector]));
        assert!(
            model[n].iter().any(is) || torn,
            "{what}: block {n} is {}, of {:?}",
            block[0],
            model[n]
        );
    }
}

/// What a disk is before it is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    New,
    /// Free clusters in the file have older bytes.
    Stale,
    /// Blocks that are all the same, compressed.
    Compressed,
    /// The same, but only each second table of clusters is there.
    Gaps,
    /// So full that the table of counts is soon too small.
    Grows,
}

/// Blocks that one table of clusters leads to in a file with gaps: its clusters have 1 KiB.
const GAP: u64 = 32;
/// Bytes that a file which grows has before: a table of counts of one cluster of 512 bytes is for 8 MiB of file.
const FULL: u64 = 7820 << 10;

impl Kind {
    fn size(self) -> u64 {
        match self {
            Kind::Grows => 9 << 20,
            _ => SIZE,
        }
    }

    /// What a block holds before.
    fn first(self, block: u64) -> u8 {
        let is_there = match self {
            Kind::New | Kind::Stale => false,
            Kind::Compressed => true,
            Kind::Gaps => (block / GAP).is_multiple_of(2),
            Kind::Grows => block < FULL / BLOCK,
        };
        if is_there { 255 } else { 0 }
    }

    /// The block that is written in a step.
    fn block(self, step: u64, dice: &mut Rng) -> u64 {
        match self {
            Kind::New | Kind::Stale => dice.below(SIZE / BLOCK),
            // What is compressed shares a cluster with its neighbour, and all of them have to be overwritten until it is free.
            Kind::Compressed => step,
            Kind::Gaps if step % 4 == 3 => (step / 4 * 2 + 1) * GAP % (SIZE / BLOCK),
            Kind::Gaps => {
                let n = step - step / 4;
                n / GAP * 2 * GAP + n % GAP
            }
            Kind::Grows => FULL / BLOCK + step,
        }
    }

    /// Makes the file; false without the tool.
    fn make(self, path: &Path, cluster: usize) -> bool {
        if matches!(self, Kind::Compressed | Kind::Gaps) {
            let raw = path.with_extension("raw");
            let blocks = 0..SIZE / BLOCK;
            let whole: Vec<&[u8]> = blocks.map(|n| pattern(self.first(n))).collect();
            fs::write(&raw, whole.concat()).expect("a file");
            let mut convert = xtask::run::tool("qemu-img");
            convert.args(["convert", "-c", "-f", "raw", "-O", "qcow2", "-o"]);
            convert
                .arg(format!("cluster_size={cluster}"))
                .arg(&raw)
                .arg(path);
            if convert.status().is_err() {
                xtask::skip::skipped("qemu-img is not installed");
                return false;
            }
            return true;
        }
        fs::write(path, []).expect("a file");
        let builder = Qcow2::<File>::create_builder(file(path)).size(self.size());
        builder.cluster_size(cluster).create().expect("a disk");
        if self == Kind::Grows {
            let disk = opened(path).expect("a new file");
            let mut buf = Buf::zeroed(FULL as usize);
            let blocks = buf.as_mut_slice().chunks_mut(BLOCK as usize);
            blocks.for_each(|block| block.copy_from_slice(pattern(255)));
            run(&disk, Bio::write(0, buf, 0));
        }
        if self == Kind::Stale {
            let end = fs::metadata(path).expect("a file").len();
            let end = end.next_multiple_of(cluster as u64);
            let host = fs::File::options().write(true).open(path).expect("a file");
            let stale = vec![STALE; SIZE as usize / 2];
            host.write_all_at(&stale, end).expect("room");
        }
        true
    }
}

/// Behind which step a cut comes: if the header is written, soon behind that.
fn when(steps: &[Step], dice: &mut Rng) -> usize {
    let is_header = |step: &Step| matches!(step, Step::Write(0..512, _));
    match steps.iter().position(is_header) {
        Some(at) => (at + 1 + dice.below(24) as usize).min(steps.len()),
        None => dice.below(steps.len() as u64 + 1) as usize,
    }
}

#[test]
fn after_a_power_cut_tables_lead_to_bytes() {
    let number = |name: &str, otherwise: u64| {
        let given = std::env::var(name).ok().and_then(|s| s.parse().ok());
        given.unwrap_or(otherwise)
    };
    let seed = seed_or("power cuts", 0x2545_f491_4f6c_dd1d);
    let mut dice = Rng::new(seed);
    // In memory, where a sync costs nothing.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let dir = dir.expect("a directory");
    let (path, state) = (dir.path().join("disk"), dir.path().join("state"));
    for (cluster, kind) in [
        (65536, Kind::New),
        (4096, Kind::New),
        (4096, Kind::Stale),
        (512, Kind::Stale),
        (4096, Kind::Compressed),
        (1024, Kind::Gaps),
        (512, Kind::Grows),
    ] {
        if !kind.make(&path, cluster) {
            continue;
        }
        let base = fs::read(&path).expect("a file");
        let log = Log::default();
        let durable = written_disk(&path, &log, kind, &mut dice);
        let steps = lock(&log).clone();
        let is_header = |step: &Step| matches!(step, Step::Write(0..512, _));
        assert_eq!(steps.iter().any(is_header), kind == Kind::Grows);
        for round in 0..number("DIORITE_STATES", 10) {
            let at = when(&steps, &mut dice);
            let mut bytes = cut(&base, &steps[..at], &mut dice);
            // The bit is durable before the first write.
            let features = be64(&bytes, FEATURES_AT as usize) | DIRTY;
            bytes[FEATURES_AT as usize..][..8].copy_from_slice(&features.to_be_bytes());
            fs::write(&state, &bytes).expect("a file");
            // What was flushed before the cut, and all that was requested since.
            let before = durable
                .iter()
                .rposition(|(n, _)| *n <= at)
                .expect("the first is 0");
            let model = &durable[(before + 1).min(durable.len() - 1)].1;
            let mut model = model.clone();
            for (values, old) in model.iter_mut().zip(&durable[before].1) {
                values.extend(old);
            }
            judged(
                &state,
                &model,
                &format!("clusters of {cluster}, {kind:?}, round {round}, cut at {at}"),
            );
        }
    }
}

impl Watch {
    /// The next sync fails, once.
    fn fail_sync(&self) {
        self.0.fails.store(true, Ordering::SeqCst);
    }

    /// Notes what is done with the file from now on.
    fn log(&self, log: Log) {
        let _ = self.0.log.set(log);
    }
}

mod order;

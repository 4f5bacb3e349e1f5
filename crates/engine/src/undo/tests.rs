//! Undo files against a device of which each write is seen, and against changes of every byte.

use super::form::{Header, Sizes};
use super::{Undo, UndoFile};
use crate::error::Error;
use crate::testing::Rng;
use diorite_block::{
    Bio, Blocking, Buf, Calls, CallsDevice, Device, Fault, FaultDevice, FaultPlan, Locator,
    MemDevice, When,
};
use diorite_block::{BioErrorKind, BioOp};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier, Mutex, RwLock};

const SIZE: usize = 256 << 10;

/// A device that shows each write, before it is done, what the undo file would put back.
struct Seen {
    bytes: Arc<RwLock<Vec<u8>>>,
    before: Vec<u8>,
    undo: PathBuf,
}

impl Calls for Seen {
    fn size(&self) -> u64 {
        SIZE as u64
    }

    fn read(&self, pos: u64, out: &mut [u8]) -> std::io::Result<()> {
        let pos = pos as usize;
        out.copy_from_slice(&self.bytes.read().unwrap()[pos..pos + out.len()]);
        Ok(())
    }

    fn write(&self, pos: u64, data: &[u8]) -> std::io::Result<()> {
        let mut bytes = self.bytes.write().unwrap();
        bytes[pos as usize..][..data.len()].copy_from_slice(data);
        // The machine stops here.
        assert_eq!(undone(&self.undo, &bytes), self.before);
        Ok(())
    }

    fn flush(&self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What these bytes are after the undo file is put back, as it is now.
fn undone(undo: &Path, bytes: &[u8]) -> Vec<u8> {
    let file = UndoFile::open(undo).unwrap();
    let mem = Arc::new(MemDevice::new(bytes.len() as u64));
    mem.write_at(0, bytes);
    let device: Arc<dyn Device> = mem.clone();
    file.judge(&device, bytes.len() as u64).unwrap();
    file.restore(&device, |_| (), || Ok::<_, Error>(()))
        .unwrap();
    let mut out = vec![0; bytes.len()];
    mem.read_at(0, &mut out);
    out
}

fn random(len: usize, rng: &mut Rng) -> Vec<u8> {
    (0..len).map(|_| rng.next() as u8).collect()
}

fn write(device: &Blocking, pos: u64, bytes: &[u8]) -> bool {
    let mut buf = Buf::zeroed(bytes.len());
    buf.copy_in(0, bytes);
    device.run(Bio::write(pos, buf, 0)).result.is_ok()
}

fn undo_at(path: &Path) -> Undo {
    Undo::new(Locator::Mem { size: SIZE as u64 }, path)
}

/// Whenever the machine stops, the undo file has the old device; in the end it says that it is finished; it goes on in a second session.
#[test]
fn after_each_write_the_undo_file_has_the_old_device() {
    let mut rng = Rng::from_env("undo");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("undo");
    let before = random(SIZE, &mut rng);
    let bytes = Arc::new(RwLock::new(before.clone()));
    for session in 0..2 {
        let undo = undo_at(&path);
        let seen = Seen {
            bytes: bytes.clone(),
            before: before.clone(),
            undo: path.clone(),
        };
        let guarded = undo
            .guard(Arc::new(CallsDevice::new("seen", seen)))
            .unwrap();
        let device = Blocking::new(guarded);
        for n in 0..40 {
            let len = 512 * (1 + rng.below(24));
            let pos = 512 * rng.below((SIZE as u64 - len) / 512);
            let data = random(len as usize, &mut rng);
            assert!(write(&device, pos, &data), "session {session}, write {n}");
            let doubts = UndoFile::open(&path).unwrap().doubts().to_vec();
            assert!(doubts[0].contains("not finished"), "{doubts:?}");
        }
        drop(device);
        assert!(undo.failure().is_none());
        assert!(UndoFile::open(&path).unwrap().doubts().is_empty());
    }
    let now = bytes.read().unwrap().clone();
    assert_ne!(now, before);
    assert_eq!(undone(&path, &now), before);
}

/// A device whose first read ends when the gate opens; it notes where it is read.
#[derive(Clone)]
struct Gated {
    gate: Arc<Barrier>,
    reads: Arc<Mutex<Vec<u64>>>,
}

impl Calls for Gated {
    fn size(&self) -> u64 {
        SIZE as u64
    }

    fn read(&self, pos: u64, out: &mut [u8]) -> std::io::Result<()> {
        // That of the superblock for the undo file's copy is the first.
        let is_first = {
            let mut reads = self.reads.lock().unwrap();
            reads.push(pos);
            reads.len() == 1
        };
        if is_first {
            self.gate.wait();
        }
        out.fill(1);
        Ok(())
    }

    fn write(&self, _: u64, _: &[u8]) -> std::io::Result<()> {
        Ok(())
    }

    fn flush(&self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The defect: each of those who waited had two syncs of its own. They are one group, in the order of the device.
#[test]
fn those_who_wait_are_kept_together() {
    let dir = tempfile::tempdir().unwrap();
    let undo = undo_at(&dir.path().join("undo"));
    let gated = Gated {
        gate: Arc::new(Barrier::new(2)),
        reads: Arc::default(),
    };
    let device: Arc<dyn Device> = Arc::new(CallsDevice::new("gated", gated.clone()));
    let keep = |pos: u64| {
        let blocking = Blocking::new(device.clone());
        undo.keep(&blocking, pos..pos + 4096).unwrap();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| keep(131_072));
        while gated.reads.lock().unwrap().is_empty() {
            std::thread::yield_now();
        }
        for n in 0..6 {
            let keep = &keep;
            scope.spawn(move || keep((8 - n as u64) * 8192));
            while undo.waiting() < n + 1 {
                std::thread::yield_now();
            }
        }
        gated.gate.wait();
    });
    let reads = gated.reads.lock().unwrap()[1..].to_vec();
    assert_eq!(reads[0], 131_072);
    assert_eq!(reads.len(), 7, "each once: {reads:?}");
    assert!(reads[1..].is_sorted(), "{reads:?}");
    assert_eq!(undo.waiting(), 0);
}

/// With many writers at once, too, nothing is overwritten that is not kept.
#[test]
fn writers_at_once_overwrite_nothing_that_is_not_kept() {
    let mut rng = Rng::from_env("undo at once");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("undo");
    let before = random(SIZE, &mut rng);
    let bytes = Arc::new(RwLock::new(before.clone()));
    let seen = Seen {
        bytes: bytes.clone(),
        before: before.clone(),
        undo: path.clone(),
    };
    let undo = undo_at(&path);
    let guarded = undo
        .guard(Arc::new(CallsDevice::new("seen", seen)))
        .unwrap();
    std::thread::scope(|scope| {
        for n in 0..4 {
            let device = Blocking::new(guarded.clone());
            let mut rng = Rng::from_env(&format!("undo at once {n}"));
            scope.spawn(move || {
                for _ in 0..8 {
                    let len = 512 * (1 + rng.below(24));
                    let pos = 512 * rng.below((SIZE as u64 - len) / 512);
                    assert!(write(&device, pos, &random(len as usize, &mut rng)));
                }
            });
        }
    });
    drop(guarded);
    assert!(undo.failure().is_none());
    let now = bytes.read().unwrap().clone();
    assert_eq!(undone(&path, &now), before);
    assert!(UndoFile::open(&path).unwrap().doubts().is_empty());
}

/// The last write of an undo may be torn: what is half old and half new is put back without a doubt, and what is neither is not.
#[test]
fn a_torn_superblock_is_no_doubt() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("undo");
    let mem = Arc::new(MemDevice::new(SIZE as u64));
    mem.write_at(0, &[1; 8192]);
    let below: Arc<dyn Device> = mem.clone();
    let device = Blocking::new(undo_at(&path).guard(below.clone()).unwrap());
    assert!(write(&device, 0, &[2; 4096]));
    drop(device);
    let file = UndoFile::open(&path).unwrap();
    let doubts = || file.judge(&below, SIZE as u64).unwrap();
    for (first, second, is_ours) in [
        (2, 2, true),
        (1, 2, true),
        (2, 1, true),
        (1, 1, false),
        (1, 3, false),
    ] {
        mem.write_at(1024, &[first; 512]);
        mem.write_at(1536, &[second; 512]);
        assert_eq!(doubts().is_empty(), is_ours, "{first} and {second}");
    }
}

/// Lengths that a change announced are known before and after it is made.
#[test]
fn an_announced_length_is_undone_in_both_states() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("undo");
    let mem: Arc<dyn Device> = Arc::new(MemDevice::new(SIZE as u64));
    let undo = undo_at(&path);
    let guarded = undo.guard(mem).unwrap();
    undo.before_size(2 * SIZE as u64).unwrap();
    let (size, file) = (SIZE as u64, UndoFile::open(&path).unwrap());
    for (now, then) in [(size, None), (2 * size, Some(size)), (3 * size, None)] {
        assert_eq!(file.old_length(now), then, "{now}");
    }
    // Its length is as before, and nothing was written: there is nothing to undo.
    drop(guarded);
    assert!(!path.exists());
    // A second change of a size that the first one made.
    let sizes = Sizes {
        before: size,
        after: size / 2,
        from: 2 * size,
    };
    let header = Header {
        sizes: Some(sizes),
        ..file.header().clone()
    };
    let mut bytes = vec![0; 4 * 4096];
    bytes[..512].copy_from_slice(&header.bytes());
    std::fs::write(&path, bytes).unwrap();
    let file = UndoFile::open(&path).unwrap();
    for now in [2 * size, size / 2] {
        assert_eq!(file.old_length(now), Some(size), "{now}");
    }
    assert_eq!(file.old_length(size), None);
}

/// A FIFO that is put in the place of an undo file after it was looked at is refused, and not waited for.
#[test]
fn a_fifo_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    for write in [false, true] {
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(write).create(write);
        let error = super::file::opened(&path, &mut options, "opened").unwrap_err();
        assert!(error.to_string().contains("no regular file"), "{error}");
    }
}

/// What cannot be read of the device, and what cannot be written of the undo file, are told apart; neither lets a write through.
#[test]
fn what_is_not_kept_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let mem = Arc::new(MemDevice::new(SIZE as u64));
    let all = When::Span {
        first: 0,
        count: u64::MAX,
    };
    let reads = Fault::new(BioErrorKind::Io, all).on(BioOp::Read);
    let bad = FaultDevice::new(mem.clone(), FaultPlan::new(vec![reads], 1));
    let places: [(Arc<dyn Device>, PathBuf, &str); 2] = [
        (Arc::new(bad), dir.path().join("undo"), "cannot be read"),
        (mem.clone(), dir.path().join("none/undo"), "cannot be made"),
    ];
    for (below, path, words) in places {
        let undo = undo_at(&path);
        let device = Blocking::new(undo.guard(below).unwrap());
        assert!(!write(&device, 8192, &[1; 4096]));
        assert!(!write(&device, 65536, &[1; 4096]));
        drop(device);
        let failure = undo.failure().unwrap().to_string();
        assert!(failure.contains(words), "{failure}");
    }
    let mut bytes = vec![1; SIZE];
    mem.read_at(0, &mut bytes);
    assert!(bytes.iter().all(|byte| *byte == 0));
}

/// Every changed byte is noticed, and a file that was cut is refused; nothing panics.
#[test]
fn what_was_changed_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("undo");
    let mem: Arc<dyn Device> = Arc::new(MemDevice::new(SIZE as u64));
    let device = Blocking::new(undo_at(&path).guard(mem.clone()).unwrap());
    for pos in [0, 8192, 40960] {
        assert!(write(&device, pos, &[pos as u8 | 1; 4096]));
    }
    drop(device);
    let whole = std::fs::read(&path).unwrap();
    let refused = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let judged = UndoFile::open(&path).and_then(|file| file.judge(&mem, SIZE as u64));
        judged.map_or(true, |doubts| !doubts.is_empty())
    };
    assert!(!refused(&whole));
    // Behind the header and behind the copy there is nothing.
    let counted = (0..512).chain(4096..5120).chain(8192..whole.len());
    for at in counted.step_by(7).chain(0..72).chain(8192..8260) {
        for bit in [1, 0x80] {
            let mut bytes = whole.clone();
            bytes[at] ^= bit;
            assert!(refused(&bytes), "byte {at}, bit {bit}");
        }
    }
    for len in [
        0,
        8,
        511,
        512,
        4096,
        5000,
        8192,
        9000,
        12288,
        whole.len() - 1,
    ] {
        assert!(refused(&whole[..len]), "cut to {len}");
    }
}

/// A key that would read or write far away, or over another, is refused, whatever checksums say.
#[test]
fn impossible_keys_are_refused() {
    use super::form::{HEADER, Key, key_bytes};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("undo");
    let key = |block, len| Key { block, crc: 0, len };
    let cases = [
        (vec![key(u64::MAX / 2, 4096)], "cannot be"),
        (vec![key(0, 0)], "cannot be"),
        (vec![key(0, u32::MAX)], "cannot be"),
        (vec![key(0, 1 << 20)], "was cut"),
        (vec![key(1, 8192), key(2, 4096)], "overlap"),
        (vec![key(1, 4096), key(1, 4096)], "overlap"),
    ];
    for (keys, words) in cases {
        let mut header = Header {
            keys: keys.len() as u64,
            super_block: 1,
            key_block: 2,
            block_size: 4096,
            fs_block_size: 4096,
            super_crc: 0,
            finished: true,
            unknown: 0,
            offset: None,
            sizes: None,
        };
        let mut bytes = vec![0; 10 * 4096];
        bytes[8192..12288].copy_from_slice(&key_bytes(&keys, 4096));
        bytes[..HEADER].copy_from_slice(&header.bytes());
        std::fs::write(&path, &bytes).unwrap();
        let error = UndoFile::open(&path).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        header.keys = u64::MAX;
        for (first, copy) in [(2, u64::MAX / 2), (u64::MAX / 4096, 1), (2, 1)] {
            (header.key_block, header.super_block) = (first, copy);
            bytes[..HEADER].copy_from_slice(&header.bytes());
            std::fs::write(&path, &bytes).unwrap();
            assert!(UndoFile::open(&path).is_err());
        }
    }
}

/// A device of half a block more than whole ones, to which somebody has appended since: what they wrote stays.
#[test]
fn nothing_is_written_behind_the_old_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("undo");
    let short = 65536 + 512;
    let mem: Arc<dyn Device> = Arc::new(MemDevice::new(short));
    let device = Blocking::new(undo_at(&path).guard(mem).unwrap());
    assert!(write(&device, 65536, &[1; 512]));
    drop(device);
    let file = UndoFile::open(&path).unwrap();
    let mem = Arc::new(MemDevice::new(short + 8192));
    mem.write_at(0, &[9; 65536 + 512 + 8192]);
    let device: Arc<dyn Device> = mem.clone();
    file.judge(&device, short + 8192).unwrap();
    file.restore(&device, |_| (), || Ok::<_, Error>(()))
        .unwrap();
    let mut found = vec![0; 8192 + 1024];
    mem.read_at(65536 - 512, &mut found);
    assert!(found[..512] == [9; 512] && found[512..1024] == [0; 512]);
    assert!(found[1024..].iter().all(|byte| *byte == 9));
}

/// Of a device that is too short for a piece, or has larger sectors, that is said before the undo file is read.
#[test]
fn a_piece_without_a_place_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("undo");
    let mem: Arc<dyn Device> = Arc::new(MemDevice::new(SIZE as u64));
    let device = Blocking::new(undo_at(&path).guard(mem.clone()).unwrap());
    assert!(write(&device, 8192, &[1; 4096]));
    drop(device);
    // The piece is there, and not what its checksum says: who reads it finds that.
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[12288..].fill(7);
    std::fs::write(&path, &bytes).unwrap();
    let file = UndoFile::open(&path).unwrap();
    let error = file.judge(&mem, 8192).unwrap_err().to_string();
    assert!(error.contains("before a piece at 8192"), "{error}");
    let error = file.placed(&file.pieces()[0], SIZE as u64, 16384);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("sectors of 16384"), "{error}");
}

/// Sizes count only under a right checksum, and if no piece is behind them.
#[test]
fn sizes_that_cannot_be_are_not_used() {
    use super::form::HEADER;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("undo");
    let mem: Arc<dyn Device> = Arc::new(MemDevice::new(SIZE as u64));
    let device = Blocking::new(undo_at(&path).guard(mem).unwrap());
    assert!(write(&device, 65536, &[1; 4096]));
    drop(device);
    let file = UndoFile::open(&path).unwrap();
    assert_eq!(file.sizes(), Some((SIZE as u64, SIZE as u64)));
    let whole = std::fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    damaged[456] ^= 1;
    let mut hostile = whole.clone();
    let mut header = file.header().clone();
    let after = SIZE as u64;
    header.sizes = Some(Sizes {
        before: 8192,
        after,
        from: 0,
    });
    hostile[..HEADER].copy_from_slice(&header.bytes());
    for (bytes, words) in [(damaged, "checksum"), (hostile, "pieces behind")] {
        std::fs::write(&path, bytes).unwrap();
        let file = UndoFile::open(&path).unwrap();
        assert_eq!(file.sizes(), None);
        let doubts = file.doubts().join("; ");
        assert!(doubts.contains(words), "{doubts}");
    }
}

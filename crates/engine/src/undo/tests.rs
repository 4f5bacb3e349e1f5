//! Undo files against a device of which each write is seen, and against changes of every byte.

use super::{Undo, UndoFile};
use crate::testing::Rng;
use diorite_block::{
    Bio, Blocking, Buf, Calls, CallsDevice, Device, Fault, FaultDevice, FaultPlan, Locator,
    MemDevice, When,
};
use diorite_block::{BioErrorKind, BioOp};
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

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
    file.restore(&device, |_| ()).unwrap();
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
    use super::form::{HEADER, Header, Key, key_bytes};
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
    file.restore(&device, |_| ()).unwrap();
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
    header.sizes = Some((8192, SIZE as u64));
    hostile[..HEADER].copy_from_slice(&header.bytes());
    for (bytes, words) in [(damaged, "checksum"), (hostile, "pieces behind")] {
        std::fs::write(&path, bytes).unwrap();
        let file = UndoFile::open(&path).unwrap();
        assert_eq!(file.sizes(), None);
        let doubts = file.doubts().join("; ");
        assert!(doubts.contains(words), "{doubts}");
    }
}

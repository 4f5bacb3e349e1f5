//! Recovery against e2fsck: logs made by debugfs and by the running kernel, undamaged and damaged.
//!
//! `e2fsck -E journal_only` replays a copy. What diorite replays in memory, and what it writes home, must be equal to it in every
//! block except the journal's own and the superblock. `DIORITE_RECOVERY_FLIPS` sets how many damaged logs are tried.
//!
//! | file | what is recovered |
//! |---|---|
//! | `whole` | undamaged logs: made by debugfs, and left by the kernel |
//! | `damaged` | damaged logs |
//! | `states` | states of the superblock and the journal, and power cuts during recovery |
//! | `sizes` | logs with blocks behind the end of the volume |
//! | `torn` | superblocks that were half written, and have no copy |
//! | `apart` | a journal on a device of its own |
//! | `fast` | fast commits, undamaged and truncated anywhere |

mod apart;
mod damaged;
mod fast;
mod sizes;
mod states;
mod torn;
mod whole;

use crate::common::log::Log;
use crate::common::run;
use crate::common::stage::{Stage, mem_of};
use diorite::{Error, OpenOptions, Volume};
use diorite_block::record::Event;
use diorite_block::{Blocking, Buf, MemDevice, RecordDevice, SimOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An image after recovery, and the notes or output of the recovery.
struct After {
    bytes: Vec<u8>,
    said: String,
}

/// Reads the volume's blocks as a reader sees them, with the log replayed in memory.
fn in_memory(bytes: &[u8]) -> Result<After, Error> {
    let device = Arc::new(mem_of(bytes));
    let volume = Volume::open_device(device.clone(), &OpenOptions::default())?;
    let blocking = Blocking::new(volume.device().clone());
    let mut out = Vec::new();
    while out.len() < bytes.len() {
        let len = (bytes.len() - out.len()).min(1 << 20);
        let buf = blocking.read(out.len() as u64, Buf::zeroed(len)).unwrap();
        out.extend_from_slice(buf.as_slice());
    }
    assert_eq!(
        all_of(&device, bytes.len()),
        bytes,
        "reading wrote something"
    );
    let said = volume.notes().join("\n");
    Ok(After { bytes: out, said })
}

fn all_of(device: &MemDevice, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    device.read_at(0, &mut out);
    out
}

/// Opens the volume for writing. Returns what is on the device then.
fn on_disk(bytes: &[u8]) -> Result<After, Error> {
    let device = Arc::new(mem_of(bytes));
    let opened = Volume::open_device(device.clone(), &OpenOptions::writable());
    let out = all_of(&device, bytes.len());
    let volume = match opened {
        Ok(volume) => volume,
        Err(e) => {
            assert_eq!(out, bytes, "a refused volume was changed: {e}");
            return Err(e);
        }
    };
    let said = volume.notes().join("\n");
    volume.close().unwrap();
    let again = Volume::open_device(device, &OpenOptions::writable()).unwrap();
    assert!(!again.notes().join("\n").contains("replayed"));
    Ok(After { bytes: out, said })
}

/// The result of e2fsck on a copy.
fn by_e2fsck(dir: &Path, bytes: &[u8]) -> After {
    let copy = dir.join("judge");
    std::fs::write(&copy, bytes).unwrap();
    let out = xtask::run::tool("e2fsck")
        .args(["-E", "journal_only", "-y", copy.to_str().unwrap()])
        .output()
        .unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    let bytes = std::fs::read(&copy).unwrap();
    After { bytes, said }
}

/// Asserts that all blocks are equal except those of the journal and the superblock.
fn same(log: &Log, mine: &[u8], theirs: &[u8], label: &str) {
    assert_eq!(mine.len(), theirs.len(), "{label}");
    let size = log.block;
    let blocks = mine.chunks(size).zip(theirs.chunks(size)).enumerate();
    for (n, (mut a, mut b)) in blocks {
        if log.is_journal(n as u64) {
            continue;
        }
        if n == 1024 / size {
            // The superblock fills the block, or follows the boot block in it.
            if size == 1024 {
                continue;
            }
            assert_eq!(a[..1024], b[..1024], "{label}: the boot block");
            (a, b) = (&a[2048..], &b[2048..]);
        }
        assert!(a == b, "{label}: block {n} differs");
    }
}

/// Compares both ways of recovery with e2fsck's, for an undamaged log.
fn compare(dir: &Path, image: &[u8], label: &str) -> After {
    let log = Log::of(dir, image);
    let theirs = by_e2fsck(dir, image);
    let memory = in_memory(image).unwrap_or_else(|e| panic!("{label}: {e}"));
    assert!(
        memory.said.contains("the journal was replayed in memory"),
        "{label}: {}",
        memory.said
    );
    same(&log, &memory.bytes, &theirs.bytes, label);
    let disk = on_disk(image).unwrap_or_else(|e| panic!("{label}: {e}"));
    assert!(
        disk.said.contains("the journal was replayed: "),
        "{label}: {}",
        disk.said
    );
    same(&log, &disk.bytes, &theirs.bytes, label);
    let end = |bytes: &[u8]| Log::of(dir, bytes).position();
    assert_eq!(
        end(&disk.bytes),
        end(&theirs.bytes),
        "{label}: where the log stands"
    );
    disk
}

fn mke2fs(dir: &Path, args: &[&str], size: &str) -> PathBuf {
    let path = dir.join("image");
    let _ = std::fs::remove_file(&path);
    let all = [
        &["-q", "-F", "-t", "ext4"],
        args,
        &[path.to_str().unwrap(), size],
    ]
    .concat();
    run("mke2fs", &all);
    path
}

/// Opens the image for writing on a disk with a volatile cache. Returns what recovery changed there.
fn recovered(dir: &Path, image: &[u8]) -> Vec<Event> {
    let path = dir.join("disk");
    std::fs::write(&path, image).unwrap();
    let disk = SimOptions::parse("0,cache=volatile,fua=no").unwrap();
    let device = Arc::new(RecordDevice::new(Stage::sim(&path, disk).device));
    Volume::open_device(device.clone(), &OpenOptions::writable()).unwrap();
    device.log()
}

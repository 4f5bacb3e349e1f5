//! What it is: an aged volume, and changes of its size.
//! Input: a seed. Output: the image before, the log of the device, what was requested and acknowledged. Files lie in pieces everywhere;
//! they are made and removed between the changes, and by two threads while the volume grows. Invariants: behind the end of the volume the
//! device has stale bytes; each file is acknowledged by its own sync. Limits: images of 10 to 64 MiB; a smaller size that the files have no
//! room for is no error, and the volume stays as it is.

use super::history::{Size, Told, Written};
use crate::bed::scratch;
use crate::campaign::disk;
use crate::error::{Result, at};
use crate::rng::Rng;
use crate::stamp::STALE;
use diorite::{Error, OpenOptions, Volume};
use diorite_block::RecordDevice;
use diorite_block::record::Event;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use xtask::run;

const MIB: u64 = 1 << 20;

/// Options of mke2fs, and the least and the most MiB. Small groups, so that descriptors take blocks that were kept for them.
const SHAPES: [(&str, u64, u64); 13] = [
    ("-t ext4 -b 1024 -g 1024 -N 3000 -J size=1", 12, 40),
    (
        "-t ext4 -b 1024 -g 2048 -N 3000 -O ^metadata_csum,uninit_bg,^flex_bg",
        14,
        44,
    ),
    ("-t ext4 -b 2048 -g 2048 -N 3000", 20, 64),
    ("-t ext4 -b 4096 -g 1024 -N 3000", 32, 64),
    ("-t ext3 -b 1024 -g 1024 -N 3000 -J size=1", 12, 40),
    (
        "-t ext4 -b 1024 -g 1024 -N 3000 -O meta_bg,^resize_inode",
        12,
        40,
    ),
    ("-t ext4 -b 1024 -O bigalloc -C 4096 -N 3000", 14, 64),
    ("-t ext4 -b 1024 -g 1024 -N 3000 -O sparse_super2", 12, 40),
    (
        "-t ext4 -b 1024 -N 3000 -O orphan_file,inline_data -I 256",
        12,
        48,
    ),
    ("-t ext4 -b 1024 -g 1024 -G 4 -N 3000 -O ^64bit", 12, 40),
    ("-t ext4 -b 1024 -g 1024 -N 3000 -O ^has_journal", 12, 40),
    (
        "-t ext4 -b 1024 -g 1024 -N 3000 -J size=1 -O ^resize_inode",
        12,
        40,
    ),
    (
        "-t ext4 -b 1024 -g 1024 -N 3000 -O ^resize_inode,^64bit,^flex_bg,orphan_file",
        12,
        40,
    ),
];

/// How often the size changes.
const CHANGES: u64 = 3;
/// Threads that write while it grows, and how many files each makes at most.
const WRITERS: u64 = 2;
const MOST_FILES: u32 = 12;

/// A workload that has run.
pub struct Ran {
    /// The options of mke2fs.
    pub shape: &'static str,
    /// The device before.
    pub image: Vec<u8>,
    /// What happened to it.
    pub log: Vec<Event>,
    /// What was requested and acknowledged.
    pub told: Told,
}

impl std::fmt::Debug for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ran")
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

/// The volume while it is written.
struct Work {
    device: RecordDevice,
    files: Mutex<Vec<Written>>,
    names: AtomicU32,
    sizes: Vec<Size>,
    /// Bytes per block, and in a group: a last group may be left out.
    group_bytes: u64,
    /// Whether descriptors get another size between the changes.
    may_convert: bool,
}

/// Runs a workload.
///
/// # Errors
/// A tool is missing, the host has no room, or the engine fails although the device works.
pub fn run(number: usize, seed: u64) -> Result<Ran> {
    let mut rng = Rng::new(seed);
    let (shape, least, most) = SHAPES[number % SHAPES.len()];
    let mib = least + rng.below(most - least);
    let mut image = made(shape, mib)?;
    image.resize((most * MIB) as usize, STALE);
    let aged = aged(&image, &mut rng)?;
    let (image, files) = aged;
    let device = RecordDevice::new(Arc::new(disk(&image, &mut rng)?));
    let sb = open(&device, &mut rng)?;
    let geometry = sb.superblock().geometry();
    let (bytes, group_bytes) = (
        geometry.volume_bytes(),
        u64::from(geometry.blocks_per_group()) << geometry.block_bits(),
    );
    let journal = sb.superblock().journal() != diorite_format::superblock::JournalPlace::None;
    sb.close()?;
    let first = Size {
        bytes: (bytes, bytes),
        moves: false,
        converts: false,
        asked: 0,
        acked: 0,
    };
    let mut work = Work {
        names: AtomicU32::new(0),
        files: Mutex::new(files),
        sizes: vec![first],
        device,
        group_bytes,
        may_convert: journal && shape.contains("ext4"),
    };
    for _ in 0..CHANGES {
        let volume = open(&work.device, &mut rng)?;
        work.churn(&volume, &mut rng)?;
        let to = (least * MIB) + rng.below((most - least) * MIB);
        let now = volume.superblock().geometry().volume_bytes();
        let moves = matches!(volume.grown_bytes(to.max(now)), Err(Error::NotSupported(_)));
        match to > now {
            true if moves => work.enlarge(volume, to)?,
            true => work.grow(volume, to, &mut rng)?,
            false => work.shrink(volume, to)?,
        }
        if work.may_convert && rng.one_in(3) {
            let volume = open(&work.device, &mut rng)?;
            work.convert(volume)?;
        }
    }
    let files = work.files.into_inner();
    Ok(Ran {
        shape,
        image,
        log: work.device.log(),
        told: Told {
            files: files.unwrap_or_else(PoisonError::into_inner),
            sizes: work.sizes,
            journal,
        },
    })
}

fn made(shape: &str, mib: u64) -> Result<Vec<u8>> {
    let dir = scratch()?;
    let path = dir.path().join("image");
    let size = format!("{mib}M");
    let name = path.display().to_string();
    let mut args = vec!["-q", "-F"];
    args.extend(shape.split_whitespace());
    args.extend([name.as_str(), &size]);
    run::run("mke2fs", &args)?;
    std::fs::read(&path).map_err(at(&path))
}

/// Fills the volume with files whose pieces lie between each other, and takes some away.
fn aged(image: &[u8], rng: &mut Rng) -> Result<(Vec<u8>, Vec<Written>)> {
    let device = Arc::new(diorite_block::MemDevice::try_new(image.len() as u64)?);
    device.write_at(0, image);
    let volume = Volume::open_device(device.clone(), &OpenOptions::writable())?;
    let mut files: Vec<Written> = Vec::new();
    for n in 0..7 {
        volume.mkdir(&format!("/d{n}"), 0o755)?;
    }
    for round in 0..4 {
        for n in 0..25 {
            let file = Written {
                path: format!("/d{}/f{round}-{n}", n % 7),
                seed: rng.next(),
                len: rng.below(40_000) as usize,
                acked: 0,
                removed: None,
            };
            let open = volume.create(&file.path, 0o644)?;
            let mut pos = 0;
            for piece in file.contents().chunks(5000) {
                open.write_bytes(pos, piece)?;
                pos += piece.len() as u64;
                if n % 3 == 0 {
                    open.sync_data()?;
                }
            }
            files.push(file);
        }
        let mut stay = Vec::new();
        for file in files {
            match rng.below(3) {
                0 => volume.unlink(&file.path)?,
                _ => stay.push(file),
            }
        }
        files = stay;
    }
    volume.close()?;
    let mut aged = vec![0; image.len()];
    device.read_at(0, &mut aged);
    Ok((aged, files))
}

fn open(device: &RecordDevice, rng: &mut Rng) -> Result<Volume> {
    let options = OpenOptions::writable()
        .workers(2)
        .commit_interval(Duration::from_millis(*rng.pick(&[1, 20, 5000])));
    Ok(Volume::open_device(Arc::new(device.clone()), &options)?)
}

impl Work {
    /// Makes some files, and removes some.
    fn churn(&self, volume: &Volume, rng: &mut Rng) -> Result<()> {
        for _ in 0..6 {
            if !self.write(volume, rng)? {
                break;
            }
        }
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        for file in files.iter_mut() {
            if file.removed.is_none() && rng.one_in(6) {
                file.removed = Some(self.device.mark(0));
                volume.unlink(&file.path)?;
            }
        }
        drop(files);
        Ok(volume.sync()?)
    }

    /// Writes a file, durably. False if there is no space.
    fn write(&self, volume: &Volume, rng: &mut Rng) -> Result<bool> {
        let number = self.names.fetch_add(1, Ordering::Relaxed);
        let mut file = Written {
            path: format!("/d{}/n{number}", number % 7),
            seed: rng.next(),
            len: rng.below(60_000) as usize,
            acked: 0,
            removed: None,
        };
        let wrote = volume.create(&file.path, 0o644).and_then(|open| {
            open.write_bytes(0, &file.contents())?;
            open.sync()
        });
        match wrote {
            Ok(()) => {
                file.acked = self.device.mark(0);
                let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
                files.push(file);
                Ok(true)
            }
            Err(Error::NoSpace { .. } | Error::NoInodes { .. }) => Ok(false),
            Err(other) => Err(other.into()),
        }
    }

    /// Grows in one or two steps while others write.
    fn grow(&mut self, volume: Volume, to: u64, rng: &mut Rng) -> Result<()> {
        let now = volume.superblock().geometry().volume_bytes();
        let steps: BTreeSet<u64> = [now + rng.below(to - now), to].into();
        let ends = AtomicBool::new(false);
        let seeds: Vec<u64> = (0..WRITERS).map(|_| rng.next()).collect();
        let mut sizes = Vec::new();
        std::thread::scope(|scope| {
            let (this, volume, ends) = (&*self, &volume, &ends);
            let write = |seed| {
                let mut rng = Rng::new(seed);
                for _ in 0..MOST_FILES {
                    if ends.load(Ordering::SeqCst) || !this.write(volume, &mut rng)? {
                        break;
                    }
                }
                Ok(())
            };
            let writers = seeds.iter().map(|seed| scope.spawn(move || write(*seed)));
            let writers: Vec<_> = writers.collect();
            let done = steps.into_iter().try_for_each(|bytes| {
                let asked = this.device.mark(0);
                volume.grow(bytes)?;
                sizes.push(Size {
                    bytes: (bytes, bytes.saturating_sub(this.group_bytes)),
                    moves: false,
                    converts: false,
                    asked,
                    acked: this.device.mark(0),
                });
                Ok::<_, crate::error::Error>(())
            });
            ends.store(true, Ordering::SeqCst);
            let mut all = vec![done];
            for writer in writers {
                all.push(
                    writer
                        .join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                );
            }
            all.into_iter().collect::<Result<()>>()
        })?;
        self.sizes.extend(sizes);
        Ok(volume.close()?)
    }

    /// Grows where something has to move for descriptors; where that has no room the volume is left alone.
    fn enlarge(&mut self, volume: Volume, to: u64) -> Result<()> {
        let asked = self.device.mark(0);
        let done = volume.enlarge(to, &mut |_| true);
        self.changed(asked, done, false)
    }

    /// Gives descriptors another size.
    fn convert(&mut self, volume: Volume) -> Result<()> {
        let asked = self.device.mark(0);
        let (geometry, bytes) = {
            let geometry = volume.superblock().geometry();
            (geometry.desc_size(), geometry.volume_bytes())
        };
        let done = volume.set_64bit(geometry == 32, &mut |_| true);
        self.changed(asked, done.map(|()| bytes), true)
    }

    /// Shrinks; what the files have no room for is left alone.
    fn shrink(&mut self, volume: Volume, to: u64) -> Result<()> {
        let to = to.max(volume.least_bytes(256 << 10));
        let asked = self.device.mark(0);
        let done = volume.shrink(to, &mut |_| true);
        self.changed(asked, done, false)
    }

    /// Notes a change in which things moved, from `asked` on.
    fn changed(
        &mut self,
        asked: usize,
        done: std::result::Result<u64, Error>,
        converts: bool,
    ) -> Result<()> {
        let bytes = match done {
            Ok(bytes) => (bytes, bytes),
            // The journal may have moved.
            Err(
                Error::NoSpace { .. }
                | Error::NoInodes { .. }
                | Error::Invalid(_)
                | Error::NotSupported(_),
            ) => self.sizes[self.sizes.len() - 1].bytes,
            Err(other) => return Err(other.into()),
        };
        self.sizes.push(Size {
            bytes,
            moves: true,
            converts,
            asked,
            acked: self.device.mark(0),
        });
        Ok(())
    }
}

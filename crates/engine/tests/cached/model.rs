//! Mixed operations against an array of bytes.

use crate::common::names::empty;
use crate::common::{Rng, bytes, fsck, scaled, scratch};
use diorite::{Buf, Fallocate, File, OpenFlags, OpenOptions, PageCache, Volume};

/// Block size and more for mke2fs, and the budget in KiB.
const KINDS: [(&[&str], u64); 6] = [
    (&["-t", "ext4", "-b", "4096"], 1024),
    (&["-t", "ext4", "-b", "1024"], 64),
    (&["-t", "ext4", "-b", "4096", "-O", "^has_journal"], 256),
    (
        &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "16384"],
        512,
    ),
    (&["-t", "ext4", "-b", "4096", "-O", "inline_data"], 512),
    (&["-t", "ext2", "-b", "1024"], 128),
];

/// The farthest byte.
const MOST: u64 = 300_000;

pub(super) struct Both {
    pub(super) file: File,
    pub(super) model: Vec<u8>,
}

impl Both {
    fn write(&mut self, rng: &mut Rng) {
        let pos = rng.below(MOST);
        let most = if rng.below(3) == 0 { 60_000 } else { 3000 };
        let mut data = vec![0; 1 + rng.below(most) as usize];
        rng.fill(&mut data);
        let done = self.file.write_bytes(pos, &data).unwrap();
        if done < data.len() {
            let rest = self.file.write_bytes(pos + done as u64, &data[done..]);
            panic!("{done} of {} bytes; then {rest:?}", data.len());
        }
        bytes::write(&mut self.model, pos as usize, &data);
    }

    fn append(&mut self, rng: &mut Rng) {
        let mut data = vec![0; 1 + rng.below(5000) as usize];
        rng.fill(&mut data);
        assert_eq!(
            self.file.append_bytes(&data).unwrap(),
            self.model.len() as u64
        );
        self.model.extend(data);
    }

    fn write_direct(&mut self, rng: &mut Rng) {
        let pos = rng.below(MOST / 512) * 512;
        let mut buf = Buf::zeroed(512 * (1 + rng.below(20) as usize));
        rng.fill(buf.as_mut_slice());
        let data = buf.as_slice().to_vec();
        self.file.write_at(pos, buf).1.unwrap();
        bytes::write(&mut self.model, pos as usize, &data);
    }

    fn read(&self, rng: &mut Rng) {
        let pos = rng.below(MOST) as usize;
        let mut out = vec![0x55; 1 + rng.below(40_000) as usize];
        let count = self.file.read_bytes(pos as u64, &mut out).unwrap();
        let there = self.model.get(pos..).unwrap_or_default();
        assert_eq!(count, there.len().min(out.len()), "at {pos}");
        assert!(
            out[..count] == there[..count],
            "at {pos}: {:?}",
            differs(&out, there)
        );
    }

    fn read_direct(&self, rng: &mut Rng) {
        let pos = (rng.below(MOST / 512) * 512) as usize;
        let len = 512 * (1 + rng.below(40) as usize);
        let (buf, count) = self.file.read_at(pos as u64, Buf::zeroed(len));
        let there = self.model.get(pos..).unwrap_or_default();
        let count = count.unwrap();
        assert_eq!(count, there.len().min(len), "at {pos}");
        let out = buf.as_slice();
        assert!(
            out[..count] == there[..count],
            "at {pos}: {:?}",
            differs(out, there)
        );
    }

    fn change_map(&mut self, rng: &mut Rng) {
        let (pos, len) = (rng.below(MOST), 1 + rng.below(30_000));
        let mode = match rng.below(3) {
            0 => {
                let size = rng.below(MOST);
                self.file.truncate(size).unwrap();
                return self.model.resize(size as usize, 0);
            }
            1 => Fallocate::ZeroRange {
                keep_size: rng.below(2) == 0,
            },
            _ => Fallocate::PunchHole,
        };
        // A file without extents cannot be preallocated.
        if self.file.fallocate(mode, pos, len).is_ok() {
            bytes::fallocate(&mut self.model, mode, pos as usize, len as usize);
        }
    }

    pub(super) fn step(&mut self, rng: &mut Rng) {
        match rng.below(20) {
            0..5 => self.write(rng),
            5..7 => self.append(rng),
            7..10 => self.write_direct(rng),
            10..13 => self.read(rng),
            13..16 => self.read_direct(rng),
            16..18 => self.change_map(rng),
            18 => self.file.sync_data().unwrap(),
            _ => assert_eq!(self.file.size(), self.model.len() as u64),
        }
    }

    pub(super) fn check(&self) {
        let mut out = vec![0; self.model.len() + 1];
        let count = self.file.read_bytes(0, &mut out).unwrap();
        assert_eq!(count, self.model.len());
        assert!(
            out[..count] == self.model[..],
            "{:?}",
            differs(&out, &self.model)
        );
    }
}

fn differs(one: &[u8], other: &[u8]) -> Option<usize> {
    one.iter().zip(other).position(|(a, b)| a != b)
}

fn options(kib: u64) -> OpenOptions {
    OpenOptions {
        page_cache: PageCache::new(kib << 10),
        ..OpenOptions::writable()
    }
}

/// Each of several threads has a file of its own; all share the budget. At the end the volume is whole, and has what the model has.
#[test]
fn files_have_the_bytes_of_the_model() {
    for (n, (args, kib)) in KINDS.iter().enumerate() {
        let mut rng = Rng::from_env(&format!("cached model {n}"));
        let dir = scratch();
        let image = empty(dir.path(), "32M", args);
        let volume = Volume::open(image.to_str().unwrap(), &options(*kib)).unwrap();
        let steps = scaled("DIORITE_CACHED_STEPS", 400);
        let threads: Vec<_> = (0..3)
            .map(|n| {
                let file = volume.create(&format!("/{n}"), 0o644).unwrap();
                let (mut rng, model) = (rng.fork(), Vec::new());
                std::thread::spawn(move || {
                    let mut both = Both { file, model };
                    for _ in 0..steps {
                        both.step(&mut rng);
                    }
                    both.check();
                    both.model
                })
            })
            .collect();
        let models: Vec<Vec<u8>> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        volume.close().unwrap();
        fsck(&image);
        let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::default()).unwrap();
        for (n, model) in models.into_iter().enumerate() {
            let file = volume
                .open_path(&format!("/{n}"), OpenFlags::default())
                .unwrap();
            Both { file, model }.check();
        }
    }
}

/// Threads with a part each of one file, whose parts meet inside blocks: cached and direct writes, reads, syncs, and one that truncates
/// behind all of them. No byte of a part is ever another's.
#[test]
fn neighbours_do_not_disturb_each_other() {
    // Not a multiple of a block, but of a sector.
    const PART: u64 = 20_992;
    for (args, kib) in &KINDS[..4] {
        let mut rng = Rng::from_env("cached neighbours");
        let dir = scratch();
        let image = empty(dir.path(), "32M", args);
        let volume = Volume::open(image.to_str().unwrap(), &options(*kib)).unwrap();
        let file = volume.create("/file", 0o644).unwrap();
        file.write_bytes(0, &vec![0; 4 * PART as usize]).unwrap();
        let steps = scaled("DIORITE_CACHED_STEPS", 400);
        let threads: Vec<_> = (0..4u64)
            .map(|n| {
                let (file, mut rng) = (file.clone(), rng.fork());
                std::thread::spawn(move || {
                    let (base, mut model) = (n * PART, vec![0; PART as usize]);
                    for step in 0..steps {
                        let sectors = PART / 512;
                        let from = rng.below(sectors);
                        let len = 1 + rng.below((sectors - from).min(9));
                        let (from, len) = ((from * 512) as usize, (len * 512) as usize);
                        let pos = base + from as u64;
                        let mut data = vec![0; len];
                        rng.fill(&mut data);
                        match rng.below(6) {
                            0 | 1 => {
                                file.write_bytes(pos, &data).unwrap();
                                model[from..from + len].copy_from_slice(&data);
                            }
                            2 | 3 => {
                                let mut buf = Buf::zeroed(len);
                                buf.copy_in(0, &data);
                                file.write_at(pos, buf).1.unwrap();
                                model[from..from + len].copy_from_slice(&data);
                            }
                            4 => file.sync_data().unwrap(),
                            _ => {}
                        }
                        let seen = match rng.below(2) {
                            0 => {
                                file.read_bytes(pos, &mut data).unwrap();
                                data
                            }
                            _ => file.read_at(pos, Buf::zeroed(len)).0.as_slice().to_vec(),
                        };
                        let at = differs(&seen, &model[from..from + len]);
                        assert_eq!(at, None, "thread {n}, step {step}, {pos}+{len}");
                    }
                    model
                })
            })
            .collect();
        let expected: Vec<u8> = threads
            .into_iter()
            .flat_map(|t| t.join().unwrap())
            .collect();
        let mut seen = vec![0; expected.len()];
        file.read_bytes(0, &mut seen).unwrap();
        assert_eq!(differs(&seen, &expected), None);
        drop(file);
        volume.close().unwrap();
        fsck(&image);
    }
}

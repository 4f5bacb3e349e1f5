//! Whole volumes: the engine itself under shuttle, on a recording device. Judges what is read, what is there in the end, and what
//! power cuts leave.
//!
//! Input: threads that act like users on a small, nearly full volume. Output: nothing, or the schedule in which a rule was broken.
//! Invariants: every block holds bytes of its own file's history, or zeros; the image of a power cut is consistent and has what was
//! made durable. Limits: no time passes, so the journal's keeper never runs; a commit waits for others by yielding; no block is
//! torn.

#[path = "cached.rs"]
mod cached;
#[path = "untorn.rs"]
mod untorn;

use crate::common::fixture::{DSYNC, filled, run_all, writable};
use crate::common::run;
use diorite::{Error, Fallocate, File, Op, OpenFlags, OpenOptions, Request, RequestFlags, Volume};
use diorite_block::record::{Cut, Event, PowerCuts, Survival, plan};
use diorite_block::sync::thread;
use diorite_block::{Device, MemDevice, RecordDevice};
use diorite_check::{CheckOptions, check_device};
use shuttle::rand::Rng as _;
use std::sync::{Arc, OnceLock};

const SYNC: RequestFlags = RequestFlags::none().sync(true);
/// One block.
const BLOCK: usize = 1024;
/// The bytes in blocks that are free in the initial image.
const STALE: u8 = 0xEE;
/// The bytes of the files in the initial image.
const OLD: u8 = 1;
/// The number of blocks of a file: four written, four unwritten, four holes.
const BLOCKS: u64 = 12;
/// The bytes that are written into the one file, and into the other.
const FILE: [u8; 5] = [11, 12, 13, 14, 15];
const OTHER: [u8; 3] = [15, 40, 41];
/// Schedules per kind of scheduler, and power cuts after each.
const SCHEDULES: usize = 120;
const CUTS: usize = 2;

/// The initial image: `/file` and `/other`, and little free space.
fn image() -> &'static [u8] {
    static IMAGE: OnceLock<Vec<u8>> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let dir = crate::common::scratch();
        let (path, source) = (dir.path().join("image"), dir.path().join("source"));
        std::fs::create_dir(&source).unwrap();
        for name in ["file", "other"] {
            std::fs::write(source.join(name), [OLD; 4 * BLOCK]).unwrap();
        }
        // Leaves 14 blocks free, so blocks that one file frees are soon used by the other.
        std::fs::write(source.join("rest"), [OLD; 1028 * BLOCK]).unwrap();
        std::fs::write(&path, vec![STALE; 2100 * BLOCK]).unwrap();
        let (path, source) = (path.to_str().unwrap(), source.to_str().unwrap());
        let made = "-q -F -t ext4 -b 1024 -N 16 -m 0 -O ^resize_inode -J size=1 -E nodiscard,lazy_itable_init=0 -d";
        let args: Vec<&str> = made.split(' ').chain([source, path]).collect();
        run("mke2fs", &args);
        let size = format!("set_inode_field /file size {}", BLOCKS * BLOCK as u64);
        for request in ["fallocate /file 4 7", &size] {
            run("debugfs", &["-w", "-R", request, path]);
        }
        run("e2fsck", &["-fn", path]);
        std::fs::read(path).unwrap()
    })
}

/// The actions of one thread.
type Action = fn(&Arc<Bed>);

/// A volume, its two files, and what must be durable.
struct Bed {
    memory: Arc<MemDevice>,
    device: RecordDevice,
    volume: Volume,
    file: File,
    other: File,
    /// What must be durable, and from which position in the log on.
    durable: std::sync::Mutex<Vec<(usize, Sector)>>,
}

/// A block that was written, of `/other` or of `/file`.
#[derive(Clone, Copy, Debug)]
struct Wrote {
    other: bool,
    block: u64,
    value: u8,
}

/// One of a block's two sectors.
#[derive(Clone, Copy, Debug)]
struct Sector {
    other: bool,
    number: usize,
    value: u8,
}

impl Sector {
    fn of(wrote: Wrote, half: usize) -> Sector {
        Sector {
            other: wrote.other,
            number: 2 * usize::try_from(wrote.block).unwrap() + half,
            value: wrote.value,
        }
    }
}

impl Wrote {
    fn file(block: u64, value: u8) -> Wrote {
        Wrote {
            other: false,
            block,
            value,
        }
    }
}

fn memory_of(bytes: &[u8]) -> Arc<MemDevice> {
    let memory = MemDevice::new(bytes.len() as u64);
    memory.write_at(0, bytes);
    Arc::new(memory)
}

impl Bed {
    fn new() -> Arc<Bed> {
        Bed::with(OpenOptions::writable().workers(1))
    }

    /// The volume is small, and files get its last block.
    fn with(options: OpenOptions) -> Arc<Bed> {
        let options = options.keep_for_maps(false);
        let memory = memory_of(image());
        let device = RecordDevice::with_volatile_cache(memory.clone());
        let volume = Volume::open_device(Arc::new(device.clone()), &options).unwrap();
        let open = |path| volume.open_path(path, writable()).unwrap();
        let (file, other) = (open("/file"), open("/other"));
        Arc::new(Bed {
            memory,
            device,
            volume,
            file,
            other,
            durable: std::sync::Mutex::default(),
        })
    }

    /// Writes a block. Returns false if there was no space.
    fn put(&self, wrote: Wrote) -> bool {
        let file = if wrote.other { &self.other } else { &self.file };
        let pos = wrote.block * BLOCK as u64;
        had_space(file.write_buf(pos, filled(wrote.value, BLOCK)).1)
    }

    fn put_file(&self, block: u64, value: u8) -> Wrote {
        let wrote = Wrote::file(block, value);
        self.put(wrote);
        wrote
    }

    /// Writes a block of `/file`, so that it is durable when the call returns, and notes that.
    fn put_durably(&self, block: u64, value: u8, flags: RequestFlags) {
        let pos = block * BLOCK as u64;
        assert!(had_space(
            self.file
                .call(Op::Write, pos, filled(value, BLOCK), flags)
                .1
        ));
        self.is_durable(&[Wrote::file(block, value)]);
    }

    /// Writes to `/other`, so that it allocates blocks that others freed.
    fn reuse(&self, blocks: std::ops::Range<u64>, value: u8) {
        for block in blocks {
            self.put(Wrote {
                other: true,
                block,
                value,
            });
        }
    }

    fn append(&self, value: u8) {
        let flags = RequestFlags::default();
        had_space(self.file.call(Op::Append, 0, filled(value, BLOCK), flags).1);
    }

    fn is_durable(&self, wrote: &[Wrote]) {
        let sectors = |w: &Wrote| [Sector::of(*w, 0), Sector::of(*w, 1)];
        self.keep(wrote.iter().flat_map(sectors).collect());
    }

    /// Notes that the first sector of the block is durable.
    fn is_durable_half(&self, block: u64, value: u8) {
        self.keep(vec![Sector::of(Wrote::file(block, value), 0)]);
    }

    fn keep(&self, sectors: Vec<Sector>) {
        let at = self.device.mark(0);
        let mut durable = self.durable.lock().unwrap();
        durable.extend(sectors.into_iter().map(|s| (at, s)));
    }
}

fn had_space(result: Result<usize, Error>) -> bool {
    match result {
        Ok(len) => {
            assert_eq!(len, BLOCK);
            true
        }
        Err(Error::NoSpace { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

/// The value of each sector of a file.
fn sectors(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(file.size()).unwrap()];
    let read = file.read_bytes(0, &mut bytes).unwrap();
    let whole = |s: &[u8]| {
        assert!(s.iter().all(|b| *b == s[0]), "a sector of two writers");
        s[0]
    };
    bytes[..read].chunks(512).map(whole).collect()
}

/// Rules U1, U2, G16: asserts that every sector has a value that its own file once had.
fn judge(file: &File, values: &[u8]) -> Vec<u8> {
    let sectors = sectors(file);
    for (n, value) in sectors.iter().enumerate() {
        assert!(
            [0, OLD].contains(value) || values.contains(value),
            "sector {n}: {value}"
        );
    }
    sectors
}

/// Asserts that a check finds nothing on the device.
fn check_all(device: Arc<dyn Device>) {
    let options = CheckOptions::default().threads(1);
    let found = check_device(&device, &options, &|_| ()).unwrap();
    let said: Vec<_> = found.kept().collect();
    assert!(found.is_clean(), "{said:?}");
}

/// Power cuts anywhere in the log, and right after each acknowledgement with nothing left but what is durable. Asserts that the
/// volume is consistent, that no file shows another's bytes, and that durable data is there.
fn cut(log: &[Event], durable: &[(usize, Sector)]) {
    let seed = shuttle::rand::thread_rng().gen_range(0..u64::MAX);
    // Blocks are not torn: a torn superblock would be found by the check, and repaired by the next opening for writing; other tests
    // cover that.
    let mut cuts = plan(log, CUTS, seed, BLOCK);
    cuts.extend(durable.iter().map(|(at, _)| Cut {
        at: at + 1,
        survival: Survival::Durable,
    }));
    cuts.sort_by_key(|cut| cut.at);
    cuts.dedup();
    let mut walk = PowerCuts::new(image().to_vec(), log);
    for cut in cuts {
        let left = walk.with_image(cut, memory_of);
        check_all(left.clone());
        let volume = Volume::open_device(left, &OpenOptions::default()).unwrap();
        let open = |path| volume.open_path(path, OpenFlags::default()).unwrap();
        let (file, other) = (judge(&open("/file"), &FILE), judge(&open("/other"), &OTHER));
        // What became durable later for the same sector may be there already.
        for (n, (at, sector)) in durable.iter().enumerate() {
            let same = |s: &Sector| (s.other, s.number) == (sector.other, sector.number);
            let later = durable[n + 1..].iter().filter(|(_, s)| same(s));
            let allowed: Vec<u8> = later.map(|(_, s)| s.value).chain([sector.value]).collect();
            let there = if sector.other { &other } else { &file };
            let found = there.get(sector.number).copied();
            assert!(
                *at >= cut.at || found.is_some_and(|f| allowed.contains(&f)),
                "{sector:?} before {cut:?}: {found:?}"
            );
        }
    }
}

/// Runs each in a thread of its own, on a fresh volume; then looks at the result, closes the volume, and judges what power cuts
/// would have left.
fn race(actions: &[Action], look: impl Fn(&Bed)) {
    race_on(Bed::new(), actions, look);
}

fn race_on(bed: Arc<Bed>, actions: &[Action], look: impl Fn(&Bed)) {
    let threads: Vec<_> = actions
        .iter()
        .map(|action| {
            let (bed, action) = (bed.clone(), *action);
            thread::spawn(move || action(&bed))
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    look(&bed);
    let bed = Arc::into_inner(bed).expect("the threads have ended");
    drop((bed.file, bed.other));
    bed.volume.close().unwrap();
    check_all(bed.memory);
    cut(&bed.device.log(), &bed.durable.into_inner().unwrap());
}

/// `count` of these actions, chosen by the schedule.
fn some(actions: &[Action], count: usize) -> Vec<Action> {
    let mut rng = shuttle::rand::thread_rng();
    let mut left = actions.to_vec();
    while left.len() > count {
        left.swap_remove(rng.gen_range(0..left.len()));
    }
    left
}

/// Rules C5, C13, G8: while one thread commits, handles of others join the running transaction, change blocks that are being
/// written to the log, wait for their conversions and then for the commit.
#[test]
fn commits_meet_conversions() {
    check(|| {
        let actions: [Action; 4] = [
            |bed| {
                let wrote = [bed.put_file(4, 11), bed.put_file(8, 12)];
                bed.file.sync_data().unwrap();
                bed.is_durable(&wrote);
            },
            |bed| {
                let queue = bed.volume.queue(2).unwrap();
                let id = queue.attach(&bed.file).unwrap();
                let pos = 5 * BLOCK as u64;
                let write = Request::write(id, pos, filled(13, BLOCK), 0).with_flags(DSYNC);
                let append = Request::append(id, filled(14, BLOCK), 1);
                run_all(&queue, vec![write, append])
                    .into_iter()
                    .for_each(|done| assert!(had_space(done.result)));
                bed.is_durable(&[Wrote::file(5, 13)]);
            },
            |bed| {
                let wrote = Wrote {
                    other: true,
                    block: 6,
                    value: 15,
                };
                assert!(bed.put(wrote));
                bed.other.sync().unwrap();
                bed.is_durable(&[wrote]);
            },
            |bed| {
                for _ in 0..2 {
                    bed.volume.sync().unwrap();
                }
            },
        ];
        race(&actions, |bed| {
            let of_blocks = |values: &[u8]| values.iter().flat_map(|v| [*v; 2]).collect::<Vec<_>>();
            let file = of_blocks(&[1, 1, 1, 1, 11, 13, 0, 0, 12, 0, 0, 0, 14]);
            assert_eq!(sectors(&bed.file), file);
            assert_eq!(sectors(&bed.other), of_blocks(&[1, 1, 1, 1, 0, 0, 15]));
        });
    });
}

/// Rules D1, C4, C7: overwrites and syncs while others commit. The defects: a sync that found a commit under way waited for that
/// only, though the commit's flush had begun before the overwrite ended; one that found nothing to commit made no flush.
#[test]
fn overwrites_are_synced_while_others_commit() {
    check(|| {
        let actions: [Action; 5] = [
            |bed| {
                bed.put_file(4, 11);
                bed.file.sync_data().unwrap();
                let wrote = bed.put_file(4, 12);
                bed.file.sync_data().unwrap();
                bed.is_durable(&[wrote]);
            },
            |bed| {
                bed.put_file(8, 11);
                bed.put_durably(8, 13, DSYNC);
            },
            |bed| {
                bed.put_durably(0, 14, SYNC);
                bed.put_durably(0, 15, SYNC);
            },
            |bed| {
                bed.put(Wrote {
                    other: true,
                    block: 6,
                    value: 15,
                });
                bed.other.sync().unwrap();
            },
            |bed| {
                let wrote = bed.put_file(1, 13);
                bed.volume.sync().unwrap();
                bed.is_durable(&[wrote]);
            },
        ];
        race(&some(&actions, 3), |bed| {
            judge(&bed.file, &FILE);
        });
    });
}

/// Rules D3, C13: a durable overwrite meets the block that another request has just mapped. The defect: the map was published
/// before its transaction was noted, so the overwrite was acknowledged without that commit, and the block was a hole after a power
/// cut.
#[test]
fn a_durable_overwrite_meets_the_write_that_mapped_its_block() {
    check(|| {
        let actions: [Action; 2] = [
            |bed| {
                bed.put_file(4, 11);
            },
            |bed| {
                // Both write the block; its second half is written by the first writer only.
                let pos = 4 * BLOCK as u64;
                let half = filled(11, BLOCK / 2);
                assert_eq!(bed.file.call(Op::Write, pos, half, DSYNC).1.unwrap(), 512);
                bed.is_durable_half(4, 11);
            },
        ];
        race(&actions, |bed| {
            judge(&bed.file, &FILE);
        });
    });
}

/// Rules U1, C8: a caller that waits for its own writes converts them itself if nothing it needs is held by others; else a worker
/// does. Two threads do that in one file, while a third commits and a fourth changes the file's map.
#[test]
fn who_waits_converts_or_a_worker_does() {
    check(|| {
        let actions: [Action; 4] = [
            |bed| write_all(bed, &[(4, 11), (8, 12)]),
            |bed| write_all(bed, &[(5, 13), (10, 14)]),
            |bed| {
                bed.volume.sync().unwrap();
                bed.file.sync().unwrap();
            },
            |bed| {
                let (pos, len) = (BLOCK as u64, 2 * BLOCK as u64);
                bed.file.fallocate(Fallocate::PunchHole, pos, len).unwrap();
            },
        ];
        race(&actions, |bed| {
            let blocks = [1, 0, 0, 1, 11, 13, 0, 0, 12, 0, 14, 0];
            let expect: Vec<u8> = blocks.iter().flat_map(|v| [*v; 2]).collect();
            assert_eq!(sectors(&bed.file), expect);
        });
    });
}

/// Writes blocks of `/file` through a queue, all at once.
fn write_all(bed: &Bed, blocks: &[(u64, u8)]) {
    let queue = bed.volume.queue(2).unwrap();
    let id = queue.attach(&bed.file).unwrap();
    let write = |(block, value): &(u64, u8)| {
        Request::write(id, block * BLOCK as u64, filled(*value, BLOCK), *block)
    };
    let ended = run_all(&queue, blocks.iter().map(write).collect());
    assert!(ended.into_iter().all(|done| had_space(done.result)));
}

/// Rules G13 to G17, U1, U9: a file is truncated and punched while it is read, written in every way and committed; freed blocks go
/// to another file at once.
#[test]
fn truncations_meet_all() {
    check(|| {
        let actions: [Action; 8] = [
            |bed| {
                for _ in 0..2 {
                    judge(&bed.file, &FILE);
                }
            },
            |bed| {
                bed.put_file(1, 11);
                bed.put_file(2, 12);
            },
            |bed| {
                bed.put_file(5, 13);
                bed.put_file(9, 14);
            },
            |bed| bed.append(15),
            |bed| {
                bed.file.truncate(2 * BLOCK as u64 + 512).unwrap();
                bed.volume.sync().unwrap();
                bed.reuse(4..20, 40);
            },
            |bed| {
                let (pos, len) = (BLOCK as u64, 8 * BLOCK as u64);
                bed.file.fallocate(Fallocate::PunchHole, pos, len).unwrap();
                bed.reuse(20..36, 41);
            },
            |bed| bed.volume.sync().unwrap(),
            |bed| {
                bed.file.truncate(0).unwrap();
                bed.file.truncate(6 * BLOCK as u64).unwrap();
                bed.file.sync().unwrap();
            },
        ];
        race(&some(&actions, 4), |bed| {
            judge(&bed.file, &FILE);
            judge(&bed.other, &OTHER);
        });
    });
}

/// Rule G17: blocks that one file frees can be used by another only once the first no longer shows them on disk, whichever thread
/// commits.
#[test]
fn what_is_freed_waits_for_its_commit() {
    check(|| {
        let actions: [Action; 3] = [
            |bed| {
                bed.file.truncate(0).unwrap();
                bed.volume.sync().unwrap();
            },
            |bed| (0..3).for_each(|_| bed.reuse(40..44, 41)),
            |bed| bed.volume.sync().unwrap(),
        ];
        let bed = Bed::new();
        bed.reuse(4..24, 40);
        bed.volume.sync().unwrap();
        race_on(bed, &actions, |bed| {
            judge(&bed.file, &FILE);
            judge(&bed.other, &OTHER);
        });
    });
}

fn check(test: impl Fn() + Send + Sync + 'static) {
    image();
    let mut config = shuttle::Config::new();
    // The engine's own threads have 2 MiB.
    config.stack_size = 1 << 20;
    let schedules = crate::shuttled::schedules(SCHEDULES);
    let test = Arc::new(test);
    let again = test.clone();
    let random = shuttle::scheduler::RandomScheduler::new(schedules);
    shuttle::Runner::new(random, config.clone()).run(move || test());
    let few = shuttle::scheduler::PctScheduler::new(3, schedules / 3);
    shuttle::Runner::new(few, config).run(move || again());
}

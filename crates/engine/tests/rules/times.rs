//! Times of writes that overtake each other, and times that are only noted (rules C7, D1).
//!
//! Input: a small volume in memory, and a clock that the test sets. Output: none. Invariant: the time of an acknowledged O_SYNC
//! write is not set back by a write that read the clock before it and was noted after it. Limits: a difference of a second or more
//! counts as a clock that was set back, not as such a write.

use crate::common::fixture::{LIMIT, filled, writable};
use crate::common::recipe::{RECIPES, bare};
use crate::common::stage::{Stage, mem_of};
use crate::common::valve::Valve;
use crate::common::watch::Watchdog;
use crate::common::{image, scratch, words};
use crate::rules::bed::push_out;
use diorite::{AccessTimes, File, Op, OpenFlags, OpenOptions, RequestFlags, SetAttr, Volume};
use diorite_format::{Inode, Timestamp};
use std::cell::Cell;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

thread_local! {
    static MILLIS: Cell<u64> = const { Cell::new(0) };
}

/// The clock is per thread: a test's calls read it in the test's thread.
fn clock() -> Duration {
    Duration::from_millis(MILLIS.get())
}

/// Options for a volume on which nothing commits by itself.
fn options() -> OpenOptions {
    OpenOptions::writable()
        .clock(clock)
        .commit_interval(Duration::from_secs(3600))
        .access_times(AccessTimes::Relative)
}

const START: u64 = 2_000_000_000_000;

/// The defect: a queue reads the clock once for several requests, so of two queues one may note the earlier time last. The time of
/// a file went back by a tick, to before an acknowledged O_SYNC write.
#[test]
fn a_write_that_is_noted_late_takes_no_time_back() {
    let dir = scratch();
    let path = bare(dir.path(), &RECIPES[0]);
    let stage = Stage::mem(&path);
    MILLIS.set(START);
    let start = START;
    let volume = stage.open(&options()).unwrap();
    let file = volume.open_path("/odd", writable()).unwrap();
    let sync = RequestFlags::default().sync(true);
    let write_at = |millis: u64| {
        MILLIS.set(millis);
        file.call(Op::Write, 0, filled(1, 512), sync).1.unwrap();
        let time = file.metadata().mtime;
        u64::try_from(time.secs).unwrap() * 1000 + u64::from(time.nanos) / 1_000_000
    };
    assert_eq!(write_at(start + 8), start + 8);
    assert_eq!(write_at(start + 4), start + 8, "it was overtaken");
    assert_eq!(write_at(start + 12), start + 12);
    assert_eq!(write_at(start - 987), start + 12, "by less than a second");
    assert_eq!(write_at(start - 988), start - 988, "by a second");
    assert_eq!(
        write_at(start - 5000),
        start - 5000,
        "the clock was put back"
    );
}

/// The inode of a file as a power cut leaves it.
fn behind_a_cut(stage: &Stage, path: &str) -> Arc<Inode> {
    let cut = Arc::new(mem_of(&stage.bytes()));
    let volume = Volume::open_device(cut, &OpenOptions::default()).unwrap();
    let file = volume.open_path(path, OpenFlags::default()).unwrap();
    file.metadata()
}

/// Rules C7, D1. The defect: an fsync committed the noted time of a write, but not that of a read.
#[test]
fn an_fsync_commits_the_time_of_a_read() {
    let dir = scratch();
    let stage = Stage::mem(&bare(dir.path(), &RECIPES[0]));
    MILLIS.set(START);
    let volume = stage.open(&options()).unwrap();
    for path in ["/odd", "/"] {
        let file = volume.open_path(path, OpenFlags::default()).unwrap();
        match path {
            "/" => drop(volume.read_dir(file.ino()).unwrap().count()),
            _ => drop(file.read_bytes(0, &mut [0; 512]).unwrap()),
        }
        file.sync().unwrap();
        let secs = behind_a_cut(&stage, path).atime.secs;
        assert_eq!(secs, START as i64 / 1000, "{path}");
    }
}

/// The defect: the noted time of a write was written to the inode later than the time of a truncation that came after it, and set
/// it back.
#[test]
fn a_noted_write_takes_no_later_time_back() {
    let dir = scratch();
    let stage = Stage::mem(&bare(dir.path(), &RECIPES[0]));
    type Change = fn(&File);
    let changes: [(&str, Change); 3] = [
        ("shorter", |file| file.truncate(90_000).unwrap()),
        ("longer", |file| file.truncate(95_000).unwrap()),
        ("as long", |file| file.truncate(95_000).unwrap()),
    ];
    let volume = stage.open(&options()).unwrap();
    let file = volume.open_path("/odd", writable()).unwrap();
    for (at, (what, change)) in (0..).zip(changes) {
        MILLIS.set(START + 20_000 * at);
        file.write_buf(0, filled(1, 512)).1.unwrap();
        MILLIS.set(START + 20_000 * at + 10_000);
        change(&file);
        file.sync().unwrap();
        let secs = behind_a_cut(&stage, "/odd").mtime.secs;
        assert_eq!(secs, (START + 20_000 * at + 10_000) as i64 / 1000, "{what}");
    }
}

/// Without a sync, noted times are committed when the interval has passed, and not before.
#[test]
fn noted_times_are_committed_when_they_are_old() {
    let _watchdog = Watchdog::new(LIMIT, "old times");
    let dir = scratch();
    let stage = Stage::mem(&bare(dir.path(), &RECIPES[0]));
    for (interval, comes) in [(3600 * 1000, false), (20, true)] {
        MILLIS.set(START + interval);
        let options = options().commit_interval(Duration::from_millis(interval));
        let volume = stage.open(&options).unwrap();
        let file = volume.open_path("/odd", writable()).unwrap();
        // Nothing else is changed: the noted time alone wakes the keeper.
        file.write_buf(0, filled(1, 512)).1.unwrap();
        while comes && volume.usage().dirty_times > 0 {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(volume.usage().dirty_times, u64::from(!comes));
        if comes {
            while volume.journal_stats().commits == 0 {
                thread::sleep(Duration::from_millis(1));
            }
            let secs = behind_a_cut(&stage, "/odd").mtime.secs;
            assert_eq!(secs, (START + interval) as i64 / 1000);
        }
        drop(file);
        volume.close().unwrap();
    }
}

/// Rule D4: from 1,024 inodes on, noted times do not wait for the interval; with one inode less, they do.
#[test]
fn many_noted_times_do_not_wait() {
    const MANY: usize = 1024;
    let _watchdog = Watchdog::new(LIMIT, "many times");
    let dir = scratch();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    for n in 0..MANY {
        std::fs::write(tree.join(format!("f{n}")), [1; 512]).unwrap();
    }
    let args = words("-t ext4 -b 1024 -I 256 -N 2048");
    let path = image(dir.path(), "24M", &args, &tree);
    let stage = Stage::mem(&path);
    MILLIS.set(START);
    let volume = stage.open(&options()).unwrap();
    let touch = |n: usize| {
        let file = volume.open_path(&format!("/f{n}"), writable()).unwrap();
        file.write_buf(0, filled(1, 512)).1.unwrap();
    };
    (0..MANY - 1).for_each(touch);
    thread::sleep(Duration::from_millis(20));
    assert_eq!(volume.usage().dirty_times, MANY as u64 - 1);
    assert_eq!(volume.journal_stats().commits, 0);
    touch(MANY - 1);
    while volume.usage().dirty_times > 0 {
        thread::sleep(Duration::from_millis(1));
    }
    volume.close().unwrap();
}

/// The next sync writes the noted times of writes, of reads, or of both into the inode, each into its own fields and no others.
#[test]
fn a_sync_writes_the_times_that_were_noted_and_no_others() {
    let _watchdog = Watchdog::new(LIMIT, "times of their own");
    let dir = scratch();
    let stage = Stage::mem(&bare(dir.path(), &RECIPES[0]));
    MILLIS.set(START);
    let always = options().access_times(AccessTimes::Always);
    let volume = stage.open(&always).unwrap();
    let file = volume.open_path("/odd", writable()).unwrap();
    let durable = || {
        let device = Arc::new(mem_of(&stage.bytes()));
        let volume = Volume::open_device(device, &OpenOptions::default()).unwrap();
        let file = volume.open_path("/odd", OpenFlags::default()).unwrap();
        let times = file.metadata();
        [times.mtime, times.ctime, times.atime].map(|time| time.secs)
    };
    let mut want = durable();
    let second = |n: u64| i64::try_from(START / 1000 + n).unwrap();
    for (n, (reads, writes)) in
        (1..).zip([(true, false), (false, true), (true, true), (true, false)])
    {
        MILLIS.set(START + n * 1000);
        if writes {
            file.write_buf(0, filled(1, 512)).1.unwrap();
            want[..2].fill(second(n));
        }
        if reads {
            file.read_bytes(0, &mut [0; 512]).unwrap();
            want[2] = second(n);
        }
        file.sync().unwrap();
        assert_eq!(durable(), want, "reads: {reads}, writes: {writes}");
    }
}

/// A time in an inode, in seconds since [`START`].
fn seconds(time: Timestamp) -> i64 {
    time.secs - START as i64 / 1000
}

/// What a test of times starts from: the file `/odd`, and calls on it at a second since [`START`].
struct Odd {
    _dir: tempfile::TempDir,
    stage: Stage,
    volume: Volume,
    file: File,
}

impl Odd {
    fn new(access_times: AccessTimes) -> Odd {
        let dir = scratch();
        let stage = Stage::mem(&bare(dir.path(), &RECIPES[0]));
        MILLIS.set(START);
        let options = options().access_times(access_times);
        let volume = stage.open(&options).unwrap();
        let file = volume.open_path("/odd", writable()).unwrap();
        Odd {
            _dir: dir,
            stage,
            volume,
            file,
        }
    }

    fn at(second: u64) {
        MILLIS.set(START + second * 1000);
    }

    fn read(&self, second: u64) {
        Odd::at(second);
        self.file.read_bytes(0, &mut [0; 512]).unwrap();
    }

    fn write(&self, second: u64) {
        Odd::at(second);
        self.file.write_buf(0, filled(1, 512)).1.unwrap();
    }

    /// The access time that is durable after a sync.
    fn synced(&self) -> i64 {
        self.file.sync().unwrap();
        seconds(behind_a_cut(&self.stage, "/odd").atime)
    }
}

/// If every access time is kept, the last read counts, also if nothing else has happened since the one before.
#[test]
fn always_is_every_time() {
    let odd = Odd::new(AccessTimes::Always);
    odd.read(1);
    odd.read(2);
    assert_eq!(odd.synced(), 2);
}

/// If access times are kept relative to changes, a read counts if it is the first after a write, or the first for a day, and no
/// other; also after a sync, which changes the inode but none of its times.
#[test]
fn relative_is_after_a_change_and_once_a_day() {
    const DAY: u64 = 24 * 60 * 60;
    let odd = Odd::new(AccessTimes::Relative);
    odd.read(1);
    odd.write(2);
    odd.read(3);
    assert_eq!(odd.synced(), 3, "the file was written since it was read");
    odd.read(4);
    assert_eq!(odd.synced(), 3, "it was read since it was written");
    Odd::at(5);
    odd.file.set_attr(&SetAttr::default()).unwrap();
    odd.read(6);
    assert_eq!(odd.synced(), 6, "it was changed since it was read");
    odd.read(DAY + 6);
    assert_eq!(odd.synced(), DAY as i64 + 6, "a day has passed");
    odd.read(2 * DAY + 5);
    assert_eq!(odd.synced(), DAY as i64 + 6, "less than a day");
}

/// Noted times of reads do not overwrite a time that is set explicitly later.
#[test]
fn a_noted_read_takes_no_time_back_that_was_set() {
    let odd = Odd::new(AccessTimes::Always);
    odd.read(1);
    let set = SetAttr::default().atime(Timestamp {
        secs: START as i64 / 1000 - 7,
        nanos: 0,
    });
    odd.file.set_attr(&set).unwrap();
    assert_eq!(odd.synced(), -7);
}

/// A write at a time that the inode already has owes no time: nothing is noted, and a sync commits nothing.
#[test]
fn a_time_is_written_once() {
    let odd = Odd::new(AccessTimes::Relative);
    odd.write(1);
    assert_eq!(odd.volume.usage().dirty_times, 1);
    odd.file.sync().unwrap();
    let commits = odd.volume.journal_stats().commits;
    assert_eq!(odd.volume.usage().dirty_times, 0);
    odd.write(1);
    assert_eq!(odd.volume.usage().dirty_times, 0);
    odd.file.sync().unwrap();
    assert_eq!(odd.volume.journal_stats().commits, commits);
}

/// An unlinked file is deleted with its last user, and its noted times are dropped; one that was given a name is kept until its
/// times are written.
#[test]
fn a_file_that_gets_a_name_keeps_what_was_noted() {
    let odd = Odd::new(AccessTimes::Relative);
    let file = odd.volume.temporary("/", 0o600).unwrap();
    Odd::at(1);
    file.write_buf(0, filled(1, 512)).1.unwrap();
    file.sync().unwrap();
    assert_eq!(odd.volume.usage().dirty_times, 0);
    Odd::at(2);
    file.write_buf(0, filled(2, 512)).1.unwrap();
    Odd::at(3);
    odd.volume.link_file(&file, "/named").unwrap();
    assert_eq!(odd.volume.usage().dirty_times, 1);
    drop(file);
    // Blocking calls keep the last file that they were used for.
    odd.write(4);
    odd.volume.sync().unwrap();
    assert_eq!(odd.volume.usage().dirty_times, 0);
    assert_eq!(seconds(behind_a_cut(&odd.stage, "/named").mtime), 2);
}

/// A time that could not be written, in a transaction that another change had begun, is tried again when the interval has passed,
/// without any other request for it.
#[test]
fn a_time_that_could_not_be_written_is_tried_again() {
    let _watchdog = Watchdog::new(LIMIT, "tried again");
    let dir = scratch();
    let stage = Stage::mem(&bare(dir.path(), &RECIPES[0]));
    let volume = stage.open(&options()).unwrap();
    for n in 0..24 {
        volume.create(&format!("/other{n}"), 0o600).unwrap();
    }
    volume.close().unwrap();
    let valve = Valve::new(stage.device.clone());
    MILLIS.set(START);
    let options = options()
        .commit_interval(Duration::from_millis(300))
        .metadata_cache(0);
    let volume = Volume::open_device(Arc::new(valve.clone()), &options).unwrap();
    let [file, other] =
        ["/odd", "/other23"].map(|path| volume.open_path(path, writable()).unwrap());
    push_out(&volume);
    // A block of the inode table has sixteen inodes. The first group's descriptor has the table's place.
    let table = u32::from_le_bytes(stage.bytes()[4096 + 8..][..4].try_into().unwrap());
    let block = |file: &File| u64::from(table) + u64::from(file.ino().get() - 1) / 16;
    assert_ne!(block(&file), block(&other));
    valve.fail_reads(block(&file) * 4096..(block(&file) + 1) * 4096);
    let commits = volume.journal_stats().commits;
    other.set_attr(&SetAttr::default()).unwrap();
    MILLIS.set(START + 5000);
    file.write_buf(0, filled(2, 512)).1.unwrap();
    while volume.journal_stats().commits == commits {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(volume.usage().dirty_times, 1, "it could not be read");
    valve.fail_reads(0..0);
    while volume.usage().dirty_times > 0 {
        thread::sleep(Duration::from_millis(1));
    }
    drop((file, other));
    volume.close().unwrap();
    assert_eq!(seconds(behind_a_cut(&stage, "/odd").mtime), 5);
}

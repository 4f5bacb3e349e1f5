//! Budgets that are much smaller than what is read and written.

use crate::cached::model::Both;
use crate::common::names::empty;
use crate::common::watch::Watchdog;
use crate::common::{Rng, fsck, scaled, scratch};
use diorite::{File, OpenFlags, OpenOptions, PageCache, Volume};
use std::path::Path;
use std::time::Duration;

/// Files of each thread, beside one without a name and one that all threads append to.
const FILES: usize = 6;

/// Bytes of a record in the common file.
const RECORD: usize = 1000;

/// One thread's files and records.
struct Worker {
    files: Vec<Both>,
    /// Only where there are several threads: nobody but its writer writes it back, and one block would be all of a budget.
    nameless: Option<Both>,
    log: File,
    /// Where the records are, and their bytes.
    records: Vec<(u64, [u8; RECORD])>,
    cache: PageCache,
}

impl Worker {
    fn new(volume: &Volume, n: u64, log: &File, cache: &PageCache) -> Worker {
        let create = |m| {
            let file = volume.create(&path(n, m), 0o644);
            Both::new(volume, file.unwrap(), Vec::new())
        };
        Worker {
            files: (0..FILES).map(create).collect(),
            nameless: None,
            log: log.clone(),
            records: Vec::new(),
            cache: cache.clone(),
        }
    }

    fn step(&mut self, rng: &mut Rng) {
        match rng.below(FILES as u64 + 2) {
            0 => {
                let mut record = [0; RECORD];
                rng.fill(&mut record);
                let at = self.log.append_bytes(&record).unwrap();
                self.records.push((at, record));
            }
            1 => self.nameless.iter_mut().for_each(|f| f.step(rng)),
            n => self.files[n as usize - 2].step(rng),
        }
        let (used, dirty) = (self.cache.used_bytes(), self.cache.dirty_bytes());
        let most = self.cache.cache_bytes();
        assert!(used <= most && dirty <= most, "{used}, {dirty} of {most}");
    }

    fn check(&self) {
        self.files.iter().for_each(Both::check);
        self.nameless.iter().for_each(Both::check);
        check_records(&self.log, &self.records);
    }
}

fn nameless(volume: &Volume) -> Both {
    Both::new(volume, volume.temporary("/", 0o600).unwrap(), Vec::new())
}

fn path(thread: u64, file: usize) -> String {
    format!("/{thread}-{file}")
}

fn check_records(log: &File, records: &[(u64, [u8; RECORD])]) {
    for (at, record) in records {
        let mut found = [0; RECORD];
        assert_eq!(log.read_bytes(*at, &mut found).unwrap(), RECORD);
        assert!(found == *record, "the record at {at}");
    }
}

/// Works on a fresh volume with this budget, and judges what is there.
fn work(image: &Path, cache: &PageCache, (threads, steps): (u64, u64), rng: &mut Rng) {
    let options = OpenOptions::writable().page_cache(cache.clone());
    let volume = Volume::open(image.to_str().unwrap(), &options).unwrap();
    let log = volume.create("/log", 0o644).unwrap();
    let threads: Vec<_> = (0..threads)
        .map(|n| {
            let mut worker = Worker::new(&volume, n, &log, cache);
            worker.nameless = (threads > 1).then(|| nameless(&volume));
            let mut rng = rng.fork();
            std::thread::spawn(move || {
                (0..steps).for_each(|_| worker.step(&mut rng));
                worker.check();
                worker
            })
        })
        .collect();
    let workers: Vec<Worker> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    let records = workers.iter().map(|w| w.records.len()).sum::<usize>();
    assert_eq!(log.size(), (records * RECORD) as u64);
    for worker in &workers {
        if let Some(nameless) = &worker.nameless {
            nameless.file.sync_data().unwrap();
        }
    }
    volume.sync().unwrap();
    assert_eq!(cache.dirty_bytes(), 0);
    let left = workers
        .into_iter()
        .map(|w| (w.files.into_iter().map(|f| f.model).collect(), w.records));
    let left: Vec<(Vec<Vec<u8>>, _)> = left.collect();
    drop(log);
    volume.close().unwrap();
    assert_eq!((cache.used_bytes(), cache.dirty_bytes()), (0, 0));
    fsck(image);
    let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::default()).unwrap();
    let open = |path: &str| volume.open_path(path, OpenFlags::default()).unwrap();
    for (n, (models, records)) in (0..).zip(left) {
        check_records(&open("/log"), &records);
        for (m, model) in models.into_iter().enumerate() {
            let file = open(&path(n, m));
            Both::new(&volume, file, model).check();
        }
    }
}

/// Several threads with many files, and one file that all append to: every byte is as the model has it, the budget holds at every moment,
/// nothing fails for lack of memory, and after a sync nothing is dirty. The smallest budgets have four pages for each thread, and one
/// page for one thread.
#[test]
fn a_budget_holds_under_pressure() {
    let kinds: [(&[&str], u64, u64, u64); 5] = [
        (&["-t", "ext4", "-b", "4096"], 1 << 20, 4, 1500),
        (
            &["-t", "ext4", "-b", "1024", "-O", "^has_journal"],
            1 << 20,
            4,
            1500,
        ),
        (&["-t", "ext4", "-b", "4096"], 64 << 10, 4, 800),
        (&["-t", "ext4", "-b", "1024"], 64 << 10, 4, 800),
        (&["-t", "ext4", "-b", "1024"], 4 << 10, 1, 800),
    ];
    for (n, (args, bytes, threads, steps)) in kinds.into_iter().enumerate() {
        let mut rng = Rng::from_env(&format!("cached pressure {n}"));
        let _watchdog = Watchdog::new(Duration::from_secs(120), format!("{args:?}, {bytes}"));
        let dir = scratch();
        let image = empty(dir.path(), "64M", args);
        let steps = scaled("DIORITE_CACHED_STEPS", steps);
        let cache = PageCache::new(bytes);
        work(&image, &cache, (threads, steps), &mut rng);
    }
}

/// Two volumes with one budget: what is dirty in one does not keep the other from memory, although nobody syncs it and its pages are young.
/// Once a volume wrote back its own pages only, and its calls failed with `NoMemory`.
#[test]
fn volumes_of_one_budget_make_room_for_each_other() {
    let _watchdog = Watchdog::new(Duration::from_secs(60), "two volumes of one budget");
    let dirs = [scratch(), scratch()];
    let cache = PageCache::new(64 << 10);
    let options = OpenOptions::writable()
        .page_cache(cache.clone())
        .write_back_age(Duration::from_secs(3600));
    let [one, two] = dirs.each_ref().map(|dir| {
        let image = empty(dir.path(), "64M", &["-t", "ext4", "-b", "4096"]);
        Volume::open(image.to_str().unwrap(), &options).unwrap()
    });
    let [first, second] = [&one, &two].map(|volume| volume.create("/file", 0o644).unwrap());
    let block = [7; 4096];
    for n in 0..100 {
        // Less than a quarter of the budget, so that no flusher works by itself: only the other volume's need does it.
        first.write_bytes(n % 3 * 4096, &block).unwrap();
        for m in 0..40 {
            second.write_bytes(m * 4096, &block).unwrap();
        }
        assert!(cache.used_bytes() <= 64 << 10);
    }
    let mut all = vec![0; 40 * 4096];
    assert_eq!(second.read_bytes(0, &mut all).unwrap(), all.len());
    assert!(all.iter().all(|b| *b == 7));
    // The whole budget is dirty in one volume, and the other needs one page. Its flusher, which looks every five seconds, is too slow.
    for n in 0..40 {
        one.sync().unwrap();
        two.sync().unwrap();
        cache.set_cache_bytes(64 << 10);
        (0..3).for_each(|m| drop(first.write_bytes(m * 4096, &block)));
        cache.set_cache_bytes(12 << 10);
        second.write_bytes((100 + n) * 4096, &block).unwrap();
    }
    one.close().unwrap();
    two.close().unwrap();
}

//! New file systems: e2fsck and the checker accept them, the kernel and the engine use them, and their numbers are those of mke2fs.

use crate::common::stage::mem_of;
use crate::common::{Rng, fsck, kernel, run, scaled, scratch};
use diorite::device::{
    BioErrorKind, BioOp, Blocking, Device, Fault, FaultDevice, FaultPlan, MemDevice, When,
};
use diorite::format::Features;
use diorite::format::Superblock;
use diorite::format::features::{Compat, Incompat, RoCompat};
use diorite::mkfs::{
    Contents, MkfsOptions, NewJournal, NoContents, Node, NodeId, NodeKind, Tree, mkfs, mkfs_filled,
};
use diorite::{Buf, Ino, OpenOptions, Timestamp, Volume};
use diorite_block::RecordDevice;
use diorite_block::record::{PowerCuts, plan};
use diorite_check::{CheckOptions, check_device};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const UUID: [u8; 16] = *b"0123456789abcdef";
const SEED: [u8; 16] = *b"fedcba9876543210";
const TIME: i64 = 1_700_000_000;

/// Words for mke2fs, and the same as options.
struct Case {
    size: u64,
    words: &'static str,
    set: fn(&mut MkfsOptions),
}

const fn case(size: u64, words: &'static str, set: fn(&mut MkfsOptions)) -> Case {
    Case { size, words, set }
}

const MIB: u64 = 1 << 20;

fn options(set: fn(&mut MkfsOptions)) -> MkfsOptions {
    let mut options = MkfsOptions::new(UUID, SEED, TIME);
    set(&mut options);
    options
}

fn uuid_text(uuid: [u8; 16]) -> String {
    let hex: Vec<String> = uuid.iter().map(|b| format!("{b:02x}")).collect();
    let part = |range: std::ops::Range<usize>| hex[range].concat();
    [
        part(0..4),
        part(4..6),
        part(6..8),
        part(8..10),
        part(10..16),
    ]
    .join("-")
}

fn make(path: &Path, size: u64, options: &MkfsOptions) -> diorite::mkfs::Made {
    let file = std::fs::File::create(path).unwrap();
    file.set_len(size).unwrap();
    let open = diorite::OpenOptions::writable();
    let device = diorite::open_device(&diorite::Locator::file(path), &open).unwrap();
    mkfs(&device, options).unwrap()
}

fn theirs(dir: &Path, case: &Case) -> PathBuf {
    let path = dir.join("theirs");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(case.size).unwrap();
    let seed = uuid_text(SEED);
    let uuid = uuid_text(UUID);
    let mut args = vec!["-F", "-q", "-U", &uuid];
    let hash = format!("hash_seed={seed}");
    args.extend(["-E", &hash]);
    args.extend(case.words.split_whitespace());
    args.push(path.to_str().unwrap());
    run("mke2fs", &args);
    path
}

/// What dumpe2fs says of the whole volume, without times and what follows from them or from the order of writes. With bigalloc mke2fs gives
/// each kind of bitmap a cluster of its own, so its counts of free blocks are left out.
fn shown(image: &Path, words: &str) -> Vec<String> {
    let text = run("dumpe2fs", &["-h", image.to_str().unwrap()]);
    let skip = [
        "Filesystem created",
        "Last write time",
        "Last checked",
        "Lifetime writes",
        "Checksum:",
        "dumpe2fs",
        "Last mount time",
    ];
    let packed = words.contains("bigalloc");
    let of_space = ["Overhead clusters", "Free blocks"];
    text.lines()
        .filter(|line| !packed || !of_space.iter().any(|s| line.starts_with(s)))
        .filter(|line| !skip.iter().any(|s| line.starts_with(s)))
        .map(str::to_owned)
        .collect()
}

fn plus(o: &mut MkfsOptions, compat: Compat, incompat: Incompat, ro: RoCompat) {
    o.features = Features {
        compat: o.features.compat.with(compat),
        incompat: o.features.incompat.with(incompat),
        ro_compat: o.features.ro_compat.with(ro),
    };
}

const NOW: &str = "-t ext4 -O metadata_csum_seed,orphan_file";

fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for mib in [
        1,
        2,
        3,
        8,
        16,
        33,
        64,
        129,
        300,
        511,
        512,
        513,
        1000,
        2048,
        4100,
        20480,
        128 << 10,
        1 << 20,
        5 << 20,
    ] {
        all.push(case(mib * MIB, NOW, |_| ()));
    }
    all.extend([
        case(64 * MIB, "-t ext2", |o| {
            o.features = MkfsOptions::ext2();
        }),
        case(600 * MIB, "-t ext3", |o| {
            o.features = MkfsOptions::ext3();
        }),
        // The defect: more inodes than the groups have bits for were refused. Groups become smaller, so that there are enough. (Of what is
        // reserved mke2fs takes the percentage before it has found the last group.)
        case(
            130 * MIB,
            "-t ext4 -O metadata_csum_seed,orphan_file -b 4096 -m 0",
            |o| {
                o.block_size = Some(4096);
                o.reserved_percent = 0.0;
            },
        ),
        case(
            100 * MIB,
            "-t ext4 -O metadata_csum_seed,orphan_file -b 1024 -N 300000 -m 0",
            |o| {
                o.block_size = Some(1024);
                o.inodes = Some(300_000);
                o.reserved_percent = 0.0;
            },
        ),
        case(513 * MIB, "-t ext3 -b 4096 -i 4096 -m 0", |o| {
            o.features = MkfsOptions::ext3();
            o.block_size = Some(4096);
            o.inode_ratio = Some(4096);
            o.reserved_percent = 0.0;
        }),
        case(
            100 * MIB,
            "-t ext4 -O metadata_csum_seed,orphan_file,fast_commit",
            |o| {
                plus(
                    o,
                    Compat::FAST_COMMIT,
                    Incompat::default(),
                    RoCompat::default(),
                );
            },
        ),
        case(
            100 * MIB,
            "-t ext4 -O metadata_csum_seed,orphan_file,bigalloc -b 4096",
            |o| {
                plus(
                    o,
                    Compat::default(),
                    Incompat::default(),
                    RoCompat::BIGALLOC,
                );
                o.block_size = Some(4096);
            },
        ),
        // The defect: there were too few inodes.
        case(
            600 * MIB,
            "-t ext4 -O metadata_csum_seed,orphan_file,bigalloc -b 4096 -C 65536",
            |o| {
                plus(
                    o,
                    Compat::default(),
                    Incompat::default(),
                    RoCompat::BIGALLOC,
                );
                o.block_size = Some(4096);
                o.cluster_size = Some(65536);
            },
        ),
        case(
            100 * MIB,
            "-t ext4 -O metadata_csum_seed,orphan_file,meta_bg,^resize_inode",
            |o| {
                plus(o, Compat::default(), Incompat::META_BG, RoCompat::default());
                o.features.compat = o.features.compat.without(Compat::RESIZE_INODE);
            },
        ),
        case(
            100 * MIB,
            "-t ext4 -O metadata_csum_seed,orphan_file,^flex_bg -J size=8 -m 1.5 -N 5000",
            |o| {
                o.features.incompat = o.features.incompat.without(Incompat::FLEX_BG);
                o.journal = NewJournal::Blocks(8192);
                o.reserved_percent = 1.5;
                o.inodes = Some(5000);
            },
        ),
    ]);
    all
}

#[test]
fn numbers_are_those_of_mke2fs() {
    let dir = scratch();
    for case in cases() {
        let what = format!("{} MiB, {}", case.size / MIB, case.words);
        let ours = dir.path().join("ours");
        make(&ours, case.size, &options(case.set));
        fsck(&ours);
        let theirs = theirs(dir.path(), &case);
        let (mine, other) = (shown(&ours, case.words), shown(&theirs, case.words));
        let differs: Vec<_> = mine.iter().zip(&other).filter(|(a, b)| a != b).collect();
        assert!(
            differs.is_empty() && mine.len() == other.len(),
            "{what}: {differs:#?}"
        );
        let volume = Volume::open(ours.to_str().unwrap(), &OpenOptions::writable()).unwrap();
        volume.mkdir("/dir", 0o755).unwrap();
        let file = volume.create("/dir/file", 0o644).unwrap();
        file.write_bytes(0, &[7; 100_000]).unwrap();
        drop(file);
        volume.close().unwrap();
        fsck(&ours);
        kernel::mounted(&ours, "loop", |at| {
            std::fs::write(at.join("other"), [8; 50_000]).unwrap();
        });
        fsck(&ours);
    }
}

/// A device that fails in the middle of a new file system has none afterwards: neither a part of the new one nor the old one. So the
/// superblock is written when everything else is durable, and the old one is durably gone before.
#[test]
fn a_failure_leaves_no_superblock() {
    let parses = |device: &Arc<dyn Device>| {
        let read = Blocking::new(device.clone()).read(0, Buf::zeroed(4096));
        let buf = read.unwrap();
        let raw: &[u8; 1024] = buf.as_slice()[1024..2048].try_into().unwrap();
        Superblock::parse(raw).is_ok()
    };
    let (mut failed, mut done) = (0, false);
    for op in [BioOp::Write, BioOp::Flush] {
        for first in 1..200 {
            // With bytes of an old file system everywhere a superblock can be found.
            let below: Arc<dyn Device> = Arc::new(MemDevice::new(64 * MIB));
            mkfs(&below, &options(|o| o.label = *b"the-old-one-here")).unwrap();
            assert!(parses(&below));
            let span = When::Span {
                first,
                count: u64::MAX,
            };
            let fault = Fault::new(BioErrorKind::Io, span).on(op);
            let plan = FaultPlan::new(vec![fault], first);
            let device: Arc<dyn Device> = Arc::new(FaultDevice::new(below.clone(), plan));
            match mkfs(&device, &options(|o| o.discard = false)) {
                Err(_) => {
                    failed += 1;
                    // Before the first flush has ended the old one may be there still, as nothing was promised yet.
                    let is_first = op == BioOp::Flush && first == 1;
                    let last = op == BioOp::Flush && first == 4;
                    assert!(!parses(&below) || is_first || last, "{op:?} {first}");
                }
                Ok(_) => {
                    done = true;
                    break;
                }
            }
        }
        assert!(done, "{op:?}: it never ends well");
    }
    assert!(failed > 5, "{failed}");
}

/// A power cut at any point leaves the old file system as it was, none, or the new one. The defect: the old superblock could survive the
/// first writes, over tables that were gone.
#[test]
fn a_power_cut_leaves_the_old_one_whole_or_none() {
    let cuts = scaled("DIORITE_CUTS", 150) as usize;
    let mut rng = Rng::from_env("mkfs");
    for (mib, block_size, discard) in [(8, 1024, false), (30, 1024, true), (40, 4096, false)] {
        let old = Arc::new(MemDevice::new(mib * MIB));
        let mut set = options(|o| o.label = *b"the-old-one-here");
        set.block_size = Some(block_size);
        mkfs(&(old.clone() as Arc<dyn Device>), &set).unwrap();
        let volume = Volume::open_device(old.clone(), &OpenOptions::writable()).unwrap();
        let file = volume.create("/file", 0o644).unwrap();
        file.write_bytes(0, &[7; 2_000_000]).unwrap();
        drop(file);
        volume.close().unwrap();
        let mut base = vec![0; (mib * MIB) as usize];
        old.read_at(0, &mut base);
        let record = RecordDevice::with_volatile_cache(old);
        let device: Arc<dyn Device> = Arc::new(record.clone());
        let mut set = options(|_| ());
        set.discard = discard;
        mkfs(&device, &set).unwrap();
        let log = record.log();
        let mut walk = PowerCuts::new(base, &log);
        let (mut olds, mut nones, mut news) = (0, 0, 0);
        for cut in plan(&log, cuts, rng.below(u64::MAX), 512) {
            let image: Arc<dyn Device> = Arc::new(walk.with_image(cut, mem_of));
            let Ok(volume) = Volume::open_device(image.clone(), &OpenOptions::default()) else {
                nones += 1;
                continue;
            };
            let is_old = volume.superblock().info().label == "the-old-one-here";
            assert_eq!(volume.resolve("/file", false).is_ok(), is_old, "{cut:?}");
            drop(volume);
            let found = check_device(&image, &CheckOptions::default(), &|_| ()).unwrap();
            let said: Vec<_> = found.kept().map(|(_, finding)| &finding.what).collect();
            // A torn superblock is replaced by its copy.
            let is_torn = |what: &&String| what.contains("the superblock's checksum is wrong");
            assert!(
                said.iter().all(is_torn),
                "{mib} MiB, {cut:?}, old: {is_old}: {said:?}"
            );
            *(if is_old { &mut olds } else { &mut news }) += 1;
        }
        eprintln!("{mib} MiB: {olds} old, {nones} none, {news} new");
        assert!(olds > 0 && nones > 0 && news > 0, "{olds} {nones} {news}");
    }
}

/// As many inodes as there are files, whatever the ratio says.
#[test]
fn files_have_inodes() {
    let root = Node {
        kind: NodeKind::Directory,
        mode: 0o755,
        uid: 0,
        gid: 0,
        mtime: Timestamp { secs: 0, nanos: 0 },
        attributes: Vec::new(),
    };
    let mut tree = Tree::new(root.clone());
    for n in 0..5000 {
        let file = Node {
            kind: NodeKind::plain_file(0),
            ..root.clone()
        };
        let id = tree.add(file).unwrap();
        tree.link(NodeId::ROOT, format!("{n}").as_bytes(), id)
            .unwrap();
    }
    let device: Arc<dyn Device> = Arc::new(MemDevice::new(16 * MIB));
    let made = mkfs_filled(&device, &options(|_| ()), tree, &NoContents, &|_| true).unwrap();
    assert!(made.inodes > 5000, "{made:?}");
    let volume = Volume::open_device(device, &OpenOptions::default()).unwrap();
    assert_eq!(volume.read_dir(Ino::ROOT).unwrap().count(), 5003);
}

/// The defect: when the callback, or the source, panicked in all threads that copy files, the caller waited forever for room for the next
/// write.
#[test]
fn a_panic_of_the_callers_code_ends_the_filling() {
    struct Panics;
    impl Contents for Panics {
        fn read(&self, _: NodeId, _: u64, _: &mut [u8]) -> std::io::Result<()> {
            panic!("a source");
        }
    }
    let (sender, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for in_source in [false, true] {
            let node = |kind| Node {
                kind,
                mode: 0o755,
                uid: 0,
                gid: 0,
                mtime: Timestamp { secs: 0, nanos: 0 },
                attributes: Vec::new(),
            };
            let mut tree = Tree::new(node(NodeKind::Directory));
            let file = tree.add(node(NodeKind::plain_file(40 * MIB))).unwrap();
            tree.link(NodeId::ROOT, b"file", file).unwrap();
            let device: Arc<dyn Device> = Arc::new(MemDevice::new(64 * MIB));
            let progress = |_| in_source || panic!("a callback");
            let made = mkfs_filled(&device, &options(|_| ()), tree, &Panics, &progress);
            let _ = sender.send((made, Volume::open_device(device, &OpenOptions::default())));
        }
    });
    for _ in 0..2 {
        let (made, opened) = ended
            .recv_timeout(std::time::Duration::from_secs(60))
            .expect("it ends");
        assert!(
            matches!(made, Err(diorite::mkfs::Error::Panicked)),
            "{made:?}"
        );
        assert!(opened.is_err());
    }
}

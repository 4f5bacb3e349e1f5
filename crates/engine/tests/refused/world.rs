//! The volume that calls are made on, and what of it must not change.
//!
//! Input: a way to open it. Output: [`World`], and [`State`] of it at a moment. Invariants: whatever somebody else may hold is held: open
//! files with and without a name, references by number, an attached file, dirty pages, a flusher. Limits: access times are not compared.

use crate::common::stage::mem_of;
use crate::common::valve::Valve;
use crate::common::{fsck, run, scratch};
use diorite::device::{Device, MemDevice};
use diorite::{
    Error, Fallocate, File, FileId, Ino, OpenFlags, OpenOptions, PageCache, Queue, Repair, Request,
    Volume,
};
use diorite_block::Buf;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

pub const MIB: u64 = 1 << 20;
/// The size of the device: the volume can grow.
pub const DEVICE: u64 = 12 * MIB;
/// Age at which dirty pages are written back by themselves.
const AGE: Duration = Duration::from_millis(30);
/// How long the flusher may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The image with its files, made once.
fn image() -> &'static [u8] {
    static IMAGE: OnceLock<Vec<u8>> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let dir = scratch();
        let path = dir.path().join("image");
        let words = "-q -F -t ext4 -b 1024 -J size=1 -m 0 -N 64 -E resize=65536";
        let mut args: Vec<&str> = words.split(' ').collect();
        args.extend([path.to_str().unwrap(), "8M"]);
        run("mke2fs", &args);
        let mut bytes = std::fs::read(path).unwrap();
        bytes.resize(DEVICE as usize, 0);
        let mem = Arc::new(mem_of(&bytes));
        fill(&mem);
        mem.read_at(0, &mut bytes);
        bytes
    })
}

pub struct World {
    pub mem: Arc<MemDevice>,
    pub valve: Valve,
    pub volume: Volume,
    /// `/file`, 20,480 bytes, with an attribute and a second name `/d/other`.
    pub file: File,
    /// A file without a name, of 5,000 bytes.
    pub nameless: File,
    /// `/known`, and an inode without a name that is only known.
    pub known: Ino,
    pub forgotten: Ino,
    pub queue: Queue,
    pub id: FileId,
    /// A file of another volume.
    pub stranger: File,
}

/// All that calls which fail must leave alone.
#[derive(Debug, PartialEq, Eq)]
pub struct State {
    /// By path.
    tree: BTreeMap<String, Node>,
    nameless: (u64, u32),
    known: [Option<u64>; 2],
    size: u64,
    label: String,
}

#[derive(Debug, PartialEq, Eq)]
struct Node {
    ino: Ino,
    mode: u16,
    owner: (u32, u32),
    links: u16,
    flags: u32,
    generation: u32,
    times: [(i64, u32); 2],
    size: u64,
    sum: u32,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

impl State {
    /// Without times: bytes may have changed although their write has failed.
    pub fn without_times(mut self) -> State {
        self.tree
            .values_mut()
            .for_each(|node| node.times = Default::default());
        self
    }

    /// What is not the same, for a person.
    pub fn difference(&self, other: &State) -> String {
        let mut said = Vec::new();
        for (path, node) in &self.tree {
            let there = other.tree.get(path);
            if there != Some(node) {
                said.push(format!("{path}: {node:?} is {there:?}"));
            }
        }
        let new = other
            .tree
            .keys()
            .filter(|path| !self.tree.contains_key(*path));
        said.extend(new.map(|path| format!("{path} is new")));
        let rest = |s: &State| format!("{:?} {:?} {} {}", s.nameless, s.known, s.size, s.label);
        said.push(format!("{} is {}", rest(self), rest(other)));
        said.join("\n")
    }
}

fn options() -> OpenOptions {
    OpenOptions::writable()
        .workers(1)
        .write_back_age(AGE)
        .page_cache(PageCache::new(4 << 20))
}

impl World {
    pub fn new() -> World {
        World::opened(|_| ())
    }

    /// With other options than usual for the volume that calls are made on.
    pub fn opened(change: impl FnOnce(&mut OpenOptions)) -> World {
        let mem = Arc::new(mem_of(image()));
        let valve = Valve::new(mem.clone());
        let device: Arc<dyn Device> = Arc::new(valve.clone());
        let mut options = options();
        change(&mut options);
        let volume = Volume::open_device(device, &options).unwrap();
        let writable = options.write;
        let flags = OpenFlags::default().write(writable);
        let file = volume.open_path("/file", flags).unwrap();
        let known = volume.resolve("/known", true).unwrap();
        let nameless = volume.open_path("/nameless", flags).unwrap();
        let forgotten = volume.resolve("/forgotten", true).unwrap();
        volume.know(known).unwrap();
        volume.know(forgotten).unwrap();
        if writable {
            volume.unlink("/nameless").unwrap();
            volume.unlink("/forgotten").unwrap();
            volume.sync().unwrap();
        }
        let queue = volume.queue(8).unwrap();
        let id = queue.attach(&file).unwrap();
        World {
            mem,
            valve,
            volume,
            file,
            nameless,
            known,
            forgotten,
            queue,
            id,
            stranger: stranger(),
        }
    }

    /// Makes a page dirty, of a block that the file has.
    pub fn make_dirty(&self) {
        let file = self.volume.open_path("/dirty", WRITE).unwrap();
        file.write_bytes(100, b"dirty").unwrap();
    }

    pub fn state(&self) -> Result<State, Error> {
        let volume = &self.volume;
        let known = [self.known, self.forgotten].map(|ino| volume.metadata(ino).ok().map(|m| m.1));
        let mut tree = BTreeMap::new();
        look(volume, Ino::ROOT, "", &mut tree)?;
        Ok(State {
            tree,
            nameless: (self.nameless.size(), sum(&self.nameless)?),
            known,
            size: volume.superblock().geometry().volume_bytes(),
            label: volume.superblock().info().label.clone(),
        })
    }

    /// Asserts that the flusher works: what is dirty is written back by itself.
    pub fn expect_flusher(&self, label: &str) {
        self.make_dirty();
        let end = Instant::now() + PATIENCE;
        while self.volume.page_cache().dirty_bytes() > 0 {
            assert!(Instant::now() < end, "{label}: nobody writes back");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Asserts that requests of the queue are answered, and that the volume can be changed.
    pub fn expect_service(&self, label: &str) {
        let mut buf = Buf::zeroed(1024);
        buf.as_mut_slice().fill(0xee);
        let before = self.queue.in_use();
        self.queue.push(Request::read(self.id, 0, buf, 7)).unwrap();
        let done = self.queue.reap_one(Some(PATIENCE)).expect("an answer");
        assert_eq!((before, done.token), (0, 7), "{label}");
        assert_eq!(done.result.unwrap(), 1024, "{label}");
        assert!(done.buf.as_slice() == &pattern(1024)[..], "{label}");
        self.volume
            .set_attr(Ino::ROOT, &diorite::SetAttr::default())
            .unwrap();
    }

    /// Free blocks and inodes when nothing is under way. Blocks.
    pub fn free(&self) -> (u64, u64) {
        self.volume.give_back_claims();
        self.volume.sync().unwrap();
        let usage = self.volume.usage();
        assert_eq!(
            (
                usage.requests,
                usage.in_flight,
                usage.pending,
                usage.claimed()
            ),
            (0, 0, 0, 0),
            "{usage:?}"
        );
        (usage.free + usage.waiting, usage.free_inodes)
    }

    /// Takes all free blocks, with a file `/filler`.
    pub fn take_blocks(&self) {
        let file = self.volume.create("/filler", 0o644).unwrap();
        let (mut at, mut step) = (0, 1u64 << 20);
        while step >= 1024 {
            let mode = Fallocate::Allocate { keep_size: false };
            match file.fallocate(mode, at, step) {
                Ok(()) => at += step,
                Err(_) => step /= 2,
            }
        }
        self.volume.sync().unwrap();
    }

    /// Takes all free inodes.
    pub fn take_inodes(&self) {
        for n in 0.. {
            if self.volume.create(&format!("/empty/{n}"), 0o644).is_err() {
                break;
            }
        }
        self.volume.sync().unwrap();
    }

    /// Can nothing be changed any more?
    pub fn is_latched(&self) -> bool {
        let none = diorite::SetAttr::default();
        self.volume.set_attr(Ino::ROOT, &none).is_err()
    }

    /// What is on the device.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; DEVICE as usize];
        self.mem.read_at(0, &mut bytes);
        bytes
    }

    /// Closes the volume, and asserts that it is consistent.
    pub fn end(self, label: &str) {
        let World {
            mem,
            volume,
            file,
            nameless,
            queue,
            ..
        } = self;
        drop((queue, file, nameless));
        volume.close().unwrap_or_else(|e| panic!("{label}: {e}"));
        check(&mem);
    }
}

pub const WRITE: OpenFlags = OpenFlags::writable();

/// Asserts that what is on the device is consistent once it was opened for writing.
pub fn check(mem: &MemDevice) {
    let mut bytes = vec![0; DEVICE as usize];
    mem.read_at(0, &mut bytes);
    let copy = Arc::new(mem_of(&bytes));
    // An error may be recorded.
    let options = options().repair(Repair::default());
    let volume = Volume::open_device(copy.clone(), &options).unwrap();
    volume.note_checked().unwrap();
    volume.close().unwrap();
    copy.read_at(0, &mut bytes);
    let dir = scratch();
    let path = dir.path().join("image");
    std::fs::write(&path, &bytes).unwrap();
    fsck(&path);
}

pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 % 251) as u8).collect()
}

fn fill(mem: &Arc<MemDevice>) {
    let volume = Volume::open_device(mem.clone(), &options()).unwrap();
    let file = |name: &str, len: usize| {
        let file = volume.create(name, 0o644).unwrap();
        file.write_bytes(0, &pattern(len)).unwrap();
        file
    };
    let main = file("/file", 20_480);
    volume.set_xattr(main.ino(), "user.a", b"value").unwrap();
    volume.mkdir("/d", 0o755).unwrap();
    volume.mkdir("/empty", 0o755).unwrap();
    volume.link("/file", "/d/other").unwrap();
    volume.symlink("/file", "/link").unwrap();
    for name in ["/dirty", "/known", "/nameless", "/forgotten", "/d/inner"] {
        file(name, 5000);
    }
    drop(main);
    volume.close().unwrap();
}

fn stranger() -> File {
    let mem = Arc::new(mem_of(image()));
    let volume = Volume::open_device(mem, &options()).unwrap();
    volume.create("/stranger", 0o644).unwrap()
}

fn look(
    volume: &Volume,
    dir: Ino,
    path: &str,
    tree: &mut BTreeMap<String, Node>,
) -> Result<(), Error> {
    for entry in volume.read_dir(dir)? {
        let entry = entry?;
        if [&b"."[..], b".."].contains(&&entry.name[..]) {
            continue;
        }
        let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
        let (inode, size) = volume.metadata(entry.ino)?;
        let time = |t: diorite::Timestamp| (t.secs, t.nanos);
        let sum = match inode.is_file() {
            true => sum(&volume.open_ino(entry.ino, OpenFlags::default())?)?,
            false => 0,
        };
        let attributes = volume.xattrs(entry.ino)?;
        let node = Node {
            ino: entry.ino,
            mode: inode.mode,
            owner: (inode.uid, inode.gid),
            links: inode.links,
            flags: inode.flags.bits(),
            generation: inode.generation,
            times: [time(inode.mtime), time(inode.ctime)],
            size,
            sum,
            attributes: attributes.into_iter().map(|a| (a.name, a.value)).collect(),
        };
        tree.insert(path.clone(), node);
        if inode.is_dir() {
            look(volume, entry.ino, &path, tree)?;
        }
    }
    Ok(())
}

fn sum(file: &File) -> Result<u32, Error> {
    let mut bytes = vec![0; usize::try_from(file.size()).unwrap().min(1 << 20)];
    file.read_bytes(0, &mut bytes)?;
    Ok(diorite::format::csum::crc32c(0, &bytes))
}

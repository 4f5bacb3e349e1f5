//! Replies: the fields behind a reply's header.
//!
//! Input: checked inodes, counts. Output: bytes at the end of a vector. Invariants: every reply has the length that the protocol gives it;
//! no record of a listing is cut. Limits: protocol 7.31 or newer.

use diorite_format::{FileType, Inode};

/// The length of a reply's header.
pub const HEADER: usize = 16;

/// A reply's header. `error`: 0, or the negative of an error number.
#[must_use]
pub fn header(len: usize, error: i32, unique: u64) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    let len = u32::try_from(HEADER + len).expect("replies are limited by the largest read");
    bytes[..4].copy_from_slice(&len.to_ne_bytes());
    bytes[4..8].copy_from_slice(&error.to_ne_bytes());
    bytes[8..].copy_from_slice(&unique.to_ne_bytes());
    bytes
}

/// A reply under construction.
pub trait Put {
    /// Adds a field of 16 bits.
    fn u16(&mut self, value: u16);
    /// Adds a field of 32 bits.
    fn u32(&mut self, value: u32);
    /// Adds a field of 64 bits.
    fn u64(&mut self, value: u64);
    /// Adds zeros.
    fn zeros(&mut self, len: usize);
}

impl Put for Vec<u8> {
    fn u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_ne_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_ne_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_ne_bytes());
    }

    fn zeros(&mut self, len: usize) {
        self.resize(self.len() + len, 0);
    }
}

/// What the kernel is told about an inode, and for how long it may believe it.
#[derive(Clone, Copy, Debug)]
pub struct Attr<'a> {
    /// The inode.
    pub inode: &'a Inode,
    /// Its size, with what is not written back yet.
    pub size: u64,
    /// The owner that is shown.
    pub owner: (u32, u32),
    /// The volume's block, in bytes.
    pub block_size: u32,
    /// It may change without a request that the kernel knows to change it: it has to ask each time.
    pub changes: bool,
}

/// How long the kernel may believe names and attributes, in seconds. All changes pass through the kernel, which forgets what they make
/// untrue.
const VALID: u64 = 1 << 30;

/// A device number as the protocol has it.
fn device(inode: &Inode) -> u32 {
    inode.rdev().map_or(0, |rdev| {
        rdev.minor & 0xFF | rdev.major << 8 | (rdev.minor & !0xFF) << 12
    })
}

/// The device number of a request.
#[must_use]
pub fn rdev(number: u32) -> diorite_format::inode::Rdev {
    diorite_format::inode::Rdev {
        major: number >> 8 & 0xFFF,
        minor: number & 0xFF | number >> 12 & 0xF_FF00,
    }
}

fn seconds(time: diorite_format::Timestamp) -> u64 {
    time.secs.cast_unsigned()
}

impl Attr<'_> {
    fn valid(&self) -> u64 {
        if self.changes { 0 } else { VALID }
    }

    /// `fuse_attr`.
    pub fn put(&self, to: &mut Vec<u8>) {
        let (inode, (uid, gid)) = (self.inode, self.owner);
        to.u64(u64::from(inode.ino.get()));
        to.u64(self.size);
        to.u64(inode.blocks);
        for time in [inode.atime, inode.mtime, inode.ctime] {
            to.u64(seconds(time));
        }
        for time in [inode.atime, inode.mtime, inode.ctime] {
            to.u32(time.nanos);
        }
        to.u32(u32::from(inode.mode));
        to.u32(u32::from(inode.links));
        to.u32(uid);
        to.u32(gid);
        to.u32(device(inode));
        to.u32(self.block_size);
        to.u32(0);
    }

    /// `fuse_attr_out`.
    pub fn put_alone(&self, to: &mut Vec<u8>) {
        to.u64(self.valid());
        to.u32(0);
        to.u32(0);
        self.put(to);
    }

    /// `fuse_entry_out`. The generation is the one that the kernel knows the node by.
    pub fn put_entry(&self, (node, generation): (u64, u32), to: &mut Vec<u8>) {
        to.u64(node);
        to.u64(u64::from(generation));
        to.u64(VALID);
        to.u64(self.valid());
        to.u32(0);
        to.u32(0);
        self.put(to);
    }

    /// `fuse_statx_out`, with the time of creation.
    pub fn put_statx(&self, to: &mut Vec<u8>) {
        /// STATX_BASIC_STATS, and STATX_BTIME.
        const BASIC: u32 = 0x7FF;
        const BTIME: u32 = 0x800;
        let (inode, (uid, gid)) = (self.inode, self.owner);
        to.u64(self.valid());
        to.u32(0);
        to.u32(0);
        to.zeros(16);
        let btime = inode.crtime.map_or(0, |_| BTIME);
        to.u32(BASIC | btime);
        to.u32(self.block_size);
        to.u64(0);
        to.u32(u32::from(inode.links));
        to.u32(uid);
        to.u32(gid);
        to.u16(inode.mode);
        to.u16(0);
        to.u64(u64::from(inode.ino.get()));
        to.u64(self.size);
        to.u64(inode.blocks);
        to.u64(0);
        let born = inode.crtime.unwrap_or_default();
        for time in [inode.atime, born, inode.ctime, inode.mtime] {
            to.u64(seconds(time));
            to.u32(time.nanos);
            to.u32(0);
        }
        let rdev = inode.rdev();
        to.u32(rdev.map_or(0, |r| r.major));
        to.u32(rdev.map_or(0, |r| r.minor));
        to.zeros(8 + 14 * 8);
    }
}

/// `fuse_entry_out` of a name that does not exist, which the kernel may believe.
pub fn put_no_entry(to: &mut Vec<u8>) {
    to.u64(0);
    to.u64(0);
    to.u64(VALID);
    to.zeros(16 + 88);
}

/// `fuse_open_out`.
pub fn put_open(handle: u64, flags: u32, to: &mut Vec<u8>) {
    to.u64(handle);
    to.u32(flags);
    to.u32(0);
}

/// A record of a listing.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The inode.
    pub ino: u64,
    /// The position behind it.
    pub position: u64,
    /// What it is, if known.
    pub kind: Option<FileType>,
    /// Its name.
    pub name: &'a [u8],
}

/// The length of `fuse_entry_out`, which every record of READDIRPLUS begins with.
pub const ENTRY: usize = 128;

impl Record<'_> {
    /// The bytes that it takes, `plus` an entry.
    #[must_use]
    pub fn len(&self, plus: bool) -> usize {
        (24 + self.name.len()).next_multiple_of(8) + if plus { ENTRY } else { 0 }
    }

    /// `fuse_dirent`.
    pub fn put(&self, to: &mut Vec<u8>) {
        let start = to.len();
        to.u64(self.ino);
        to.u64(self.position);
        to.u32(u32::try_from(self.name.len()).expect("names have at most 255 bytes"));
        // As in a mode, four bits lower: the number of the host's DT_ constants.
        to.u32(self.kind.map_or(0, |kind| u32::from(kind.to_mode() >> 12)));
        to.extend_from_slice(self.name);
        let len = to.len() - start;
        to.zeros(len.next_multiple_of(8) - len);
    }
}

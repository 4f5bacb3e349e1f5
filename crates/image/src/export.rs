//! Files of a volume as a tar archive.
//!
//! Input: a volume, a directory in it. Output: an archive in the POSIX format (PAX): owners and times to the nanosecond, extended
//! attributes (`SCHILY.xattr.*`), access control lists, hard links, devices, and the holes of sparse files in GNU tar's format 1.0.
//! Invariants: names come in the order of their bytes, so the same volume gives the same archive; a name that would have to be changed is
//! an error. Limits: sockets have no form in an archive and are left out; they are counted. Source: POSIX pax; the GNU tar manual, "PAX
//! Format, Version 1.0".

use crate::acl;
use crate::assembly::shown;
use crate::error::{Error, Place};
use crate::volume::data;
use diorite::format::Inode;
use diorite::{Buf, File, FileType, Ino, OpenFlags, Timestamp, Volume, Xattr};
use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{self, Write};
use std::iter::once;
use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use tar::{EntryType, Header};

const BLOCK: u64 = 512;
/// Bytes of a large file that are read at once.
const PIECE: usize = 1 << 20;
/// Files of at most so many bytes, in so many parts, are read ahead.
const SMALL: u64 = 256 << 10;
const FEW: usize = 16;
/// Files that are read ahead, and threads that do it.
const AHEAD: usize = 128;
const READERS: usize = 3;
/// What direct reads are multiples of: no device has larger blocks.
const ALIGN: u64 = 4096;
/// Holes of a file, in bytes, below which it is written as if it had none.
const LEAST_HOLE: u64 = 4096;
/// The largest number in seven octal digits.
const MOST_OCTAL: u64 = 0o7_777_777;
/// The largest size in eleven octal digits.
const MOST_SIZE: u64 = 0o77_777_777_777;

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Files, directories included.
    pub files: u64,
    /// Bytes of data.
    pub bytes: u64,
    /// Sockets that were left out.
    pub sockets: u64,
}

/// Writes everything below a directory, whose path is text or bytes, and the directory itself as `./`. Files are read by several threads,
/// ahead of what is written. `progress` is told files and bytes so far, and ends it with false. Blocks.
///
/// ```
/// use diorite::device::{Device, MemDevice};
/// use diorite::mkfs::MkfsOptions;
/// use diorite::{OpenOptions, Volume};
/// use diorite_image::{ImageBuilder, Size, export::to_tar};
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), diorite_image::Error> {
/// let mut builder = ImageBuilder::new(MkfsOptions::new([1; 16], [2; 16], 1_700_000_000));
/// builder.add_file("/etc/hostname", 0o644, "example\n")?;
/// let plan = builder.plan(Size::Bytes(16 << 20))?;
/// let device: Arc<dyn Device> = Arc::new(MemDevice::new(plan.bytes()));
/// plan.write(&device, &|_bytes| true)?;
///
/// let volume = Volume::open_device(device, &OpenOptions::default())?;
/// let mut archive = Vec::new();
/// let done = to_tar(&volume, "/etc", &mut archive, &|_done| true)?;
/// assert_eq!((done.files, done.bytes), (2, 8));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `top` is no directory; the volume is damaged; `out` fails; `progress` ended it.
pub fn to_tar(
    volume: &Volume,
    top: &(impl AsRef<[u8]> + ?Sized),
    out: &mut dyn Write,
    progress: &dyn Fn(&Exported) -> bool,
) -> Result<Exported, Error> {
    let top = top.as_ref();
    let root = volume.resolve(top, true).at(shown(top))?;
    if !volume.metadata(root)?.0.is_dir() {
        return Err(Error::new("it is no directory")).at(shown(top));
    }
    let (sender, receiver) = sync_channel(AHEAD);
    let receiver = Mutex::new(receiver);
    let mut export = Export {
        volume,
        out,
        names: HashMap::new(),
        done: Exported::default(),
        buf: vec![0; PIECE],
        progress,
    };
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            let reader = || look_ahead(volume, &receiver);
            let started = Builder::new().spawn_scoped(scope, reader);
            started
                .map_err(|e| Error::new(format!("cannot start a thread that reads files: {e}")))?;
        }
        // Ends the threads, also after a failure: they find no sender any more.
        let done = export.all(root, &sender);
        drop(sender);
        done
    })?;
    export.out.write_all(&[0; 2 * BLOCK as usize])?;
    export.out.flush()?;
    Ok(export.done)
}

/// What is known of a file when its turn comes.
struct Found {
    inode: Arc<Inode>,
    size: u64,
    attributes: Vec<Xattr>,
    body: Body,
}

enum Body {
    None,
    /// The target of a symbolic link.
    Link(Vec<u8>),
    /// Where a file has data; and the data, if it is not much.
    Data(Vec<Range<u64>>, Option<Vec<Buf>>),
}

/// A file to be read, and who waits for it.
type Job = (Ino, SyncSender<Result<Found, Error>>);

fn look_ahead(volume: &Volume, jobs: &Mutex<Receiver<Job>>) {
    loop {
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((ino, waits)) = next else { return };
        // Nobody waits any more if the export has failed.
        let _ = waits.send(look(volume, ino));
    }
}

fn look(volume: &Volume, ino: Ino) -> Result<Found, Error> {
    let (inode, size) = volume.metadata(ino)?;
    let mut attributes = volume.xattrs(ino)?;
    attributes.sort_by(|a, b| a.name.cmp(&b.name));
    let body = match inode.file_type {
        Some(FileType::Symlink) => Body::Link(volume.read_link(ino)?),
        Some(FileType::Regular) => {
            let flags = OpenFlags::default().direct(true);
            let file = volume.open_ino(ino, flags)?;
            // As much space as bytes: there are no holes to look for.
            let ranges = match inode.blocks.saturating_mul(BLOCK) >= size {
                true => (size > 0).then_some(0..size).into_iter().collect(),
                false => data(&file, size)?,
            };
            let stored: u64 = ranges.iter().map(|r| r.end - r.start).sum();
            let few = stored <= SMALL && ranges.len() <= FEW;
            let bytes = few.then(|| ranges.iter().map(|range| read(&file, range)).collect());
            Body::Data(ranges, bytes.transpose()?)
        }
        _ => Body::None,
    };
    Ok(Found {
        inode,
        size,
        attributes,
        body,
    })
}

/// A range of a file, which begins at a block: in a buffer that may be longer.
fn read(file: &File, range: &Range<u64>) -> Result<Buf, Error> {
    let len = (range.end - range.start).next_multiple_of(ALIGN) as usize;
    let buf = Buf::try_zeroed(len).ok_or_else(|| Error::new("no memory"))?;
    let (buf, got) = file.read_buf(range.start, buf);
    match got? as u64 >= range.end - range.start {
        true => Ok(buf),
        false => Err(Error::new("it ends before its end")),
    }
}

struct Export<'e> {
    volume: &'e Volume,
    out: &'e mut dyn Write,
    /// The first name of files with several.
    names: HashMap<Ino, Vec<u8>>,
    done: Exported,
    buf: Vec<u8>,
    progress: &'e dyn Fn(&Exported) -> bool,
}

/// Records of PAX about one entry.
#[derive(Default)]
struct Records(Vec<u8>);

impl Records {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        // The length counts itself.
        let rest = key.len() + value.len() + 3;
        let mut len = rest + 1;
        while len != rest + len.to_string().len() {
            len = rest + len.to_string().len();
        }
        self.0.extend_from_slice(len.to_string().as_bytes());
        self.0.push(b' ');
        self.0.extend_from_slice(key);
        self.0.push(b'=');
        self.0.extend_from_slice(value);
        self.0.push(b'\n');
    }
}

impl Export<'_> {
    /// The names of a directory with their paths, and whether they are directories; the first one last.
    fn children(&self, dir: Ino, path: &[u8]) -> Result<Vec<(Vec<u8>, Ino, bool)>, Error> {
        let mut names = Vec::new();
        for entry in self.volume.read_dir(dir)? {
            let entry = entry?;
            if &entry.name[..] == b"." || &entry.name[..] == b".." {
                continue;
            }
            let is_dir = match entry.file_type {
                Some(kind) => kind == FileType::Directory,
                None => self.volume.metadata(entry.ino)?.0.is_dir(),
            };
            names.push(([path, &entry.name[..]].concat(), entry.ino, is_dir));
        }
        names.sort();
        names.reverse();
        Ok(names)
    }

    /// Writes everything, in order.
    fn all(&mut self, root: Ino, jobs: &SyncSender<Job>) -> Result<(), Error> {
        let gone = || Error::new("a part of diorite panicked");
        // Entries that are still to be looked at, the next one last; and those that are being read, the next one first.
        let mut todo = vec![(b"./".to_vec(), root, true)];
        let (mut waiting, mut seen) = (VecDeque::new(), HashSet::new());
        loop {
            while waiting.len() < AHEAD
                && let Some((path, ino, is_dir)) = todo.pop()
            {
                let (answer, answers) = sync_channel(1);
                jobs.send((ino, answer)).map_err(|_| gone())?;
                if is_dir {
                    if !seen.insert(ino) {
                        let why = "a directory with two names: the image is damaged";
                        return Err(Error::new(why)).at(shown(&path));
                    }
                    let dir = match path.ends_with(b"/") {
                        true => path.clone(),
                        false => [&path[..], b"/"].concat(),
                    };
                    todo.extend(self.children(ino, &dir).at(shown(&path))?);
                }
                waiting.push_back((path, ino, answers));
            }
            let Some((path, ino, answers)) = waiting.pop_front() else {
                return Ok(());
            };
            let found = answers.recv().map_err(|_| gone())?;
            found
                .and_then(|found| self.one(ino, &path, found))
                .at(shown(&path))?;
        }
    }

    /// Writes one entry.
    fn one(&mut self, ino: Ino, path: &[u8], found: Found) -> Result<(), Error> {
        let inode = &found.inode;
        let is_dir = inode.is_dir();
        if inode.file_type == Some(FileType::Socket) {
            // None of its names is in the archive.
            let is_first = self.names.insert(ino, Vec::new()).is_none();
            self.done.sockets += u64::from(is_first);
            return Ok(());
        }
        let (mut records, mut header) = (Records::default(), Header::new_ustar());
        describe(&found, &mut header, &mut records)?;
        if inode.links > 1 && !is_dir {
            if let Some(first) = self.names.get(&ino).cloned() {
                header.set_entry_type(EntryType::Link);
                let mut only_names = Records::default();
                set_link(&mut header, &mut only_names, &first);
                return self.entry(header, only_names, path, 0);
            }
            self.names.insert(ino, path.to_vec());
        }
        let kind = match (inode.file_type, found.body) {
            (_, Body::Data(ranges, bytes)) => {
                return self.regular((ino, found.size), header, records, path, (&ranges, bytes));
            }
            (_, Body::Link(target)) => {
                set_link(&mut header, &mut records, &target);
                EntryType::Symlink
            }
            (Some(FileType::Directory), _) => EntryType::Directory,
            (Some(FileType::CharDevice), _) => EntryType::Char,
            (Some(FileType::BlockDevice), _) => EntryType::Block,
            (Some(FileType::Fifo), _) => EntryType::Fifo,
            _ => return Err(Error::new("it is of no known kind")),
        };
        header.set_entry_type(kind);
        if matches!(kind, EntryType::Char | EntryType::Block) {
            let numbers = inode.rdev();
            let numbers = numbers.ok_or_else(|| Error::new("a device without numbers"))?;
            header.set_device_major(numbers.major)?;
            header.set_device_minor(numbers.minor)?;
        }
        match is_dir && !path.ends_with(b"/") {
            true => self.entry(header, records, &[path, b"/"].concat(), 0),
            false => self.entry(header, records, path, 0),
        }
    }

    fn regular(
        &mut self,
        (ino, size): (Ino, u64),
        mut header: Header,
        mut records: Records,
        path: &[u8],
        (ranges, bytes): (&[Range<u64>], Option<Vec<Buf>>),
    ) -> Result<(), Error> {
        header.set_entry_type(EntryType::Regular);
        let stored: u64 = ranges.iter().map(|r| r.end - r.start).sum();
        let is_sparse = stored + LEAST_HOLE < size;
        let (map, len) = match is_sparse {
            true => {
                let map = sparse_map(ranges, size);
                let len = map.len() as u64 + stored;
                (map, len)
            }
            false => (Vec::new(), size),
        };
        if is_sparse {
            records.add(b"GNU.sparse.major", b"1");
            records.add(b"GNU.sparse.minor", b"0");
            records.add(b"GNU.sparse.name", path);
            records.add(b"GNU.sparse.realsize", size.to_string().as_bytes());
            let cut = path.iter().rposition(|byte| *byte == b'/');
            let (dir, name) = path.split_at(cut.map_or(0, |at| at + 1));
            let named = [dir, b"GNUSparseFile.0/", name].concat();
            self.entry(header, records, &named, len)?;
        } else {
            self.entry(header, records, path, len)?;
        }
        self.out.write_all(&map)?;
        match bytes {
            Some(bytes) => {
                let mut at = 0;
                for (range, buf) in ranges.iter().zip(&bytes) {
                    // A small hole of a file that is not sparse.
                    if !is_sparse {
                        self.zeros(range.start - at)?;
                    }
                    let part = &buf.as_slice()[..(range.end - range.start) as usize];
                    self.out.write_all(part)?;
                    self.done.bytes += part.len() as u64;
                    at = range.end;
                }
                if !is_sparse {
                    self.zeros(size - at)?;
                }
                self.tell()?;
            }
            None => {
                let whole: Vec<Range<u64>> = once(0..size).collect();
                self.pieces(ino, if is_sparse { ranges } else { &whole })?;
            }
        }
        self.pad(len)?;
        Ok(())
    }

    /// Reads and writes the parts of a large file.
    fn pieces(&mut self, ino: Ino, parts: &[Range<u64>]) -> Result<(), Error> {
        let file = self.volume.open_ino(ino, OpenFlags::default())?;
        for part in parts {
            let mut at = part.start;
            while at < part.end {
                let step = (part.end - at).min(PIECE as u64) as usize;
                let got = file.read_bytes(at, &mut self.buf[..step])?;
                if got == 0 {
                    return Err(Error::new("it ends before its end"));
                }
                self.out.write_all(&self.buf[..got])?;
                at += got as u64;
                self.done.bytes += got as u64;
                self.tell()?;
            }
        }
        Ok(())
    }

    fn tell(&self) -> Result<(), Error> {
        match (self.progress)(&self.done) {
            true => Ok(()),
            false => Err(Error::new("it was ended before it was complete")),
        }
    }

    fn zeros(&mut self, mut count: u64) -> io::Result<()> {
        while count > 0 {
            let step = count.min(BLOCK);
            self.out.write_all(&[0; BLOCK as usize][..step as usize])?;
            count -= step;
        }
        Ok(())
    }

    fn pad(&mut self, written: u64) -> io::Result<()> {
        let more = written.next_multiple_of(BLOCK) - written;
        self.out.write_all(&[0; BLOCK as usize][..more as usize])
    }

    /// Writes the headers of an entry.
    fn entry(
        &mut self,
        mut header: Header,
        mut records: Records,
        path: &[u8],
        len: u64,
    ) -> Result<(), Error> {
        if path.len() > 100 {
            records.add(b"path", path);
        }
        if len > MOST_SIZE {
            records.add(b"size", len.to_string().as_bytes());
        }
        if !records.0.is_empty() {
            let mut extra = Header::new_ustar();
            extra.set_entry_type(EntryType::XHeader);
            extra.set_mode(0o644);
            extra.set_uid(0);
            extra.set_gid(0);
            extra.set_mtime(0);
            let of = path.iter().rev().take(80).copied().collect::<Vec<u8>>();
            let of: Vec<u8> = of.into_iter().rev().collect();
            set_name(&mut extra, &[b"PaxHeaders/", &of[..]].concat());
            extra.set_size(records.0.len() as u64);
            extra.set_cksum();
            self.out.write_all(extra.as_bytes())?;
            self.out.write_all(&records.0)?;
            self.pad(records.0.len() as u64)?;
        }
        set_name(&mut header, path);
        header.set_size(len.min(MOST_SIZE));
        header.set_cksum();
        self.out.write_all(header.as_bytes())?;
        self.done.files += 1;
        self.tell()
    }
}

/// Sets what all kinds of files have.
fn describe(found: &Found, header: &mut Header, records: &mut Records) -> Result<(), Error> {
    let inode = &found.inode;
    header.set_mode(u32::from(inode.mode & 0o7777));
    for (key, id) in [("uid", inode.uid), ("gid", inode.gid)] {
        let stored = u64::from(id).min(MOST_OCTAL);
        match key {
            "uid" => header.set_uid(stored),
            _ => header.set_gid(stored),
        }
        if u64::from(id) > MOST_OCTAL {
            records.add(key.as_bytes(), id.to_string().as_bytes());
        }
    }
    let Timestamp { secs, nanos } = inode.mtime;
    let plain = u64::try_from(secs).ok().filter(|s| *s <= MOST_SIZE);
    header.set_mtime(plain.unwrap_or(0));
    if nanos != 0 || plain.is_none() {
        records.add(b"mtime", decimal(secs, nanos).as_bytes());
    }
    for attribute in &found.attributes {
        let list = match &attribute.name[..] {
            b"system.posix_acl_access" => Some("SCHILY.acl.access"),
            b"system.posix_acl_default" => Some("SCHILY.acl.default"),
            _ => None,
        };
        match (list, acl::to_text(&attribute.value)) {
            (Some(key), Some(text)) => records.add(key.as_bytes(), text.as_bytes()),
            _ => {
                let mut key = b"SCHILY.xattr.".to_vec();
                for byte in &attribute.name {
                    // An equals sign ends a key; GNU tar writes these two so.
                    match byte {
                        b'=' => key.extend_from_slice(b"%3D"),
                        b'%' => key.extend_from_slice(b"%25"),
                        other => key.push(*other),
                    }
                }
                records.add(&key, &attribute.value);
            }
        }
    }
    Ok(())
}

/// The field of a name, cut after 100 bytes: longer ones are in a record.
fn set_name(header: &mut Header, path: &[u8]) {
    let field = &mut header.as_old_mut().name;
    let len = path.len().min(field.len());
    field[..len].copy_from_slice(&path[..len]);
}

fn set_link(header: &mut Header, records: &mut Records, target: &[u8]) {
    let field = &mut header.as_old_mut().linkname;
    let len = target.len().min(field.len());
    field[..len].copy_from_slice(&target[..len]);
    if target.len() > field.len() {
        records.add(b"linkpath", target);
    }
}

/// Seconds with their fraction; -1.25 is 2 seconds before 1970 and 750 ms after that.
fn decimal(secs: i64, nanos: u32) -> String {
    let (sign, whole, part) = match (secs < 0, nanos) {
        (true, 1..) => ("-", (secs + 1).unsigned_abs(), 1_000_000_000 - nanos),
        (true, 0) => ("-", secs.unsigned_abs(), 0),
        _ => ("", secs.unsigned_abs(), nanos),
    };
    match part {
        0 => format!("{sign}{whole}"),
        part => format!(
            "{sign}{whole}.{}",
            format!("{part:09}").trim_end_matches('0')
        ),
    }
}

/// The map of a sparse file: numbers in lines, filled up to a block. A hole at the end is said by an empty part.
fn sparse_map(ranges: &[Range<u64>], size: u64) -> Vec<u8> {
    let mut parts: Vec<(u64, u64)> = ranges.iter().map(|r| (r.start, r.end - r.start)).collect();
    if ranges.last().is_none_or(|last| last.end < size) {
        parts.push((size, 0));
    }
    let mut text = format!("{}\n", parts.len());
    for (at, len) in parts {
        text.push_str(&format!("{at}\n{len}\n"));
    }
    let mut map = text.into_bytes();
    map.resize(map.len().next_multiple_of(BLOCK as usize), 0);
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_themselves() {
        let mut records = Records::default();
        records.add(b"path", b"x");
        assert_eq!(records.0, b"9 path=x\n");
        // With a length of its own, the length grows.
        for (value, len) in [(92, 98), (93, 99), (94, 101)] {
            let mut records = Records::default();
            records.add(b"k", &vec![b'v'; value]);
            assert_eq!(records.0.len(), len);
            assert!(records.0.starts_with(format!("{len} k=").as_bytes()));
        }
    }

    #[test]
    fn times_are_decimal() {
        assert_eq!(decimal(5, 0), "5");
        assert_eq!(decimal(5, 250_000_000), "5.25");
        assert_eq!(decimal(-2, 750_000_000), "-1.25");
        assert_eq!(decimal(-2, 0), "-2");
    }
}

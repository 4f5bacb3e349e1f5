//! A tar archive as a source: of a file, or of a stream that is set aside on the way.
//!
//! Input: an archive in the formats of ustar, GNU tar and POSIX (PAX), plain or compressed by gzip or zstd. Output: entries. Invariants: a
//! path with `..` is refused, a leading slash means nothing; numbers of the archive allocate nothing and bound no loop but that over its
//! own bytes; what is cut off is an error. Limits: xz and bzip2 are named and refused; of sparse formats, those of GNU tar. Source: POSIX
//! pax; man 5 tar; the GNU tar manual, "Storing Sparse Files"; star(1) for SCHILY keywords; what GNU tar
//! writes for names of attributes, and into `RHT.security.selinux`.

use crate::acl;
use crate::assembly::{Assembly, no_target, shown};
use crate::error::{Error, Place};
use crate::origin::{Origin, Span};
use crate::packing::{is_plain_file, unpacked};
use crate::spool::Spool;
use crate::tape::{Entry, Input, MOST_PARTS, Tape};
use diorite::Timestamp;
use diorite::mkfs::{Attribute, Node, NodeId, NodeKind};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;
use tar::EntryType;

/// Names by which container layers say what is gone.
const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
const OF_AUFS: &[u8] = b".wh..wh.";
const PLINKS: &[u8] = b".wh..wh.plnk";

/// Extended attributes of one file, at most: as many as the largest block of attributes holds.
const MOST_ATTRIBUTES: usize = 4096;

/// Whether files with certain names say what is gone below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whiteouts {
    /// They are files like others.
    None,
    /// As in the layers of containers.
    Apply,
}

/// Adds the files of an archive in an open file.
pub(crate) fn add_file(
    assembly: &mut Assembly,
    file: File,
    whiteouts: Whiteouts,
) -> Result<(), Error> {
    if !is_plain_file(&file)? {
        return add_stream(assembly, file, whiteouts);
    }
    let all = 0..file.metadata()?.len();
    add_plain(assembly, Arc::new(file), all, whiteouts)
}

/// Adds the files of an archive that is not packed and whose bytes stay where they are, in a part of a file.
pub(crate) fn add_plain(
    assembly: &mut Assembly,
    file: Arc<File>,
    place: Range<u64>,
    whiteouts: Whiteouts,
) -> Result<(), Error> {
    let input = Input::File(file.clone(), place.start, place.end - place.start);
    add_tape(assembly, input, whiteouts, Some(file))
}

/// Adds the files of an archive that is read once.
pub(crate) fn add_stream(
    assembly: &mut Assembly,
    from: impl Read,
    whiteouts: Whiteouts,
) -> Result<(), Error> {
    add_plain_stream(assembly, unpacked(from)?, whiteouts)
}

/// The same of one that is not packed.
pub(crate) fn add_plain_stream(
    assembly: &mut Assembly,
    from: impl Read,
    whiteouts: Whiteouts,
) -> Result<(), Error> {
    add_tape(assembly, Input::Stream(Box::new(from)), whiteouts, None)
}

fn add_tape(
    assembly: &mut Assembly,
    input: Input<'_>,
    whiteouts: Whiteouts,
    file: Option<Arc<File>>,
) -> Result<(), Error> {
    let mut tape = Tape::new(input);
    let mut add = Adding::new(assembly, whiteouts, file);
    while let Some(entry) = tape.next()? {
        add.entry(entry, &mut tape)?;
    }
    tape.end()?;
    Ok(())
}

struct Adding<'a> {
    assembly: &'a mut Assembly,
    whiteouts: Whiteouts,
    /// The archive itself, if its bytes stay where they are.
    file: Option<Arc<File>>,
    spool: Option<Spool>,
    /// Files of aufs's directory of hard links, by their names there. They have no name in the tree but those that link to them.
    plinks: HashMap<Vec<u8>, NodeId>,
}

/// What PAX records say of an entry.
#[derive(Default)]
struct Records {
    mtime: Option<Timestamp>,
    uid: Option<u32>,
    gid: Option<u32>,
    attributes: Vec<Attribute>,
    sparse: Sparse,
}

/// The formats of sparse files in PAX records.
#[derive(Default)]
struct Sparse {
    name: Option<Vec<u8>>,
    real_len: Option<u64>,
    major: Option<u64>,
    minor: Option<u64>,
    /// Offsets and lengths, of formats 0.0 and 0.1.
    map: Vec<u64>,
}

impl Records {
    /// Sets an attribute; what comes later counts.
    fn set(&mut self, attribute: Attribute) -> Result<(), Error> {
        self.attributes.retain(|(known, _)| *known != attribute.0);
        if self.attributes.len() == MOST_ATTRIBUTES {
            return Err(Error::new(format!(
                "more than {MOST_ATTRIBUTES} extended attributes"
            )));
        }
        self.attributes.push(attribute);
        Ok(())
    }
}

impl<'a> Adding<'a> {
    fn new(
        assembly: &'a mut Assembly,
        whiteouts: Whiteouts,
        file: Option<Arc<File>>,
    ) -> Adding<'a> {
        Adding {
            assembly,
            whiteouts,
            file,
            spool: None,
            plinks: HashMap::new(),
        }
    }

    fn spool(&mut self) -> Result<&mut Spool, Error> {
        if self.spool.is_none() {
            self.spool = Some(Spool::new(self.assembly.rules.spool_in.as_deref())?);
        }
        self.spool
            .as_mut()
            .ok_or_else(|| Error::new("no temporary file"))
    }

    fn entry(&mut self, mut entry: Entry, tape: &mut Tape<'_>) -> Result<(), Error> {
        let records = records(&entry).at(shown(&entry.path))?;
        let path = records.sparse.name.as_ref().unwrap_or(&entry.path);
        let (path, is_dir) = match path.strip_suffix(b"/") {
            Some(path) => (path.to_vec(), true),
            None => (path.clone(), false),
        };
        if is_dir && entry.kind == EntryType::Regular {
            // As archives of the oldest form have directories.
            entry.kind = EntryType::Directory;
        }
        self.add(&path, records, &entry, tape).at(shown(&path))
    }

    fn add(
        &mut self,
        path: &[u8],
        records: Records,
        entry: &Entry,
        tape: &mut Tape<'_>,
    ) -> Result<(), Error> {
        let kind = entry.kind;
        if matches!(kind, EntryType::XGlobalHeader) || self.assembly.is_excluded(path) {
            return Ok(());
        }
        let mut plink = None;
        if self.whiteouts == Whiteouts::Apply {
            plink = plink_name(path).filter(|_| kind != EntryType::Directory);
            if plink.is_none() && (is_of_aufs(path) || self.says_what_is_gone(path)?) {
                return Ok(());
            }
        }
        let link = || -> Result<Vec<u8>, Error> {
            let link = entry.link.clone();
            link.ok_or_else(|| Error::new("a link without a target"))
        };
        let header = &entry.header;
        let rdev = || -> Result<diorite::Rdev, Error> {
            Ok(diorite::Rdev {
                major: header.device_major()?.unwrap_or(0),
                minor: header.device_minor()?.unwrap_or(0),
            })
        };
        let node_kind = match kind {
            EntryType::Directory => NodeKind::Directory,
            EntryType::Symlink => NodeKind::Symlink(link()?.into()),
            EntryType::Link => return self.hard_link(path, plink, &link()?),
            EntryType::Char => NodeKind::CharDevice(rdev()?),
            EntryType::Block => NodeKind::BlockDevice(rdev()?),
            EntryType::Fifo => NodeKind::Fifo,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                NodeKind::plain_file(0)
            }
            other => {
                let letter = char::from(other.as_byte());
                return Err(Error::new(format!(
                    "an entry of the unknown type {letter:?}"
                )));
            }
        };
        let id = |number: io::Result<u64>, of_record: Option<u32>| -> Result<u32, Error> {
            match of_record {
                Some(id) => Ok(id),
                None => {
                    u32::try_from(number?).map_err(|_| Error::new("an owner above 4,294,967,295"))
                }
            }
        };
        let mode = match node_kind {
            // As those that the kernel makes: the header's number means nothing, and makers write several.
            NodeKind::Symlink(_) => 0o777,
            _ => or_zero(&header.as_old().mode, header.mode())? & 0o7777,
        };
        let mut node = Node {
            mode: mode as u16,
            uid: id(or_zero(&header.as_old().uid, header.uid()), records.uid)?,
            gid: id(or_zero(&header.as_old().gid, header.gid()), records.gid)?,
            mtime: match records.mtime {
                Some(time) => time,
                None => Timestamp {
                    secs: seconds(header)?,
                    nanos: 0,
                },
            },
            attributes: records.attributes,
            kind: node_kind,
        };
        let mut origin = Origin::None;
        if let NodeKind::File { .. } = node.kind {
            let (len, data, from) = self.data(entry, tape, &records.sparse)?;
            node.kind = NodeKind::File {
                len,
                data: data.into(),
            };
            origin = from;
        }
        match plink {
            Some(name) => {
                let id = self.assembly.put_nameless(node, origin)?;
                self.plinks.insert(name.to_vec(), id);
            }
            None => drop(self.assembly.put(path, node, origin)?),
        }
        Ok(())
    }

    /// A link, whose name or target may be one of aufs's.
    fn hard_link(&mut self, path: &[u8], plink: Option<&[u8]>, target: &[u8]) -> Result<(), Error> {
        let of_aufs = match self.whiteouts {
            Whiteouts::Apply => plink_name(target),
            Whiteouts::None => None,
        };
        let node = match of_aufs {
            Some(name) => self.plinks.get(name).copied(),
            None => self.assembly.lookup(target)?,
        };
        let node = node.ok_or_else(|| no_target(target))?;
        match plink {
            Some(name) => drop(self.plinks.insert(name.to_vec(), node)),
            None => self.assembly.link_node(path, node)?,
        }
        Ok(())
    }

    fn says_what_is_gone(&mut self, path: &[u8]) -> Result<bool, Error> {
        let cut = path
            .iter()
            .rposition(|byte| *byte == b'/')
            .map_or(0, |at| at + 1);
        let (dir, name) = path.split_at(cut);
        if name == OPAQUE {
            self.assembly.make_opaque(dir)?;
            return Ok(true);
        }
        let Some(gone) = name.strip_prefix(WHITEOUT) else {
            return Ok(false);
        };
        if gone == b"." || gone == b".." {
            return Err(Error::new("a whiteout of no name"));
        }
        if !gone.is_empty() {
            self.assembly.white_out(&[dir, gone].concat())?;
        }
        Ok(true)
    }

    /// The length of a file, where it has data, and where that is.
    fn data(
        &mut self,
        entry: &Entry,
        tape: &mut Tape<'_>,
        sparse: &Sparse,
    ) -> Result<(u64, Vec<Range<u64>>, Origin), Error> {
        if let Some((map, real_len)) = &entry.old_sparse {
            return self.of_sparse(entry.size, map, *real_len, tape);
        }
        if let Some(real_len) = sparse.real_len {
            let (map, took) = match (sparse.major, sparse.minor) {
                (Some(1), Some(0) | None) => map_before_data(tape)?,
                (Some(0) | None, _) if !sparse.map.is_empty() => (sparse.map.clone(), 0),
                _ => return Err(Error::new("a sparse file in an unknown format")),
            };
            return self.of_sparse(entry.size.saturating_sub(took), &map, real_len, tape);
        }
        let stored = entry.size;
        let (file, spans) = match (&self.file, entry.at) {
            (Some(file), Some(at)) => {
                let end = at.checked_add(stored);
                let there = file.metadata()?.len();
                if end.is_none_or(|end| end > there) {
                    return Err(Error::new("the archive ends in the middle of it"));
                }
                let span = Span {
                    pos: 0,
                    at,
                    len: stored,
                };
                let some = (stored > 0).then_some(span);
                (file.clone(), some.into_iter().collect())
            }
            _ => {
                let spool = self.spool()?;
                let spans = spool.take(tape, stored).map_err(cut_off)?;
                (spool.file(), spans)
            }
        };
        Ok(placed(stored, file, spans))
    }

    /// A sparse file: the parts that its map names follow each other.
    fn of_sparse(
        &mut self,
        mut left: u64,
        map: &[u64],
        real_len: u64,
        tape: &mut Tape<'_>,
    ) -> Result<(u64, Vec<Range<u64>>, Origin), Error> {
        let spool = self.spool()?;
        let (mut spans, mut before) = (Vec::new(), 0);
        for part in map.chunks(2) {
            let &[pos, len] = part else {
                return Err(Error::new("the map of a sparse file ends in the middle"));
            };
            let end = pos.checked_add(len);
            let end = end.filter(|end| *end <= real_len && pos >= before);
            before = end.ok_or_else(|| Error::new("the map of a sparse file makes no sense"))?;
            let short = || Error::new("a sparse file has less data than its map says");
            left = left.checked_sub(len).ok_or_else(short)?;
            let taken = spool.take(tape, len).map_err(cut_off)?;
            spans.extend(taken.into_iter().map(|span| Span {
                pos: span.pos + pos,
                ..span
            }));
        }
        if left > 0 {
            return Err(Error::new("a sparse file has more data than its map says"));
        }
        Ok(placed(real_len, spool.file(), spans))
    }
}

/// Whether a path is, or is below, what aufs keeps for itself in a layer: names that begin like the mark of a directory.
fn is_of_aufs(path: &[u8]) -> bool {
    let mut names = path.split(|byte| *byte == b'/');
    names.any(|name| name != OPAQUE && name.starts_with(OF_AUFS))
}

/// The name of a file in the directory in which aufs keeps the files that have several names.
fn plink_name(path: &[u8]) -> Option<&[u8]> {
    let mut names = path
        .split(|byte| *byte == b'/')
        .filter(|name| !matches!(*name, b"" | b"."));
    let dir = names.next();
    let name = names.next().filter(|_| dir == Some(PLINKS))?;
    names.next().is_none().then_some(name)
}

/// A number of a header. Archives of packages (npm, cargo) leave owners empty, which is 0 to every tar.
fn or_zero<N: Default>(field: &[u8], number: io::Result<N>) -> io::Result<N> {
    match field.iter().all(|byte| matches!(byte, 0 | b' ')) {
        true => Ok(N::default()),
        false => number,
    }
}

/// A header's time: octal digits, or a number of two's complement behind a byte 0x80 or 0xff.
fn seconds(header: &tar::Header) -> Result<i64, Error> {
    let field = &header.as_old().mtime;
    if field[0] == 0xff {
        let mut low = [0; 8];
        low.copy_from_slice(&field[4..]);
        return Ok(i64::from_be_bytes(low));
    }
    let since = i64::try_from(or_zero(field, header.mtime())?);
    since.map_err(|_| Error::new("a time out of range"))
}

fn cut_off(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Error::new("the archive ends in the middle of it"),
        _ => error.into(),
    }
}

fn placed(len: u64, file: Arc<File>, spans: Vec<Span>) -> (u64, Vec<Range<u64>>, Origin) {
    let data = spans
        .iter()
        .map(|span| span.pos..span.pos + span.len)
        .collect();
    let origin = match spans.is_empty() {
        true => Origin::None,
        false => Origin::Spans(file, spans.into()),
    };
    (len, data, origin)
}

/// The map of format 1.0: numbers in lines, filled up to a block. Returns it with the bytes that it took.
fn map_before_data(from: &mut impl Read) -> Result<(Vec<u64>, u64), Error> {
    let mut block = [0; 512];
    let (mut taken, mut at) = (0u64, block.len());
    let mut number = |from: &mut dyn Read| -> Result<u64, Error> {
        let mut value: Option<u64> = None;
        loop {
            if at == block.len() {
                from.read_exact(&mut block).map_err(cut_off)?;
                taken += block.len() as u64;
                at = 0;
            }
            let byte = block[at];
            at += 1;
            match byte {
                b'\n' => {
                    return value
                        .ok_or_else(|| Error::new("a sparse file's map has an empty line"));
                }
                b'0'..=b'9' => {
                    let more = value
                        .unwrap_or(0)
                        .checked_mul(10)
                        .and_then(|v| v.checked_add(u64::from(byte - b'0')));
                    value = Some(more.ok_or_else(|| {
                        Error::new("a sparse file's map has a number out of range")
                    })?);
                }
                _ => {
                    return Err(Error::new(
                        "a sparse file's map has something else than numbers",
                    ));
                }
            }
        }
    };
    let parts = number(from)?;
    let parts = usize::try_from(parts)
        .ok()
        .filter(|parts| *parts <= MOST_PARTS);
    let parts = parts.ok_or_else(|| Error::new("a sparse file with too many parts"))?;
    let mut map = Vec::new();
    for _ in 0..2 * parts {
        map.push(number(from)?);
    }
    Ok((map, taken))
}

fn records(entry: &Entry) -> Result<Records, Error> {
    let mut all = Records::default();
    for (key, value) in entry.records.iter() {
        one_record(&mut all, key, value).at(shown(key))?;
    }
    Ok(all)
}

fn one_record(all: &mut Records, key: &[u8], value: &[u8]) -> Result<(), Error> {
    let number = || -> Result<u64, Error> {
        let text = std::str::from_utf8(value).ok();
        text.and_then(|t| t.parse().ok())
            .ok_or_else(|| Error::new(format!("no number: {}", shown(value))))
    };
    let list = |name: &[u8]| -> Result<Attribute, Error> {
        Ok((name.into(), acl::from_text(&shown(value))?))
    };
    match key {
        b"mtime" => all.mtime = Some(time(value)?),
        b"uid" => all.uid = Some(u32::try_from(number()?).map_err(|_| Error::new("out of range"))?),
        b"gid" => all.gid = Some(u32::try_from(number()?).map_err(|_| Error::new("out of range"))?),
        b"SCHILY.acl.access" => all.set(list(b"system.posix_acl_access")?)?,
        b"SCHILY.acl.default" => all.set(list(b"system.posix_acl_default")?)?,
        b"RHT.security.selinux" => {
            // The record has the text, the attribute a zero behind it.
            let text = value.strip_suffix(b"\0").unwrap_or(value);
            let label = [text, b"\0"].concat();
            all.set((b"security.selinux"[..].into(), label.into()))?;
        }
        b"GNU.sparse.major" => all.sparse.major = Some(number()?),
        b"GNU.sparse.minor" => all.sparse.minor = Some(number()?),
        b"GNU.sparse.name" => all.sparse.name = Some(value.to_vec()),
        b"GNU.sparse.realsize" | b"GNU.sparse.size" => all.sparse.real_len = Some(number()?),
        b"GNU.sparse.offset" | b"GNU.sparse.numbytes" if all.sparse.map.len() < 2 * MOST_PARTS => {
            all.sparse.map.push(number()?);
        }
        b"GNU.sparse.map" => {
            for part in value.split(|byte| *byte == b',').take(2 * MOST_PARTS) {
                let text = std::str::from_utf8(part).ok().and_then(|t| t.parse().ok());
                all.sparse
                    .map
                    .push(text.ok_or_else(|| Error::new("no map of a sparse file"))?);
            }
        }
        _ => {
            if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                all.set((attribute_name(name).into(), value.into()))?;
            }
        }
    }
    Ok(())
}

/// The name of an attribute: in the key of a record GNU tar writes `%25` for `%` and `%3D` for `=`.
fn attribute_name(mut key: &[u8]) -> Vec<u8> {
    let mut name = Vec::new();
    while let [first, rest @ ..] = key {
        let (byte, rest) = match key {
            [b'%', b'2', b'5', rest @ ..] => (b'%', rest),
            [b'%', b'3', b'D', rest @ ..] => (b'=', rest),
            _ => (*first, rest),
        };
        name.push(byte);
        key = rest;
    }
    name
}

/// `1234.5678`, also negative.
fn time(value: &[u8]) -> Result<Timestamp, Error> {
    let wrong = || Error::new(format!("no time: {}", shown(value)));
    let text = std::str::from_utf8(value).map_err(|_| wrong())?;
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let secs: i64 = whole.parse().map_err(|_| wrong())?;
    let digits: String = part.chars().chain("000000000".chars()).take(9).collect();
    let nanos: u32 = digits.parse().map_err(|_| wrong())?;
    Ok(match (whole.starts_with('-'), nanos) {
        (true, 1..) => Timestamp {
            secs: secs.saturating_sub(1),
            nanos: 1_000_000_000 - nanos,
        },
        _ => Timestamp { secs, nanos },
    })
}

#[cfg(test)]
mod tests;

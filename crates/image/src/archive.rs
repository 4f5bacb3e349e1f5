//! A tar archive as a source: of a file, or of a stream that is set aside on the way.
//!
//! Input: an archive in the formats of ustar, GNU tar and POSIX (PAX), plain or packed. Output: entries. Invariants: a path with `..` is
//! refused, a leading slash means nothing; numbers of the archive allocate nothing and bound no loop but that over its own bytes; what is
//! cut off in an entry is an error; what GNU tar leaves out with a warning is left out with one. Limits: of sparse formats, those of GNU
//! tar. Source: POSIX pax; man 5 tar; the GNU tar manual, "Storing Sparse Files"; what GNU tar says of archives with odd entries.

use crate::assembly::{Assembly, no_target, shown};
use crate::error::{Error, Place};
use crate::fields::{fitting, rdev};
use crate::origin::{Origin, Span};
use crate::packing::{is_plain_file, unpacked};
use crate::records::{Records, Sparse, records};
use crate::spool::Spool;
use crate::tape::{Entry, Input, MOST_PARTS, Tape};
use diorite::Timestamp;
use diorite::mkfs::{Node, NodeId, NodeKind};
use diorite_block::uncached::InOrder;
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

/// GNU tar's kind of an entry that another archive has the beginning of.
const GOES_ON: u8 = b'M';

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
        return add_stream(assembly, InOrder(file), whiteouts);
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
    let from = unpacked(from, &assembly.warnings)?;
    add_plain_stream(assembly, from, whiteouts)
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
    if tape.is_open() {
        let why = "the archive has no end: it may have been cut off between two files";
        assembly.warnings.add(why);
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
        if self.assembly.is_excluded(path) {
            return Ok(());
        }
        if kind.as_byte() == GOES_ON {
            self.warn(path, "it is left out: it goes on from another archive");
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
        let node_kind = match kind {
            EntryType::Directory => NodeKind::Directory,
            EntryType::Symlink => NodeKind::Symlink(link()?.into()),
            EntryType::Link => return self.hard_link(path, plink, &link()?),
            EntryType::Char => NodeKind::CharDevice(rdev(header)?),
            EntryType::Block => NodeKind::BlockDevice(rdev(header)?),
            EntryType::Fifo => NodeKind::Fifo,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                NodeKind::plain_file(0)
            }
            other => {
                let letter = char::from(other.as_byte());
                let what = format!("an entry of the unknown type {letter:?} is taken for a file");
                self.warn(path, &what);
                NodeKind::plain_file(0)
            }
        };
        let old = header.as_old();
        let mode = match node_kind {
            // As those that the kernel makes: the header's number means nothing, and makers write several.
            NodeKind::Symlink(_) => 0o777,
            _ => fitting::<u32>(&old.mode, "permissions")? & 0o7777,
        };
        let owner = |field: &[u8], of_record: Option<u32>| match of_record {
            Some(id) => Ok(id),
            None => fitting(field, "an owner"),
        };
        let mut node = Node {
            mode: mode as u16,
            uid: owner(&old.uid, records.uid)?,
            gid: owner(&old.gid, records.gid)?,
            mtime: match records.mtime {
                Some(time) => time,
                None => Timestamp {
                    secs: fitting(&old.mtime, "a time")?,
                    nanos: 0,
                },
            },
            attributes: records.attributes,
            kind: node_kind,
        };
        self.keep_possible(path, &mut node);
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

    fn warn(&self, path: &[u8], what: &str) {
        self.assembly
            .warnings
            .add(format!("{}: {what}", shown(path)));
    }

    /// Leaves out attributes that no such file can have, as the kernel would, and GNU tar then does.
    fn keep_possible(&self, path: &[u8], node: &mut Node) {
        let (is_file, is_dir) = (
            matches!(node.kind, NodeKind::File { .. }),
            node.kind == NodeKind::Directory,
        );
        let is_link = matches!(node.kind, NodeKind::Symlink(_));
        let is_possible = |name: &[u8]| match name {
            b"system.posix_acl_default" => is_dir,
            b"system.posix_acl_access" => !is_link,
            name => !name.starts_with(b"user.") || is_file || is_dir,
        };
        for (name, _) in node
            .attributes
            .iter()
            .filter(|(name, _)| !is_possible(name))
        {
            let what = format!(
                "its attribute {} is left out: no such file has it",
                shown(name)
            );
            self.warn(path, &what);
        }
        node.attributes.retain(|(name, _)| is_possible(name));
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

#[cfg(test)]
mod tests;

//! The entries of a tar archive, one after the other.
//!
//! Input: a file or a stream of blocks. Output: headers with long names and records of PAX put together, and the bytes of each entry.
//! Invariants: every header's sum is checked; a length leads nowhere but forward, and allocates nothing by itself. Limits: as in GNU tar,
//! an archive may end without its blocks of zeros, but not before the first entry. Values of records are bytes, with newlines too: the
//! `tar` crate ends a record at each of them, so only its headers are used. Source: POSIX pax; man 5 tar; the GNU tar manual, "Basic Tar
//! Format".

use crate::error::Error;
use crate::{fields, tail};
use diorite_block::uncached;
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use tar::{EntryType, Header};

const BLOCK: u64 = 512;
/// GNU tar's kinds of entries for the label of a volume, and for a directory of an incremental archive.
const LABEL: u8 = b'V';
const DIRECTORY_WITH_NAMES: u8 = b'D';
/// Solaris's kind of records.
const RECORDS_OF_SOLARIS: u8 = b'X';
/// Bytes of records or of a long name of one entry, at most.
const MOST_EXTRA: u64 = 8 << 20;
/// Parts of one sparse file, at most.
pub(crate) const MOST_PARTS: usize = 1 << 20;

/// Where an archive is.
pub(crate) enum Input<'i> {
    /// In an open file, from a position on, so many bytes.
    File(Arc<File>, u64, u64),
    /// It is read once.
    Stream(Box<dyn Read + 'i>),
}

/// See the module.
pub(crate) struct Tape<'i> {
    input: Input<'i>,
    /// Bytes of the present entry that were not read.
    left: u64,
    /// Zeros behind it.
    padding: u64,
    /// Records for all entries from here on.
    for_all: Records,
    /// Whether there was an entry.
    has_some: bool,
    /// Whether it ended without zeros.
    is_open: bool,
}

/// Records of PAX: keys and values, in the bytes that they were read in. Of 8 MiB there may be more than a million.
#[derive(Clone, Default)]
pub(crate) struct Records {
    bytes: Vec<u8>,
    /// Where each key begins, its value, and where that ends.
    all: Vec<[u32; 3]>,
}

impl Records {
    /// `LENGTH KEY=VALUE` and a newline, again and again.
    fn parse(bytes: Vec<u8>) -> Result<Records, Error> {
        let wrong = || Error::new("a damaged record of PAX");
        let (mut all, mut at) = (Vec::new(), 0);
        while at < bytes.len() && bytes[at] != 0 {
            let rest = &bytes[at..];
            let find = |what: u8, from: usize| {
                let found = rest[from..].iter().position(|byte| *byte == what);
                found.map(|n| from + n).ok_or_else(wrong)
            };
            let blank = find(b' ', 0)?;
            let text = std::str::from_utf8(&rest[..blank]).ok();
            let len = text.and_then(|t| t.parse::<usize>().ok());
            let len = len.filter(|len| *len > blank + 1 && *len <= rest.len());
            let len = len.ok_or_else(wrong)?;
            let equals = find(b'=', blank + 1)?;
            if rest[len - 1] != b'\n' || equals >= len - 1 {
                return Err(wrong());
            }
            let ends = [at + blank + 1, at + equals + 1, at + len - 1];
            // They are in at most 8 MiB.
            all.push(ends.map(|end| u32::try_from(end).unwrap_or(u32::MAX)));
            at += len;
        }
        Ok(Records { bytes, all })
    }

    /// These for what others do not say.
    fn with(&self, others: &Records) -> Result<Records, Error> {
        if (self.bytes.len() + others.bytes.len()) as u64 > MOST_EXTRA {
            return Err(too_many_records());
        }
        // Values that count come last.
        let moved = |ends: &[u32; 3]| ends.map(|end| end + self.bytes.len() as u32);
        let moved = others.all.iter().map(moved);
        Ok(Records {
            bytes: [&self.bytes[..], &others.bytes].concat(),
            all: self.all.iter().copied().chain(moved).collect(),
        })
    }

    fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Keys and values, in order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        self.all.iter().map(|ends| {
            let [key, value, end] = ends.map(|end| end as usize);
            (&self.bytes[key..value - 1], &self.bytes[value..end])
        })
    }

    /// The last value of a key.
    fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let found = self.iter().rev().find(|(known, _)| *known == key);
        found.map(|(_, value)| value)
    }
}

/// An entry of an archive.
pub(crate) struct Entry {
    pub(crate) header: Header,
    pub(crate) kind: EntryType,
    pub(crate) path: Vec<u8>,
    pub(crate) link: Option<Vec<u8>>,
    pub(crate) records: Records,
    /// Bytes that are stored.
    pub(crate) size: u64,
    /// Where they are in the file that the archive is in.
    pub(crate) at: Option<u64>,
    /// The map and the length of a sparse file in GNU tar's old format.
    pub(crate) old_sparse: Option<(Vec<u64>, u64)>,
}

/// What comes before an entry.
#[derive(Default)]
struct Before {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    records: Records,
}

impl Before {
    /// Whether there is something that an entry has to follow.
    fn is_some(&self) -> bool {
        self.path.is_some() || self.link.is_some() || !self.records.is_empty()
    }
}

impl Read for Tape<'_> {
    /// The bytes of the present entry.
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let most = out
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let count = self.read_raw(&mut out[..most])?;
        self.left -= count as u64;
        Ok(count)
    }
}

impl<'i> Tape<'i> {
    pub(crate) fn new(input: Input<'i>) -> Tape<'i> {
        Tape {
            input,
            left: 0,
            padding: 0,
            for_all: Records::default(),
            has_some: false,
            is_open: false,
        }
    }

    /// Whether the archive has ended without the zeros that say so.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    fn read_raw(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match &mut self.input {
            Input::File(file, at, left) => {
                let most = out.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                let count = uncached::read_part_at(&*file, &mut out[..most], *at)?;
                *at += count as u64;
                *left -= count as u64;
                Ok(count)
            }
            Input::Stream(from) => from.read(out),
        }
    }

    /// Reads a block; false at the end of the archive.
    fn block(&mut self, block: &mut [u8; BLOCK as usize]) -> Result<bool, Error> {
        let mut have = 0;
        while have < block.len() {
            match self.read_raw(&mut block[have..])? {
                0 if have == 0 => return Ok(false),
                0 => return Err(Error::new("the archive ends in the middle of a header")),
                count => have += count,
            }
        }
        Ok(true)
    }

    /// Goes behind the present entry.
    fn skip(&mut self) -> Result<(), Error> {
        let mut left = self.left + self.padding;
        (self.left, self.padding) = (0, 0);
        let cut = || Error::new("the archive ends in the middle of a file");
        match &mut self.input {
            Input::File(_, at, all) => {
                *all = all.checked_sub(left).ok_or_else(cut)?;
                *at += left;
            }
            Input::Stream(from) => {
                let mut scratch = [0; 1 << 14];
                while left > 0 {
                    let most = scratch
                        .len()
                        .min(usize::try_from(left).unwrap_or(usize::MAX));
                    match from.read(&mut scratch[..most])? {
                        0 => return Err(cut()),
                        count => left -= count as u64,
                    }
                }
            }
        }
        Ok(())
    }

    /// The next entry; its bytes are read from the tape.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, Error> {
        let mut before = Before::default();
        loop {
            self.skip()?;
            let mut block = [0; BLOCK as usize];
            if !self.block(&mut block)? {
                if !self.has_some || before.is_some() {
                    let why = "the archive has no end: it was cut off, or it is none";
                    return Err(Error::new(why));
                }
                self.is_open = true;
                return Ok(None);
            }
            // A block of zeros is the end, whatever follows.
            if block.iter().all(|byte| *byte == 0) {
                return Ok(None);
            }
            let header = Header::from_byte_slice(&block).clone();
            check_sum(&header, &block)?;
            let kind = match header.entry_type().as_byte() {
                // Its field of the length may be empty.
                LABEL => continue,
                RECORDS_OF_SOLARIS => EntryType::XHeader,
                _ => header.entry_type(),
            };
            let mut size = fields::size(&header)?;
            match kind {
                EntryType::XHeader
                | EntryType::XGlobalHeader
                | EntryType::GNULongName
                | EntryType::GNULongLink => {}
                // Whatever the length says, nothing is behind them: POSIX leaves it to the maker.
                // With records, a link may have the file's data behind it.
                EntryType::Link if !before.records.is_empty() => {}
                EntryType::Link
                | EntryType::Symlink
                | EntryType::Directory
                | EntryType::Char
                | EntryType::Block
                | EntryType::Fifo => size = 0,
                _ => {
                    let of = [&before.records, &self.for_all];
                    if let Some(value) = of.iter().find_map(|records| records.get(b"size")) {
                        let text = std::str::from_utf8(value).ok();
                        let number = text.and_then(|t| t.parse().ok());
                        size = number.ok_or_else(|| Error::new("a record with no length"))?;
                    }
                }
            }
            let kind = match kind.as_byte() {
                // The names in it are behind it.
                DIRECTORY_WITH_NAMES => EntryType::Directory,
                _ => kind,
            };
            self.left = size;
            self.padding = size
                .checked_next_multiple_of(BLOCK)
                .ok_or_else(|| Error::new("a length out of range"))?
                - size;
            match kind {
                EntryType::XHeader => before.records = Records::parse(self.extra()?)?,
                EntryType::GNULongName => before.path = Some(text(self.extra()?)),
                EntryType::GNULongLink => before.link = Some(text(self.extra()?)),
                EntryType::XGlobalHeader => {
                    let more = Records::parse(self.extra()?)?;
                    self.for_all = self.for_all.with(&more)?;
                }
                _ => {
                    self.has_some = true;
                    before.records = match self.for_all.is_empty() {
                        true => before.records,
                        false => self.for_all.with(&before.records)?,
                    };
                    return self.entry(header, kind, before).map(Some);
                }
            }
        }
    }

    /// The bytes of an entry that says something about the next one.
    fn extra(&mut self) -> Result<Vec<u8>, Error> {
        if self.left > MOST_EXTRA {
            return Err(too_many_records());
        }
        let (mut bytes, len) = (Vec::new(), self.left);
        self.take(len).read_to_end(&mut bytes)?;
        match bytes.len() as u64 == len {
            true => Ok(bytes),
            false => Err(Error::new("the archive ends in the middle of a record")),
        }
    }

    /// Reads what is behind the archive's end: who writes it must not meet a closed pipe.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        match &mut self.input {
            Input::File(..) => Ok(()),
            Input::Stream(from) => tail::read(from),
        }
    }

    fn entry(&mut self, header: Header, kind: EntryType, before: Before) -> Result<Entry, Error> {
        let old_sparse = match (kind, header.as_gnu()) {
            (EntryType::GNUSparse, Some(gnu)) => {
                let real = fields::fitting(&gnu.realsize, "the length of a sparse file")?;
                Some((self.old_map(&header)?, real))
            }
            _ => None,
        };
        let of_record = |key: &[u8]| before.records.get(key).map(<[u8]>::to_vec);
        let path = of_record(b"path").or(before.path);
        let link = of_record(b"linkpath").or(before.link);
        let at = match &self.input {
            Input::File(_, at, _) => Some(*at),
            Input::Stream(_) => None,
        };
        Ok(Entry {
            path: path.unwrap_or_else(|| header.path_bytes().into_owned()),
            link: link.or_else(|| header.link_name_bytes().map(|name| name.into_owned())),
            records: before.records,
            size: self.left,
            header,
            kind,
            at,
            old_sparse,
        })
    }

    /// The map of a sparse file in GNU tar's old format: four parts in the header, 21 in each block behind.
    fn old_map(&mut self, header: &Header) -> Result<Vec<u64>, Error> {
        let mut map = Vec::new();
        let Some(gnu) = header.as_gnu() else {
            return Ok(map);
        };
        let mut add = |parts: &[tar::GnuSparseHeader]| -> Result<(), Error> {
            for part in parts.iter().filter(|part| !part.is_empty()) {
                map.push(fields::fitting(&part.offset, "an offset")?);
                map.push(fields::fitting(&part.numbytes, "a length")?);
            }
            match map.len() > 2 * MOST_PARTS {
                true => Err(Error::new("a sparse file with too many parts")),
                false => Ok(()),
            }
        };
        add(&gnu.sparse)?;
        let mut goes_on = gnu.is_extended();
        while goes_on {
            let mut more = tar::GnuExtSparseHeader::new();
            let mut block = [0; BLOCK as usize];
            if !self.block(&mut block)? {
                return Err(Error::new("the archive ends in the map of a sparse file"));
            }
            more.as_mut_bytes().copy_from_slice(&block);
            add(more.sparse())?;
            goes_on = more.is_extended();
        }
        Ok(map)
    }
}

fn text(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.iter().position(|byte| *byte == 0);
    bytes.truncate(end.unwrap_or(bytes.len()));
    bytes
}

fn too_many_records() -> Error {
    Error::new("more than 8 MiB of records about one file")
}

/// The sum of a header's bytes, its own field taken as blanks; old programs added signed bytes.
fn check_sum(header: &Header, block: &[u8; BLOCK as usize]) -> Result<(), Error> {
    let stored = header
        .cksum()
        .map_err(|_| Error::new("it is no tar archive"))?;
    let with_blanks = |n: usize, byte: u8| if (148..156).contains(&n) { b' ' } else { byte };
    let bytes = || {
        block
            .iter()
            .enumerate()
            .map(|(n, byte)| with_blanks(n, *byte))
    };
    let unsigned: u32 = bytes().map(u32::from).sum();
    let signed: i32 = bytes().map(|byte| i32::from(byte.cast_signed())).sum();
    match stored == unsigned || i64::from(stored) == i64::from(signed) {
        true => Ok(()),
        false => Err(Error::new("it is no tar archive, or its header is damaged")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_may_hold_newlines() {
        let all = Records::parse(b"10 path=x\n12 a=b\n\0c=d\n".to_vec()).unwrap();
        let all: Vec<_> = all.iter().collect();
        assert_eq!(all, [(&b"path"[..], &b"x"[..]), (b"a", b"b\n\0c=d")]);
        for wrong in [
            &b"10 path=xy\n"[..],
            b"99 a=b\n",
            b"3 \n",
            b"x",
            b"6 abc\n",
            b"99999999999999999999 a=b\n",
        ] {
            assert!(Records::parse(wrong.to_vec()).is_err(), "{wrong:?}");
        }
    }
}

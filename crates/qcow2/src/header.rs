//! The header of a qcow2 file: what is looked at before anything else reads or writes the file.
//!
//! Input: the first bytes of a file, its length. Output: a [`Header`]; why the file is refused. Invariant: tables that the header names lie
//! inside the file and have a size that qemu would make. Limits: versions 2 and 3. Source: imago (MIT), images of qemu-img, and its
//! refusals.

/// Bytes that are looked at: the header and its extensions lie in the first cluster.
pub(crate) const LOOKED_AT: usize = 64 << 10;
/// Bytes of the largest tables, as qemu has them.
const MOST_L1: u64 = 32 << 20;
const MOST_REFCOUNTS: u64 = 8 << 20;
/// The longest name of a backing file.
const MOST_NAME: u32 = 1023;
/// What is said of another file.
pub(crate) const NO_QCOW2: &str = "it is no qcow2 image";
/// Extensions of the header.
const BACKING_FORMAT: u32 = 0xe279_2aca;
const DATA_FILE: u32 = 0x4441_5441;
/// Bytes of the header of version 2.
const HEADER_OF_2: u32 = 72;
/// Features without which a file cannot be understood.
pub(crate) const CORRUPT: u64 = 1 << 1;
/// Where the kind of compression is.
const PACKING_AT: u32 = 104;
/// Where the features are.
pub(crate) const FEATURES_AT: u64 = 72;
/// Reference counts may be wrong.
pub(crate) const DIRTY: u64 = 1 << 0;
const HAS_DATA_FILE: u64 = 1 << 2;
const HAS_PACKING: u64 = 1 << 3;
const IS_EXTENDED: u64 = 1 << 4;
/// Subclusters are not smaller than sectors.
const LEAST_EXTENDED: u64 = 16 << 10;

/// How clusters are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    Deflate,
    Zstd,
}

/// A name of a file, and its format if it is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backing {
    /// As it is in the header.
    pub(crate) name: Vec<u8>,
    pub(crate) format: Option<String>,
}

impl Backing {
    /// The name, for messages.
    pub(crate) fn shown(&self) -> String {
        words(&self.name)
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Bytes of the disk.
    pub(crate) size: u64,
    /// Bytes of a cluster.
    pub(crate) cluster: u64,
    /// Counts have 2 to the power of this bits.
    pub(crate) order: u32,
    /// Where the first table of clusters is, and its bytes.
    pub(crate) l1: (u64, u64),
    pub(crate) snapshots: u32,
    /// Features without which the file cannot be understood; None of version 2, which has no field for them.
    pub(crate) features: Option<u64>,
    pub(crate) packing: Packing,
    /// Entries of tables of clusters have bitmaps of subclusters.
    pub(crate) is_extended: bool,
    /// The file below.
    pub(crate) backing: Option<Backing>,
    /// Where the table of reference counts is, and its bytes.
    pub(crate) counts: (u64, usize),
}

pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(crate) fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from(be32(bytes, at)) << 32 | u64::from(be32(bytes, at + 4))
}

fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).escape_debug().to_string()
}

impl Header {
    /// Whether its reference counts may be wrong: it was not closed. No reader needs them.
    pub(crate) fn is_dirty(&self) -> bool {
        self.features.is_some_and(|bits| bits & DIRTY != 0)
    }

    /// Whether a program found something wrong in it. It is only read.
    pub(crate) fn is_corrupt(&self) -> bool {
        self.features.is_some_and(|bits| bits & CORRUPT != 0)
    }

    /// Why the library that writes such files does not know this one.
    pub(crate) fn needs_reader(&self) -> Option<&'static str> {
        match (self.packing, self.is_extended) {
            (Packing::Zstd, _) => Some(
                "it is compressed by zstd, so it is only read: 'diorite copy' into another qcow2 file makes a copy that can be written",
            ),
            (_, true) => Some(
                "it has extended L2 entries, so it is only read: 'diorite copy' into another qcow2 file makes a copy that can be written",
            ),
            _ => None,
        }
    }

    /// Whether it is read by us and not by the library, which knows neither what [`Header::needs_reader`] tells of, nor files with one of
    /// the two bits, nor names that are no text.
    pub(crate) fn is_for_reader(&self) -> bool {
        let is_no_text = |named: &Backing| std::str::from_utf8(&named.name).is_err();
        self.needs_reader().is_some()
            || self.is_dirty()
            || self.is_corrupt()
            || self.backing.as_ref().is_some_and(is_no_text)
    }

    /// Reads the header of a file of `len` bytes, which begins with `bytes`.
    ///
    /// # Errors
    /// Why it is refused.
    pub(crate) fn parse(bytes: &[u8], len: u64) -> Result<Header, String> {
        if bytes.len() < 104 || bytes[..4] != *b"QFI\xfb" {
            return Err(NO_QCOW2.to_owned());
        }
        let version = be32(bytes, 4);
        if ![2, 3].contains(&version) {
            return Err(format!("version {version} of qcow2: 2 and 3 are known"));
        }
        if be32(bytes, 32) != 0 {
            return Err("it is encrypted: 'qemu-img convert' makes a copy that is not".to_owned());
        }
        let bits = be32(bytes, 20);
        if !(9..=21).contains(&bits) {
            return Err(format!(
                "clusters of 2^{bits} bytes: 512 bytes to 2 MiB are known"
            ));
        }
        let cluster = 1_u64 << bits;
        let features = if version == 3 { be64(bytes, 72) } else { 0 };
        check_features(features)?;
        let packing = packing(bytes, version, features)?;
        let is_extended = features & IS_EXTENDED != 0;
        if is_extended && cluster < LEAST_EXTENDED {
            return Err(format!(
                "extended L2 entries for clusters of {cluster} bytes: {LEAST_EXTENDED} at least can be"
            ));
        }
        let inside = |what: &str, at: u64, size: u64, most: u64| {
            let end = at.checked_add(size);
            match size > most || !at.is_multiple_of(cluster) || end.is_none_or(|end| end > len) {
                true => Err(format!(
                    "its {what} is said to be {size} bytes at {at}, of {len}"
                )),
                false => Ok(()),
            }
        };
        let size = be64(bytes, 24);
        let entries = u64::from(be32(bytes, 36));
        inside("table of clusters", be64(bytes, 40), entries * 8, MOST_L1)?;
        let refcounts = u64::from(be32(bytes, 56)) * cluster;
        inside(
            "table of reference counts",
            be64(bytes, 48),
            refcounts,
            MOST_REFCOUNTS,
        )?;
        // Each entry is for a cluster of entries.
        let entry = if is_extended { 16 } else { 8 };
        if size.div_ceil(cluster).div_ceil(cluster / entry) > entries {
            return Err(format!(
                "a disk of {size} bytes, with a table of {entries} entries"
            ));
        }
        if !size.is_multiple_of(512) {
            return Err(format!(
                "a disk of {size} bytes is no multiple of 512: 'qemu-img resize' changes that"
            ));
        }
        // Version 2 has no field for it.
        let order = if version == 3 { be32(bytes, 96) } else { 4 };
        if order > 6 {
            return Err(format!(
                "reference counts of 2^{order} bits: 1 to 64 are known"
            ));
        }
        let name = backing(bytes, cluster)?;
        let from = if version == 3 {
            be32(bytes, 100)
        } else {
            HEADER_OF_2
        };
        let extensions = extensions(bytes, from, cluster)?;
        let of = |kind: u32| extensions.iter().find(|e| e.0 == kind).map(|e| words(e.1));
        if features & HAS_DATA_FILE != 0 {
            return Err(format!(
                "it has its data in the file \"{}\", and such a file is not opened: 'qemu-img convert -O qcow2' makes one file of both",
                of(DATA_FILE).unwrap_or_default()
            ));
        }
        Ok(Header {
            size,
            cluster,
            order,
            l1: (be64(bytes, 40), entries * 8),
            snapshots: be32(bytes, 60),
            features: (version == 3).then_some(features),
            packing,
            is_extended,
            backing: name.map(|name| Backing {
                name,
                format: of(BACKING_FORMAT),
            }),
            // At most a few MiB, as was checked.
            counts: (be64(bytes, 48), usize::try_from(refcounts).unwrap_or(0)),
        })
    }
}

/// Whether a file with this table of reference counts can be written: each part of it up to the last one that is counted has to be counted.
/// The library looks for room from the first free cluster on, and looks for room for the counts that are missing before it without end.
///
/// # Errors
/// Why not.
pub(crate) fn check_counts(table: &[u8]) -> Result<(), String> {
    let is_there = |entry: &[u8]| entry.iter().any(|byte| *byte != 0);
    let mut missing = table.chunks_exact(8).skip_while(|entry| is_there(entry));
    let begins = table
        .first_chunk::<8>()
        .is_some_and(|entry| is_there(entry));
    match begins && !missing.any(is_there) {
        true => Ok(()),
        false => Err(
            "its reference counts do not cover the file, so it is only read: 'qemu-img check -r all' repairs it"
                .to_owned(),
        ),
    }
}

fn check_features(features: u64) -> Result<(), String> {
    match features & !(DIRTY | CORRUPT | HAS_DATA_FILE | HAS_PACKING | IS_EXTENDED) {
        0 => Ok(()),
        unknown => Err(format!(
            "it has the unknown feature {}",
            unknown.trailing_zeros()
        )),
    }
}

/// How clusters are compressed: a byte behind the usual header, and a feature, which agree.
fn packing(bytes: &[u8], version: u32, features: u64) -> Result<Packing, String> {
    let is_there = version == 3 && be32(bytes, 100) > PACKING_AT;
    let kind = bytes.get(PACKING_AT as usize).filter(|_| is_there);
    match (kind.copied().unwrap_or(0), features & HAS_PACKING != 0) {
        (0, false) => Ok(Packing::Deflate),
        (1, true) => Ok(Packing::Zstd),
        (kind, _) if kind > 1 => Err(format!(
            "its compression has the type {kind}: 0 (zlib) and 1 (zstd) are known"
        )),
        (kind, is_said) => Err(format!(
            "its compression has the type {kind}, and the feature that says so is {}",
            if is_said { "on" } else { "off" }
        )),
    }
}

/// The name of the backing file.
fn backing(bytes: &[u8], cluster: u64) -> Result<Option<Vec<u8>>, String> {
    let (at, len) = (be64(bytes, 8), be32(bytes, 16));
    if at == 0 {
        return Ok(None);
    }
    let end = at
        .checked_add(len.into())
        .filter(|end| *end <= cluster && len <= MOST_NAME);
    let name = end.and_then(|end| bytes.get(usize::try_from(at).ok()?..usize::try_from(end).ok()?));
    match name {
        Some(name) => Ok(Some(name.to_owned())),
        None => Err(format!(
            "the name of its backing file is said to be {len} bytes at {at}"
        )),
    }
}

/// Extensions of the header, with their contents. They end with one of the kind 0, or where the name of the backing file begins.
fn extensions(bytes: &[u8], from: u32, cluster: u64) -> Result<Vec<(u32, &[u8])>, String> {
    let wrong = || "its header's extensions do not end in the first cluster".to_owned();
    let end = bytes
        .len()
        .min(usize::try_from(cluster).unwrap_or(usize::MAX));
    let mut at = usize::try_from(from).map_err(|_| wrong())?;
    let name = usize::try_from(be64(bytes, 8)).unwrap_or(usize::MAX);
    let ends_at_name = (at..end).contains(&name);
    let bytes = &bytes[..if ends_at_name { name } else { end }];
    let mut found = Vec::new();
    loop {
        if ends_at_name && at >= name {
            return Ok(found);
        }
        let head = at.checked_add(8).and_then(|body| bytes.get(at..body));
        let head = head.ok_or_else(wrong)?;
        let (kind, len) = (be32(head, 0), be32(head, 4) as usize);
        if kind == 0 {
            return Ok(found);
        }
        let body = (at + 8)
            .checked_add(len)
            .and_then(|end| bytes.get(at + 8..end));
        found.push((kind, body.ok_or_else(wrong)?));
        at += 8 + len.next_multiple_of(8);
    }
}

#[cfg(test)]
mod tests {
    use super::check_counts;

    /// A gap in the counts once ended in a recursion without end, as the fuzz target `qcow2` found.
    #[test]
    fn counts_have_no_gaps() {
        let table =
            |entries: &[u64]| -> Vec<u8> { entries.iter().flat_map(|e| e.to_be_bytes()).collect() };
        for whole in [&[512][..], &[1, 2, 3], &[1, 2, 0, 0]] {
            assert!(check_counts(&table(whole)).is_ok(), "{whole:?}");
        }
        for gap in [&[][..], &[0], &[0, 1], &[1, 0, 2], &[0, 0]] {
            let why = check_counts(&table(gap)).expect_err("a gap");
            assert!(why.contains("do not cover"), "{gap:?}: {why}");
        }
    }
}

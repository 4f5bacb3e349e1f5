//! A directory of the host as a source.
//!
//! Input: a directory. Output: entries. Invariants: symbolic links are never followed; files with several names become one inode; holes
//! stay holes. Limits: of two names of one file, both must be below the directory; what changes meanwhile may be taken in a mixed state.

use crate::assembly::Assembly;
use crate::error::{Error, Place};
use crate::origin::{self, Origin};
use diorite::Timestamp;
use diorite::mkfs::{Attribute, Node, NodeId, NodeKind};
use rustix::fs::{FileType as HostType, SeekFrom, major, minor};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Adds everything below `root`, and the attributes of `root` itself.
pub(crate) fn add(assembly: &mut Assembly, root: &Path) -> Result<(), Error> {
    let mut walk = Walk {
        assembly,
        known: HashMap::new(),
        list: vec![0; 4096],
    };
    walk.one(root, b"")?;
    // Paths below the root, and those of the host.
    let mut todo = vec![(Vec::new(), root.to_owned())];
    while let Some((path, host)) = todo.pop() {
        let mut names: Vec<_> = Vec::new();
        for entry in std::fs::read_dir(&host).at(host.display())? {
            names.push(entry.at(host.display())?.file_name());
        }
        names.sort();
        for name in names {
            let below = host.join(&name);
            let mut inner: Vec<u8> = path.clone();
            inner.push(b'/');
            inner.extend_from_slice(name.as_bytes());
            if walk.assembly.is_excluded(&inner) {
                continue;
            }
            if walk.one(&below, &inner)? {
                todo.push((inner, below));
            }
        }
    }
    Ok(())
}

struct Walk<'a> {
    assembly: &'a mut Assembly,
    /// Files with several names.
    known: HashMap<(u64, u64), NodeId>,
    /// Names of attributes are read into it.
    list: Vec<u8>,
}

impl Walk<'_> {
    /// Adds one file; true if it is a directory.
    fn one(&mut self, host: &Path, path: &[u8]) -> Result<bool, Error> {
        self.try_one(host, path).at(host.display())
    }

    fn try_one(&mut self, host: &Path, path: &[u8]) -> Result<bool, Error> {
        let meta = match path.is_empty() {
            // The root may be named by a link.
            true => host.metadata()?,
            false => host.symlink_metadata()?,
        };
        let identity = (meta.dev(), meta.ino());
        if self.assembly.rules.leave_out == Some(identity) {
            return Ok(false);
        }
        if !meta.is_dir()
            && meta.nlink() > 1
            && let Some(known) = self.known.get(&identity)
        {
            self.assembly.link_node(path, *known)?;
            return Ok(false);
        }
        let rdev = || diorite::Rdev {
            major: major(meta.rdev()),
            minor: minor(meta.rdev()),
        };
        let kind = match HostType::from_raw_mode(meta.mode()) {
            HostType::Directory => NodeKind::Directory,
            HostType::RegularFile => NodeKind::File {
                len: meta.len(),
                data: data(host, &meta)?.into(),
            },
            HostType::Symlink => {
                NodeKind::Symlink(host.read_link()?.into_os_string().into_vec().into())
            }
            HostType::CharacterDevice => NodeKind::CharDevice(rdev()),
            HostType::BlockDevice => NodeKind::BlockDevice(rdev()),
            HostType::Fifo => NodeKind::Fifo,
            HostType::Socket => NodeKind::Socket,
            HostType::Unknown => return Err(Error::new("it is of no known kind")),
        };
        let origin = match kind {
            NodeKind::File { .. } => Origin::Host(host.into()),
            _ => Origin::None,
        };
        let node = Node {
            kind,
            mode: (meta.mode() & 0o7777) as u16,
            uid: meta.uid(),
            gid: meta.gid(),
            mtime: Timestamp {
                secs: meta.mtime(),
                nanos: u32::try_from(meta.mtime_nsec()).unwrap_or(0),
            },
            attributes: match self.assembly.rules.no_attributes {
                true => Vec::new(),
                false => self.attributes(host)?,
            },
        };
        let id = self.assembly.put(path, node, origin)?;
        if meta.nlink() > 1 && !meta.is_dir() {
            self.known.insert(identity, id);
        }
        Ok(meta.is_dir())
    }

    fn attributes(&mut self, host: &Path) -> Result<Vec<Attribute>, Error> {
        let len = loop {
            match rustix::fs::llistxattr(host, &mut self.list[..]) {
                Ok(len) => break len,
                Err(Errno::RANGE) if self.list.len() < 1 << 20 => {
                    let more = self.list.len() * 4;
                    self.list.resize(more, 0);
                }
                Err(Errno::NOTSUP) => return Ok(Vec::new()),
                Err(errno) => {
                    return Err(Error::new(format!(
                        "its attributes cannot be listed: {errno}"
                    )));
                }
            }
        };
        let mut all = Vec::new();
        for name in self.list[..len]
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty())
        {
            let mut value = vec![0; 256];
            loop {
                match rustix::fs::lgetxattr(host, OsStr::from_bytes(name), &mut value[..]) {
                    Ok(len) => {
                        all.push((name.into(), value[..len].into()));
                        break;
                    }
                    Err(Errno::RANGE) if value.len() < 1 << 17 => value.resize(value.len() * 4, 0),
                    // It went meanwhile, or is not for us.
                    Err(Errno::NODATA | Errno::PERM | Errno::ACCESS | Errno::NOTSUP) => break,
                    Err(errno) => {
                        let name = String::from_utf8_lossy(name);
                        return Err(Error::new(format!(
                            "its attribute {name} cannot be read: {errno}"
                        )));
                    }
                }
            }
        }
        Ok(all)
    }
}

/// Where a file has data.
fn data(host: &Path, meta: &std::fs::Metadata) -> Result<Vec<Range<u64>>, Error> {
    let len = meta.len();
    let whole = || (len > 0).then_some(0..len).into_iter().collect();
    // As many blocks as bytes: there are no holes to look for.
    if meta.blocks().saturating_mul(512) >= len {
        return Ok(whole());
    }
    let file = origin::open(host)?;
    let (mut ranges, mut at) = (Vec::new(), 0);
    while at < len {
        let start = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(start) => start.min(len),
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL) => return Ok(whole()),
            Err(errno) => return Err(std::io::Error::from(errno).into()),
        };
        let end = rustix::fs::seek(&file, SeekFrom::Hole(start))
            .map_err(std::io::Error::from)?
            .min(len);
        if end <= start {
            break;
        }
        ranges.push(start..end);
        at = end;
    }
    Ok(ranges)
}

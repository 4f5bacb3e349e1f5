//! A directory of the host as a source.
//!
//! Input: a directory. Output: entries. Invariants: symbolic links are never followed; files with several names become one inode; holes
//! stay holes. Limits: of two names of one file, both must be below the directory; what changes meanwhile may be taken in a mixed state.

use crate::assembly::Assembly;
use crate::error::{Error, Place};
use crate::host::Root;
use crate::origin::Origin;
use diorite::Timestamp;
use diorite::mkfs::{Attribute, Node, NodeId, NodeKind};
use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, Dir, FileType as HostType, SeekFrom, Stat, fstat, major, minor, readlinkat, statat,
};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Adds everything below `root`, and the attributes of `root` itself.
pub(crate) fn add(assembly: &mut Assembly, root: &Path) -> Result<(), Error> {
    let mut walk = Walk {
        assembly,
        root: Arc::new(Root::open(root).at(root.display())?),
        known: HashMap::new(),
        list: vec![0; 4096],
    };
    let mut todo = vec![PathBuf::new()];
    let dir = walk.root.directory(Path::new("")).at(root.display())?;
    walk.one(&dir, Path::new("")).at(root.display())?;
    while let Some(path) = todo.pop() {
        let shown = walk.root.path(&path);
        let (dir, mut names) = walk.names(&path).at(shown.display())?;
        names.sort();
        for name in names {
            let below = path.join(&name);
            if walk.assembly.is_excluded(below.as_os_str().as_bytes()) {
                continue;
            }
            let is_dir = walk.one(&dir, &below).at(shown.join(&name).display())?;
            if is_dir {
                todo.push(below);
            }
        }
    }
    Ok(())
}

struct Walk<'a> {
    assembly: &'a mut Assembly,
    root: Arc<Root>,
    /// Files with several names.
    known: HashMap<(u64, u64), NodeId>,
    /// Names of attributes are read into it.
    list: Vec<u8>,
}

impl Walk<'_> {
    /// A directory, open, and the names in it.
    fn names(&self, path: &Path) -> std::io::Result<(OwnedFd, Vec<OsString>)> {
        let dir = self.root.directory(path)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&dir)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if !matches!(&name[..], b"." | b"..") {
                names.push(OsString::from_vec(name));
            }
        }
        Ok((dir, names))
    }

    /// Adds one file, which is in this directory; true if it is a directory.
    fn one(&mut self, dir: &OwnedFd, path: &Path) -> Result<bool, Error> {
        // The root has no name in itself.
        let meta = match path.file_name() {
            Some(name) => statat(dir, name, AtFlags::SYMLINK_NOFOLLOW),
            None => fstat(dir),
        };
        let meta = meta.map_err(std::io::Error::from)?;
        let identity = (meta.st_dev, meta.st_ino);
        if self.assembly.rules.leave_out == Some(identity) {
            return Ok(false);
        }
        let inner = path.as_os_str().as_bytes();
        let host_kind = HostType::from_raw_mode(meta.st_mode);
        let is_dir = host_kind == HostType::Directory;
        let has_names = !is_dir && meta.st_nlink > 1;
        if has_names && let Some(known) = self.known.get(&identity) {
            self.assembly.link_node(inner, *known)?;
            return Ok(false);
        }
        let rdev = || diorite::Rdev {
            major: major(meta.st_rdev),
            minor: minor(meta.st_rdev),
        };
        let kind = match host_kind {
            HostType::Directory => NodeKind::Directory,
            HostType::RegularFile => NodeKind::File {
                len: length(&meta),
                data: self.data(path, &meta)?.into(),
            },
            HostType::Symlink => {
                let name = path.file_name().unwrap_or_default();
                let target = readlinkat(dir, name, Vec::new()).map_err(std::io::Error::from)?;
                NodeKind::Symlink(target.into_bytes().into())
            }
            HostType::CharacterDevice => NodeKind::CharDevice(rdev()),
            HostType::BlockDevice => NodeKind::BlockDevice(rdev()),
            HostType::Fifo => NodeKind::Fifo,
            HostType::Socket => NodeKind::Socket,
            HostType::Unknown => return Err(Error::new("it is of no known kind")),
        };
        let origin = match kind {
            NodeKind::File { .. } => Origin::Host(Some(self.root.clone()), path.into()),
            _ => Origin::None,
        };
        let node = Node {
            kind,
            mode: (meta.st_mode & 0o7777) as u16,
            uid: meta.st_uid,
            gid: meta.st_gid,
            mtime: Timestamp {
                secs: meta.st_mtime,
                nanos: u32::try_from(meta.st_mtime_nsec).unwrap_or(0),
            },
            attributes: match self.assembly.rules.no_attributes {
                true => Vec::new(),
                // A link that names the root has attributes of its own.
                false if path.as_os_str().is_empty() => {
                    self.attributes(&self.root.path(Path::new(".")))?
                }
                false => self.attributes(&self.root.path(path))?,
            },
        };
        let id = self.assembly.put(inner, node, origin)?;
        if has_names {
            self.known.insert(identity, id);
        }
        Ok(is_dir)
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

    /// Where a file has data.
    fn data(&self, path: &Path, meta: &Stat) -> Result<Vec<Range<u64>>, Error> {
        let len = length(meta);
        let whole = || (len > 0).then_some(0..len).into_iter().collect();
        // As many blocks as bytes: there are no holes to look for.
        let stored = u64::try_from(meta.st_blocks).unwrap_or(0);
        if stored.saturating_mul(512) >= len {
            return Ok(whole());
        }
        let file = self.root.file(path)?;
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
}

fn length(meta: &Stat) -> u64 {
    u64::try_from(meta.st_size).unwrap_or(0)
}

//! Changes of an image that exists.
//!
//! Input: a volume; sources of files, bytes, paths. Output: the volume with them. Invariants: a file has its name only when all of it is
//! there, so a reader, or recovery after a crash, finds the old file or the new one; what has a name in the volume is replaced, directories
//! are kept. A directory that a file replaces, or the other way round, goes before the new one is there. Limits: names and attributes of a
//! source are held in memory; whiteouts remove files of the source's own layers, never files of the volume. Blocks.

use crate::assembly::{Assembly, Rules};
use crate::error::{Error, Place};
use crate::origin::Origins;
use crate::source::Source;
use diorite::mkfs::{Attribute, Contents, MkfsOptions, Node, NodeId, NodeKind, Progress, Tree};
use diorite::{
    Atomic, File, FileType, Ino, Moved, OpenFlags, OpenOptions, Rdev, RenameFlags, SetAttr, Volume,
};
use std::collections::HashMap;
use std::io::Read;

/// Bytes that are copied at once.
const PIECE: usize = 1 << 20;
/// What names of access control lists begin with.
const ACL: &[u8] = b"system.posix_acl_";
/// Of what is no device.
const NO_DEVICE: Rdev = Rdev { major: 0, minor: 0 };
/// Permissions of directories that are made on the way.
const ON_THE_WAY: u16 = 0o755;

/// Who fills an image wants the last block, too.
fn options() -> OpenOptions {
    OpenOptions::writable().keep_for_maps(false)
}

/// An image that is changed: see the module. Everything is durable when [`Editor::close`] has returned, or [`Editor::sync`]. It is dropped
/// without an error that could be seen. Paths are text or bytes.
///
/// ```
/// use diorite::device::{Device, MemDevice};
/// use diorite::mkfs::{MkfsOptions, mkfs};
/// use diorite::{OpenOptions, Volume};
/// use diorite_image::Editor;
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), diorite_image::Error> {
/// let device: Arc<dyn Device> = Arc::new(MemDevice::new(16 << 20));
/// mkfs(&device, &MkfsOptions::new([1; 16], [2; 16], 1_700_000_000))?;
/// let mut editor = Editor::of(Volume::open_device(device, &OpenOptions::writable())?); // or Editor::open("root.img")
/// editor.transaction(|editor| editor.write_file("/hostname", 0o644, &mut &b"example\n"[..]))?;
/// assert_eq!(editor.volume().read("/hostname")?, b"example\n");
/// editor.close()
/// # }
/// ```
#[derive(Debug)]
pub struct Editor {
    volume: Volume,
}

impl Editor {
    /// Opens an image by its locator for writing. Its journal is replayed first if that is needed.
    ///
    /// # Errors
    /// Those of [`Volume::open`].
    pub fn open(locator: &str) -> Result<Editor, Error> {
        let volume = Volume::open(locator, &options())?;
        Ok(Editor { volume })
    }

    /// Changes a volume that was opened for writing, with any options.
    #[must_use]
    pub fn of(volume: Volume) -> Editor {
        Editor { volume }
    }

    /// The volume, for what this has no name for.
    #[must_use]
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Puts all files of a source into a directory, which must be there. `progress` is told the bytes of data that are written, and ends it
    /// with false. Returns how many files there were, directories included.
    ///
    /// # Errors
    /// The source cannot be read; no space; errors of the volume. What is there by then stays.
    pub fn put(
        &self,
        source: &Source,
        dir: &(impl AsRef<[u8]> + ?Sized),
        rules: Rules,
        progress: Progress<'_>,
    ) -> Result<u64, Error> {
        let info = self.volume.superblock().info();
        // What the source does not say is as of now.
        let mut options = MkfsOptions::new([0; 16], [0; 16], self.volume.now().secs);
        options.root_mode = 0;
        let mut assembly = Assembly::new(&options);
        assembly.rules = rules;
        assembly.next_layer();
        source.read_into(&mut assembly)?;
        assembly.label()?;
        let (files, _) = assembly.count();
        let Assembly { tree, origins, .. } = assembly;
        let mut writer = Writer {
            volume: &self.volume,
            tree: &tree,
            contents: &origins,
            has_attributes: info.revision > 0,
            named: HashMap::new(),
            progress,
            written: 0,
        };
        let dir = dir.as_ref();
        let at = self.volume.resolve(dir, true).at(shown(dir))?;
        writer.directory(NodeId::ROOT, at, dir)?;
        Ok(files)
    }

    /// Makes a file of the bytes that `contents` gives, in place of one that is there. Returns how many there were.
    ///
    /// # Errors
    /// Of `contents`, and of the volume; then the name is what it was.
    pub fn write_file(
        &self,
        path: &(impl AsRef<[u8]> + ?Sized),
        permissions: u16,
        contents: &mut dyn Read,
    ) -> Result<u64, Error> {
        let bytes = path.as_ref();
        let (dir, _) = split(bytes);
        let path = shown(bytes);
        let file = self.volume.temporary(dir, permissions).at(&path)?;
        let (mut piece, mut at) = (vec![0; PIECE], 0);
        loop {
            let count = contents.read(&mut piece).at(&path)?;
            if count == 0 {
                break;
            }
            write(&file, at, &piece[..count]).at(&path)?;
            at += count as u64;
        }
        self.volume.replace_file(&file, bytes).at(&path)?;
        Ok(at)
    }

    /// The bytes of a file.
    ///
    /// # Errors
    /// `NotFound` and others of the volume; it has more than `most` bytes.
    pub fn read_file(
        &self,
        path: &(impl AsRef<[u8]> + ?Sized),
        most: usize,
    ) -> Result<Vec<u8>, Error> {
        let bytes = path.as_ref();
        let path = shown(bytes);
        let file = self.volume.open_path(bytes, OpenFlags::default());
        let file = file.at(&path)?;
        let size = usize::try_from(file.size()).ok().filter(|s| *s <= most);
        let size = size.ok_or_else(|| {
            Error::new(format!(
                "{path}: it has {} bytes, more than {most}",
                file.size()
            ))
        })?;
        let (mut bytes, mut done) = (vec![0; size], 0);
        while done < size {
            match file.read_bytes(done as u64, &mut bytes[done..]).at(&path)? {
                0 => bytes.truncate(done),
                count => done += count,
            }
            if bytes.len() == done {
                break;
            }
        }
        Ok(bytes)
    }

    /// Makes a directory, and those on the way to it that are not there. That it is there is no error.
    ///
    /// # Errors
    /// Something else has one of the names; errors of the volume.
    pub fn make_dir(
        &self,
        path: &(impl AsRef<[u8]> + ?Sized),
        permissions: u16,
    ) -> Result<Ino, Error> {
        let (bytes, mut at) = (path.as_ref(), Ino::ROOT);
        let path = shown(bytes);
        let names: Vec<&[u8]> = bytes
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty())
            .collect();
        for (n, name) in names.iter().enumerate() {
            let mode = if n + 1 == names.len() {
                permissions
            } else {
                ON_THE_WAY
            };
            at = match self.volume.mkdir(diorite::At::In(at, name), mode) {
                Err(diorite::Error::Exists { .. }) => {
                    let upto = names[..=n].join(&b'/');
                    let there = self.volume.resolve(&upto, true).at(&path)?;
                    if !is_directory(&self.volume, there).at(&path)? {
                        let upto = shown(&upto);
                        return Err(Error::new(format!("{path}: /{upto} is no directory")));
                    }
                    there
                }
                made => made.at(&path)?,
            };
        }
        Ok(at)
    }

    /// Removes a name, with everything below it if it is a directory. That it is not there is an error.
    ///
    /// # Errors
    /// Errors of the volume; a part may be gone then.
    pub fn remove(&self, path: &(impl AsRef<[u8]> + ?Sized)) -> Result<(), Error> {
        let bytes = path.as_ref();
        let (dir, name) = split(bytes);
        let path = shown(bytes);
        if matches!(name, b"" | b"." | b"..") {
            return Err(Error::new(format!(
                "{path}: the last part is no name that could be removed"
            )));
        }
        let dir = self.volume.resolve(dir, true).at(&path)?;
        remove(&self.volume, dir, name).at(&path)
    }

    /// Moves a name; what has the new one is replaced.
    ///
    /// # Errors
    /// Those of [`Volume::rename`].
    pub fn rename(
        &self,
        from: &(impl AsRef<[u8]> + ?Sized),
        to: &(impl AsRef<[u8]> + ?Sized),
    ) -> Result<(), Error> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let moved = self.volume.rename(from, to, RenameFlags::default());
        moved.at(format!("{} to {}", shown(from), shown(to)))
    }

    /// Sets permissions, owners and times of what a path leads to; a symbolic link at its end is not followed.
    ///
    /// # Errors
    /// Those of [`Volume::set_attr`].
    pub fn set(&self, path: &(impl AsRef<[u8]> + ?Sized), set: &SetAttr) -> Result<(), Error> {
        let bytes = path.as_ref();
        let ino = self.volume.resolve(bytes, false).at(shown(bytes))?;
        self.volume.set_attr(ino, set).at(shown(bytes))
    }

    /// Makes changes that are in the image as a whole after a crash, or not at all: `changes` is run in a transaction of the journal. If it
    /// fails, none of its changes is in the image, and the volume is opened anew, as by [`OpenOptions::writable`]: files that were opened
    /// before are of no use then. Without a journal a crash may leave a part.
    ///
    /// # Errors
    /// Those of `changes`; a transaction has no room for them; those of [`Atomic::commit`]. If the volume cannot be opened anew, every
    /// later call fails.
    pub fn transaction<R>(
        &mut self,
        changes: impl FnOnce(&Editor) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let atomic: Atomic = self.volume.atomic()?;
        match changes(self) {
            Ok(made) => {
                atomic.commit()?;
                Ok(made)
            }
            Err(why) => {
                atomic.abandon()?;
                // The one that was abandoned writes nothing any more, so both may be there for a moment.
                let device = self.volume.device().clone();
                self.volume = Volume::open_device(device, &options())?;
                Err(why)
            }
        }
    }

    /// Makes the file system larger, to at most `bytes`: see [`Volume::grow`]. The device has that size already.
    ///
    /// # Errors
    /// Those of [`Volume::grow`].
    pub fn grow(&self, bytes: u64) -> Result<u64, Error> {
        Ok(self.volume.grow(bytes)?)
    }

    /// Makes the file system smaller, and closes it: see [`Volume::shrink`].
    ///
    /// # Errors
    /// Those of [`Volume::shrink`].
    pub fn shrink(
        self,
        bytes: u64,
        progress: &mut dyn FnMut(&Moved) -> bool,
    ) -> Result<u64, Error> {
        Ok(self.volume.shrink(bytes, progress)?)
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// Those of [`Volume::sync`].
    pub fn sync(&self) -> Result<(), Error> {
        Ok(self.volume.sync()?)
    }

    /// Makes everything durable, and closes the image.
    ///
    /// # Errors
    /// Those of [`Volume::close`].
    pub fn close(self) -> Result<(), Error> {
        Ok(self.volume.close()?)
    }
}

fn is_directory(volume: &Volume, ino: Ino) -> Result<bool, diorite::Error> {
    Ok(volume.metadata(ino)?.0.file_type == Some(FileType::Directory))
}

/// The directory of a path, and the name in it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let slashes = path.iter().rev().take_while(|byte| **byte == b'/').count();
    let path = &path[..path.len() - slashes];
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => (b"/", &path[1..]),
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"/", path),
    }
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

fn write(file: &File, pos: u64, bytes: &[u8]) -> Result<(), diorite::Error> {
    let mut done = 0;
    while done < bytes.len() {
        done += file.write_bytes(pos + done as u64, &bytes[done..])?;
    }
    Ok(())
}

/// Removes a name and all below it. A list takes the place of recursion: directories may be nested to any depth.
fn remove(volume: &Volume, dir: Ino, name: &[u8]) -> Result<(), diorite::Error> {
    let mut todo = vec![(dir, name.to_vec(), false)];
    while let Some((dir, name, is_empty)) = todo.pop() {
        if is_empty {
            volume.rmdir(diorite::At::In(dir, &name))?;
            continue;
        }
        match volume.unlink(diorite::At::In(dir, &name)) {
            Err(diorite::Error::IsADirectory { .. }) => {
                let gone = || diorite::Error::NotFound {
                    path: String::from_utf8_lossy(&name).into_owned(),
                };
                let below = volume.lookup(dir, &name)?.ok_or_else(gone)?;
                todo.push((dir, name, true));
                for entry in volume.read_dir(below)? {
                    let entry = entry?;
                    if !matches!(&entry.name[..], b"." | b"..") {
                        todo.push((below, entry.name.to_vec(), false));
                    }
                }
            }
            done => done?,
        }
    }
    Ok(())
}

/// Writes a tree into a volume.
struct Writer<'a> {
    volume: &'a Volume,
    tree: &'a Tree,
    contents: &'a Origins,
    has_attributes: bool,
    /// Inodes of nodes that have a name already: other names of them are hard links.
    named: HashMap<NodeId, Ino>,
    progress: Progress<'a>,
    written: u64,
}

impl Writer<'_> {
    /// Everything in a directory of the tree goes into one of the volume. `path` is that one's, for messages.
    fn directory(&mut self, root: NodeId, at: Ino, path: &[u8]) -> Result<(), Error> {
        let mut todo = vec![(root, at, path.to_vec())];
        while let Some((dir, at, path)) = todo.pop() {
            for (name, id) in self.tree.children(dir) {
                let mut here = path.clone();
                here.push(b'/');
                here.extend_from_slice(name);
                let ino = self.entry(at, name, id).map_err(|e| e.at(shown(&here)))?;
                if self.tree.is_dir(id) {
                    todo.push((id, ino, here));
                }
            }
            if dir != root {
                // Its times, now that nothing is made in it any more.
                self.attributes(at, &self.tree.node(dir))?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, dir: Ino, name: &[u8], id: NodeId) -> Result<Ino, Error> {
        let at = diorite::At::In(dir, name);
        let node = self.tree.node(id);
        if let Some(ino) = self.named.get(&id).copied() {
            if self.volume.lookup(dir, name)? != Some(ino) {
                self.place(dir, name, |at| self.volume.link_ino(ino, at))?;
            }
            return Ok(ino);
        }
        let ino = match &node.kind {
            NodeKind::Directory => match self.volume.mkdir(at, node.mode) {
                Err(diorite::Error::Exists { .. }) => match self.volume.lookup(dir, name)? {
                    Some(there) if is_directory(self.volume, there)? => there,
                    _ => {
                        self.volume.unlink(at)?;
                        self.bare(self.volume.mkdir(at, node.mode)?, &node)?
                    }
                },
                made => self.bare(made?, &node)?,
            },
            NodeKind::File { len, data } => {
                let file = self.volume.temporary_in(dir, node.mode)?;
                let mut piece = Vec::new();
                for run in data {
                    self.data(&file, id, run.clone(), &mut piece)?;
                }
                file.truncate(*len)?;
                self.attributes(self.bare(file.ino(), &node)?, &node)?;
                if let Err(diorite::Error::IsADirectory { .. }) =
                    self.volume.replace_file(&file, at)
                {
                    remove(self.volume, dir, name)?;
                    self.volume.replace_file(&file, at)?;
                }
                file.ino()
            }
            NodeKind::Symlink(target) => {
                self.place(dir, name, |at| self.volume.symlink(target, at))?
            }
            NodeKind::CharDevice(device) => {
                self.special(dir, name, FileType::CharDevice, (&node, *device))?
            }
            NodeKind::BlockDevice(device) => {
                self.special(dir, name, FileType::BlockDevice, (&node, *device))?
            }
            NodeKind::Fifo => self.special(dir, name, FileType::Fifo, (&node, NO_DEVICE))?,
            NodeKind::Socket => self.special(dir, name, FileType::Socket, (&node, NO_DEVICE))?,
        };
        if !matches!(node.kind, NodeKind::File { .. }) {
            self.attributes(ino, &node)?;
        }
        self.named.insert(id, ino);
        Ok(ino)
    }

    /// Makes something under a name of its own, and then gives it `name`: what has that name has it until then.
    fn place<R>(
        &self,
        dir: Ino,
        name: &[u8],
        make: impl FnOnce(diorite::At<'_>) -> Result<R, diorite::Error>,
    ) -> Result<R, Error> {
        let mut own = format!(".diorite-{}", self.named.len());
        while self.volume.lookup(dir, own.as_bytes())?.is_some() {
            own.push('~');
        }
        let own = diorite::At::In(dir, own.as_bytes());
        let made = make(own)?;
        let at = diorite::At::In(dir, name);
        let renamed = match self.volume.rename(own, at, RenameFlags::default()) {
            Err(diorite::Error::IsADirectory { .. }) => {
                remove(self.volume, dir, name)?;
                self.volume.rename(own, at, RenameFlags::default())
            }
            renamed => renamed,
        };
        if renamed.is_err() {
            // Best effort: the first error is reported.
            let _ = self.volume.unlink(own);
        }
        renamed?;
        Ok(made)
    }

    fn special(
        &self,
        dir: Ino,
        name: &[u8],
        kind: FileType,
        (node, device): (&Node, Rdev),
    ) -> Result<Ino, Error> {
        let make = |at: diorite::At<'_>| self.volume.mknod(at, kind, node.mode, device);
        self.bare(self.place(dir, name, make)?, node)
    }

    /// Takes from a new inode the access control lists of its directory that the source has not. Returns it.
    fn bare(&self, ino: Ino, node: &Node) -> Result<Ino, Error> {
        for there in self.volume.xattrs(ino)? {
            let is_wanted = |(name, _): &Attribute| **name == *there.name;
            if there.name.starts_with(ACL) && !node.attributes.iter().any(is_wanted) {
                self.volume.remove_xattr(ino, &there.name)?;
            }
        }
        Ok(ino)
    }

    fn data(
        &mut self,
        file: &File,
        id: NodeId,
        run: std::ops::Range<u64>,
        piece: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let mut at = run.start;
        while at < run.end {
            let len = (run.end - at).min(PIECE as u64) as usize;
            piece.resize(len, 0);
            self.contents.read(id, at, piece)?;
            write(file, at, piece)?;
            at += len as u64;
            self.written += len as u64;
            if !(self.progress)(self.written) {
                return Err(Error::new("it was ended"));
            }
        }
        Ok(())
    }

    fn attributes(&self, ino: Ino, node: &Node) -> Result<(), Error> {
        let is_link = matches!(node.kind, NodeKind::Symlink(_));
        self.volume.set_attr(
            ino,
            &SetAttr::default()
                .permissions((!is_link).then_some(node.mode))
                .uid(node.uid)
                .gid(node.gid)
                .atime(node.mtime)
                .mtime(node.mtime)
                .is_now(false),
        )?;
        // A new owner would take capabilities away, and new permissions change an access control list.
        if self.has_attributes {
            for (name, value) in &node.attributes {
                self.volume.set_xattr(ino, name, value)?;
            }
        }
        Ok(())
    }
}

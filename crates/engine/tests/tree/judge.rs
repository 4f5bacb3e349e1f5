//! Compares an image with the model, as read by diorite, `check`, e2fsck, debugfs and the kernel.
//!
//! Input: an open volume, or an image. Output: none; a difference panics. Invariant: an image that is open is only copied. Limits:
//! only root can ask the kernel; otherwise debugfs lists the names.

use super::files;
use super::has::FLAGS;
use super::model::{Kind, Model, Node};
use crate::common::kernel::{mounted, not_mounted};
use crate::common::names::{by_debugfs, by_diorite};
use crate::common::{Rng, fsck, scratch};
use diorite::{File, OpenFlags, OpenOptions, Volume};
use diorite_check::{CheckOptions, check};
use diorite_crash::view;
use diorite_format::FileType;
use diorite_format::features::{Compat, Incompat};
use diorite_format::inode::Rdev;
use std::path::Path;
use xtask::images::told_by_kernel;

/// Compares the tree that diorite finds with the model, node by node.
pub(super) fn compare(volume: &Volume, model: &Model) {
    for (path, n) in &model.all() {
        let node = &model.nodes[*n];
        let ino = volume.resolve(path.as_bytes(), false).unwrap();
        let file = volume.open_ino(ino, OpenFlags::default()).unwrap();
        attributes(volume, path, &file, node);
        match &node.kind {
            Kind::Dir(names) => {
                let mut found = by_diorite(volume, path);
                found.remove("lost+found");
                assert!(found.iter().eq(names.keys()), "{path}: {found:?}");
                let up = format!("{path}/..");
                let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
                let ino_of = |path: &str| volume.resolve(path.as_bytes(), true).unwrap();
                assert_eq!(ino_of(&up), ino_of(parent), "{path}");
            }
            Kind::File => files::same(path, &file, &node.bytes),
            Kind::Link(target) => {
                assert_eq!(volume.read_link(ino).unwrap(), target.as_bytes(), "{path}");
            }
            Kind::Node(major, minor) => {
                let (major, minor) = (*major, *minor);
                let device = Some(Rdev { major, minor });
                assert_eq!(file.metadata().rdev(), device, "{path}");
            }
        }
    }
}

fn attributes(volume: &Volume, path: &str, file: &File, node: &Node) {
    let (disk, has) = (file.metadata(), &node.has);
    let kind = match node.kind {
        Kind::Dir(_) => FileType::Directory,
        Kind::File => FileType::Regular,
        Kind::Link(_) => FileType::Symlink,
        Kind::Node(..) => FileType::CharDevice,
    };
    assert_eq!(disk.file_type, Some(kind), "{path}");
    // The root directory has one link more, from lost+found.
    let links = node.links + usize::from(path.is_empty());
    assert_eq!(usize::from(disk.links), links, "{path}: links");
    assert_eq!(disk.mode & 0o7777, has.mode, "{path}: mode");
    assert_eq!((disk.uid, disk.gid), (has.uid, has.gid), "{path}: owner");
    let flags = disk.flags.bits() & FLAGS.bits();
    assert_eq!(flags, has.flags.bits(), "{path}: flags");
    assert_eq!(
        has.mtime.unwrap_or(disk.mtime),
        disk.mtime,
        "{path}: time {kind:?}"
    );
    let mut found = volume.xattrs(file.ino()).unwrap();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    let found = found.iter().map(|x| (&x.name, &x.value));
    assert!(
        found.clone().eq(&has.xattrs),
        "{path}: {:?}, not {:?}",
        found.collect::<Vec<_>>(),
        has.xattrs
    );
}

/// Judges an image that nobody has open and that needs no recovery.
pub(super) fn at_rest(image: &Path, model: &Model) {
    fsck(image);
    let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::default()).unwrap();
    compare(&volume, model);
    if !rustix::process::geteuid().is_root() {
        xtask::skip::skipped("the kernel's view needs root");
        return by_others_names(image, model);
    }
    let (mut found, mut differences) = (Vec::new(), Vec::new());
    let ours = view::walk(&volume, &mut found);
    match told_by_kernel(image, false) {
        Ok(theirs) => view::compare(&theirs, &ours, &mut differences),
        Err(error) => {
            not_mounted(image, "loop,ro", &error);
            by_others_names(image, model);
        }
    }
    found.extend(differences);
    assert!(found.is_empty(), "the kernel's view: {found:#?}");
}

fn by_others_names(image: &Path, model: &Model) {
    for (path, n) in &model.all() {
        if let Kind::Dir(names) = &model.nodes[*n].kind {
            let mut found = by_debugfs(image, &format!("{path}/"));
            found.remove("lost+found");
            assert!(found.iter().eq(names.keys()), "{path}: {found:?}");
        }
    }
}

/// Judges an image that is open and was synced, as a crash would leave it: `check` judges it unrecovered, the others after one of
/// them has recovered it.
pub(super) fn recovered(image: &Path, model: &Model, rng: &mut Rng) {
    let dir = scratch();
    let copy = dir.path().join("copy");
    std::fs::copy(image, &copy).unwrap();
    let name = copy.to_str().unwrap();
    let volume = Volume::open(name, &OpenOptions::default()).unwrap();
    compare(&volume, model);
    let features = volume.superblock().features();
    let has_journal = features.compat.has(Compat::HAS_JOURNAL);
    let by = match has_journal {
        // e2fsck 1.47 links the value inodes of an unlinked file into lost+found, also after the kernel wrote them, so it does not
        // recover these.
        true if features.incompat.has(Incompat::EA_INODE) => 1 + rng.below(2),
        true => rng.below(3),
        false => 0,
    };
    drop(volume);
    if has_journal {
        let found = check(name, &CheckOptions::default(), &|_| ()).unwrap();
        assert!(found.is_clean(), "{:?}", found.kept().collect::<Vec<_>>());
    }
    match by {
        0 => {
            let mended = xtask::run::tool("e2fsck")
                .args(["-fy", name])
                .output()
                .unwrap();
            assert!(mended.status.code().unwrap() <= 1, "{mended:?}");
        }
        1 if mounted(&copy, "rw", |_| ()) => {}
        _ => {
            let volume = Volume::open(name, &OpenOptions::writable()).unwrap();
            volume.close().unwrap();
        }
    }
    at_rest(&copy, model);
}

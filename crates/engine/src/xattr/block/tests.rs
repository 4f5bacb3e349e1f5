//! Attribute blocks that two files share and that refer to value inodes.
//!
//! No mount of the kernel is needed: the tests give the second file the first one's block, as the kernel does for files with equal
//! attributes.

use super::*;
use crate::options::OpenFlags;
use crate::testing::small_volume;
use crate::volume::Volume;
use crate::xattr::remove::{attribute_credits, held_attribute};
use crate::xattr::value::let_go;
use diorite_block::Buf;
use diorite_check::{CheckOptions, check_device};
use diorite_format::Ino;
use std::sync::Arc;

const CAPABILITY_NAME: &str = "security.capability";

/// Two empty files `/a` and `/b` that share an attribute block. Their inodes of 128 bytes have no room for attributes.
struct Pair {
    volume: Volume,
    a: Arc<Inode>,
    b: Arc<Inode>,
    free_inodes: u64,
}

impl Pair {
    fn with(attributes: &[(&str, &[u8])]) -> Pair {
        let volume = small_volume("16M", &["-I", "128", "-O", "ea_inode"]);
        let free_inodes = volume.usage().free_inodes;
        let [a, b] = ["/a", "/b"].map(|path| {
            let file = volume.create(path, 0o644).unwrap();
            file.inode().clone()
        });
        for (name, value) in attributes {
            volume.set_xattr(a.ino, name, value).unwrap();
        }
        let at = a.disk().file_acl;
        let given = volume.inner().in_handle(2, |handle| {
            let check = check_of_block(&a, at)?;
            handle.update(at, Kind::Xattr, check, |raw| {
                Ok(xattr::set_refcount(&volume.inner().sb, at, raw, 2)?)
            })?;
            let blocks = a.disk().blocks;
            b.change(handle, |disk| (disk.file_acl, disk.blocks) = (at, blocks))
        });
        given.unwrap();
        Pair {
            volume,
            a,
            b,
            free_inodes,
        }
    }

    /// The value inode of an attribute of `/a`.
    fn holder(&self, name: &str) -> Ino {
        let (_, raw) = read_attribute_block(&self.a).unwrap().unwrap();
        let sb = &self.volume.inner().sb;
        let attrs = Xattrs::parse_block(sb, self.a.ino, self.a.disk().file_acl, &raw).unwrap();
        let (index, name) = NameIndex::split(name.as_bytes()).unwrap();
        let entry = attrs.get(index, name).unwrap();
        crate::xattr::value::held(entry).unwrap().0
    }

    fn users(&self, holder: Ino) -> u64 {
        self.volume
            .inner()
            .inode(holder)
            .unwrap()
            .disk()
            .value_users()
    }

    /// Checks that the volume is consistent, and that nothing stays allocated after the files are deleted.
    fn end(self) {
        let Pair { volume, a, b, .. } = self;
        drop((a, b));
        volume.sync().unwrap();
        judge(&volume);
        for path in ["/a", "/b"] {
            match volume.unlink(path) {
                Ok(()) | Err(Error::NotFound { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(volume.usage().free_inodes, self.free_inodes);
        volume.sync().unwrap();
        judge(&volume);
        volume.close().unwrap();
    }
}

/// The consistency check finds nothing.
fn judge(volume: &Volume) {
    let device = &volume.inner().device;
    let report = check_device(device, &CheckOptions::default(), &|_| ()).unwrap();
    let found: Vec<_> = report.kept().collect();
    assert!(report.is_clean(), "{found:?}");
}

/// The defect: a value that was removed from one file was deleted while the block of the other file referred to it.
#[test]
fn a_value_goes_with_the_last_block_that_names_it() {
    let long = format!("user.{}", "n".repeat(200));
    let (half, big, other) = ([b'h'; 300], [b'b'; 2000], [b'o'; 1500]);
    let beside: &[(&str, &[u8])] = &[("user.half", &half), (&long, &big)];
    for attributes in [beside, &beside[1..]] {
        for new in [None, Some(&other[..]), Some(b"short")] {
            let pair = Pair::with(attributes);
            let holder = pair.holder(&long);
            let before = pair.volume.xattrs(pair.b.ino).unwrap();
            match new {
                None => pair.volume.remove_xattr(pair.a.ino, &long).unwrap(),
                Some(new) => pair.volume.set_xattr(pair.a.ino, &long, new).unwrap(),
            }
            assert_eq!(pair.users(holder), 1);
            assert_eq!(pair.volume.xattrs(pair.b.ino).unwrap(), before);
            let found = pair.volume.xattr(pair.a.ino, &long).ok();
            assert_eq!(found.as_deref(), new);
            pair.end();
        }
    }
}

/// The defect of the test above, with a capability that a write clears and whose value is in a value inode.
#[test]
fn a_capability_goes_with_the_last_block_that_names_it() {
    let capability = [&[1, 0, 0, 2][..], &[0; 16]].concat();
    let pair = Pair::with(&[("user.half", &[b'h'; 928]), (CAPABILITY_NAME, &capability)]);
    let holder = pair.holder(CAPABILITY_NAME);
    let to_write = OpenFlags {
        write: true,
        ..OpenFlags::default()
    };
    let file = pair.volume.open_path("/a", to_write).unwrap();
    file.write_buf(0, Buf::zeroed(1024)).1.unwrap();
    drop(file);
    assert!(pair.volume.xattr(pair.a.ino, CAPABILITY_NAME).is_err());
    assert_eq!(pair.users(holder), 1);
    let found = pair.volume.xattr(pair.b.ino, CAPABILITY_NAME).unwrap();
    assert_eq!(found, capability);
    pair.end();
}

/// The other file drops the block between the read of its user count and the copy, so the copying file is its last user. The defect: a
/// removed value lost two references, and a kept one was no longer counted in the file's space.
#[test]
fn who_copies_a_block_and_is_its_last_user_keeps_the_values() {
    let (gone, kept) = ("g".repeat(200), "k".repeat(200));
    let names = [&gone, &kept].map(|name| format!("user.{name}"));
    let pair = Pair::with(&[(&names[0], &[1; 2000]), (&names[1], &[2; 2000])]);
    let holders = names.each_ref().map(|name| pair.holder(name));
    let (volume, a) = (pair.volume.inner(), &pair.a);
    let credits = attribute_credits(a).unwrap() + 4;
    let done = volume.in_handle(credits, |handle| {
        let block = block_now(a, handle)?;
        let attrs = block.parse(a)?;
        assert_eq!(attrs.refcount, 2);
        assert!(release_xattr_block(&pair.b, handle)?);
        pair.b.change(handle, |disk| disk.blocks = 0)?;
        let _map = a.map_lock.lock();
        let less = attrs.get(NameIndex::USER, gone.as_bytes());
        let less = crate::xattr::value::holders(a, less.into_iter())?;
        let entries = attrs.without(NameIndex::USER, gone.as_bytes()).unwrap();
        copy_block(a, handle, &block, a.disk().file_acl, &entries)?;
        let_go(a, handle, &less)
    });
    done.unwrap();
    assert_eq!(pair.users(holders[1]), 1);
    assert!(volume.orphans.has(holders[0]));
    crate::delete::delete_doomed_best_effort(volume);
    let found = pair.volume.xattrs(a.ino).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].value, [2; 2000]);
    pair.end();
}

/// Two files that share a block are deleted, and each is asked for its value inodes while the other one still has the block. The defect:
/// both dropped the block, and nobody dropped the values.
#[test]
fn the_last_of_two_that_are_deleted_lets_go_of_the_values() {
    let name = format!("user.{}", "n".repeat(200));
    let pair = Pair::with(&[(&name, &[1; 2000])]);
    let (volume, holder) = (pair.volume.inner(), pair.holder(&name));
    for inode in [&pair.a, &pair.b] {
        assert_eq!(held_attribute(inode).unwrap(), None);
    }
    let release = |inode: &Inode| volume.in_handle(8, |handle| release_xattr_block(inode, handle));
    assert!(release(&pair.a).unwrap());
    assert!(!release(&pair.b).unwrap());
    assert_eq!(pair.users(holder), 1);
    assert!(held_attribute(&pair.b).unwrap().is_some());
    // The value does not belong to `/a` any more, so its space must not count there.
    let cleared = volume.in_handle(1, |handle| pair.a.change(handle, |disk| disk.blocks = 0));
    cleared.unwrap();
    pair.end();
}

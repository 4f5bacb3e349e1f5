//! Files with extended attributes set by debugfs, in inodes and in blocks; values of attributes.
//!
//! Input: arguments of mke2fs. Output: images, and the attributes of a file. Invariants: none of its own. Limits: five small files.

use super::{image, run};
use diorite::{OpenOptions, Volume};
use diorite_format::Ino;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub type Attrs = BTreeMap<Vec<u8>, Vec<u8>>;

pub fn open(image: &Path) -> Volume {
    Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap()
}

/// Files a to e, and a directory. The attributes that debugfs sets on c and d are in blocks.
pub fn make(dir: &Path, args: &[&str]) -> PathBuf {
    let tree = dir.join("tree");
    std::fs::create_dir_all(tree.join("dir")).unwrap();
    for name in ["a", "b", "c", "d", "e"] {
        std::fs::write(tree.join(name), name).unwrap();
    }
    let image = image(dir, "24M", args, &tree);
    let long = dir.join("long");
    std::fs::write(&long, [b'l'; 500]).unwrap();
    for file in ["/c", "/d"] {
        let set = format!("ea_set -f {} {file} user.long", long.to_str().unwrap());
        run("debugfs", &["-w", "-R", &set, image.to_str().unwrap()]);
    }
    image
}

/// An access control list in the kernel's form, of entries with tag, permissions and id.
pub fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        list.extend_from_slice(&tag.to_le_bytes());
        list.extend_from_slice(&perm.to_le_bytes());
        list.extend_from_slice(&id.to_le_bytes());
    }
    list
}

pub fn found(volume: &Volume, ino: Ino) -> Attrs {
    let all = volume.xattrs(ino).unwrap();
    all.into_iter().map(|x| (x.name, x.value)).collect()
}

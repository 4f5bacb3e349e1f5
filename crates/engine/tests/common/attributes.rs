//! Files with extended attributes set by debugfs, in inodes and in blocks.
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

pub fn found(volume: &Volume, ino: Ino) -> Attrs {
    let all = volume.xattrs(ino).unwrap();
    all.into_iter().map(|x| (x.name, x.value)).collect()
}

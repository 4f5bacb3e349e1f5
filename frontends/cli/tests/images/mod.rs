//! Tests of the commands that make images and archives: `mkfs`, `import`, `export`, `disk`, `copy` to
//! packed files.
//!
//! | file | tests |
//! |---|---|
//! | `mkfs` | file systems are what mke2fs makes of the same words, and what it refuses is refused |
//! | `stand_in` | command lines of image builders and configuration files, beside mke2fs |
//! | `huge` | large files from the beginning lie where mke2fs has them |
//! | `replaced` | what is on a device is not replaced unasked on a terminal, in mke2fs's words |
//! | `options` | bad blocks, journals elsewhere, quotas, superblocks alone, as e2fsprogs and the kernel take them |
//! | `import` | directories and other images: everything is there, exactly as large as needed, the same again |
//! | `values` | attributes in inodes of their own, beside e2fsck and the kernel |
//! | `inputs` | packages of Debian, crates, npm and PyPI, there and back |
//! | `export` | directories and images of images |
//! | `archives` | tar archives in and out; those that lie |
//! | `hostile` | archives that want too much: depth, names, records, times, whiteouts |
//! | `resize` | file systems grow and shrink, with their files |
//! | `room` | headroom of new images can be used; resize2fs makes them larger |
//! | `aged` | images in which files have come and gone become as small as announced; resize2fs's words and answers |
//! | `disk` | partition tables, judged by sfdisk and the kernel; images in partitions |
//! | `packed` | compressed and sparse images and block maps, as gzip, zstd, img2simg and bmaptool have them; those that lie |
//! | `pieces` | Android sparse images that were divided, as simg2simg divides them |
//! | `taken` | archives and packings as other tools write them; files that are something else than their name says |
//! | `qcow2` | images of QEMU for every command; what a guest could write changes nothing |
//! | `recipes` | what docs/book/src/howto/builders.md says, with genimage and systemd-repart |
//! | `containers` | layers of container images, and manifests |

mod aged;
mod archives;
mod auto;
mod containers;
mod disk;
mod export;
mod hostile;
mod huge;
mod import;
mod inputs;
mod manual;
mod meanwhile;
mod mkfs;
mod options;
mod packed;
mod pieces;
mod qcow2;
mod recipes;
mod replaced;
mod resize;
mod room;
mod stand_in;
mod taken;
mod values;

use crate::common::{Mount, diorite, run};
use std::fs;
use std::path::Path;

fn path(p: &Path) -> &str {
    p.to_str().unwrap()
}

/// e2fsck and the checker find nothing.
fn clean(img: &Path) {
    run("e2fsck", &["-fn", path(img)]);
    diorite(&["check", path(img)]).ok();
}

/// Whether the kernel mounts it and shows the same files; `lost+found` apart.
fn kernel_shows(img: &Path, at: &Path, look: impl FnOnce(&Path)) {
    fs::create_dir_all(at).unwrap();
    if let Some(mount) = Mount::new(path(img), at, "loop,ro") {
        look(at);
        drop(mount);
    }
}

/// Numbers of the JSON that a command prints.
fn number(text: &str, key: &str) -> u64 {
    let value: serde_json::Value = serde_json::from_str(text).unwrap();
    value[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key} in {text}"))
}

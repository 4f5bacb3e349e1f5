//! Every flag on some kinds of inodes: `check` reports exactly those that `e2fsck -fn` reports.
//!
//! Input: an image with a file, a directory, a journal and reserved inodes. Output: assertions. Invariant: checksums are right, so
//! both judge the flag itself. Limits: one flag at a time.

use crate::common::recipe::debugfs;
use crate::common::{image, scratch};
use crate::{ours, theirs};
use diorite_format::Ino;

#[test]
fn every_flag_that_e2fsck_minds() {
    let dir = scratch();
    let source = dir.path().join("source");
    std::fs::create_dir_all(source.join("dir")).unwrap();
    std::fs::write(source.join("file"), b"data").unwrap();
    let args = ["-t", "ext4", "-b", "1024", "-O", "^resize_inode,encrypt"];
    let image = image(dir.path(), "8M", &args, &source);
    let pristine = std::fs::read(&image).unwrap();
    let extents = 0x8_0000;
    let inodes = [
        ("/file", extents),
        ("/dir", extents),
        ("<8>", extents),
        ("<5>", 0),
        ("<7>", 0),
    ];
    for (inode, flags) in inodes {
        for bit in 0..32 {
            let flags: u32 = flags ^ 1 << bit;
            debugfs(&image, dir.path(), &format!("sif {inode} flags {flags:#x}"));
            let (ours, theirs) = (ours(&image), theirs(&image));
            assert!(
                ours.0 || !theirs.0,
                "{inode}, flags {flags:#x}: e2fsck finds {theirs:?}"
            );
            std::fs::write(&image, &pristine).unwrap();
        }
    }
}

/// An encrypted file needs the attribute `encryption.c`, which debugfs cannot make; so it makes another name, and the entry is
/// patched.
#[test]
fn a_file_that_says_how_it_is_encrypted_is_clean() {
    let dir = scratch();
    let source = dir.path().join("source");
    std::fs::create_dir_all(&source).unwrap();
    std::fs::write(source.join("file"), b"data").unwrap();
    let args = ["-t", "ext4", "-b", "1024", "-O", "encrypt,^metadata_csum"];
    let image = image(dir.path(), "8M", &args, &source);
    let script = format!(
        "ea_set /file user.c {}\nsif /file flags 0x80800",
        "x".repeat(28)
    );
    debugfs(&image, dir.path(), &script);
    assert_eq!((ours(&image).0, theirs(&image).0), (true, true));
    let bytes = std::fs::read(&image).unwrap();
    let at = crate::seal::Bytes::new(&bytes).inode_at(Ino::new(12)) as usize;
    let mut changed = bytes.clone();
    // After the inode's fields and the magic number: the length of the name, and the index of its prefix.
    assert_eq!(bytes[at + 164..at + 166], [1, 1]);
    changed[at + 165] = 9;
    std::fs::write(&image, &changed).unwrap();
    assert_eq!(
        (ours(&image), theirs(&image).0),
        ((false, String::new()), false)
    );
}

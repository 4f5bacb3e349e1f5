//! Structures that a running kernel writes: hash trees, attributes, access control lists, inline data, journal checksums. Needs
//! root, a loop device and ext4 in the kernel; otherwise it prints why it was skipped.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Image, Volume, run};
use diorite_format::extent::ExtentNode;
use diorite_format::journal::{JournalChecksum, JournalSuper};
use diorite_format::superblock::JournalPlace;
use diorite_format::xattr::NameIndex;
use diorite_format::{MapKind, Superblock, acl};

const FILES: usize = 700;

/// A mounted image, unmounted when dropped.
struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = xtask::mount::unmount(&self.0) {
            assert!(std::thread::panicking(), "{error}");
        }
    }
}

fn mount(image: &Image) -> Option<Mount> {
    let at = image.dir.join("mnt");
    fs::create_dir(&at).unwrap();
    let (code, text) = run(
        "mount",
        &[
            "-o",
            "loop",
            image.path.to_str().unwrap(),
            at.to_str().unwrap(),
        ],
    )?;
    if code != 0 {
        xtask::skip::skipped(format_args!("cannot mount: {}", text.trim()));
        return None;
    }
    Some(Mount(at))
}

fn attr(path: &std::path::Path, name: &str, value: &str) -> bool {
    run(
        "setfattr",
        &["-n", name, "-v", value, path.to_str().unwrap()],
    )
    .is_some_and(|(code, _)| code == 0)
}

/// Lets the kernel write, then reads it back and compares with what the kernel showed.
fn examine(features: &str, block_size: &str) {
    let Some(image) = Image::make(
        &["-t", "ext4", "-b", block_size, "-O", features],
        "200M",
        10,
    ) else {
        return;
    };
    let Some(m) = mount(&image) else { return };
    let dir = m.0.join("kernel");
    fs::create_dir(&dir).unwrap();
    for n in 0..FILES {
        fs::write(
            dir.join(format!("written by the kernel \u{e9} {n}")),
            n.to_string(),
        )
        .unwrap();
    }
    let file = dir.join("attrs");
    fs::write(&file, "x").unwrap();
    let big = "v".repeat(if features.contains("ea_inode") {
        5000
    } else {
        500
    });
    let has_tools = attr(&file, "user.big", &big) && attr(&file, "trusted.t", "secret");
    // owner rwx, user 1000 r--, group r--, mask r--, others ---
    let list = "0x0200000001000700ffffffff02000400e803000004000400ffffffff10000400ffffffff20000000ffffffff";
    let has_acl = has_tools && attr(&file, "system.posix_acl_access", list);
    let sparse = fs::File::create(dir.join("sparse")).unwrap();
    for n in 0..400u64 {
        sparse.write_all_at(&n.to_le_bytes(), n * 32768).unwrap();
    }
    sparse.set_len(20_000_000).unwrap();
    drop(sparse);
    let pre = dir.join("preallocated");
    let has_pre = run("fallocate", &["-l", "300000", pre.to_str().unwrap()])
        .is_some_and(|(code, _)| code == 0);
    let meta = fs::metadata(&file).unwrap();
    let names = fs::read_dir(&dir).unwrap().count();
    let _ = run("chattr", &["+sdAS", file.to_str().unwrap()]);
    let shown = run("lsattr", &[file.to_str().unwrap()]).filter(|(code, _)| *code == 0);
    while_mounted(&image, &dir);
    drop(m);

    let v = Volume::open(&image.path);
    let kernel = v.lookup("kernel");
    assert_eq!(v.list(&kernel).len(), names);
    for n in (0..FILES).step_by(50) {
        let inode = v.lookup(&format!("kernel/written by the kernel \u{e9} {n}"));
        assert_eq!(v.read(&inode), n.to_string().as_bytes());
        assert_eq!(
            inode.map_kind() == MapKind::Inline,
            features.contains("inline_data")
        );
    }
    let inode = v.lookup("kernel/attrs");
    assert_eq!(
        (inode.mtime.secs, i64::from(inode.mtime.nanos)),
        (meta.mtime(), meta.mtime_nsec())
    );
    assert_eq!(u64::from(inode.ino.get()), meta.ino());
    // For inline data the kernel shows blocks that do not exist.
    assert!(inode.map_kind() == MapKind::Inline || inode.blocks == meta.blocks());
    if let Some((_, text)) = shown {
        // lsattr of some versions leaves the last letters out.
        let letters = text.split_whitespace().next().unwrap_or_default();
        assert!(
            inode.flags.letters().starts_with(letters),
            "{letters} {}",
            inode.flags.letters()
        );
    }
    if has_tools {
        assert_eq!(
            v.xattr(&inode, NameIndex::USER, b"big").unwrap(),
            big.as_bytes()
        );
        assert_eq!(
            v.xattr(&inode, NameIndex::TRUSTED, b"t").unwrap(),
            b"secret"
        );
    }
    if has_acl {
        let shown = acl::from_disk(&v.xattr(&inode, NameIndex::ACL_ACCESS, b"").unwrap()).unwrap();
        let hex: String = shown.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(format!("0x{hex}"), list);
    }
    let sparse = v.lookup("kernel/sparse");
    assert_eq!(sparse.size, 20_000_000);
    for (n, block) in v.map(&sparse) {
        let at = n * u64::from(v.sb.block_size());
        assert_eq!(
            v.block(block)[..8],
            if at % 32768 == 0 {
                (at / 32768).to_le_bytes()
            } else {
                [0; 8]
            }
        );
    }
    if has_pre && !features.contains("^extent") {
        let pre = v.lookup("kernel/preallocated");
        let root = ExtentNode::parse_root(&v.sb, &pre).unwrap();
        let blocks: u64 = root.extents().iter().map(|e| u64::from(e.len)).sum();
        assert!(root.extents().iter().all(|e| e.unwritten));
        assert_eq!(blocks, 300_000u64.div_ceil(u64::from(v.sb.block_size())));
        assert!(v.read(&pre).iter().all(|b| *b == 0));
    }
    journal(&v);
}

/// The state that a crash now would leave: a volume that needs recovery, and a log that is not empty.
fn while_mounted(image: &Image, mounted: &Path) {
    let _ = Command::new("sync").arg("-f").arg(mounted).status();
    let file = fs::File::open(&image.path).unwrap();
    let mut raw = [0u8; 1024];
    file.read_exact_at(&mut raw, 1024).unwrap();
    let sb = Superblock::parse(&raw).unwrap();
    assert!(sb.needs_recovery());
    assert!(sb.features().names().contains(&"needs_recovery".to_owned()));
}

/// The kernel gives the journal checksums when it mounts a volume with metadata_csum.
fn journal(v: &Volume) {
    let JournalPlace::Internal(ino) = v.sb.journal() else {
        return;
    };
    let inode = v.inode(ino);
    let mut raw = v.block(v.map(&inode)[0].1);
    let blocks = inode.size / u64::from(v.sb.block_size());
    let j = JournalSuper::parse(&raw, v.sb.block_size(), blocks).unwrap();
    assert!(j.is_empty() && j.sequence.get() > 1);
    if v.sb.has_metadata_csum() {
        assert_eq!(j.features.checksum(), JournalChecksum::V3);
        // Every byte except the one with the bit "checksum v3".
        for at in (0..1024).filter(|at| *at != 0x2B) {
            raw[at] ^= 0x10;
            assert!(
                JournalSuper::parse(&raw, v.sb.block_size(), blocks).is_err(),
                "byte {at:#x}"
            );
            raw[at] ^= 0x10;
        }
    }
}

#[test]
fn todays_defaults() {
    examine("metadata_csum_seed,orphan_file", "4096");
}

#[test]
fn small_blocks() {
    examine("metadata_csum_seed,orphan_file,ea_inode", "1024");
}

#[test]
fn inline_data() {
    examine("inline_data", "2048");
}

#[test]
fn no_checksums() {
    examine("^metadata_csum,^64bit", "1024");
}

#[test]
fn large_clusters() {
    examine("bigalloc", "4096");
}

#[test]
fn indirect_maps() {
    examine("^extent,^64bit,^flex_bg,^metadata_csum", "1024");
}

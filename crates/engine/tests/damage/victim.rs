//! Small images with one of everything, with blocks of 1 KiB and three groups.
//!
//! Input: a kind. Output: an image that e2fsck and `check` call clean. Invariants: the same for every run. Limits: nothing that
//! only the kernel can make.

use crate::common::{self, Rng};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) struct Kind {
    pub(crate) name: &'static str,
    args: &'static [&'static str],
}

const fn kind(name: &'static str, args: &'static [&'static str]) -> Kind {
    Kind { name, args }
}

const EXT4: &str = "ext4";

pub(crate) const KINDS: [Kind; 7] = [
    kind(
        "csum",
        &["-t", EXT4, "-O", "metadata_csum,64bit,orphan_file"],
    ),
    kind(
        "no-csum",
        &["-t", EXT4, "-O", "^metadata_csum,^64bit,uninit_bg"],
    ),
    kind("ext2", &["-t", "ext2"]),
    kind("ext3", &["-t", "ext3", "-I", "128"]),
    kind(
        "inline",
        &[
            "-t",
            EXT4,
            "-I",
            "512",
            "-O",
            "metadata_csum,inline_data,ea_inode",
        ],
    ),
    kind(
        "bigalloc",
        &[
            "-t",
            EXT4,
            "-O",
            "metadata_csum,bigalloc,meta_bg,^resize_inode",
            "-C",
            "4096",
        ],
    ),
    kind(
        "quota",
        &["-t", EXT4, "-O", "metadata_csum,quota,project,ea_inode"],
    ),
];

/// Enough names for an index of more than one level.
const MANY: usize = 700;

pub(crate) fn victim(dir: &Path, kind: &Kind) -> PathBuf {
    let source = dir.join("source");
    for sub in ["dir", "big", "sub/deep", "tiny"] {
        std::fs::create_dir_all(source.join(sub)).unwrap();
    }
    for n in 0..20 {
        std::fs::write(source.join(format!("dir/name{n}")), vec![n as u8; 300 * n]).unwrap();
    }
    for n in 0..MANY {
        std::fs::write(source.join(format!("big/{n:0>200}")), b"").unwrap();
    }
    let mut bytes = vec![0; 400 << 10];
    Rng::new(3).fill(&mut bytes);
    std::fs::write(source.join("file"), &bytes).unwrap();
    std::fs::write(source.join("sub/deep/other"), &bytes[..50_000]).unwrap();
    std::fs::write(source.join("tiny/in"), &bytes[..90]).unwrap();
    std::os::unix::fs::symlink("sub/deep/other", source.join("link")).unwrap();
    std::os::unix::fs::symlink("x/".repeat(60), source.join("long")).unwrap();
    let _ = Command::new("mkfifo").arg(source.join("fifo")).status();
    let args: Vec<&str> = ["-b", "1024"].iter().chain(kind.args).copied().collect();
    let image = common::image(dir, "24M", &args, &source);
    common::recipe::debugfs(&image, dir, &script(dir, kind));
    // Makes the indexes of directories, and corrects the quota files.
    let _ = xtask::run::tool("e2fsck")
        .args(["-fyD", image.to_str().unwrap()])
        .output();
    if kind.name.ends_with("csum") {
        // Last, since every tool that opens such a volume for writing waits for seconds.
        common::run("tune2fs", &["-O", "mmp", image.to_str().unwrap()]);
    }
    common::fsck(&image);
    image
}

/// What mke2fs cannot copy: many holes, a device, attributes in inodes and in blocks.
fn script(dir: &Path, kind: &Kind) -> String {
    let mut script = String::new();
    if !matches!(kind.name, "ext2" | "ext3" | "bigalloc") {
        (0..400)
            .step_by(2)
            .for_each(|n| writeln!(script, "punch /file {n} {n}").unwrap());
    }
    let value = |name: &str, len: usize| {
        let path = dir.join(name);
        std::fs::write(&path, "v".repeat(len)).unwrap();
        path.display().to_string()
    };
    writeln!(script, "mknod device b 8 17").unwrap();
    writeln!(script, "ea_set /file user.small value").unwrap();
    writeln!(script, "ea_set -f {} /file user.large", value("large", 700)).unwrap();
    writeln!(script, "ea_set /dir user.dir some").unwrap();
    if kind.name == "quota" {
        // More owners than a block of quota entries holds, in several parts of the tree.
        for n in 0..20_u32 {
            let owner = [1000 + n, 70_000 * n, 0xFFFF_FFF0][n as usize % 3];
            let set = |field: &str, to: u32| format!("sif /dir/name{n} {field} {to}\n");
            script += &(set("uid", owner) + &set("gid", 500 + n) + &set("projid", n << 20));
        }
    }
    if matches!(kind.name, "inline" | "quota") {
        writeln!(
            script,
            "ea_set -f {} /sub/deep/other user.huge",
            value("huge", 3000)
        )
        .unwrap();
    }
    script
}

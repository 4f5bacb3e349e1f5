//! What it is: what debugfs adds to an image that mke2fs filled.
//! Input: the recipe and a scratch directory. Output: a script for `debugfs -w -f`.
//! Nothing in it needs root: devices, modes, owners, times, xattrs, ACLs, unwritten space.
//! Invariant: a request that debugfs complains about makes the image fail.

use super::recipes::Recipe;
use super::tree::bytes;
use crate::error::{Result, at};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// `/modes/NAME` and its mode.
pub(super) const MODES: &[(&str, u32)] = &[
    ("setuid", 0o104_755),
    ("setgid", 0o102_755),
    ("both", 0o106_711),
    ("sticky", 0o101_666),
    ("none", 0o100_000),
    ("all", 0o107_777),
];

/// `/times/NAME`, the low 32 bits of its seconds, the two epoch bits, the nanoseconds. (debugfs refuses -1, which it takes for a
/// failed conversion.)
pub(super) const TIMES: &[(&str, i32, u32, u32)] = &[
    ("epoch", 0, 0, 0),
    ("before-epoch", -2, 0, 999_999_999),
    ("earliest", i32::MIN, 0, 1),
    ("last-of-31-bits", i32::MAX, 0, 500_000_000),
    ("first-after-2038", i32::MIN, 1, 0),
    ("year-2106", -2, 1, 123_456_789),
    ("year-2300", 0, 2, 7),
    ("latest", i32::MAX, 3, 999_999_999),
];

/// Writes the script, and the files with attribute values that it uses, into `dir`.
pub(super) fn write(recipe: &Recipe, dir: &Path) -> Result<PathBuf> {
    let mut script = Script {
        dir,
        text: String::new(),
    };
    script.special();
    script.modes();
    script.times(recipe);
    script.attrs(recipe)?;
    if recipe.is_rich() && !recipe.has("^extent") && recipe.args[1] == "ext4" {
        script.unwritten(recipe);
    }
    let path = dir.join("script");
    std::fs::write(&path, script.text).map_err(at(&path))?;
    Ok(path)
}

struct Script<'a> {
    dir: &'a Path,
    text: String,
}

impl Script<'_> {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{line}").expect("a String takes everything");
    }

    /// Small device numbers are stored in the old format on disk, large ones in the new format.
    fn special(&mut self) {
        self.line(format_args!("cd /special"));
        for (name, kind, major, minor) in [
            ("null", "c", 1, 3),
            ("loop0", "b", 7, 0),
            ("char-large", "c", 5, 300),
            ("block-large", "b", 259, 65_000),
        ] {
            self.line(format_args!("mknod {name} {kind} {major} {minor}"));
            let mode = if kind == "c" { "020620" } else { "060660" };
            self.line(format_args!("set_inode_field {name} mode {mode}"));
        }
        self.line(format_args!("mknod pipe p"));
        self.line(format_args!("set_inode_field pipe mode 010600"));
        self.line(format_args!("cd /"));
    }

    fn modes(&mut self) {
        for (name, mode) in MODES {
            self.line(format_args!("set_inode_field /modes/{name} mode 0{mode:o}"));
        }
        self.line(format_args!("set_inode_field /attrs/acl mode 0100640"));
        self.line(format_args!("set_inode_field /attrs/dir-acl mode 040750"));
        self.line(format_args!("set_inode_field /owners/high uid 100000"));
        self.line(format_args!("set_inode_field /owners/high gid 4000000000"));
        self.line(format_args!("set_inode_field /owners/nobody uid 65534"));
        self.line(format_args!("set_inode_field /owners/nobody gid 65534"));
    }

    /// The low half of the seconds goes into `i_mtime`. Epoch bits and nanoseconds go into `i_mtime_extra`, if the inode has room
    /// for it.
    fn times(&mut self, recipe: &Recipe) {
        for &(name, low, epoch, nanos) in TIMES {
            self.line(format_args!("set_inode_field /times/{name} mtime @{low}"));
            self.line(format_args!("set_inode_field /times/{name} atime @{low}"));
            if recipe.inode > 128 {
                let extra = nanos << 2 | epoch;
                self.line(format_args!(
                    "set_inode_field /times/{name} mtime_extra {extra:#x}"
                ));
                self.line(format_args!(
                    "set_inode_field /times/{name} atime_extra {extra:#x}"
                ));
            }
        }
    }

    fn value(&mut self, path: &str, name: &str, value: &[u8]) -> Result<()> {
        let file = self.dir.join(format!("value-{}", self.text.len()));
        std::fs::write(&file, value).map_err(at(&file))?;
        self.line(format_args!("ea_set -f {} {path} {name}", file.display()));
        Ok(())
    }

    fn attrs(&mut self, recipe: &Recipe) -> Result<()> {
        self.value("/attrs/small", "user.small", b"hello")?;
        self.value("/attrs/small", "user.a", &[0, 1, 2, 255])?;
        self.value("/attrs/medium", "user.medium", &bytes(3, 600))?;
        for n in 0..16 {
            self.value(
                "/attrs/many",
                &format!("user.number-{n:02}"),
                &bytes(n, n as usize + 1),
            )?;
        }
        self.value("/attrs/many", "trusted.overlay.opaque", b"y")?;
        for name in ["shared-1", "shared-2"] {
            self.value(&format!("/attrs/{name}"), "user.shared", &bytes(5, 700))?;
        }
        let long_name = format!("user.{}", "n".repeat(250));
        self.value("/attrs/medium", &long_name, b"the longest name")?;
        // debugfs accepts at most 4096 bytes; without ea_inode the value must fit into one block.
        let most = if recipe.has("ea_inode") {
            4096
        } else {
            (recipe.block as usize - 100).min(4000)
        };
        self.value("/attrs/large", "user.large", &bytes(9, most))?;
        self.value("/attrs/caps", "security.capability", &CAPABILITY)?;
        self.value(
            "/attrs/caps",
            "security.selinux",
            b"system_u:object_r:bin_t:s0\0",
        )?;
        self.value("/attrs/acl", "system.posix_acl_access", &acl(0o640))?;
        self.value("/attrs/dir-acl", "system.posix_acl_access", &acl(0o750))?;
        self.value("/attrs/dir-acl", "system.posix_acl_default", &acl(0o770))
    }

    /// Unwritten extents after the end, as a whole file, and between written extents.
    fn unwritten(&mut self, recipe: &Recipe) {
        let block = |byte: u64| byte / u64::from(recipe.block);
        let far = block(524_288);
        self.line(format_args!(
            "fallocate /alloc/unwritten-tail {} {far}",
            block(65_536)
        ));
        self.line(format_args!("fallocate /alloc/unwritten-only 0 {far}"));
        self.line(format_args!("fallocate /alloc/unwritten-holes 0 {far}"));
    }
}

/// `cap_net_raw+ep` in the form of version 2.
const CAPABILITY: [u8; 20] = [
    1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

/// An ACL in the format of `setxattr`: owner, user 1000, group, group 2000, mask, other. The permissions of owner, mask and other
/// must equal the file's mode.
pub(super) fn acl(mode: u16) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let (owner, group, other) = (mode >> 6 & 7, mode >> 3 & 7, mode & 7);
    let entries = [
        (1, owner, NOBODY),
        (2, 6, 1000),
        (4, 5, NOBODY),
        (8, 4, 2000),
        (0x10, group, NOBODY),
        (0x20, other, NOBODY),
    ];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        bytes.extend_from_slice(&u16::to_le_bytes(tag));
        bytes.extend_from_slice(&u16::to_le_bytes(perm));
        bytes.extend_from_slice(&u32::to_le_bytes(id));
    }
    bytes
}

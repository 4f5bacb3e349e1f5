//! Images made by the installed mke2fs, debugfs and e2fsck, and a minimal reader to test the parsers.
#![allow(dead_code, clippy::unwrap_used, unreachable_pub)]

pub mod change;

/// A test for each volume: it calls `examine` with the arguments and the size for mke2fs.
#[allow(unused_macros)] // Some test programs that share this module have no volumes.
macro_rules! volumes {
    ($($name:ident: $size:literal, $($arg:literal)*;)*) => {
        $(#[test]
        fn $name() {
            examine(&[$($arg),*], $size);
        })*
    };
}
#[allow(unused_imports)] // As above.
pub(crate) use volumes;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use diorite_format::dir::{DirBlock, inline_parent};
use diorite_format::extent::{Expect, ExtentNode};
use diorite_format::indirect::{IndirectPath, PointerBlock, root_pointer};
use diorite_format::inline::InlineData;
use diorite_format::xattr::{NameIndex, XattrValue, Xattrs, verify_ea_inode};
use diorite_format::{FileBlock, FsBlock, GroupDesc, GroupNo, Ino, Inode, MapKind, Superblock};

/// Number of data islands in the fragmented file, and bytes from one to the next.
pub const ISLANDS: u64 = 300;
pub const STRIDE: u64 = 128 * 1024;
/// Files in the big directory.
pub const MANY: usize = 500;
/// Files in it if its hash tree needs an inner level.
pub const VERY_MANY: usize = 9000;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// An image in a directory of its own, which is removed with it.
pub struct Image {
    pub dir: PathBuf,
    pub path: PathBuf,
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Runs a program; its output, or `None` if it is not installed.
pub fn run(program: &str, args: &[&str]) -> Option<(i32, String)> {
    match xtask::run::tool(program).args(args).output() {
        Ok(out) => {
            let text = String::from_utf8_lossy(&out.stdout).into_owned()
                + &String::from_utf8_lossy(&out.stderr);
            Some((out.status.code().unwrap_or(-1), text))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            xtask::skip::skipped(format_args!("{program} is not installed"));
            None
        }
        Err(e) => panic!("{program}: {e}"),
    }
}

impl Image {
    /// Makes a populated image; `None` (with the reason printed) if tools are missing.
    pub fn make(args: &[&str], size: &str, many: usize) -> Option<Self> {
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("diorite-format-{}-{n}", std::process::id()));
        fs::create_dir_all(dir.join("src")).unwrap();
        let image = Self {
            path: dir.join("disk.img"),
            dir,
        };
        populate(&image.dir.join("src"), many);
        let src = image.dir.join("src");
        let mut all = vec![
            "-q",
            "-F",
            "-E",
            "root_owner=0:0",
            "-d",
            src.to_str().unwrap(),
        ];
        all.extend_from_slice(args);
        all.extend_from_slice(&[image.path.to_str().unwrap(), size]);
        let (code, text) = run("mke2fs", &all)?;
        assert_eq!(code, 0, "mke2fs {all:?}: {text}");
        image.edit()?;
        let (code, text) = run("e2fsck", &["-fyD", image.path.to_str().unwrap()])?;
        assert!(code <= 1, "e2fsck: {text}");
        Some(image)
    }

    /// Adds what mke2fs cannot copy.
    fn edit(&self) -> Option<()> {
        fs::write(self.dir.join("v500"), [b'm'; 300]).unwrap();
        fs::write(self.dir.join("v5000"), [b'L'; 700]).unwrap();
        let d = self.dir.display();
        let script = format!(
            "mknod blk b 8 17\nmknod chr c 5 1\nea_set hello.txt user.short tiny\nea_set hello.txt user.mid -f {d}/v500\n\
             ea_set many user.dirattr here\nea_set small security.selinux ctx\n\
             ea_set big user.large -f {d}/v5000\n"
        );
        self.debugfs_write(&script)
    }

    pub fn debugfs_write(&self, script: &str) -> Option<()> {
        let file = self.dir.join("script");
        fs::write(&file, script).unwrap();
        let (_, text) = run(
            "debugfs",
            &[
                "-w",
                "-f",
                file.to_str().unwrap(),
                self.path.to_str().unwrap(),
            ],
        )?;
        for wrong in ["Could not", "orrupt", "ot found", "nvalid", " while "] {
            assert!(!text.contains(wrong), "{text}");
        }
        Some(())
    }

    pub fn debugfs(&self, script: &str) -> String {
        let file = self.dir.join("rscript");
        fs::write(&file, script).unwrap();
        run(
            "debugfs",
            &["-f", file.to_str().unwrap(), self.path.to_str().unwrap()],
        )
        .unwrap()
        .1
    }

    /// Overwrites bytes of the image.
    pub fn put(&self, at: u64, bytes: &[u8]) {
        let file = File::options().write(true).open(&self.path).unwrap();
        file.write_all_at(bytes, at).unwrap();
    }

    /// Asserts that a full check finds nothing.
    pub fn assert_clean(&self) {
        let (code, text) = run("e2fsck", &["-fn", self.path.to_str().unwrap()]).unwrap();
        assert_eq!(code, 0, "{text}");
        let known = ["e2fsck ", "Pass ", self.path.to_str().unwrap()];
        for line in text.lines() {
            assert!(known.iter().any(|k| line.starts_with(k)), "{text}");
        }
    }

    pub fn dumpe2fs(&self) -> String {
        run("dumpe2fs", &[self.path.to_str().unwrap()]).unwrap().1
    }
}

fn populate(src: &Path, many: usize) {
    fs::write(src.join("hello.txt"), b"hello\n").unwrap();
    fs::write(src.join("empty"), b"").unwrap();
    fs::write(src.join("small"), vec![b's'; 130]).unwrap();
    let big: Vec<u8> = (0..700_001u32).map(|n| (n * 7 + n / 251) as u8).collect();
    fs::write(src.join("big"), &big).unwrap();
    let frag = File::create(src.join("frag")).unwrap();
    for n in 0..ISLANDS {
        frag.write_all_at(&(n + 1).to_le_bytes(), n * STRIDE)
            .unwrap();
    }
    fs::create_dir_all(src.join("deep/er/still")).unwrap();
    fs::write(src.join("deep/er/still/leaf"), b"leaf").unwrap();
    fs::create_dir(src.join("many")).unwrap();
    for n in 0..many {
        fs::write(src.join("many").join(many_name(n)), b"").unwrap();
    }
    std::os::unix::fs::symlink("hello.txt", src.join("link")).unwrap();
    std::os::unix::fs::symlink("x".repeat(200), src.join("longlink")).unwrap();
    let _ = Command::new("mkfifo").arg(src.join("fifo")).status();
}

pub fn many_name(n: usize) -> String {
    format!(
        "a file with a rather long name, number {n:05}{}",
        if n.is_multiple_of(3) {
            "\u{e9}\u{df}"
        } else {
            ""
        }
    )
}

/// A volume, read with the crate under test.
pub struct Volume {
    file: File,
    pub sb: Superblock,
    pub groups: Vec<GroupDesc>,
}

impl Volume {
    pub fn open(path: &Path) -> Self {
        let file = File::open(path).unwrap();
        let mut raw = [0u8; 1024];
        file.read_exact_at(&mut raw, 1024).unwrap();
        let sb = Superblock::parse(&raw).unwrap();
        sb.check_device(file.metadata().unwrap().len()).unwrap();
        let mut this = Self {
            file,
            sb,
            groups: Vec::new(),
        };
        for n in 0..this.sb.group_count() {
            let raw = this.raw_desc(GroupNo::new(n));
            this.groups
                .push(GroupDesc::parse(&this.sb, GroupNo::new(n), &raw).unwrap());
        }
        this
    }

    pub fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut b = vec![0u8; len];
        self.file.read_exact_at(&mut b, at).unwrap();
        b
    }

    pub fn block(&self, n: FsBlock) -> Vec<u8> {
        self.bytes(self.sb.byte_of(n).get(), self.sb.block_size() as usize)
    }

    pub fn raw_desc(&self, group: GroupNo) -> Vec<u8> {
        let (index, offset) = self.sb.desc_place(group).unwrap();
        let block = self.block(self.sb.gdt_location(index).unwrap());
        block[offset as usize..offset as usize + self.sb.geometry().desc_size() as usize].to_vec()
    }

    /// Position of a group's descriptor.
    pub fn desc_at(&self, group: GroupNo) -> u64 {
        let (index, offset) = self.sb.desc_place(group).unwrap();
        let block = self.sb.gdt_location(index).unwrap();
        self.sb.byte_of(block).get() + u64::from(offset)
    }

    /// Position of an inode.
    pub fn inode_at(&self, ino: Ino) -> u64 {
        let place = self.sb.inode_place(ino).unwrap();
        let table = self.groups[place.group.get() as usize].inode_table;
        let block = FsBlock::new(table.get() + u64::from(place.table_block));
        self.sb.byte_of(block).get() + u64::from(place.offset)
    }

    pub fn raw_inode(&self, ino: Ino) -> Vec<u8> {
        self.bytes(self.inode_at(ino), self.sb.geometry().inode_size() as usize)
    }

    pub fn inode(&self, ino: Ino) -> Inode {
        Inode::parse(&self.sb, ino, &self.raw_inode(ino)).unwrap()
    }

    /// (file block, block) of everything that is mapped and written.
    pub fn map(&self, inode: &Inode) -> Vec<(u64, FsBlock)> {
        let mut out = Vec::new();
        match inode.map_kind() {
            MapKind::Extents => self.extents(
                inode,
                &ExtentNode::parse_root(&self.sb, inode).unwrap(),
                &mut out,
            ),
            MapKind::Indirect => self.indirect(inode, &mut out),
            _ => {}
        }
        out
    }

    fn extents(&self, inode: &Inode, node: &ExtentNode, out: &mut Vec<(u64, FsBlock)>) {
        for e in node.extents().iter().filter(|e| !e.unwritten) {
            out.extend(
                (0..u64::from(e.len)).map(|n| (e.block.get() + n, FsBlock::new(e.start.get() + n))),
            );
        }
        for i in node.indexes() {
            let raw = self.block(i.child);
            let expect: Expect = node.expect_child(i);
            let child = ExtentNode::parse_block(
                &self.sb,
                inode.ino,
                inode.generation,
                expect,
                i.child,
                &raw,
            )
            .unwrap();
            self.extents(inode, &child, out);
        }
    }

    fn indirect(&self, inode: &Inode, out: &mut Vec<(u64, FsBlock)>) {
        for n in 0..inode.size.div_ceil(u64::from(self.sb.block_size())) {
            let path = IndirectPath::of(&self.sb, inode.ino, FileBlock::new(n)).unwrap();
            let mut at = root_pointer(&self.sb, inode, path.root).unwrap();
            for slot in path.slots() {
                if at.is_none() {
                    break;
                }
                let raw = self.block(at);
                at = PointerBlock::new(&self.sb, inode.ino, at, &raw)
                    .unwrap()
                    .get(*slot)
                    .unwrap();
            }
            if !at.is_none() {
                out.push((n, at));
            }
        }
    }

    pub fn xattr(&self, inode: &Inode, index: NameIndex, name: &[u8]) -> Option<Vec<u8>> {
        self.xattrs(inode)
            .into_iter()
            .find(|(i, n, _)| *i == index && n == name)
            .map(|(_, _, v)| v)
    }

    /// All attributes, with every hash checked.
    pub fn xattrs(&self, inode: &Inode) -> Vec<(NameIndex, Vec<u8>, Vec<u8>)> {
        let raw = self.raw_inode(inode.ino);
        let block = if inode.file_acl.is_none() {
            Vec::new()
        } else {
            self.block(inode.file_acl)
        };
        let mut list = Xattrs::parse_inode(&self.sb, inode, &raw).unwrap().entries;
        if !inode.file_acl.is_none() {
            list.extend(
                Xattrs::parse_block(&self.sb, inode.ino, inode.file_acl, &block)
                    .unwrap()
                    .entries,
            );
        }
        let value = |e: &diorite_format::xattr::XattrEntry<'_>| match e.value {
            XattrValue::Bytes(v) => {
                e.verify_hash(inode.ino).unwrap();
                v.to_vec()
            }
            XattrValue::Inode { ino, size } => {
                let holder = self.inode(ino);
                let v = self.read(&holder);
                assert_eq!(v.len(), size as usize);
                verify_ea_inode(&self.sb, inode.ino, e, &holder, &v).unwrap();
                v
            }
        };
        list.iter()
            .map(|e| (e.index, e.name.to_vec(), value(e)))
            .collect()
    }

    pub fn read(&self, inode: &Inode) -> Vec<u8> {
        let size = inode.size as usize;
        match inode.map_kind() {
            MapKind::FastSymlink => return inode.fast_symlink().unwrap().to_vec(),
            MapKind::Inline => {
                let rest = self
                    .xattr(inode, NameIndex::SYSTEM, b"data")
                    .unwrap_or_default();
                let data = InlineData::new(inode, &rest).unwrap();
                let mut out = vec![0; size + 10];
                assert_eq!(data.read_at(0, &mut out), size);
                out.truncate(size);
                return out;
            }
            _ => {}
        }
        let bs = self.sb.block_size() as usize;
        let mut out = vec![0u8; size.div_ceil(bs) * bs];
        for (n, block) in self.map(inode) {
            if (n as usize) < out.len() / bs {
                out[n as usize * bs..(n as usize + 1) * bs].copy_from_slice(&self.block(block));
            }
        }
        out.truncate(size);
        out
    }

    /// Names and inodes, without "." and "..".
    pub fn list(&self, dir: &Inode) -> Vec<(Vec<u8>, Ino)> {
        let mut out = Vec::new();
        if dir.map_kind() == MapKind::Inline {
            let rest = self
                .xattr(dir, NameIndex::SYSTEM, b"data")
                .unwrap_or_default();
            inline_parent(&self.sb, dir).unwrap();
            for part in InlineData::new(dir, &rest).unwrap().dir_parts() {
                let b = DirBlock::parse_inline(&self.sb, dir, part).unwrap();
                out.extend(b.entries().map(|e| (e.name.to_vec(), e.ino)));
            }
            return out;
        }
        for (n, block) in self.map(dir) {
            let raw = self.block(block);
            let b = DirBlock::parse(&self.sb, dir, FileBlock::new(n), &raw).unwrap();
            if n == 0 {
                b.dots(dir.ino).unwrap();
            }
            out.extend(b.entries().map(|e| (e.name.to_vec(), e.ino)));
        }
        out.retain(|(name, _)| name != b"." && name != b"..");
        out
    }

    pub fn lookup(&self, path: &str) -> Inode {
        path.split('/')
            .filter(|p| !p.is_empty())
            .fold(self.inode(Ino::ROOT), |dir, name| {
                let found = self
                    .list(&dir)
                    .into_iter()
                    .find(|(n, _)| n == name.as_bytes());
                self.inode(found.unwrap_or_else(|| panic!("{path}: no {name}")).1)
            })
    }
}

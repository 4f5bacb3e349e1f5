//! Names, files and directories created, moved and removed with only this crate and plain file I/O: e2fsck finds no error, and
//! debugfs finds every name.
#![allow(clippy::unwrap_used)]

mod common;

use common::change::{book_inode, put_inode, take_blocks, take_inode};
use common::{Image, MANY, Volume, run, volumes};
use diorite_format::dir::{DirBlockEdit, Inserted, init_first_block, is_hashed};
use diorite_format::dx::{self, DxNode, DxRoot};
use diorite_format::extent::{Entries, Extent, ExtentNode};
use diorite_format::indirect::set_root_pointer;
use diorite_format::inode::NewInode;
use diorite_format::{
    FileBlock, FileType, FsBlock, Ino, Inode, InodeFlags, MapKind, Timestamp, orphan,
};

volumes! {
    ext4_1k: "64M", "-t" "ext4" "-b" "1024";
    ext4_4k: "64M", "-t" "ext4" "-b" "4096";
    ext4_64k: "220M", "-t" "ext4" "-b" "65536";
    ext4_64k_no_csum: "220M", "-t" "ext4" "-b" "65536" "-O" "^metadata_csum";
    ext4_todays_defaults: "64M", "-t" "ext4" "-b" "1024" "-O" "metadata_csum_seed,orphan_file";
    ext4_orphan_file_no_csum: "64M", "-t" "ext4" "-b" "4096" "-O" "^metadata_csum,orphan_file";
    ext4_no_csum: "64M", "-t" "ext4" "-b" "1024" "-O" "^metadata_csum";
    ext4_gdt_csum: "64M", "-t" "ext4" "-b" "1024" "-O" "^metadata_csum,uninit_bg";
    ext4_bigalloc: "200M", "-t" "ext4" "-b" "1024" "-O" "bigalloc" "-C" "8192";
    ext4_inline: "64M", "-t" "ext4" "-b" "4096" "-O" "inline_data";
    ext4_128: "64M", "-t" "ext4" "-b" "1024" "-I" "128";
    ext4_512: "64M", "-t" "ext4" "-b" "1024" "-I" "512";
    ext3_1k: "64M", "-t" "ext3" "-b" "1024";
    ext2_old: "64M", "-t" "ext2" "-b" "1024" "-O" "none";
}

/// All checks on one volume.
fn examine(args: &[&str], size: &str) {
    let Some(image) = Image::make(args, size, MANY) else {
        return;
    };
    let file = new_file(&image);
    image.assert_clean();
    new_directory(&image);
    image.assert_clean();
    swap_names(&image, file);
    image.assert_clean();
    unlink(&image);
    image.assert_clean();
    let listing = image.debugfs("ls -p");
    for name in ["/a new file/", "/a new directory/", "/hello.txt/"] {
        assert!(listing.contains(name), "{listing}");
    }
    assert!(!listing.contains("/empty/"), "{listing}");
    assert!(image.debugfs("stat \"a new file\"").contains("Links: 1"));
    link_in_hashed(&image);
    image.assert_clean();
    link_in_inline(&image);
    image.assert_clean();
    orphan(&image);
}

fn fresh(v: &Volume, ino: Ino, mode: u16) -> Inode {
    let new = NewInode {
        ino,
        mode,
        uid: 70_000,
        gid: 7,
        projid: 0,
        flags: InodeFlags::default(),
        generation: 99,
        time: Timestamp {
            secs: 5_000_000_000,
            nanos: 7,
        },
    };
    Inode::fresh(&v.sb, &new)
}

fn put_new(image: &Image, v: &Volume, inode: &Inode) {
    let mut raw = v.raw_inode(inode.ino);
    inode.write_new(&v.sb, &mut raw).unwrap();
    image.put(v.inode_at(inode.ino), &raw);
}

/// Applies `edit` to the root directory, which is one block.
fn edit_root(image: &Image, edit: impl Fn(&mut DirBlockEdit<'_>)) {
    let v = Volume::open(&image.path);
    let root = v.inode(Ino::ROOT);
    let (n, block) = v.map(&root)[0];
    let mut raw = v.block(block);
    edit(&mut DirBlockEdit::open(&v.sb, &root, FileBlock::new(n), &mut raw).unwrap());
    image.put(v.sb.byte_of(block).get(), &raw);
}

fn insert(edit: &mut DirBlockEdit<'_>, name: &[u8], ino: Ino, kind: FileType) {
    let done = edit.insert(name, ino, kind).unwrap();
    assert!(matches!(done, Inserted::At(_)), "{done:?}");
}

fn new_file(image: &Image) -> Ino {
    let ino = take_inode(image, false);
    let v = Volume::open(&image.path);
    put_new(image, &v, &fresh(&v, ino, 0o100640));
    edit_root(image, |e| insert(e, b"a new file", ino, FileType::Regular));
    ino
}

fn new_directory(image: &Image) {
    let ino = take_inode(image, true);
    let block = take_blocks(image, 1);
    let v = Volume::open(&image.path);
    let mut dir = fresh(&v, ino, 0o040750);
    if dir.map_kind() == MapKind::Extents {
        let mut root = ExtentNode::empty_root();
        root.entries = Entries::Leaf(vec![Extent {
            block: FileBlock::new(0),
            len: 1,
            start: block,
            unwritten: false,
        }]);
        root.write_root(&mut dir.i_block).unwrap();
    } else {
        set_root_pointer(&v.sb, &mut dir.i_block, 0, block).unwrap();
    }
    let size = u64::from(v.sb.block_size());
    dir.size = size;
    dir.blocks = size / 512 * u64::from(v.sb.geometry().cluster_ratio());
    let mut raw = v.block(block);
    init_first_block(&v.sb, &dir, Ino::ROOT, &mut raw).unwrap();
    image.put(v.sb.byte_of(block).get(), &raw);
    put_new(image, &v, &dir);
    let mut root = v.inode(Ino::ROOT);
    root.links += 1;
    put_inode(image, &v, &root);
    edit_root(image, |e| {
        insert(e, b"a new directory", ino, FileType::Directory)
    });
}

/// Exchanges the names of the new file and the small one.
fn swap_names(image: &Image, file: Ino) {
    let small = Volume::open(&image.path).lookup("hello.txt").ino;
    edit_root(image, |e| {
        let kind = FileType::Regular;
        assert_eq!(e.replace(b"hello.txt", file, kind), Ok(Some(small)));
        assert_eq!(e.replace(b"a new file", small, kind), Ok(Some(file)));
        assert_eq!(e.replace(b"nobody", small, kind), Ok(None));
    });
}

fn unlink(image: &Image) {
    let v = Volume::open(&image.path);
    let mut file = v.lookup("empty");
    (file.links, file.dtime) = (0, 1_600_000_000);
    put_inode(image, &v, &file);
    edit_root(image, |e| {
        assert_eq!(e.remove(b"empty"), Ok(Some(file.ino)))
    });
    book_inode(image, file.ino, false, false);
}

/// Adds a second name for the small file, in the block that the hash tree names for it.
fn link_in_hashed(image: &Image) {
    let v = Volume::open(&image.path);
    let many = v.lookup("many");
    let map = v.map(&many);
    if !is_hashed(&v.sb, &many) {
        return;
    }
    let mut first = v.block(map[0].1);
    let root = DxRoot::parse(&v.sb, &many, &first).unwrap();
    let before = first.clone();
    dx::seal(&v.sb, &many, FileBlock::new(0), &mut first).unwrap();
    assert!(first == before);
    for n in 0..200 {
        let name = format!("linked {n}");
        let hash = root.hash.hash(v.sb.hash(), name.as_bytes()).major;
        let mut at = root.node.entries[root.node.find(hash)].block;
        if root.indirect_levels == 1 {
            let raw = v.block(map[at.get() as usize].1);
            let node = DxNode::parse(&v.sb, &many, at, &raw).unwrap();
            at = node.entries[node.find(hash)].block;
        }
        let block = map[at.get() as usize].1;
        let mut raw = v.block(block);
        let mut file = v.lookup("a new file");
        let mut edit = DirBlockEdit::open(&v.sb, &many, at, &mut raw).unwrap();
        if edit.insert(name.as_bytes(), file.ino, FileType::Regular) == Ok(Inserted::Full) {
            continue;
        }
        image.put(v.sb.byte_of(block).get(), &raw);
        file.links += 1;
        put_inode(image, &v, &file);
        let stat = image.debugfs(&format!("stat \"many/{name}\""));
        assert!(stat.contains("Links: 2"), "{stat}");
        return;
    }
    panic!("every block is full");
}

/// Adds another name for the small file, in a directory without blocks.
fn link_in_inline(image: &Image) {
    let v = Volume::open(&image.path);
    let mut dir = v.lookup("deep/er");
    assert_eq!(
        dir.map_kind() == MapKind::Inline,
        v.sb.features().names().contains(&"inline_data".to_owned())
    );
    if dir.map_kind() != MapKind::Inline {
        return;
    }
    let mut file = v.lookup("a new file");
    let holder = dir.clone();
    let mut edit = DirBlockEdit::open_inline(&v.sb, &holder, &mut dir.i_block[4..]).unwrap();
    insert(&mut edit, b"linked", file.ino, FileType::Regular);
    put_inode(image, &v, &dir);
    file.links += 1;
    put_inode(image, &v, &file);
    let stat = image.debugfs("stat deep/er/linked");
    assert!(stat.contains("Links: 3"), "{stat}");
}

/// Leaves an inode without a name in the orphan file: e2fsck frees it.
fn orphan(image: &Image) {
    let v = Volume::open(&image.path);
    let Some(file) = v.sb.orphan_file() else {
        return;
    };
    let holder = v.inode(file);
    let (_, block): (u64, FsBlock) = v.map(&holder)[0];
    let mut raw = v.block(block);
    let before = raw.clone();
    let ino = take_inode(image, false);
    let mut inode = fresh(&v, ino, 0o100600);
    inode.links = 0;
    put_new(image, &v, &inode);
    let slot = orphan::free_slot(&v.sb, &raw, 3).unwrap();
    orphan::set_slot(&v.sb, &holder, block, &mut raw, slot, ino).unwrap();
    assert_eq!(
        orphan::parse_block(&v.sb, &holder, block, &raw),
        Ok(vec![ino])
    );
    assert_eq!(orphan::find_slot(&v.sb, &raw, ino), Some(slot));
    let (mut emptied, none) = (raw.clone(), Ino::new(0));
    orphan::set_slot(&v.sb, &holder, block, &mut emptied, slot, none).unwrap();
    assert!(emptied == before);
    image.put(v.sb.byte_of(block).get(), &raw);
    common::change::edit_super(image, |e| e.set_orphan_present(true));
    let (code, text) = run("e2fsck", &["-fy", image.path.to_str().unwrap()]).unwrap();
    let freed = format!("orphaned inode {ino} ");
    assert!(code == 1 && text.contains(&freed), "{code}: {text}");
    image.assert_clean();
}

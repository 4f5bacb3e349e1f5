//! Directories whose blocks get another form.
//!
//! Input: a directory of an [`Image`]. Output: its blocks with the checksums that the superblock asks for now, or room for none.
//! Invariants: entries stay where they are, unless a block has no room for its checksum; then the directory is made anew, with a hash tree
//! if it needs more than a block, in its old blocks and as many new ones as it takes. Limits: a directory that ignores case is not made
//! anew.

use super::image::Image;
use super::tree::Map;
use crate::error::Error;
use diorite_format::dir::{self, DirBlock};
use diorite_format::features::Incompat;
use diorite_format::{FsBlock, Ino, Inode, InodeFlags, Superblock};
use diorite_mkfs::parts::{Name, Names, fill_directory};

/// Writes the checksums of a directory's blocks again. Returns false, and changes nothing, if a block has no room for its checksum. Blocks.
pub(super) fn reseal(
    image: &mut Image,
    was: &Superblock,
    (old, new): (&Inode, &Inode),
    map: &Map,
) -> Result<bool, Error> {
    let now = image.sb.clone();
    let mut sealed = Vec::new();
    for (block, at) in map.blocks() {
        if block.get() * u64::from(now.block_size()) >= old.size {
            break;
        }
        let raw = image.block(at)?;
        let mut bytes = raw.to_vec();
        if !dir::reform((was, old), (&now, new), block, &mut bytes)? {
            return Ok(false);
        }
        sealed.push((at, raw, bytes));
    }
    for (at, raw, bytes) in sealed {
        image.put_if_changed(at, &raw, &bytes);
    }
    Ok(true)
}

/// Makes a directory anew whose blocks have the form of a volume without checksums. Blocks.
pub(super) fn remake(image: &mut Image, ino: Ino) -> Result<(), Error> {
    let mut inode = image.inode(ino)?;
    if inode.flags.has(InodeFlags::CASEFOLD) {
        let what =
            "it ignores case and has blocks without room for a checksum: run 'e2fsck -fD' first";
        return Err(Error::NotSupported(what.to_owned()));
    }
    let map = image.map(&inode)?;
    let size = u64::from(image.sb.block_size());
    let blocks: Vec<FsBlock> = map.blocks().map(|(_, at)| at).collect();
    let (parent, names) = names_of(image, &inode, &map)?;
    let get = |n: usize| -> Name<'_> {
        let (name, ino, kind) = &names[n];
        (name, *ino, *kind)
    };
    let all = Names {
        count: names.len(),
        get: &get,
    };
    inode.flags = inode.flags.without(InodeFlags::INDEX);
    let mut made: Vec<Vec<u8>> = Vec::new();
    let sb = image.sb.clone();
    let least = u32::try_from(inode.size / size).unwrap_or(u32::MAX);
    fill_directory(&sb, &mut inode, parent, &all, least, &mut |raw| {
        made.push(raw.to_vec());
        Ok(())
    })?;
    let goal = sb.inode_place(ino)?.group;
    let ratio = u64::from(sb.geometry().cluster_ratio());
    let mut places = blocks;
    if made.len() > places.len() {
        // Nodes of the old map are given back, and a new one is made.
        let more = (made.len() - places.len()) as u64;
        let mut runs: Vec<std::ops::Range<u64>> = Vec::new();
        let mut add = |run: std::ops::Range<u64>| match runs.last_mut() {
            Some(last) if last.end == run.start => last.end = run.end,
            _ => runs.push(run),
        };
        for at in &places {
            add(at.get()..at.get() + 1);
        }
        if ratio > 1 {
            let what = "it needs more blocks, on a volume with clusters: run 'e2fsck -fD' first";
            return Err(Error::NotSupported(what.to_owned()));
        }
        for run in image.take_space(goal, more)? {
            places.extend(run.clone().map(FsBlock::new));
            add(run);
        }
        let acl = u64::from(!inode.file_acl.is_none()) * (size / 512);
        for node in &map.nodes {
            image.free_blocks(node.at.get()..node.at.get() + 1)?;
        }
        image.make_map(&mut inode, &runs, &mut |image| {
            Ok(image.take_space(goal, 1)?[0].start)
        })?;
        inode.blocks += acl;
        inode.size = made.len() as u64 * size;
    }
    for (at, raw) in places.iter().zip(&made) {
        image.put(*at, raw);
    }
    image.put_inode(&inode)
}

type Owned = (Vec<u8>, Ino, diorite_format::FileType);

/// The parent of a directory, and its names, read as on a volume without checksums.
fn names_of(image: &Image, inode: &Inode, map: &Map) -> Result<(Ino, Vec<Owned>), Error> {
    let plain = image.without_checksums()?;
    if !plain.features().incompat.has(Incompat::FILETYPE) {
        let what = "a directory without file types has blocks without room for a checksum: run 'e2fsck -fD' first";
        return Err(Error::NotSupported(what.to_owned()));
    }
    let (mut parent, mut names) = (inode.ino, Vec::new());
    for (block, at) in map.blocks() {
        let raw = image.block(at)?;
        let parsed = DirBlock::parse(&plain, inode, block, &raw)?;
        for entry in parsed.entries() {
            match entry.name {
                b"." => {}
                b".." => parent = entry.ino,
                name => {
                    let kind = entry.file_type.ok_or_else(|| {
                        Error::Damaged("a name has no file type; run e2fsck".to_owned())
                    })?;
                    names.push((name.to_vec(), entry.ino, kind));
                }
            }
        }
    }
    names.sort_by(|a: &Owned, b: &Owned| a.0.cmp(&b.0));
    Ok((parent, names))
}

//! Damaged maps, and failing allocations: an edit either succeeds, or fails and changes nothing; it never panics or loops.

use super::super::{End, NewRun, part, replace, shift};
use super::EXT4;
use super::rig::{Free, Rig};
use crate::testing::Rng;
use crate::{OpenOptions, Volume};
use diorite_block::MemDevice;
use diorite_format::{FsBlock, MapKind};
use std::sync::Arc;

const BLOCK: usize = 1024;

/// A file with a map of some depth, and the blocks of the device that hold its nodes.
fn with_nodes(mke2fs: &[&str]) -> Option<(Rig, Vec<usize>)> {
    let mut rig = Rig::new(mke2fs, "16M", 6000)?;
    let mut rng = Rng::from_env("hostile map");
    for n in 0..900u32 {
        let block = if n % 10 == 0 { 70_000 + n * 3 } else { n * 2 };
        let run = rig.pick(&mut rng, 1);
        rig.replace(
            block..block + 1,
            &[NewRun {
                file_block: block,
                ..run
            }],
        );
    }
    let bytes = rig.bytes();
    let of_file = |n: &usize| {
        let block = &bytes[n * BLOCK..][..BLOCK];
        let pointers = block
            .chunks(4)
            .map(|p| u32::from_le_bytes([p[0], p[1], p[2], p[3]]));
        let is_pointers =
            pointers.clone().all(|p| p < 16_384) && pointers.filter(|p| *p > 0).count() > 1;
        block[..2] == [0x0a, 0xf3] || *n > 300 && is_pointers
    };
    let nodes: Vec<usize> = (0..bytes.len() / BLOCK).filter(of_file).collect();
    assert!(nodes.len() > 5, "{} nodes", nodes.len());
    Some((rig, nodes))
}

/// Edits of one damaged image, as many as come off.
fn edit_damaged(rig: &mut Rig, rng: &mut Rng) {
    for _ in 0..20 {
        let from = match rng.below(2) {
            0 => rng.below(2000) as u32,
            _ => 70_000 + rng.below(3000) as u32,
        };
        let to = from + 1 + rng.below(400) as u32;
        let run = rig.pick(rng, 1 + to - from);
        let new = NewRun {
            file_block: from,
            len: run.len.min(to - from),
            ..run
        };
        let extents = rig.file.inode.disk().map_kind() == MapKind::Extents;
        let op = rng.below(4);
        let edited = rig.edit(4000, |rig, handle, disk| match op {
            0 => replace(handle, &mut rig.free, disk, from..to, &[]),
            1 if extents => shift(handle, &mut rig.free, disk, from..u32::MAX, 7),
            2 => {
                let end = [End::First, End::Last][from as usize % 2];
                let range = part(handle.store(), disk, from..u32::MAX, 3, end)?;
                replace(handle, &mut rig.free, disk, range, &[])
            }
            _ => replace(handle, &mut rig.free, disk, from..to, &[new]),
        });
        if let Err(error) = edited {
            assert!(!error.to_string().is_empty());
        }
        // What is shown of a damaged map is an error or something; it ends.
        let _shown = rig.file.inode.mappings(0..u64::from(u32::MAX));
    }
}

#[test]
fn damaged_maps_give_errors() {
    let kinds: [&[&str]; 2] = [
        &["-t", "ext4", "-O", "^has_journal,^metadata_csum"],
        &["-t", "ext2"],
    ];
    for kind in kinds {
        let Some((rig, nodes)) = with_nodes(kind) else {
            return;
        };
        let (good, ino) = (rig.bytes(), rig.file.inode.ino);
        let mut rng = Rng::from_env("damaged map");
        let mut rig = rig;
        for _ in 0..150 {
            let mut bytes = good.clone();
            for _ in 0..1 + rng.below(4) {
                let node = nodes[rng.below(nodes.len() as u64) as usize] * BLOCK;
                let within = [48, BLOCK as u64][rng.below(2) as usize];
                let at = rng.below(within) as usize;
                let another = nodes[rng.below(nodes.len() as u64) as usize];
                bytes[node + at] = match rng.below(3) {
                    0 => rng.next() as u8,
                    1 => bytes[node + at].wrapping_add(1),
                    // A number of another node.
                    _ => good[another * BLOCK + at],
                };
            }
            let device = Arc::new(MemDevice::new(bytes.len() as u64));
            device.write_at(0, &bytes);
            rig.volume = Volume::open_device(device, &OpenOptions::writable()).unwrap();
            let Ok(inode) = rig.volume.inner().inode(ino) else {
                continue;
            };
            rig.file.inode = inode;
            rig.free.nodes_left = Some(u32::MAX);
            edit_damaged(&mut rig, &mut rng);
        }
    }
}

#[test]
fn a_node_that_is_its_own_child_is_damage() {
    let Some((mut rig, _)) = with_nodes(&["-t", "ext2"]) else {
        return;
    };
    // The second level points to itself from every slot.
    let disk = rig.file.inode.disk();
    let at = u32::from_le_bytes([52, 53, 54, 55].map(|n| disk.i_block[n]));
    assert!(at != 0, "there is a second level");
    let mut bytes = rig.bytes();
    let all: Vec<u8> = (0..256).flat_map(|_| at.to_le_bytes()).collect();
    bytes[at as usize * BLOCK..][..BLOCK].copy_from_slice(&all);
    let device = Arc::new(MemDevice::new(bytes.len() as u64));
    device.write_at(0, &bytes);
    let ino = rig.file.inode.ino;
    rig.volume = Volume::open_device(device, &OpenOptions::writable()).unwrap();
    rig.file.inode = rig.volume.inner().inode(ino).unwrap();
    let edited = rig.edit(4000, |rig, handle, disk| {
        replace(handle, &mut rig.free, disk, 0..u32::MAX, &[])
    });
    assert!(edited.is_err_and(|e| e.is_corrupt()));
}

#[test]
fn an_edit_that_finds_no_block_changes_nothing() {
    for kind in [EXT4, &["-t", "ext2"]] {
        if let Some((rig, _)) = with_nodes(kind) {
            one_block_more_each_time(rig);
        }
    }
}

fn one_block_more_each_time(mut rig: Rig) {
    let run = |n: u32| NewRun {
        file_block: 300_000 + 10 * n,
        len: 1,
        start: FsBlock::new(*rig.free.blocks.iter().nth(n as usize * 2).unwrap()),
        unwritten: false,
    };
    let new: Vec<NewRun> = (0..300).map(run).collect();
    for nodes in 0..50 {
        rig.free = Free {
            nodes_left: Some(nodes),
            ..std::mem::take(&mut rig.free)
        };
        let edited = rig.edit(4000, |rig, handle, disk| {
            replace(handle, &mut rig.free, disk, 300_000..u32::MAX, &new)
        });
        if let Ok(edited) = edited {
            assert!(nodes > 2 && edited.nodes_taken == nodes);
            return;
        }
        rig.check(0..u32::MAX);
    }
    panic!("50 blocks are enough");
}

//! Preallocation of holes whose clusters lie in two leaves, and of more than there is space for.

use crate::error::Error;
use crate::mapping::MappingState;
use crate::op::Fallocate;
use crate::queue::File;
use crate::testing::small_volume;

const KEEP: Fallocate = Fallocate::Allocate { keep_size: true };

fn place(file: &File, block: u64) -> Option<u64> {
    match file.mappings(block << 10, 1 << 10).unwrap()[0].state {
        MappingState::Hole => None,
        MappingState::Written(at) | MappingState::Unwritten(at) => Some(at.get()),
    }
}

/// A block whose cluster the file has already, because of a block that the next leaf maps, gets its place in that cluster, whatever part
/// of the map is in memory.
#[test]
fn a_cluster_in_the_next_leaf_is_found() {
    let volume = small_volume("16M", &["-O", "bigalloc", "-C", "4096"]);
    let file = volume.temporary("/", 0o600).unwrap();
    let clusters = || (0..300u64).map(|n| 4 * n);
    for first in clusters() {
        file.fallocate(KEEP, (first + 1) << 10, 1 << 10).unwrap();
    }
    for first in clusters() {
        file.inode().drop_loaded_map();
        file.fallocate(KEEP, first << 10, 1 << 10).unwrap();
        let beside = place(&file, first + 1).unwrap();
        assert_eq!(place(&file, first), Some(beside - 1), "block {first}");
    }
}

/// Rule G8. A request for more space than there is fails with its whole number of clusters, before anything is claimed or mapped.
#[test]
fn a_wish_is_counted_in_clusters() {
    let volume = small_volume("16M", &["-O", "bigalloc", "-C", "4096", "-m", "0"]);
    let file = volume.temporary("/", 0o600).unwrap();
    file.fallocate(KEEP, 5 << 10, 1 << 10).unwrap();
    let handles = || volume.journal_stats().handles;
    let before = handles();
    // From the middle of a cluster that the file has to the middle of one that it has not.
    match file.fallocate(KEEP, 6 << 10, 100_000 << 10) {
        Err(Error::NoSpace { asked, free }) => {
            assert_eq!(asked, (100_006 / 4 - 2) * 4);
            assert!(free < asked, "{free}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(handles(), before);
}

//! The order of names, without a volume.

use super::*;

const DIR: Ino = Ino::new(12);

fn block(n: u64) -> NamesAt {
    NamesAt::Block(FsBlock::new(n))
}

fn new(numbers: &[u64]) -> impl Iterator<Item = FsBlock> {
    numbers.iter().map(|n| FsBlock::new(*n))
}

/// Does the first go home in an earlier turn?
fn is_before(order: &Order, first: NamesAt, then: NamesAt) -> bool {
    let levels = order.levels();
    levels[&first] < levels[&then]
}

#[test]
fn the_new_place_comes_before_the_old_one() {
    let mut order = Order::default();
    assert!(order.moves(block(2), block(1)));
    assert!(order.moves(block(3), block(2)));
    assert!(is_before(&order, block(3), block(2)) && is_before(&order, block(2), block(1)));
    // Within a block there is one write, and nothing to order.
    assert!(order.moves(block(1), block(1)));
}

#[test]
fn circles_are_refused_and_leave_nothing() {
    let mut order = Order::default();
    assert!(order.moves(block(2), block(1)) && order.moves(block(3), block(2)));
    let levels = order.levels();
    assert!(!order.moves(block(1), block(3)) && !order.moves(block(1), block(2)));
    assert_eq!(order.levels(), levels);
}

/// A leaf (1) is split: half of its names are in a new block (7), which the directory's inode leads to.
#[test]
fn a_directory_that_grows_has_its_new_blocks_before_names_leave_the_old_ones() {
    let mut order = Order::default();
    order.spread(DIR, &[block(1)], new(&[7]));
    assert!(is_before(&order, NamesAt::Inode(DIR), block(1)));
    // What leaves the new block is on disk in the old one; so is what leaves a block that the new one was split into.
    order.spread(DIR, &[block(7)], new(&[8]));
    assert!(order.moves(block(2), block(8)));
    assert!(is_before(&order, block(2), block(1)));
    // What comes into a new block is found when the directory's inode is there.
    assert!(order.moves(block(8), block(3)));
    assert!(is_before(&order, NamesAt::Inode(DIR), block(3)));
    assert!(order.is_asked_for);
}

/// A file is moved into a directory that was made in another one that was made: both are found by the first name alone.
#[test]
fn what_moves_into_new_directories_is_found_by_their_names() {
    let (outer, inner) = (Ino::new(20), Ino::new(21));
    let mut order = Order::default();
    order.begins(outer, Some(FsBlock::new(7)), block(2));
    order.begins(inner, None, block(7));
    assert!(order.moves(NamesAt::Inode(inner), block(1)));
    assert!(is_before(&order, block(2), block(1)));
    // And what leaves them again was never there on disk.
    assert!(order.moves(block(2), NamesAt::Inode(inner)));
}

#[test]
fn maps_go_with_names_or_last() {
    let mut order = Order::default();
    let gone = Ino::new(30);
    order.spread(DIR, &[block(1)], new(&[7]));
    order.goes(gone);
    let levels = order.levels();
    assert_eq!(order.turn_of_map(DIR, &levels), Some(Turn::Names(0)));
    assert_eq!(order.turn_of_map(gone, &levels), Some(Turn::Last));
    assert_eq!(order.turn_of_map(Ino::new(31), &levels), None);
    order.is_replaced(gone);
    assert_eq!(order.turn_of_map(gone, &levels), None);
}

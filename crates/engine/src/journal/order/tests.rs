//! The order of writes for names: computed without a volume, and as operations on a volume without a journal note it.

use super::*;
use crate::Volume;
use crate::dir::{RenameFlags, place_of};
use crate::testing::small_volume;

const DIR: Ino = Ino::new(12);

fn block(n: u64) -> NamesAt {
    NamesAt::Block(FsBlock::new(n))
}

fn new(numbers: &[u64]) -> impl Iterator<Item = FsBlock> {
    numbers.iter().map(|n| FsBlock::new(*n))
}

/// Does the first go home in an earlier phase?
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
    assert_eq!(order.phase_of_map(DIR, &levels), Some(WritePhase::Names(0)));
    assert_eq!(order.phase_of_map(gone, &levels), Some(WritePhase::Last));
    assert_eq!(order.phase_of_map(Ino::new(31), &levels), None);
    order.is_replaced(gone);
    assert_eq!(order.phase_of_map(gone, &levels), None);
}

/// Blocks of a directory that are written anew with its names need an order, whatever else the transaction does; new ones that take no
/// names from others do not.
#[test]
fn a_directory_that_is_split_asks_for_an_order() {
    let mut order = Order::default();
    order.spread(DIR, &[], new(&[7]));
    assert!(!order.is_asked_for, "nothing has moved");
    order.spread(DIR, &[block(1)], new(&[8]));
    assert!(order.is_asked_for);
    order.spread(DIR, &[], new(&[9]));
    assert!(order.is_asked_for, "as before");
}

/// A volume without a journal, with this done and durable.
fn without_journal(more: &[&str], first: impl FnOnce(&Volume)) -> Volume {
    let args: Vec<&str> = ["-O", "^has_journal"].iter().chain(more).copied().collect();
    let volume = small_volume("16M", &args);
    first(&volume);
    volume.sync().unwrap();
    volume
}

fn create(volume: &Volume, path: &str) {
    volume.create(path, 0o644).unwrap();
}

fn rename(volume: &Volume, from: &str, to: &str) {
    volume.rename(from, to, RenameFlags::default()).unwrap();
}

fn ino_of(volume: &Volume, path: &str) -> Ino {
    volume.resolve(path, false).unwrap()
}

/// Where the first block of a directory is.
fn first_block(volume: &Volume, dir: &str) -> FsBlock {
    let inode = volume.inner().inode(ino_of(volume, dir)).unwrap();
    place_of(&inode, 0).unwrap().unwrap()
}

/// Looks at what is running.
fn running<T>(
    volume: &Volume,
    look: impl FnOnce(&super::super::transaction::Transaction) -> T,
) -> T {
    let journal = volume.inner().journal().unwrap();
    look(&journal.state.lock().running)
}

fn phase_of(volume: &Volume, at: FsBlock) -> Option<WritePhase> {
    let inner = volume.inner();
    running(volume, |t| t.order.phases(inner, &t.blocks).of(at))
}

/// What of the block of the table with this inode waits, if that does.
fn phase_of_inode(volume: &Volume, ino: Ino) -> Option<WritePhase> {
    let inner = volume.inner();
    let (at, from) = inner.inode_place(ino).unwrap();
    let held = running(volume, |t| t.order.phases(inner, &t.blocks).held(at));
    held.into_iter().find(|h| h.from == from).map(|h| h.phase)
}

/// The new inode is there before the name stands for it; the one that had the name stays as it is until the name is gone from it.
#[test]
fn a_name_that_is_replaced_stands_between_both_inodes() {
    let volume = without_journal(&[], |volume| create(volume, "/file"));
    let (root, old) = (first_block(&volume, "/"), ino_of(&volume, "/file"));
    let new = volume.temporary("/", 0o644).unwrap();
    assert_eq!(phase_of(&volume, root), None, "no name has changed");
    volume.replace_file(&new, "/file").unwrap();
    let file = new.metadata().ino;
    assert_eq!(ino_of(&volume, "/file"), file);
    assert_eq!(phase_of(&volume, root), Some(WritePhase::Names(0)));
    assert_eq!(phase_of_inode(&volume, file), None, "with the first");
    assert_eq!(phase_of_inode(&volume, old), Some(WritePhase::Last));
    let names_orphans = volume.inner().sb.super_block();
    assert_eq!(phase_of(&volume, names_orphans), Some(WritePhase::Last));
}

/// Two names change places within a block: it goes behind the inodes, of which it has others than before.
#[test]
fn an_exchange_goes_behind_the_inodes() {
    let volume = without_journal(&[], |volume| create(volume, "/one"));
    create(&volume, "/two");
    let root = first_block(&volume, "/");
    assert_eq!(phase_of(&volume, root), None, "names that are new alone");
    let exchange = true;
    let flags = RenameFlags {
        exchange,
        ..RenameFlags::default()
    };
    volume.rename("/one", "/two", flags).unwrap();
    assert_eq!(phase_of(&volume, root), Some(WritePhase::Names(0)));
    let super_block = volume.inner().sb.super_block();
    assert_eq!(phase_of(&volume, super_block), None, "nothing goes");
}

/// Puts names into a directory until it has a block more.
fn grow(volume: &Volume, dir: &str) {
    let size = || {
        let inode = volume.inner().inode(ino_of(volume, dir));
        inode.unwrap().size()
    };
    let before = size();
    let names = (0..100).map(|n| format!("{dir}/{before}-{n:0100}"));
    let mut made = names.inspect(|name| create(volume, name));
    assert!(made.any(|_| size() > before), "{dir} has room");
}

/// Half of the names are in a new block, to which the directory's inode leads: that stays as it is on disk while the first things go home,
/// and the names leave the old block behind it.
#[test]
fn a_directory_that_is_split_leads_to_its_new_blocks_before_names_leave_the_old_one() {
    let volume = without_journal(&[], |volume| {
        volume.mkdir("/dir", 0o755).unwrap();
    });
    let (dir, first) = (ino_of(&volume, "/dir"), first_block(&volume, "/dir"));
    grow(&volume, "/dir");
    assert_eq!(phase_of_inode(&volume, dir), Some(WritePhase::Names(0)));
    assert_eq!(phase_of(&volume, first), Some(WritePhase::Names(1)));
}

/// It is found by its own name, which waits for its inode, not the other way round; also if it is split at once.
#[test]
fn a_new_directory_that_is_split_waits_for_no_names() {
    let volume = without_journal(&[], |volume| {
        volume.mkdir("/old", 0o755).unwrap();
    });
    volume.mkdir("/old/new", 0o755).unwrap();
    let (new, old) = (ino_of(&volume, "/old/new"), first_block(&volume, "/old"));
    grow(&volume, "/old/new");
    let (at, _) = volume.inner().inode_place(new).unwrap();
    let is_unreachable = running(&volume, |t| t.blocks.get(&at).copied());
    assert_eq!(is_unreachable, Some(false), "beside its parent's inode");
    assert_eq!(phase_of_inode(&volume, new), None);
    assert_eq!(phase_of(&volume, old), Some(WritePhase::Names(0)));
}

/// A block of pointers that is written anew leads to new blocks of names as the inode does.
#[test]
fn a_node_of_a_directory_s_map_goes_with_its_inode() {
    let features = "^has_journal,^extent,^64bit,^metadata_csum";
    let volume = without_journal(&["-O", features], |volume| {
        volume.mkdir("/dir", 0o755).unwrap();
        // Twelve are in the inode.
        (0..13).for_each(|_| grow(volume, "/dir"));
    });
    let dir = ino_of(&volume, "/dir");
    let nodes = || running(&volume, |t| t.order.nodes.clone());
    assert_eq!(nodes(), BTreeMap::new());
    grow(&volume, "/dir");
    let nodes = nodes();
    assert!(nodes.len() == 1 && nodes.values().all(|of| *of == dir));
    let node = *nodes.keys().next().unwrap();
    assert_eq!(phase_of(&volume, node), Some(WritePhase::Names(0)));
    assert_eq!(phase_of_inode(&volume, dir), Some(WritePhase::Names(0)));
}

/// Who moves into a directory that is new is found when that one's own name is there: only then does the old name go. The root's block was
/// taken for the one of the two that has to wait, as a name moved from there, too.
#[test]
fn what_moves_into_a_new_directory_waits_for_its_name() {
    let volume = without_journal(&[], |volume| {
        volume.mkdir("/old", 0o755).unwrap();
        create(volume, "/old/file");
        create(volume, "/other");
    });
    let (root, old) = (first_block(&volume, "/"), first_block(&volume, "/old"));
    volume.mkdir("/new", 0o755).unwrap();
    rename(&volume, "/other", "/new/other");
    rename(&volume, "/old/file", "/new/file");
    assert_eq!(phase_of(&volume, root), Some(WritePhase::Names(0)));
    assert_eq!(phase_of(&volume, old), Some(WritePhase::Names(1)));
}

/// The last free number is that of an inode which has just lost its name. The new inode does not wait for the names to go.
#[test]
fn a_number_that_is_given_out_again_does_not_wait() {
    let volume = without_journal(&["-N", "16"], |volume| {
        let more = (0..).find(|n| volume.create(&format!("/{n}"), 0o644).is_err());
        assert!(more.unwrap() > 0);
    });
    let root = first_block(&volume, "/");
    let ino = ino_of(&volume, "/0");
    volume.unlink("/0").unwrap();
    rename(&volume, "/1", "/one");
    assert_eq!(phase_of_inode(&volume, ino), Some(WritePhase::Last));
    create(&volume, "/new");
    assert_eq!(ino_of(&volume, "/new"), ino);
    assert_eq!(
        phase_of(&volume, root),
        Some(WritePhase::Names(0)),
        "in the same round"
    );
    assert_eq!(phase_of_inode(&volume, ino), None);
}

/// More of the table of inodes is used than before: the descriptor that says so goes ahead, or e2fsck gives away what the inode there has.
#[test]
fn a_descriptor_leads_when_more_of_a_table_is_used() {
    let volume = without_journal(&[], |_| ());
    create(&volume, "/first");
    let sb = &volume.inner().sb;
    let group = sb.inode_place(ino_of(&volume, "/first")).unwrap().group;
    let (table_block, _) = sb.desc_place(group).unwrap();
    let at = sb.gdt_location(table_block).unwrap();
    assert_eq!(
        running(&volume, |t| t.leading.clone()),
        BTreeSet::from([at])
    );
    assert!(running(&volume, |t| t.blocks.contains_key(&at)));
    volume.sync().unwrap();
    volume.unlink("/first").unwrap();
    volume.sync().unwrap();
    create(&volume, "/again");
    assert_eq!(
        running(&volume, |t| t.leading.len()),
        0,
        "it was used before"
    );
}

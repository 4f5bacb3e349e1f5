//! Which groups directories go to, tested on groups that are nothing but counts.

use crate::alloc::orlov::{Counts, MOST_DEBT, Orlov, Sight};
use diorite_format::GroupNo;

const FLEX: u32 = 16;
const INODES: u64 = 8192;
const CLUSTERS: u64 = 32768;

impl Sight for Vec<Counts> {
    fn count(&self) -> u32 {
        self.len() as u32
    }

    fn counts(&self, group: u32) -> Counts {
        self[group as usize]
    }
}

fn fresh(groups: u32) -> Vec<Counts> {
    let group = Counts {
        inodes: INODES,
        clusters: CLUSTERS,
        dirs: 0,
        debt: 0,
    };
    let mut all = vec![group; groups as usize];
    // The metadata of a flexible group lies in its first one; those of the volume, with its journal, in the very first.
    all.iter_mut()
        .step_by(FLEX as usize)
        .for_each(|g| g.clusters -= 8225);
    all[1].clusters = 0;
    all
}

fn spread(groups: &Vec<Counts>, flex: u32) -> Orlov<'_, Vec<Counts>> {
    Orlov {
        groups,
        flex,
        inodes_per_group: INODES as u32,
        per_dir: 256,
    }
}

fn take(groups: &mut [Counts], group: GroupNo, is_dir: bool) {
    let here = &mut groups[group.get() as usize];
    here.inodes -= 1;
    here.clusters -= 1;
    here.dirs += u64::from(is_dir);
    here.debt = match is_dir {
        true => (here.debt + 1).min(u64::from(MOST_DEBT)),
        false => here.debt.saturating_sub(1),
    };
}

fn top(groups: &mut Vec<Counts>, flex: u32, from: u32) -> Option<GroupNo> {
    let group = spread(groups, flex).for_top_directory(from).next();
    group.inspect(|g| take(groups, *g, true))
}

fn near(groups: &mut Vec<Counts>, home: u32) -> Option<GroupNo> {
    let home = GroupNo::new(home);
    let group = spread(groups, FLEX).for_directory(home).next();
    group.inspect(|g| take(groups, *g, true))
}

/// 200 directories of the root of 20 GiB: as many in each of the flexible groups, and no two in one group before all have one.
#[test]
fn directories_of_the_root_go_to_all_flexible_groups() {
    let mut groups = fresh(160);
    let mut flexibles = [0u32; 10];
    let mut seen = std::collections::HashSet::new();
    for n in 0..200 {
        let group = top(&mut groups, FLEX, n).unwrap();
        flexibles[(group.get() / FLEX) as usize] += 1;
        if n < 90 {
            assert!(seen.insert(group), "{n}: {group}");
        }
    }
    // The first flexible group has a seventeenth fewer clusters than others: so much is not looked at.
    assert!(
        flexibles.iter().all(|n| (18..=23).contains(n)),
        "{flexibles:?}"
    );
}

#[test]
fn what_is_fuller_than_others_is_passed_over() {
    let mut groups = fresh(64);
    // Few clusters, few inodes, many directories; the last flexible group is as it was.
    groups[..16].iter_mut().for_each(|g| g.clusters /= 2);
    groups[16..32].iter_mut().for_each(|g| g.inodes /= 2);
    groups[32..48].iter_mut().for_each(|g| g.dirs += 10);
    for n in 0..64 {
        assert_eq!(top(&mut groups, FLEX, n).unwrap().get() / FLEX, 3);
    }
}

/// Without flexible groups each group stands for itself.
#[test]
fn groups_by_themselves() {
    let mut groups = fresh(8);
    groups[5].inodes = 0;
    let mut got: Vec<u32> = (0..5)
        .map(|n| top(&mut groups, 1, n).unwrap().get())
        .collect();
    got.sort_unstable();
    assert_eq!(got, [2, 3, 4, 6, 7]);
    // In a volume that is full nobody is named.
    groups.iter_mut().for_each(|g| g.inodes = 0);
    assert_eq!(top(&mut groups, 1, 0), None);
    assert_eq!(spread(&groups, 1).all_from(GroupNo::new(3)).count(), 0);
}

/// Directories in a directory stay in its group until that has as many without files as it has room for; files pay off what is owed.
#[test]
fn others_stay_near_until_their_group_is_in_debt() {
    let mut groups = fresh(160);
    let most = {
        let clusters: u64 = groups.iter().map(|g| g.clusters).sum();
        clusters / 160 / 256
    };
    for _ in 0..most {
        assert_eq!(near(&mut groups, 100).map(GroupNo::get), Some(100));
    }
    assert_eq!(near(&mut groups, 100).map(GroupNo::get), Some(101));
    take(&mut groups, GroupNo::new(100), false);
    assert_eq!(near(&mut groups, 100).map(GroupNo::get), Some(100));
}

#[test]
fn others_leave_a_flexible_group_that_is_fuller_than_others() {
    let mut groups = fresh(160);
    groups[96..112].iter_mut().for_each(|g| g.inodes /= 2);
    assert_eq!(near(&mut groups, 100).map(GroupNo::get), Some(112));
    let mut groups = fresh(160);
    groups[96..112].iter_mut().for_each(|g| g.dirs += 600);
    assert_eq!(near(&mut groups, 100).map(GroupNo::get), Some(112));
    let mut groups = fresh(160);
    groups[100].inodes = 0;
    assert_eq!(near(&mut groups, 100).map(GroupNo::get), Some(101));
    // The last flexible group, which is smaller, is measured by its share.
    let mut groups = fresh(150);
    assert_eq!(near(&mut groups, 149).map(GroupNo::get), Some(149));
}

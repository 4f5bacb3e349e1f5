//! What it is: power cuts during recovery itself.
//! Input: the image before, and what diorite's recovery changed. Output: findings. The next recovery, by diorite or by
//! e2fsck, must end in the tree that the one which was not cut short ended in.
//! Limits: a few cuts of one recovery; a superblock torn there without a copy is lost, as anywhere.

use super::{Judge, note, open};
use crate::stamp::SECTOR;
use crate::torn::{Super, superblock};
use diorite::Volume;
use diorite_block::record::{Event, PowerCuts, plan};
use xtask::manifest::Entry;
use xtask::run;

/// Cuts of one recovery.
const CUTS: usize = 3;

impl Judge {
    pub(super) fn again(
        &self,
        image: &[u8],
        log: &[Event],
        ours: &[Entry],
        found: &mut Vec<String>,
    ) {
        let mut walk = PowerCuts::new(image.to_vec(), log);
        for cut in plan(log, CUTS, log.len() as u64, SECTOR) {
            let before = found.len();
            walk.with_image(cut, |image| match superblock(image) {
                Super::Lost => {}
                Super::Torn => self.once_more(image, ours, found),
                Super::Whole => {
                    self.once_more(image, ours, found);
                    if !self.truncated_wrongly {
                        self.handed_over(image, ours, found);
                    }
                }
            });
            for finding in &mut found[before..] {
                *finding = format!("recovery cut short at {cut:?}: {finding}");
            }
        }
    }

    /// diorite begins again.
    fn once_more(&self, image: &[u8], ours: &[Entry], found: &mut Vec<String>) {
        self.mem.write_at(0, image);
        match open(self.mem.clone(), true).and_then(Volume::close) {
            Ok(()) => self.differ(
                "the first recovery",
                ours,
                &self.tree("copy D", found),
                found,
            ),
            Err(error) => found.push(format!("diorite recovers: {error}")),
        }
    }

    /// e2fsck goes on where diorite was cut short.
    fn handed_over(&self, image: &[u8], ours: &[Entry], found: &mut Vec<String>) {
        let done = self.file("d", image).and_then(|d| {
            note("e2fsck recovers", run::replay_journal(&d), found);
            std::fs::read(&d).map_err(crate::error::at(&d))
        });
        match done {
            Ok(bytes) => {
                self.mem.write_at(0, &bytes);
                self.differ("diorite", ours, &self.tree("copy D", found), found);
            }
            Err(error) => found.push(error.to_string()),
        }
    }
}

//! What it is: power cuts during recovery itself.
//! Input: the image before recovery, and the writes of diorite's recovery. Output: findings. The next recovery, by diorite or by
//! e2fsck, must produce the same tree as the uninterrupted recovery.
//! Limits: a few cuts of one recovery; a superblock that such a cut tears, and that has no backup, is lost, as in other states.

use super::{Judge, open};
use crate::left;
use crate::stamp::SECTOR;
use crate::torn::{Super, superblock};
use diorite::Volume;
use diorite_block::record::{Event, PowerCuts, plan};
use xtask::manifest::Entry;
use xtask::run::{self, Replayed};

/// The number of cuts of one recovery.
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

    /// diorite recovers the interrupted state again.
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

    /// e2fsck recovers the state that diorite's recovery was interrupted in.
    fn handed_over(&self, image: &[u8], ours: &[Entry], found: &mut Vec<String>) {
        let done = self.file("d", image).and_then(|d| {
            match run::replay_journal(&d) {
                Ok(Replayed::Whole) => (),
                Ok(Replayed::TruncatedWrongly) => return Ok(None),
                Err(error) => found.push(format!("e2fsck recovers: {error}")),
            }
            left::read(&d, image.len()).map(Some)
        });
        match done {
            Ok(None) => (),
            Ok(Some(bytes)) => {
                self.mem.write_at(0, &bytes);
                self.differ("diorite", ours, &self.tree("copy D", found), found);
            }
            Err(error) => found.push(error.to_string()),
        }
    }
}

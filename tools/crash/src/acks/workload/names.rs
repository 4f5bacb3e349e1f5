//! What it is: how a thread changes names.
//! Input: the slots of the thread. Output: changes, noted. Invariant: a change is always one that must succeed. Limits: files only.

use super::super::names::{Change, DIRS, SLOTS, Slot};
use super::hand::Hand;
use crate::error::Result;
use diorite::dir::RenameFlags;

/// How many of its files a thread holds open.
const HELD: usize = 4;

impl Hand<'_> {
    pub(super) fn change_names(&mut self) -> Result<()> {
        let (one, other) = (self.slot(), self.slot());
        let (has_one, has_other) = (
            self.shown.contains_key(&one),
            self.shown.contains_key(&other),
        );
        match self.rng.below(4) {
            _ if !has_one => self.create(one),
            0 => self.unlink(one),
            1 if !has_other && one != other => self.link(one, other),
            _ if one != other => self.rename(one, other),
            _ => Ok(()),
        }
    }

    fn slot(&mut self) -> Slot {
        let mut below = |n: u32| u32::try_from(self.rng.below(u64::from(n))).unwrap_or(0);
        Slot {
            dir: below(DIRS),
            thread: self.thread,
            slot: below(SLOTS),
        }
    }

    fn create(&mut self, slot: Slot) -> Result<()> {
        let Some(file) = self.scene.new_file() else {
            return Ok(());
        };
        let change = Change::Create(slot, file);
        let number = self.scene.change(self.thread, change);
        let permissions = u16::try_from(file).unwrap_or(0);
        let made = self.scene.volume.create(&slot.path(), permissions)?;
        self.scene.changed(number);
        change.apply(&mut self.shown);
        if self.made.len() == HELD {
            self.made.remove(0);
        }
        self.made.push((file, made));
        Ok(())
    }

    fn unlink(&mut self, slot: Slot) -> Result<()> {
        let change = Change::Unlink(slot);
        let number = self.scene.change(self.thread, change);
        self.scene.volume.unlink(&slot.path())?;
        self.scene.changed(number);
        change.apply(&mut self.shown);
        Ok(())
    }

    fn link(&mut self, from: Slot, to: Slot) -> Result<()> {
        let change = Change::Link(from, to);
        let number = self.scene.change(self.thread, change);
        self.scene.volume.link(&from.path(), &to.path())?;
        self.scene.changed(number);
        change.apply(&mut self.shown);
        Ok(())
    }

    fn rename(&mut self, from: Slot, to: Slot) -> Result<()> {
        // A rename between two names of one file changes nothing: both names stay.
        if self.shown.get(&from) == self.shown.get(&to) {
            return Ok(());
        }
        let change = Change::Rename(from, to);
        let number = self.scene.change(self.thread, change);
        let flags = RenameFlags::default();
        self.scene.volume.rename(&from.path(), &to.path(), flags)?;
        self.scene.changed(number);
        change.apply(&mut self.shown);
        Ok(())
    }
}

//! Blocks that are reserved for root.
//!
//! Input: who changes a file, and where. Output: ENOSPC for a caller who may not use reserved blocks, if only these are left for the new
//! part of the range. Invariant: a range that has all its blocks is never refused. Limits: the volume is open for root and takes reserved
//! blocks for all, so requests of several callers at once may take a few of them; what the kernel's cache writes back has no caller, and is
//! root's; a volume that was opened for somebody else keeps them itself.

use super::{FileSystem, Help, no};
use crate::wire::input::Header;
use diorite::{File, MappingState};
use rustix::io::Errno;

impl FileSystem {
    /// Call before `len` bytes from `pos` on are written or allocated for the caller.
    pub(super) fn check_room(
        &self,
        header: &Header,
        file: &File,
        (pos, len): (u64, u64),
        help: &dyn Help,
    ) -> Result<(), Errno> {
        if !self.guards_reserve || self.may_use_reserve(header) {
            return Ok(());
        }
        let space = self.volume.space();
        // Blocks of the map come on top.
        let most = len / u64::from(space.block_size) + 2;
        if space.available >= most + most / 64 + 8 {
            return Ok(());
        }
        let all = file.mappings(pos, len).map_err(no)?;
        let holes = all.iter().filter(|m| m.state == MappingState::Hole);
        let wanted: u64 = holes.map(|m| m.len).sum();
        if wanted <= space.available {
            return Ok(());
        }
        self.volume.give_back_claims();
        let fits = || match wanted <= self.volume.space().available {
            true => Ok(()),
            false => Err(Errno::NOSPC),
        };
        self.until_space(help, fits, |_| true)
    }

    fn may_use_reserve(&self, header: &Header) -> bool {
        let info = self.volume.superblock().info();
        let user = self.options.resuid.unwrap_or(info.reserved_uid);
        let group = self.options.resgid.unwrap_or(info.reserved_gid);
        let of_group = group != 0 && header.gid == group;
        self.is_root(header) || header.uid == user || of_group
    }
}

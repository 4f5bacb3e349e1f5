//! Inodes that store the value of an attribute (ea_inode): the value's checksum, and the number of attributes that refer to it.
//! Input: an inode created for a value, or one that stores one. Output: its fields. Invariant:
//! [`crate::xattr::verify_ea_inode`] accepts what is written here. Limit: the value itself is the inode's data, which the
//! caller writes. Source: the kernel's ext4 documentation, "extended attributes"; experiments with the kernel's mount and
//! debugfs (an orphan with the flag stops the kernel's orphan processing): the checksum is in the access time, the count in the
//! version, the count's upper half in the time of change.

use super::{Inode, InodeFlags, Timestamp};
use crate::num;

impl Inode {
    /// Makes a new inode a value inode, for a value with this checksum, referred to by one attribute.
    pub fn begin_value(&mut self, sum: u32) {
        self.flags = self.flags.with(InodeFlags::EA_INODE);
        self.set_value_checksum(sum);
        self.set_value_users(1);
    }

    /// Sets the checksum that it stores for the value.
    pub fn set_value_checksum(&mut self, sum: u32) {
        let secs = if self.has_wide_times() {
            i64::from(sum)
        } else {
            num::signed32(sum)
        };
        self.atime = Timestamp { secs, nanos: 0 };
    }

    /// Sets whether attributes refer to it. If none does, it is marked as a file whose data went through the journal.
    /// Everything that deletes orphans can handle such a file, while the kernel refuses an orphan flagged as a value inode.
    pub fn set_named_by_attributes(&mut self, named: bool) {
        let (holds, was) = (InodeFlags::EA_INODE, InodeFlags::JOURNAL_DATA);
        self.flags = match named {
            true => self.flags.without(was).with(holds),
            false => self.flags.without(holds).with(was),
        };
    }

    /// Whether it stores an attribute's value.
    #[must_use]
    pub fn holds_value(&self) -> bool {
        self.is_file() && self.flags.has(InodeFlags::EA_INODE)
    }

    /// The checksum that it stores for the value.
    #[must_use]
    pub fn value_checksum(&self) -> u32 {
        num::low32(u64::from_ne_bytes(self.atime.secs.to_ne_bytes()))
    }

    /// How many attributes refer to it.
    #[must_use]
    pub fn value_users(&self) -> u64 {
        let high = u64::from_ne_bytes(self.ctime.secs.to_ne_bytes());
        num::join(num::low32(high), num::low32(self.version))
    }

    /// Sets how many attributes refer to it.
    pub fn set_value_users(&mut self, users: u64) {
        let (high, low) = num::split(users);
        self.version = u64::from(low);
        self.ctime = Timestamp {
            secs: num::signed32(high),
            nanos: 0,
        };
    }
}

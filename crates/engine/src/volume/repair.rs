//! Records the result of a full check of a volume.
//!
//! Input: a volume of which a check has found that it is consistent. Output: a superblock that says so. Invariant: one transaction. Limits:
//! the check is the caller's; what it repairs is written when the volume is opened ([`crate::OpenOptions::repair`]).

use super::Volume;
use crate::error::Error;

impl Volume {
    /// Notes in the superblock that a full check has found nothing wrong: the volume is clean, recorded errors are forgotten, the time of
    /// the last check is now, and mounts are counted anew. Durable when it returns. Blocks.
    ///
    /// # Errors
    /// The volume may not be changed; a device that fails.
    pub fn note_checked(&self) -> Result<(), Error> {
        let fs = self.inner();
        fs.check_open()?;
        fs.check_writable()?;
        let _alone = fs.alone()?;
        fs.check_super_may_change()?;
        let (now, mounted) = (fs.now_seconds(), fs.sb.info().mount_time);
        fs.in_handle(1, |handle| {
            handle.edit_super(|edit| {
                edit.set_mount_time(mounted);
                edit.set_checked(now);
            })
        })?;
        fs.publish_super(true, false)?;
        // Not a sync: what it would tell of files is not this caller's.
        fs.make_clean()
    }
}

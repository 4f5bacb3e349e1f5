//! The account of durability: what an acknowledgement that promises durability waits for (rule D1).
//!
//! Input: what a request, a sync or a close owes. Output: the same, durable. Invariants: every such promise asks here and nowhere else;
//! what is committed is asked of the journal, what is flushed of the flush epochs of the volume's device; neither answers for the other,
//! but a commit flushes that device and its flush is counted. Limits: all of it blocks; a write that its device makes durable by itself
//! (FUA, no volatile cache) owes nothing.
//!
//! | promise | transaction | data |
//! |---|---|---|
//! | O_DSYNC write, map and size committed | none | FUA, or a flush that began after its last bio |
//! | O_DSYNC write, else | the one that made it visible, or changed the file's map or size last | a flush that began after its last bio |
//! | fdatasync | the one that changed the file's map or size last | a flush that began after the call |
//! | O_SYNC write, file with flag S | the same, and the one with its times, which are written first | as O_DSYNC |
//! | fsync, also of a directory | the one that changed the inode last, times of writes and reads that were noted written first | as fdatasync |
//! | range operation, O_DSYNC or O_SYNC | as a write's | a flush that began after its last zero |
//! | `Volume::sync`, close | all, all times written first | a flush that began after the call |
//! | a loop device's FLUSH, FUA | fdatasync, O_DSYNC write of the file below | the same |
//!
//! A flush that fails may have dropped whatever was not durable yet, and the next one succeeds. So a promise about data of one epoch is not
//! kept if a flush has failed since, and the request fails. A sync, which answers for data of many epochs, fails once for each open file -
//! and for the volume, by `Volume::sync`, close or the end of a group - if a flush has failed since it was told of one; of several syncs
//! under way together all fail. A durable write that fails tells nobody of more than its own data. What the journal
//! writes has such an epoch, too: of the log's blocks before their commit block, of blocks at home before the log gives them up. There it
//! aborts.
//!
//! A commit that others make counts if it is of the transaction that is owed or of a later one. Its flush began when that transaction was
//! closed, so it covers the data of every request whose own change is in it. It need not cover data of other requests: they compare
//! epochs.
//!
//! # A failed flush
//!
//! A flush that fails may have dropped what it should have written - a host forgets its dirty pages - and the next one succeeds without
//! them. Requests that answer for data of their own (O_DSYNC, O_SYNC, a range operation, a loop device's FUA) fail if a flush has
//! failed since that went down. An fsync, a fdatasync, `Volume::sync`, close and the end of a group answer for data of many epochs:
//! each open file (`File` with its clones, a loop device is one), and the volume for its own syncs, remembers the last failure that it
//! has told of (`Told`), and the next sync fails by a newer one, once, after its work is done; so do all that were under way when that
//! one was told. A durable write that fails tells of its own data alone, and stands for no sync. A failure before a file was opened is
//! not told through it. In a commit or a checkpoint, a flush that fails, its own or another's, aborts the journal.
//!
//! What a transaction shows has to be on the device when it is durable: data that a conversion maps, zeros in the place of new blocks
//! or behind the end of a file that grows, data that moves out of its inode. Each was on its way since some epoch, from before it went
//! down. If a flush has failed since, the change is not made, and its request fails; if one fails between the change and its commit,
//! that commit aborts: no byte is ever shown that was not written to the file.
//!
//! A sync that needs a transaction that somebody is committing, and whose data ended after that commit's flush had begun, waits for the
//! commit and then flushes once; on disks where the commit block is followed by a flush of the host, that flush mostly covers it
//! already.

use crate::error::Error;
use crate::inode::Fs;
use diorite_block::Epoch;
use diorite_format::Tid;

/// What has to be durable before somebody is told so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owed {
    /// This transaction, and all before it.
    transaction: Option<Tid>,
    /// Data that had ended by then.
    data: Option<Epoch>,
}

impl Owed {
    pub(crate) fn nothing() -> Owed {
        Owed {
            transaction: None,
            data: None,
        }
    }

    /// A transaction, if there is one that is not durable yet.
    pub(crate) fn commit(newest: Option<Tid>) -> Owed {
        Owed {
            transaction: newest,
            ..Owed::nothing()
        }
    }

    /// Data that had ended at `epoch`.
    pub(crate) fn data(epoch: Epoch) -> Owed {
        Owed {
            data: Some(epoch),
            ..Owed::nothing()
        }
    }

    /// Both of what is owed.
    pub(crate) fn and(self, other: Owed) -> Owed {
        let both = self.transaction.zip(other.transaction);
        let newer = both.map(|(a, b)| if a.is_after(b) { a } else { b });
        Owed {
            transaction: newer.or(self.transaction).or(other.transaction),
            data: self.data.max(other.data),
        }
    }
}

impl Fs {
    /// Makes it durable: by a commit and a flush at most, and by neither where others have done it since. Blocks; no lock may be held.
    ///
    /// # Errors
    /// The commit's or the flush's; that of the journal, if that was aborted: what was acknowledged before may not be committed.
    pub(crate) fn make_durable(&self, owed: Owed) -> Result<(), Error> {
        if owed == Owed::nothing() {
            return Ok(());
        }
        self.check_sound()?;
        if let Some(transaction) = owed.transaction {
            self.commit_up_to(transaction)?;
        }
        owed.data.map_or(Ok(()), |epoch| self.flush_since(epoch))
    }

    /// Makes durable all that was acknowledged, and all times that were noted. `since` is what the volume's [`diorite_block::Told`] said when this was asked
    /// for: before anything that may wait. Blocks; no lock may be held.
    pub(crate) fn make_all_durable(&self, since: Epoch) -> Result<(), Error> {
        let (told, data) = ((&self.told, since), Owed::data(self.data_epoch()));
        self.write_noted_times()?;
        let all = self.newest_uncommitted();
        let made = self.make_durable(data.and(Owed::commit(all)));
        self.end_sync(told, made)
    }
}

#[cfg(test)]
mod tests {
    use crate::inode::durable::*;
    use diorite_block::Flushes;

    /// Rule D1: the newer of two transactions, the later of two epochs; the numbers of transactions wrap.
    #[test]
    fn both_is_the_more_of_each() {
        let account = Flushes::new();
        let early = account.now();
        account.run(|| (Ok(()), ()));
        let late = account.now();
        let (old, new) = (Tid::new(u32::MAX), Tid::new(1));
        let first = Owed::commit(Some(old)).and(Owed::data(late));
        let second = Owed::commit(Some(new)).and(Owed::data(early));
        for both in [first.and(second), second.and(first)] {
            assert_eq!(both, Owed::commit(Some(new)).and(Owed::data(late)));
        }
        assert_eq!(Owed::nothing().and(first), first);
        assert_eq!(first.and(Owed::nothing()), first);
    }
}

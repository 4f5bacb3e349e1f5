//! The account of durability: what has to be committed and flushed before an acknowledgement that promises durability (rule D1).
//!
//! Input: the transactions and data that a request, a sync or a close has promised. Output: they are durable. Invariants: every promise of
//! durability is kept by this account and nothing else; the journal knows whether a transaction is committed, and the flush epochs of the
//! volume's device show whether data is flushed. Neither implies the other, although a commit's flush of that device counts as a flush.
//! Limits: everything here blocks the calling thread; a write that the device makes durable by itself (FUA, no volatile cache) needs no
//! entry.
//!
//! | promise | transaction | data |
//! |---|---|---|
//! | O_DSYNC write, map and size committed | none | FUA, or a flush that began after its last bio |
//! | other O_DSYNC write | the one that made it visible, or changed the file's map or size last | a flush that began after its last bio |
//! | fdatasync | the one that changed the file's map or size last | a flush that began after the call |
//! | O_SYNC write, file with flag S | the same, and the one with its times, which are written first | as O_DSYNC |
//! | fsync, also of a directory | the one that changed the inode last; noted times of writes and reads are written first | as fdatasync |
//! | range operation, O_DSYNC or O_SYNC | as for a write | a flush that began after its last zero |
//! | `Volume::sync`, close | all; all noted times are written first | a flush that began after the call |
//! | a loop device's FLUSH, FUA | fdatasync, O_DSYNC write of the file below | the same |
//!
//! What the journal writes has epochs, too: blocks of the log before their commit block, and blocks at home before the log gives them up.
//! If a flush has failed since, the journal aborts.
//!
//! A commit that others make counts if it is of the owed transaction or of a later one. Its flush began when that transaction was
//! closed, so it covers the data of every request whose own change is in it. It need not cover data of other requests, which therefore
//! compare epochs.
//!
//! # A failed flush
//!
//! A failed flush may have dropped what it should have written (a host forgets its dirty pages), and the next flush succeeds without those
//! writes. So:
//!
//! - A request that answers for its own data (O_DSYNC, O_SYNC, a range operation, a loop device's FUA) fails if a flush has failed since
//!   its data went down. It reports nothing about other data, and is no substitute for a sync.
//! - An fsync, fdatasync, `Volume::sync`, close or end of an atomic change answers for data of many epochs. Each open file (`File` with its
//!   clones; a loop device is one), and the volume for its own syncs, remembers the last failure that it has reported (`Told`). If there
//!   is a newer one, the next sync fails, once, after its work is done; so do all syncs that were under way when that failure was
//!   reported. A failure from before a file was opened is not reported through it.
//! - In a commit or a checkpoint a failed flush, its own or another's, aborts the journal.
//!
//! What a transaction makes visible has to be on the device when the transaction is durable: data that a conversion maps, zeros in the
//! place of new blocks or behind the end of a growing file, data that moves out of its inode. For each an epoch is known from before it
//! went down. If a flush has failed since, the change is not made, and its request fails; if a flush fails between the change and its
//! commit, that commit aborts. So no byte is ever visible that was not written to the file.
//!
//! A sync may need a transaction that is being committed while its data ended after that commit's flush had begun. Then it waits for the
//! commit and flushes once afterwards; on disks where the commit block is followed by a flush of the host, that flush mostly covers the
//! data already.

use crate::error::Error;
use crate::inode::Fs;
use diorite_block::Epoch;
use diorite_format::Tid;

/// What has to be durable before an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owed {
    /// This transaction and all before it.
    transaction: Option<Tid>,
    /// Data that had ended at this epoch.
    data: Option<Epoch>,
}

impl Owed {
    pub(crate) fn nothing() -> Owed {
        Owed {
            transaction: None,
            data: None,
        }
    }

    /// A transaction. None if everything is committed already.
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

    /// Both: the newer transaction and the later epoch.
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
    /// Makes it durable with at most one commit and one flush, and with less where others have made it durable. Blocks; no lock may be
    /// held.
    ///
    /// # Errors
    /// Those of the commit or the flush. If the journal is aborted, its error, as acknowledged changes may not have been committed.
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

    /// Makes everything durable that was acknowledged, and all noted times. `since` is what the volume's [`diorite_block::Told`] said
    /// when the sync was asked for, before anything that may wait. Blocks; no lock may be held.
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

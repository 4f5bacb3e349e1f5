//! A value that changes rarely and is read often: readers keep the version that they have until a newer one is published.
//!
//! Input: new versions, from the holder of the map lock. Output: the latest one, through each reader's own [`Cached`].
//! Invariant: a reader that sees a new sequence number gets a version at least as new; reading an unchanged value touches
//! nothing that another reader writes. Limits: a reader keeps its version alive until its next refresh; a publisher with a [`Retired`]
//! list keeps up to [`MOST_RETIRED`] old versions alive until its next publication or refresh, or until somebody wants their memory
//! ([`Publishers::sweep`]).
//!
//! # Who frees an old version
//!
//! The last user of a version frees what no newer version shares with it. Mostly that is memory that the publisher of the next version
//! has allocated, for the part of the value that it has replaced. If another thread freed it, the allocator would give that thread the
//! memory for something else, and both threads would write the same cache lines from then on. So a publisher keeps the versions that it
//! has replaced, and frees each when nobody else has it.

use crate::locks::MAP_VIEW;
use diorite_block::sync::Mutex;
use diorite_block::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// A published value.
#[derive(Debug)]
pub(crate) struct Published<T> {
    /// Raised after each publication.
    seq: AtomicU64,
    latest: Mutex<Arc<T>>,
}

/// A reader's copy of the latest version that it has seen.
#[derive(Debug)]
pub(crate) struct Cached<T> {
    seq: u64,
    value: Arc<T>,
}

/// The most old versions that one publisher keeps.
const MOST_RETIRED: usize = 8;

/// The versions that one publisher has replaced and that others may still have. See the module.
#[derive(Debug)]
pub(crate) struct Retired<T> {
    versions: Mutex<Vec<Arc<T>>>,
    has_any: AtomicBool,
}

/// The lists of all publishers of one value.
#[derive(Debug)]
pub(crate) struct Publishers<T> {
    level: u8,
    lists: Mutex<Vec<Weak<Retired<T>>>>,
}

impl<T> Publishers<T> {
    pub(crate) fn new(level: u8) -> Publishers<T> {
        Publishers {
            level,
            lists: Mutex::at_level(&MAP_VIEW, level, Vec::new()),
        }
    }

    /// A list for another publisher, who has it from now on.
    pub(crate) fn add(&self) -> Arc<Retired<T>> {
        let list = Arc::new(Retired::new(self.level));
        let mut lists = self.lists.lock();
        lists.retain(|list| list.strong_count() > 0);
        lists.push(Arc::downgrade(&list));
        list
    }

    /// Frees all versions on the lists that nobody else has, whoever replaced them: for a caller who wants their memory.
    pub(crate) fn sweep(&self) {
        let lists: Vec<_> = self.lists.lock().iter().filter_map(Weak::upgrade).collect();
        lists.iter().for_each(|list| list.sweep());
    }
}

impl<T> Published<T> {
    pub(crate) fn new(level: u8, value: T) -> Published<T> {
        Published {
            seq: AtomicU64::new(0),
            latest: Mutex::at_level(&MAP_VIEW, level, Arc::new(value)),
        }
    }

    /// Makes `value` the latest, and returns the version before. The caller holds the lock that serialises changes.
    pub(crate) fn replace(&self, value: Arc<T>) -> Arc<T> {
        let old = std::mem::replace(&mut *self.latest.lock(), value);
        // After the value, so that a reader that sees the number gets this version or a later one.
        self.seq.fetch_add(1, Ordering::Release);
        old
    }

    /// As [`Published::replace`], but frees the version before if nobody else has it.
    pub(crate) fn publish(&self, value: Arc<T>) {
        // Outside the lock: freeing a large tree takes time.
        drop(self.replace(value));
    }

    /// The latest version.
    pub(crate) fn load(&self) -> Arc<T> {
        self.latest.lock().clone()
    }

    /// A new reader's cache, with the latest version.
    pub(crate) fn cached(&self) -> Cached<T> {
        let seq = self.seq.load(Ordering::Acquire);
        Cached {
            seq,
            value: self.load(),
        }
    }
}

impl<T> Retired<T> {
    pub(crate) fn new(level: u8) -> Retired<T> {
        Retired {
            versions: Mutex::at_level(&MAP_VIEW, level, Vec::new()),
            has_any: AtomicBool::new(false),
        }
    }

    /// Takes over a version that its owner has replaced; frees those that nobody else has.
    pub(crate) fn keep(&self, old: Arc<T>) {
        let mut versions = self.versions.lock();
        versions.push(old);
        let freed = self.take_unused(&mut versions);
        drop(versions);
        drop(freed);
    }

    /// Frees the versions that nobody else has. Costs one load if there are none.
    #[inline]
    pub(crate) fn sweep(&self) {
        if self.has_any.load(Ordering::Relaxed) {
            let freed = self.take_unused(&mut self.versions.lock());
            drop(freed);
        }
    }

    /// Is nothing kept?
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.versions.lock().is_empty()
    }

    /// Those that nobody else has, to be freed outside the lock; and the oldest, if there are too many. A count of one stays so: only
    /// somebody who has a version can share it.
    fn take_unused(&self, versions: &mut Vec<Arc<T>>) -> Vec<Arc<T>> {
        let surplus = versions.len().saturating_sub(MOST_RETIRED);
        let mut freed: Vec<_> = versions.drain(..surplus).collect();
        freed.extend(versions.extract_if(.., |old| Arc::strong_count(old) == 1));
        self.has_any.store(!versions.is_empty(), Ordering::Relaxed);
        freed
    }
}

impl<T> Cached<T> {
    /// Has nothing been published since the last [`Cached::refresh`]?
    #[inline]
    pub(crate) fn is_latest(&self, of: &Published<T>) -> bool {
        of.seq.load(Ordering::Acquire) == self.seq
    }

    /// Takes the latest version; returns whether it is a new one. Costs one atomic load if nothing was published.
    #[inline]
    pub(crate) fn refresh(&mut self, from: &Published<T>) -> bool {
        let seq = from.seq.load(Ordering::Acquire);
        let changed = seq != self.seq;
        if changed {
            *self = Cached {
                seq,
                value: from.load(),
            };
        }
        changed
    }

    /// The version taken last.
    #[inline]
    pub(crate) fn value(&self) -> &Arc<T> {
        &self.value
    }
}

#[cfg(all(test, not(any(feature = "_loom", feature = "_shuttle"))))]
mod tests {
    use super::*;

    /// Counts, per thread, the values that it has freed.
    #[derive(Debug)]
    struct Freed(std::sync::mpsc::Sender<std::thread::ThreadId>);

    impl Drop for Freed {
        fn drop(&mut self) {
            let _ = self.0.send(std::thread::current().id());
        }
    }

    #[test]
    fn the_publisher_frees_what_a_reader_had_last() {
        let (tell, freed_by) = std::sync::mpsc::channel();
        let published = Published::new(1, Freed(tell.clone()));
        let retired = Retired::new(1);
        let mut reader = published.cached();
        retired.keep(published.replace(Arc::new(Freed(tell))));
        let refreshed = std::thread::scope(|scope| {
            let read = scope.spawn(|| reader.refresh(&published));
            read.join().expect("it does not panic")
        });
        assert!(refreshed && freed_by.try_recv().is_err());
        retired.sweep();
        assert_eq!(freed_by.try_recv(), Ok(std::thread::current().id()));
        assert!(retired.is_empty() && !retired.has_any.load(Ordering::Relaxed));
    }

    /// A reader that never refreshes does not make the list grow: it only keeps its own version.
    #[test]
    fn few_versions_are_kept() {
        let published = Published::new(1, 0);
        let (retired, idle) = (Retired::new(1), published.cached());
        let kept = || retired.versions.lock().len();
        for n in 1..100 {
            retired.keep(published.replace(Arc::new(n)));
        }
        assert_eq!((kept(), **idle.value()), (1, 0));
        let readers: Vec<_> = (100..200)
            .map(|n| {
                let reader = published.cached();
                retired.keep(published.replace(Arc::new(n)));
                reader
            })
            .collect();
        assert_eq!((kept(), readers.len()), (MOST_RETIRED, 100));
        drop((idle, readers));
        retired.sweep();
        assert_eq!(kept(), 0);
    }
}

//! Values of an open volume that change a few times while it is open, when the file system grows: [`Latest`], [`Row`].
//!
//! Input: a value, and later ones. Output: references that live as long as the container. Invariants: a reader takes no lock and counts no
//! reference, it pays one load; what was handed out stays valid, because old values are kept until the container is dropped. Limits: at
//! most [`MOST`] changes, since each makes the readers' way longer by one step.

use std::ops::{Deref, Index};
use std::sync::OnceLock;

/// How many times a value may change.
const MOST: usize = 1024;

/// A value that is replaced as a whole.
#[derive(Debug)]
pub(crate) struct Latest<T> {
    value: T,
    next: OnceLock<Box<Latest<T>>>,
}

impl<T> Latest<T> {
    pub(crate) fn new(value: T) -> Latest<T> {
        Latest {
            value,
            next: OnceLock::new(),
        }
    }

    /// How many times the value may still change.
    pub(crate) fn changes_left(&self) -> usize {
        let (mut at, mut changes) = (self, 0);
        while let Some(next) = at.next.get() {
            (at, changes) = (next, changes + 1);
        }
        MOST.saturating_sub(changes)
    }

    /// Replaces the value for readers that come from now on. Only one thread may call it at a time, and while
    /// [`Latest::changes_left`] is not 0.
    pub(crate) fn publish(&self, value: T) {
        let first = Box::new(Latest::new(value));
        let set = self.last().next.set(first);
        assert!(set.is_ok(), "two threads change the value at a time");
    }

    fn last(&self) -> &Latest<T> {
        let mut at = self;
        while let Some(next) = at.next.get() {
            at = next;
        }
        at
    }
}

impl<T> Deref for Latest<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match self.next.get() {
            None => &self.value,
            Some(next) => &next.last().value,
        }
    }
}

/// Items that stay where they are, in a row that becomes longer.
#[derive(Debug)]
pub(crate) struct Row<T> {
    items: Box<[T]>,
    more: OnceLock<Box<Row<T>>>,
}

impl<T> Row<T> {
    pub(crate) fn new(items: impl IntoIterator<Item = T>) -> Row<T> {
        Row {
            items: items.into_iter().collect(),
            more: OnceLock::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len() + self.more.get().map_or(0, |more| more.len())
    }

    /// Appends items. Only one thread may call it at a time, at most [`MOST`] times.
    pub(crate) fn append(&self, items: impl IntoIterator<Item = T>) {
        let mut last = self;
        while let Some(more) = last.more.get() {
            last = more;
        }
        let set = last.more.set(Box::new(Row::new(items)));
        assert!(set.is_ok(), "two threads append at a time");
    }
}

impl<T> Index<usize> for Row<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: usize) -> &T {
        match (self.items.get(at), self.more.get()) {
            (Some(item), _) => item,
            (None, Some(more)) => &more[at - self.items.len()],
            (None, None) => panic!("item {at} of a row of {}", self.items.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_see_the_last_value_and_keep_what_they_have() {
        let value = Latest::new(0);
        let first: &i32 = &value;
        for n in 1..=MOST {
            assert_eq!(value.changes_left(), MOST + 1 - n);
            value.publish(n as i32);
            assert_eq!(*value, n as i32);
        }
        assert_eq!((value.changes_left(), *first), (0, 0));
    }

    #[test]
    fn items_stay_where_they_are() {
        let row = Row::new([1, 2]);
        let first = &row[1];
        row.append([3]);
        row.append([]);
        row.append([4, 5]);
        assert_eq!((row.len(), *first), (5, 2));
        assert_eq!(Vec::from_iter((0..5).map(|n| row[n])), [1, 2, 3, 4, 5]);
    }

    #[test]
    #[should_panic(expected = "item 2 of a row of 2")]
    fn an_item_behind_the_end_is_a_defect() {
        let _no = Row::new([1, 2])[2];
    }
}

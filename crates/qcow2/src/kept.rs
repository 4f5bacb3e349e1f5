//! A small cache of what was read recently.
//!
//! Input: keys, bytes. Output: the bytes again, while there is room. Invariant: no more is kept than was said, in bytes and in number,
//! apart from the last. Limits: what is kept is looked through in order, so the number is small.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// A file of a chain, and a place in it.
pub(crate) type Key = (usize, u64);

/// See the module.
pub(crate) struct Kept {
    most: usize,
    number: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// What was asked for last comes first.
    pieces: VecDeque<(Key, Arc<Vec<u8>>)>,
    bytes: usize,
}

impl Kept {
    /// Of at most so many bytes, and so many pieces.
    pub(crate) fn new(most: usize, number: usize) -> Kept {
        Kept {
            most,
            number,
            inner: Mutex::default(),
        }
    }

    /// What is kept for a key, or what `make` makes.
    pub(crate) fn get<E>(
        &self,
        key: Key,
        make: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Arc<Vec<u8>>, E> {
        let lock = || self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let pieces = &mut lock().pieces;
            if let Some(at) = pieces.iter().position(|(of, _)| *of == key) {
                pieces.make_contiguous()[..=at].rotate_right(1);
                return Ok(pieces[0].1.clone());
            }
        }
        let made = Arc::new(make()?);
        let mut inner = lock();
        // Another thread may have made it, too: the older one goes as others do.
        inner.bytes += made.len();
        inner.pieces.push_front((key, made.clone()));
        while inner.pieces.len() > 1
            && (inner.bytes > self.most || inner.pieces.len() > self.number)
        {
            if let Some((_, old)) = inner.pieces.pop_back() {
                inner.bytes -= old.len();
            }
        }
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes() {
        let kept = Kept::new(100, 3);
        let made = std::cell::Cell::new(0);
        let get = |n: u64, len: usize| {
            let make = || {
                made.set(made.get() + 1);
                Ok::<_, ()>(vec![n as u8; len])
            };
            let bytes = kept.get((0, n), make).expect("it is made");
            assert_eq!(*bytes, vec![n as u8; len]);
            made.get()
        };
        assert_eq!(
            (get(1, 10), get(2, 10), get(3, 10), get(1, 10)),
            (1, 2, 3, 3)
        );
        // A fourth takes the place of the second, and a large one that of all.
        assert_eq!((get(4, 10), get(1, 10), get(2, 10)), (4, 4, 5));
        assert_eq!(
            (get(5, 200), get(5, 200), get(1, 10), get(5, 200)),
            (6, 6, 7, 8)
        );
    }
}

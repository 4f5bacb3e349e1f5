//! Counts the bios of one request that are not back, and keeps their first error.
//!
//! Input: one reference per bio, and one of the submitter. Output: "that was the last" exactly once. Invariant: the submitter's reference
//! keeps a request from ending while more of its bios are still to be made. Limits: none.

use diorite_block::BioError;

/// The count of references of one request, and its first error.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    refs: u32,
    error: Option<BioError>,
}

impl Gather {
    /// Starts with the submitter's reference.
    #[inline]
    pub(crate) fn start(&mut self) {
        debug_assert_eq!(self.refs, 0, "a request starts once");
        *self = Gather {
            refs: 1,
            error: None,
        };
    }

    /// Takes a reference for one more bio.
    #[inline]
    pub(crate) fn add(&mut self) {
        debug_assert!(self.refs > 0, "the submitter still holds its own reference");
        self.refs += 1;
    }

    /// Gives a reference back, with its bio's result. True if it was the last.
    #[inline]
    pub(crate) fn put(&mut self, result: Result<(), BioError>) -> bool {
        if let (Err(e), None) = (result, self.error) {
            self.error = Some(e);
        }
        self.refs = self
            .refs
            .checked_sub(1)
            .expect("no reference comes back twice");
        self.refs == 0
    }

    /// How many references are not back.
    pub(crate) fn refs(&self) -> u32 {
        self.refs
    }

    /// The first error, once the last reference is back.
    #[inline]
    pub(crate) fn finish(&mut self) -> Option<BioError> {
        debug_assert_eq!(self.refs, 0, "all references are back");
        self.error.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_block::BioErrorKind;

    /// Rule G6.
    #[test]
    fn the_first_error_sticks_and_the_last_reference_ends() {
        let mut gather = Gather::default();
        gather.start();
        gather.add();
        gather.add();
        let (io, space) = (
            BioError::new(BioErrorKind::Io),
            BioError::new(BioErrorKind::NoSpace),
        );
        assert!(!gather.put(Err(io)));
        assert!(!gather.put(Err(space)));
        assert!(gather.put(Ok(())));
        assert_eq!(gather.finish(), Some(io));
    }

    /// Rule G5.
    #[test]
    #[should_panic(expected = "comes back twice")]
    fn a_second_end_is_caught() {
        let mut gather = Gather::default();
        gather.start();
        let _ = gather.put(Ok(()));
        let _ = gather.put(Ok(()));
    }
}

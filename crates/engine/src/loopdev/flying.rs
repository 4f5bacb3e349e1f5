//! What a loop device's queue keeps of each bio while the request that it became is under way.
//!
//! Input: what has to be known when the request has ended. Output: a token for the request; the same back for it. Invariants: every request has a token
//! of its own, whatever its submitter's is: several bios of one submitter may share theirs. Limits: as many as the queue below has slots.

use diorite_block::{Bio, BioFlags};

/// See the module.
#[derive(Debug)]
pub(super) struct Flight {
    /// The submitter's.
    pub(super) token: u64,
    pub(super) flags: BioFlags,
    /// It was told to wait although it had not asked, and is done again.
    pub(super) again: bool,
    /// The bio, if its request has no memory to bring back.
    pub(super) range: Option<Box<Bio>>,
}

/// Those that are under way, by the tokens of their requests.
#[derive(Debug, Default)]
pub(super) struct Flying {
    all: Vec<Option<Flight>>,
    free: Vec<usize>,
}

impl Flying {
    /// Keeps it; gives its request's token.
    pub(super) fn put(&mut self, flight: Flight) -> u64 {
        let index = match self.free.pop() {
            Some(index) => {
                self.all[index] = Some(flight);
                index
            }
            None => {
                self.all.push(Some(flight));
                self.all.len() - 1
            }
        };
        index as u64
    }

    /// The one of a request that has ended.
    pub(super) fn take(&mut self, token: u64) -> Flight {
        let index = usize::try_from(token).expect("the token is an index");
        let flight = self.all[index].take();
        self.free.push(index);
        flight.expect("a request ends once")
    }
}

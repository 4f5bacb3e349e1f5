//! What the queue of a loop device keeps of each bio while its request is under way.
//!
//! Input: what has to be known of the bio when its request has ended. Output: a token for the request; for the token, what was kept.
//! Invariants: every request has a token of its own, while several bios of one submitter may have the same token. Limits: as many as the
//! queue below has slots.

use diorite_block::{Bio, BioFlags};

/// What is kept of one bio.
#[derive(Debug)]
pub(super) struct Flight {
    /// The bio's token, chosen by its submitter.
    pub(super) token: u64,
    pub(super) flags: BioFlags,
    /// The request was submitted a second time, because the first ended with `WouldBlock` although the bio may wait.
    pub(super) again: bool,
    /// The bio itself, for operations on ranges: their requests carry no buffer from which the bio could be made again.
    pub(super) range: Option<Box<Bio>>,
}

/// All that is kept, indexed by the tokens of the requests.
#[derive(Debug, Default)]
pub(super) struct Flying {
    all: Vec<Option<Flight>>,
    free: Vec<usize>,
}

impl Flying {
    /// Keeps `flight`; returns the token for its request.
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

    /// What was kept for the request with this token, which has ended.
    pub(super) fn take(&mut self, token: u64) -> Flight {
        let index = usize::try_from(token).expect("the token is an index");
        let flight = self.all[index].take();
        self.free.push(index);
        flight.expect("a request ends once")
    }
}

//! The turn module: which request waits for which. It knows only numbers of slots, bytes and blocks; a waiting request is named by its
//! queue's [`Mail`] and its slot.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `gate` | requests that enter and leave -> the exclusive turn, and the count in flight |
//! | `pending` | writes into new space -> which of them has a range; the order in which the size grows |
//! | `appends` | threads that append through the page cache -> their turns |
//! | `mail` | answers for requests -> their queues |
//!
//! Input: requests. Output: the right to go on, at once or by a message. Invariants: those of each file. Limits: nothing here waits for
//! I/O.

pub(crate) mod appends;
pub(crate) mod gate;
mod mail;
pub(crate) mod pending;

pub(crate) use mail::{Hold, Mail, Message, Parked};
pub(crate) use pending::{Claimed, NoPlace, NodesNeeded, Pending, Wanted};

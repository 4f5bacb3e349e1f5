//! The turn room: who waits for whom. Numbers only: of slots, bytes and blocks; what waits is named by its queue's [`Mail`].
//!
//! | file | takes -> gives |
//! |---|---|
//! | `gate` | requests that enter and leave -> the exclusive turn, and the count in flight |
//! | `pending` | writes into new space -> who has a range; the order in which the size moves |
//! | `mail` | answers for requests -> their queues |
//!
//! Input: requests. Output: the right to go on, now or by a message. Invariants: those of each file. Limits: nothing here waits for I/O.

pub(crate) mod gate;
mod mail;
pub(crate) mod pending;

pub(crate) use mail::{Hold, Mail, Message, Parked};
pub(crate) use pending::{Claimed, NoPlace, NodesNeeded, Pending, Wanted};

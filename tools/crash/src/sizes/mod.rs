//! What it is: power cuts while a file system becomes larger and smaller.
//! Input: a number of states and a seed. Output: nothing found, or a directory for each state in which something was found.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `history` | files and sizes, requested and acknowledged -> what a cut may leave |
//! | `workload` | a seed -> an aged image, its changes of size with writers beside them, the log of the device |
//! | `judge` | an image, what it may be -> findings, by diorite, e2fsck and the kernel |
//! | `campaign` | a number of states -> rounds of these |
//! | `keep` | a state with findings -> a directory; judged again |
//!
//! Invariant: the judge knows what was requested and acknowledged, and nothing of the engine. Limit: the host's scheduler decides where
//! writers are while the size changes, so only a kept state repeats exactly.

pub mod campaign;
pub mod history;
pub mod judge;
pub mod keep;
pub mod workload;

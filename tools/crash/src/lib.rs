//! What it is: power cuts at every point of a workload, killed writers, and the judges of what is left.
//! Input: a number of states and a seed. Output: nothing found, or a directory per state that something was found in.
//! The floor plan, in the order of a round: an image is made, a workload runs on it while the device below remembers,
//! every cut of that log is recovered by diorite, by e2fsck and, a sample, by the kernel, and judged.
//! Limits: images live in memory; what diorite cannot do yet is not in the workload.

// A sector that says which write it came from.
pub mod stamp;

// What was asked and acknowledged, and what a file may therefore hold at any place of the log.
pub mod history;

// The states of a file that is changed by one request at a time.
pub mod states;

// What a state's files may hold, and the judge of what they do hold.
pub mod expect;

// The image that a workload begins with.
pub mod bed;

// Random requests, many in flight, noted in the history.
pub mod workload;

// An image as diorite sees it, in the form of a manifest, and the comparison of two of them.
pub mod view;

// The superblock of a state: whole, torn, or lost.
pub mod torn;

// One state: recovered three ways, compared, checked.
pub mod check;

// Rounds of bed, workload, cuts and checks, on every processor.
pub mod campaign;

// States in which something was found: kept, and looked at again.
pub mod keep;

// Power cuts right behind acknowledgements of several threads.
pub mod acks;

// Writers that are killed.
pub mod kill;

// What keeps a round from running at all.
pub mod error;

mod names;
mod rng;

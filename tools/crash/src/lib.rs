//! What it is: tests by power cuts at any point of a workload and by killed writers, with the judges of what is left.
//! Input: a number of states and a seed. Output: nothing found, or a directory for each state in which something was found.
//! The modules below are in the order of a round: an image is made; a workload runs on it while the device below records its
//! writes; every chosen cut of that record is recovered by diorite, by e2fsck and (a sample) by the kernel, and judged.
//! Limits: images are in memory; the workload has only operations that diorite implements.

// The stamp in a sector: which file, place and write the sector came from.
pub mod stamp;

// What was requested and acknowledged, and what a file may therefore hold at any position of the device's log.
pub mod history;

// The states of a file that is changed by one request at a time.
pub mod states;

// Edits of files through the page cache and directly.
pub mod edits;

// What the files of a crash state may hold, and the judge of what they do hold.
pub mod expect;

// The image that a workload begins with.
pub mod bed;

// Random requests, many in flight, noted in the history.
pub mod workload;

// An image as diorite reads it, in the form of a manifest, and the comparison of two of them.
pub mod view;

// The primary superblock of a state: whole, torn, or lost.
pub mod torn;

// Judges one state: recovers it in three ways, compares the results, checks them.
pub mod check;

// Work in several threads, each with a share of it.
pub mod shares;

// The image that a tool leaves.
mod left;

// Rounds of image, workload, cuts and checks, on every processor.
pub mod campaign;

// States in which something was found: stored, and judged again.
pub mod keep;

// Power cuts right after acknowledgements to several threads.
pub mod acks;

// Power cuts while the size of a volume changes.
pub mod sizes;

// Writers that are killed.
pub mod kill;

// Errors that stop a round; findings are not errors.
pub mod error;

mod names;
mod rng;

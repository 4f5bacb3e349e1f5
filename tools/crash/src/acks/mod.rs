//! What it is: tests of what acknowledgements promise, by power cuts right after them.
//! Input: a number of states and a seed. Output: nothing found, or a directory for each state in which something was found.
//! The modules below are in the order of a round: images are made (`bed`); several threads write and sync on them (`workload`)
//! while the disks below have latencies and record their requests (`disk`); cuts are placed (`aim`) and their images built (`cut`);
//! each is recovered (`recover`) and judged (`judge`), only by what was requested and acknowledged (`history`, `names`).
//! Limits: one volume, or one in a file of another; the disks do not fail.

// The images that a workload begins with.
pub mod bed;

// Disks that have latencies and record their requests.
pub mod disk;

// What was requested and acknowledged, and what a file may therefore hold.
pub mod history;

// Names: what was requested and acknowledged, and what a directory may therefore show.
pub mod names;

// Threads that write, sync and change names.
pub mod workload;

// After which acknowledgements to cut.
pub mod aim;

// Power cuts: their positions in the log, and which writes survive.
pub mod cut;

// From images to a volume that is open for writing.
pub mod recover;

// Replaying and checking images with e2fsck.
pub mod fsck;

// What is wrong with a recovered volume.
pub mod judge;

// Recovers and judges one state.
pub mod state;

// Rounds of image, workload, cuts and judgement, on every processor.
pub mod campaign;

// States in which something was found: stored, and judged again.
pub mod keep;

//! What it is: acknowledgements put to the test, by power cuts aimed right behind them. Input: a number of states and a seed. Output:
//! nothing found, or a directory per state that something was found in. The floor plan, in the order of a round: images are made (`bed`),
//! several threads write and sync on them (`workload`) while the disks below take their time and note what they are asked (`disk`), cuts
//! are aimed (`aim`) and images built (`cut`), each is recovered (`recover`) and judged (`judge`) by nothing but what was asked and
//! acknowledged (`history`, `names`). Limits: one volume, or one in a file of another; nothing fails below.

// The images that a workload begins with.
pub mod bed;

// Disks that take their time and note what they are asked.
pub mod disk;

// What was asked and acknowledged, and what a file may therefore hold.
pub mod history;

// Names, and what a directory may therefore show.
pub mod names;

// Threads that write, sync and change names.
pub mod workload;

// Which acknowledgements to cut behind.
pub mod aim;

// Power cuts: where, and what is left.
pub mod cut;

// From images to a volume that is open for writing.
pub mod recover;

// What e2fsck makes and says of images.
pub mod fsck;

// What is wrong with what a volume shows.
pub mod judge;

// One state, recovered and judged.
pub mod state;

// Rounds of bed, workload, cuts and judgement, on every processor.
pub mod campaign;

// States in which something was found: kept, and looked at again.
pub mod keep;

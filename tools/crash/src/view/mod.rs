//! What it is: an image as diorite sees it, in the form of a manifest, and the comparison of two such views.
//! Input: a volume. Output: entries, and what is wrong with them. Limit: paths are held in memory.

mod compare;
mod read;
mod walk;

pub use compare::compare;
pub use read::data_ranges;
pub use walk::walk;

//! What it is: an image as diorite reads it, in the form of a manifest, and the comparison of two such views.
//! Input: a volume. Output: entries, and errors found on the way. Limit: paths are held in memory.

mod compare;
mod read;
mod walk;

pub use compare::compare;
pub use read::data_ranges;
pub use walk::walk;

//! What it is: the maker of test images, and the reader of the truth about them.
//! Input: a recipe name and a directory. Output: `NAME.img` and `NAME.manifest.jsonl` in it.
//! The images are made by the real `mke2fs`, `debugfs`, `tune2fs` and, as root, the kernel.
//! Invariant: nothing here links diorite, so what it says about an image is a second opinion.

// Recipes, and how an image is made from one.
pub mod images;

// The manifest beside each image: one record per path.
pub mod manifest;

// A checksum of file contents that does not depend on where the holes are.
pub mod digest;

// What can go wrong while making an image.
pub mod error;

// How the tools of e2fsprogs and util-linux are run.
pub mod run;

// How a test says that it was skipped.
pub mod skip;

// Whether a mount that failed is a skip.
pub mod mount;

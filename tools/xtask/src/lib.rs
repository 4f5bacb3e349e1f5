//! What it is: makes test images, and records what is in them; makes the drawings of the documents, and reads the documents.
//! Input: a recipe's name and a directory. Output: `NAME.img` and `NAME.manifest.jsonl` in it.
//! The images are made by `mke2fs`, `debugfs`, `tune2fs` and, as root, the kernel.
//! Invariant: no crate of diorite is linked, so a manifest is an independent opinion about an image.

// Recipes, and how an image is made from one.
pub mod images;

// The manifest beside each image: one record per path.
pub mod manifest;

// A checksum of file contents that does not depend on where the holes are.
pub mod digest;

// What can go wrong while making an image.
pub mod error;
pub mod header;

// How the tools of e2fsprogs and util-linux are run.
pub mod run;

// Mounts, and whether one that failed is a skip.
pub mod mount;

// Loop devices, and when they have released their files.
pub mod loopback;

// Seeded random numbers for tests.
pub mod rng;

// How a test says that it was skipped.
pub mod skip;

// The drawings of the documents.
pub mod drawings;

// The documents' blocks of commands, links and headings.
pub mod documents;

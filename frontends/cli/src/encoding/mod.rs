//! How the bytes of a disk are written in a file: as they are, compressed, or as an Android sparse image.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `contents` | a device -> its bytes in order, without reading its holes |
//! | `level` | an option -> how hard to compress |
//! | `seen` | first bytes -> a warning, if they are those of another form |
//! | `zstd` | a stream -> the same, compressed |
//! | `bmap` | pieces -> the block map of bmaptool |
//! | `needed` | a device -> which of its zeros are in the map |
//! | `pack` | a device -> a file in one of the encodings, with its block map |
//! | `unpack` | a stream in one of the encodings -> a raw file with holes |
//!
//! Input: devices, streams. Output: files. Invariant: nothing is allocated by a number in a stream, and no output is larger than it says.
//! Limits: streams are read and written in order, by one thread; zstd compresses in several.

mod bmap;
mod contents;
mod level;
mod needed;
mod pack;
pub(crate) mod seen;
mod unpack;
mod zstd;

pub(crate) use contents::Hooks;
pub(crate) use level::Level;
pub(crate) use needed::Holes;
pub(crate) use pack::{check_same, map, pack, stream};
pub(crate) use unpack::{Steps, Unpacked, unpack};
pub(crate) use zstd::compress as compress_zstd;

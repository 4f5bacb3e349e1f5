//! Rules of direct I/O by number: `/// Rule U1.` says which one a test holds.
//!
//! | file | rules |
//! |---|---|
//! | `general` | G1 to G12: alignment, ends, holes, refusals |
//! | `completion` | C1 to C4, C7: inline or deferred, FUA or flush |
//! | `unaligned` | B1 to B3, B8: overwrites of parts of blocks |
//! | `space` | U1 to U12, G9, G12: new blocks, the size, who sees what when |
//! | `blocks` | B4 to B9, G18: many writers of one new block |
//! | `durable` | C5 to C7, C9, C13: power cuts behind every acknowledgement |
//! | `times` | C7: times of writes that overtake each other |
//! | `epochs` | D1, D2, D4: flushes that began too early, caches of stacks, many times in one commit |
//! | `lost` | D1: flushes that failed |
//! | `full` | G8, U10: no space left, to the last block |
//! | `cuts` | U2, U3: power cuts anywhere in a volume without space |
//! | `announced` | D2, L5, L9: what a file as a device says of itself |
//! | `looped`, `stacked` | L1, L2, L4 to L8: a file as a device |
//! | `sharing` | U6, U7, B2, G13, G16: who waits for whom in one file |
//! | `alone` | B1 to B3, U7: which requests run alone under which switch |
//! | `recheck` | U7, G15: what is looked at again after a wait |
//! | `limits` | D6, D7, D9, D11: a caller's numbers, policies that change, what an error leaves |
//! | `behind` | B5, B9, D9, U9, U11: what is known of the bytes behind the end, and what an error makes of that |
//! | `owed` | C8, D5, D9, D11: who does what ended requests owe, in how many handles, what half of it leaves |
//! | `accounts` | what is counted: deferred, failed, waiting, handed to the device together |
//! | `shifts` | D5: ranges taken out of files and put in, handle by handle |
//! | `zeroed` | G9, U1: zeros that the device makes, or does not |
//! | `log_places` | D10: where a journal may lie |
//!
//! Elsewhere: U2 and U3 by the thousand are `tools/crash`, U5 `tests/aside.rs`; that readers take no lock (U6) `tests/first_read.rs`; G13
//! to G17 `tests/ranges.rs`, `range_requests.rs` and the interleavings, G14 `tests/who_reaps.rs`. D8 is `tests/leftovers.rs`. L3, L9 and L10
//! are in `crates/block/src/file/tests`. There are no page cache, no polling and no atomic writes, so B10, C11, C12 and U8 have nothing
//! to hold.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod accounts;
mod alone;
mod announced;
mod bed;
mod behind;
mod blocks;
mod completion;
mod cut;
mod cuts;
mod durable;
mod epochs;
mod full;
mod general;
mod limits;
mod log_places;
mod looped;
mod lost;
mod owed;
mod recheck;
mod sharing;
mod shifts;
mod shown;
mod space;
mod stacked;
mod times;
mod unaligned;
mod zeroed;

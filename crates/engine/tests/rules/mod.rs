//! The rules of direct I/O, numbered: a comment such as `/// Rule U1.` says which one a test holds.
//!
//! | file | rules |
//! |---|---|
//! | `general` | G1 to G12: alignment, ends, holes, refusals |
//! | `completion` | C1 to C4, C7: inline or deferred, FUA or flush |
//! | `unaligned` | B1 to B3, B8: overwrites of parts of blocks |
//! | `space` | U1, U4, U11, U12, G7, G9, G12: new blocks, which data is visible when |
//! | `appends` | U9, U10, C8, G1, G7, G12: in which order the size grows, and what a failed append leaves |
//! | `blocks` | B4 to B9, G18: many writers of one new block |
//! | `durable` | C5 to C7, C9, C13: power cuts after every acknowledgement |
//! | `times` | C7: times of writes that overtake each other |
//! | `epochs` | D1, D2, D4: flushes that began too early, caches of stacks, many times in one commit |
//! | `lost` | D1: flushes that failed |
//! | `shown` | D1, G9, U1, U11: data that a failed flush may have dropped is never made visible |
//! | `full` | G8, U10: no space left, to the last block |
//! | `cuts` | U2, U3: power cuts anywhere while a volume is full |
//! | `grown` | C5, U1, U9, U10: power cuts anywhere while several queues append to one file |
//! | `announced` | D2, L5, L9: what a loop device reports about itself |
//! | `looped`, `stacked` | L1, L2, L4 to L8: loop devices |
//! | `sharing` | U6, U7, B2, G13, G16: which requests of one file wait for others |
//! | `alone` | B1 to B3, U7: which requests run alone under which policy |
//! | `recheck` | U7, G15: what a request checks again after a wait |
//! | `limits` | D5, D7: extreme arguments, maps of very many pieces |
//! | `settings` | C7, D1, D6: policies and flags that change while queues are in use |
//! | `left_behind` | D9, D11: what an error leaves behind |
//! | `behind` | B5, B9, D9, U9, U11: what is known of the bytes past the end, also after an error |
//! | `owed` | C8, D5, D9, D11: who does the deferred work of ended writes, in how many handles, and what a failure half-way leaves |
//! | `accounts` | the counters: deferred, failed, waiting, submitted together |
//! | `shifts` | D5: collapse and insert range, in one handle or several |
//! | `zeroed` | G9, U1: zeros that the device writes, or cannot |
//! | `log_places` | D10: where a journal may be |
//!
//! Other rules are tested elsewhere: U2 and U3, with thousands of power cuts, in `tools/crash`; U5 in `tests/aside.rs`; U6 (readers
//! take no lock) in `tests/first_read.rs`; G13 to G17 in `tests/ranges.rs`, `range_requests.rs` and the interleavings; G14 in
//! `tests/who_reaps`; D8 in `tests/leftovers.rs`; L3, L9 and L10 in `crates/block/src/file/tests`; B10 in `tests/untorn`; C11 and U8 in
//! `tests/cached` and the interleavings; C12 in `tests/polled.rs`.

mod accounts;
mod alone;
mod announced;
mod appends;
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
mod grown;
mod left_behind;
mod limits;
mod log_places;
mod looped;
mod lost;
mod owed;
mod recheck;
mod settings;
mod sharing;
mod shifts;
mod shown;
mod space;
mod stacked;
mod times;
mod unaligned;
mod zeroed;

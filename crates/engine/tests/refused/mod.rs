//! Every public call of a volume, tried with each kind of failure: a call that fails leaves everything as it was before (rule M5).
//!
//! Input: the table of calls (`calls`), a way to fail each (`failures`). Output: nothing, or the call, the failure and what has changed.
//! Invariants: every call is made with dirty pages and a running flusher, and, where it succeeds, in a debug build, so the order of locks
//! is checked as well. Limits: a volume of 8 MiB in memory; one thread calls.

mod calls;
mod failures;
mod world;

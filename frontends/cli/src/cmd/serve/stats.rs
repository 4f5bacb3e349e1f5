//! What the server has done, as lines.
//!
//! Input: the server's counters. Output: a line for each export, and one for the server. Invariant: printing changes nothing. Limits: the
//! counters of a busy connection are added when it pauses, so a moment late.

use crate::output::report::Report;
use diorite_nbd::{ExportStats, Server};
use std::fmt::{self, Display};

/// Prints the statistics.
pub(super) fn print(server: &Server, report: &Report) {
    let stats = server.stats();
    for (name, of) in &stats.exports {
        report.done(format_args!("export {name:?}: {}", Line(of)));
    }
    report.done(format_args!(
        "clients: {} connected, {} turned away, {} broke the protocol or were lost",
        stats.connected, stats.turned_away, stats.broken
    ));
}

struct Line<'a>(&'a ExportStats);

impl Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = self.0;
        write!(
            f,
            "{} clients, {} reads ({} bytes), {} writes ({} bytes), {} flushes, {} trims, {} write-zeroes, {} block status, \
             {} refused, {} failed",
            s.clients,
            s.reads,
            s.read_bytes,
            s.writes,
            s.written_bytes,
            s.flushes,
            s.trims,
            s.zeroes,
            s.statuses,
            s.refused,
            s.failed
        )
    }
}

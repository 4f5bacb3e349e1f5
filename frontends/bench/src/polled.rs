//! The numbers of a queue whose waits look for completions, as counters of a row.
//!
//! Input: [`PolledWaits`]. Output: names and numbers. Invariant: each queue says in one counter whether its device was polled:
//! `queues-polled`, or `queues-not-polled-` and the reason, of [`NotPolled::name`]. Limits: none.

#[cfg(doc)]
use diorite_block::NotPolled;
use diorite_block::{PolledWaits, PolledWay};

/// The counters of one queue.
pub(super) fn counters_of(waits: PolledWaits) -> Vec<(String, u64)> {
    let way = match waits.way {
        PolledWay::Device => "queues-polled".to_owned(),
        PolledWay::Looks(why) => format!("queues-not-polled-{}", why.name()),
    };
    let counters = [
        ("waits-polled", waits.spun),
        ("waits-slept", waits.slept),
        ("requests-polled", waits.polled),
        ("requests-repeated", waits.repeated),
        (&way, 1),
    ];
    Vec::from(counters.map(|(name, count)| (name.to_owned(), count)))
}

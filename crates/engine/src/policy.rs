//! Policies: each technique as a switch, and the presets named for the behaviour that they reproduce.
//!
//! Input: a preset's name or a [`Policy`] of one's own. Output: the switches that `dio` and `ioend` read, once per
//! batch. Invariant: correctness holds under every policy; only speed differs. Limits: a policy is packed into one
//! word, so a volume can change it while requests are in flight.

use std::fmt;
use std::str::FromStr;

/// The inode lock that a read holds while it maps and submits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadLock {
    /// None (T3).
    None,
    /// Shared.
    Shared,
    /// Exclusive.
    Exclusive,
}

/// Where a finished direct write completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionPolicy {
    /// Inline if nothing is owed; cached pages are judged over the request's range (T1, T2).
    Inline,
    /// Inline whatever it is, unless work is owed that blocks.
    InlineAlways,
    /// Inline if nothing is owed and the inode has no cached pages at all.
    InlineUnlessCached,
    /// Always handed to a worker.
    Deferred,
}

/// How a write that is not aligned to file-system blocks runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unaligned {
    /// Alongside the others (T4).
    Concurrent,
    /// Alongside the others if it lies in one written extent inside the size; else alone.
    ConcurrentIfOneExtent,
    /// Alone: earlier requests are drained, later ones wait until it has completed.
    Exclusive,
}

/// The switches of one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// See [`ReadLock`].
    pub read_lock: ReadLock,
    /// See [`CompletionPolicy`].
    pub completion: CompletionPolicy,
    /// See [`Unaligned`].
    pub unaligned: Unaligned,
}

/// The presets by name, oldest first; the last is the default.
pub const PRESETS: [(&str, Policy); 6] = [
    (
        "linux-2.6.31",
        preset(
            ReadLock::Exclusive,
            CompletionPolicy::InlineAlways,
            Unaligned::Exclusive,
        ),
    ),
    (
        "linux-4.15",
        preset(
            ReadLock::Shared,
            CompletionPolicy::InlineUnlessCached,
            Unaligned::Exclusive,
        ),
    ),
    (
        "linux-5.10",
        preset(
            ReadLock::Shared,
            CompletionPolicy::Deferred,
            Unaligned::Exclusive,
        ),
    ),
    (
        "linux-6.5",
        preset(
            ReadLock::Shared,
            CompletionPolicy::Deferred,
            Unaligned::ConcurrentIfOneExtent,
        ),
    ),
    (
        "linux-6.19",
        preset(
            ReadLock::Shared,
            CompletionPolicy::InlineUnlessCached,
            Unaligned::ConcurrentIfOneExtent,
        ),
    ),
    ("diorite", Policy::DIORITE),
];

const fn preset(read_lock: ReadLock, completion: CompletionPolicy, unaligned: Unaligned) -> Policy {
    Policy {
        read_lock,
        completion,
        unaligned,
    }
}

impl Policy {
    /// Every technique on.
    pub const DIORITE: Policy = Policy {
        read_lock: ReadLock::None,
        completion: CompletionPolicy::Inline,
        unaligned: Unaligned::Concurrent,
    };

    /// The preset's name, if this is one.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        PRESETS.iter().find(|(_, p)| p == self).map(|(n, _)| *n)
    }

    /// The switches in one word.
    pub(crate) fn pack(self) -> u32 {
        self.read_lock as u32 | (self.completion as u32) << 8 | (self.unaligned as u32) << 16
    }

    /// The switches out of a word that [`Policy::pack`] made.
    #[inline]
    pub(crate) fn unpack(word: u32) -> Policy {
        Policy {
            read_lock: match word & 0xff {
                0 => ReadLock::None,
                1 => ReadLock::Shared,
                _ => ReadLock::Exclusive,
            },
            completion: match word >> 8 & 0xff {
                0 => CompletionPolicy::Inline,
                1 => CompletionPolicy::InlineAlways,
                2 => CompletionPolicy::InlineUnlessCached,
                _ => CompletionPolicy::Deferred,
            },
            unaligned: match word >> 16 {
                0 => Unaligned::Concurrent,
                1 => Unaligned::ConcurrentIfOneExtent,
                _ => Unaligned::Exclusive,
            },
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Policy::DIORITE
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(
                f,
                "{:?}/{:?}/{:?}",
                self.read_lock, self.completion, self.unaligned
            ),
        }
    }
}

/// The name is none of the presets'.
#[derive(Debug, thiserror::Error)]
#[error(
    "no policy is named {0:?}; there are linux-2.6.31, linux-4.15, linux-5.10, linux-6.5, linux-6.19, diorite"
)]
pub struct UnknownPolicy(String);

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Policy, UnknownPolicy> {
        PRESETS
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, p)| *p)
            .ok_or_else(|| UnknownPolicy(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_survives_packing() {
        for (name, policy) in PRESETS {
            assert_eq!(Policy::unpack(policy.pack()), policy, "{name}");
            assert_eq!(
                name.parse::<Policy>().expect("a preset's name parses"),
                policy
            );
        }
        assert!("linux-9".parse::<Policy>().is_err());
    }
}

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

/// How a write into space that is not written yet runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewSpace {
    /// Alongside the others; only who shares a block waits.
    Concurrent,
    /// Alongside the others if it is aligned to file-system blocks; else alone.
    AlignedConcurrent,
    /// Alone.
    Exclusive,
}

/// How a write that makes the file longer runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extending {
    /// As any other; the size moves in offset order over those that have ended.
    Async,
    /// Alone, until the size has moved.
    Waiting,
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
    /// See [`NewSpace`].
    pub new_space: NewSpace,
    /// See [`Extending`].
    pub extending: Extending,
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

/// A kernel's: what is exclusive for unaligned overwrites is so for aligned writes into new space too, and who makes a file longer waits.
const fn preset(read_lock: ReadLock, completion: CompletionPolicy, unaligned: Unaligned) -> Policy {
    Policy {
        read_lock,
        completion,
        unaligned,
        new_space: match unaligned {
            Unaligned::Exclusive => NewSpace::Exclusive,
            Unaligned::Concurrent | Unaligned::ConcurrentIfOneExtent => NewSpace::AlignedConcurrent,
        },
        extending: Extending::Waiting,
    }
}

impl Policy {
    /// Every technique on.
    pub const DIORITE: Policy = Policy {
        read_lock: ReadLock::None,
        completion: CompletionPolicy::Inline,
        unaligned: Unaligned::Concurrent,
        new_space: NewSpace::Concurrent,
        extending: Extending::Async,
    };

    /// The preset's name, if this is one.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        PRESETS.iter().find(|(_, p)| p == self).map(|(n, _)| *n)
    }

    /// The switches in one word.
    pub(crate) fn pack(self) -> u32 {
        self.read_lock as u32
            | (self.completion as u32) << 4
            | (self.unaligned as u32) << 8
            | (self.new_space as u32) << 12
            | (self.extending as u32) << 16
    }

    /// The switches out of a word that [`Policy::pack`] made.
    #[inline]
    pub(crate) fn unpack(word: u32) -> Policy {
        Policy {
            read_lock: match word & 0xf {
                0 => ReadLock::None,
                1 => ReadLock::Shared,
                _ => ReadLock::Exclusive,
            },
            completion: match word >> 4 & 0xf {
                0 => CompletionPolicy::Inline,
                1 => CompletionPolicy::InlineAlways,
                2 => CompletionPolicy::InlineUnlessCached,
                _ => CompletionPolicy::Deferred,
            },
            unaligned: match word >> 8 & 0xf {
                0 => Unaligned::Concurrent,
                1 => Unaligned::ConcurrentIfOneExtent,
                _ => Unaligned::Exclusive,
            },
            new_space: match word >> 12 & 0xf {
                0 => NewSpace::Concurrent,
                1 => NewSpace::AlignedConcurrent,
                _ => NewSpace::Exclusive,
            },
            extending: match word >> 16 & 0xf {
                0 => Extending::Async,
                _ => Extending::Waiting,
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
                "{:?}/{:?}/{:?}/{:?}/{:?}",
                self.read_lock, self.completion, self.unaligned, self.new_space, self.extending
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

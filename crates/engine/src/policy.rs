//! Policies: a switch for each technique, and presets named for the behaviour that they reproduce.
//!
//! Input: a preset's name, or a [`Policy`] of one's own. Output: the switches, which `dio` and `ioend` read once per batch.
//! Invariant: every policy is correct; they differ in speed only. Limits: a policy is packed into one word, so that it can be changed
//! while requests are in flight. T1 to T5 are the techniques in the README.

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
    /// Inline if no further work is owed. Cached pages count only within the request's range (T1, T2).
    Inline,
    /// Inline, unless work is owed that blocks.
    InlineAlways,
    /// Inline if no further work is owed and the inode has no cached pages at all.
    InlineUnlessCached,
    /// Always handed to a worker.
    Deferred,
}

/// How a write that is not aligned to file-system blocks runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unaligned {
    /// Concurrently with other requests (T4).
    Concurrent,
    /// Concurrently if it lies in one written extent inside the size; else alone.
    ConcurrentIfOneExtent,
    /// Alone: it waits for earlier requests to end, and later ones wait for it.
    Exclusive,
}

/// How a write into holes or unwritten blocks runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewSpace {
    /// Concurrently with other requests; only requests that share a block wait for each other (T4).
    Concurrent,
    /// Concurrently if it is aligned to file-system blocks; else alone.
    AlignedConcurrent,
    /// Alone.
    Exclusive,
}

/// How a write that makes the file longer runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extending {
    /// Concurrently with other requests. The size grows in offset order, over writes that have ended.
    Async,
    /// Alone: it waits until the size has changed.
    Waiting,
}

/// How a loop device on a file of the volume works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopMode {
    /// Bios become direct requests of the file, any number at once, with no thread in between (T5).
    DirectAsync,
    /// One thread per device takes bios in the order in which they come, and does blocking reads and writes through the page cache.
    BufferedSync,
}

/// The switches of one volume.
///
/// ```
/// use diorite::{OpenOptions, Policy};
///
/// // A preset, and one switch of it.
/// let policy: Policy = "linux-6.19".parse()?;
/// let options = OpenOptions::writable().policy(policy);
/// assert_eq!(options.policy.name(), Some("linux-6.19"));
/// assert!("linux-0.1".parse::<Policy>().is_err());
/// # Ok::<(), diorite::UnknownPolicy>(())
/// ```
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
    /// See [`LoopMode`].
    pub loop_mode: LoopMode,
}

/// The presets by name, oldest first; the last is the default.
pub const PRESETS: [(&str, Policy); 6] = [
    (
        "linux-2.6.31",
        preset(
            ReadLock::Exclusive,
            CompletionPolicy::InlineAlways,
            Unaligned::Exclusive,
        )
        .with_loop(LoopMode::BufferedSync),
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

/// A kernel's preset: where unaligned overwrites run alone, aligned writes into new space do, too; extending writes always do.
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
        loop_mode: LoopMode::DirectAsync,
    }
}

impl Policy {
    /// All techniques on.
    pub const DIORITE: Policy = Policy {
        read_lock: ReadLock::None,
        completion: CompletionPolicy::Inline,
        unaligned: Unaligned::Concurrent,
        new_space: NewSpace::Concurrent,
        extending: Extending::Async,
        loop_mode: LoopMode::DirectAsync,
    };

    const fn with_loop(self, loop_mode: LoopMode) -> Policy {
        Policy { loop_mode, ..self }
    }

    /// Each switch with the name of its value, as [`FromStr`] takes them: `read-lock=shared`, ...
    fn switches(&self) -> [(&'static str, &'static str); 6] {
        [
            ("read-lock", word(&READ_LOCKS, self.read_lock)),
            ("completion", word(&COMPLETIONS, self.completion)),
            ("unaligned", word(&UNALIGNED, self.unaligned)),
            ("new-space", word(&NEW_SPACE, self.new_space)),
            ("extending", word(&EXTENDING, self.extending)),
            ("loop", word(&LOOP_MODES, self.loop_mode)),
        ]
    }

    /// Sets a switch by its name and the name of the value. None if either is unknown.
    fn set(&mut self, switch: &str, to: &str) -> Option<()> {
        match switch {
            "read-lock" => self.read_lock = meant(&READ_LOCKS, to)?,
            "completion" => self.completion = meant(&COMPLETIONS, to)?,
            "unaligned" => self.unaligned = meant(&UNALIGNED, to)?,
            "new-space" => self.new_space = meant(&NEW_SPACE, to)?,
            "extending" => self.extending = meant(&EXTENDING, to)?,
            "loop" => self.loop_mode = meant(&LOOP_MODES, to)?,
            _ => return None,
        }
        Some(())
    }

    /// The preset's name, if the policy is one.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        PRESETS.iter().find(|(_, p)| p == self).map(|(n, _)| *n)
    }

    /// The policy packed into one word: four bits per switch.
    pub(crate) fn pack(self) -> u32 {
        self.read_lock as u32
            | (self.completion as u32) << 4
            | (self.unaligned as u32) << 8
            | (self.new_space as u32) << 12
            | (self.extending as u32) << 16
            | (self.loop_mode as u32) << 20
    }

    /// The policy from a word that [`Policy::pack`] made.
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
            loop_mode: match word >> 20 & 0xf {
                0 => LoopMode::DirectAsync,
                _ => LoopMode::BufferedSync,
            },
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Policy::DIORITE
    }
}

/// The values of a switch by their names.
type Words<T, const N: usize> = [(&'static str, T); N];

const READ_LOCKS: Words<ReadLock, 3> = [
    ("none", ReadLock::None),
    ("shared", ReadLock::Shared),
    ("exclusive", ReadLock::Exclusive),
];
const COMPLETIONS: Words<CompletionPolicy, 4> = [
    ("inline", CompletionPolicy::Inline),
    ("inline-always", CompletionPolicy::InlineAlways),
    ("inline-unless-cached", CompletionPolicy::InlineUnlessCached),
    ("deferred", CompletionPolicy::Deferred),
];
const UNALIGNED: Words<Unaligned, 3> = [
    ("concurrent", Unaligned::Concurrent),
    ("concurrent-if-one-extent", Unaligned::ConcurrentIfOneExtent),
    ("exclusive", Unaligned::Exclusive),
];
const NEW_SPACE: Words<NewSpace, 3> = [
    ("concurrent", NewSpace::Concurrent),
    ("aligned-concurrent", NewSpace::AlignedConcurrent),
    ("exclusive", NewSpace::Exclusive),
];
const EXTENDING: Words<Extending, 2> =
    [("async", Extending::Async), ("waiting", Extending::Waiting)];
const LOOP_MODES: Words<LoopMode, 2> = [
    ("direct-async", LoopMode::DirectAsync),
    ("buffered-sync", LoopMode::BufferedSync),
];

impl LoopMode {
    /// Its name in the text of a policy.
    #[must_use]
    pub fn name(self) -> &'static str {
        word(&LOOP_MODES, self)
    }
}

fn word<T: PartialEq, const N: usize>(words: &Words<T, N>, value: T) -> &'static str {
    let found = words.iter().find(|(_, v)| *v == value);
    found.expect("every value has its word").0
}

fn meant<T: Copy, const N: usize>(words: &Words<T, N>, text: &str) -> Option<T> {
    words.iter().find(|(w, _)| *w == text).map(|(_, v)| *v)
}

/// The preset's name if the policy is one; else `diorite` and the switches that differ from it: `diorite/read-lock=shared`.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = self.name() {
            return f.write_str(name);
        }
        f.write_str("diorite")?;
        let usual = Policy::DIORITE.switches();
        for ((switch, to), (_, usual)) in self.switches().into_iter().zip(usual) {
            if to != usual {
                write!(f, "/{switch}={to}")?;
            }
        }
        Ok(())
    }
}

/// The text does not name a policy.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is no policy: linux-2.6.31, linux-4.15, linux-5.10, linux-6.5, linux-6.19 or diorite, and after it \
     /read-lock=none|shared|exclusive, /completion=inline|inline-always|inline-unless-cached|deferred, \
     /unaligned=concurrent|concurrent-if-one-extent|exclusive, /new-space=concurrent|aligned-concurrent|exclusive, \
     /extending=async|waiting, /loop=direct-async|buffered-sync"
)]
pub struct UnknownPolicy(String);

/// A preset's name, then the switches that differ from it: `linux-6.5`, `diorite/read-lock=shared/extending=waiting`.
impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Policy, UnknownPolicy> {
        let unknown = || UnknownPolicy(text.to_owned());
        let mut parts = text.split('/');
        let preset = parts.next().and_then(|name| meant(&PRESETS, name));
        let mut policy = preset.ok_or_else(unknown)?;
        for part in parts {
            let set = part
                .split_once('=')
                .and_then(|(switch, to)| policy.set(switch, to));
            set.ok_or_else(unknown)?;
        }
        Ok(policy)
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
    }

    /// `FromStr` takes what `Display` prints, for all 432 policies. Other text is refused with an error that quotes it.
    #[test]
    fn a_policy_survives_its_text() {
        for word in 0..0x20_0000 {
            let policy = Policy::unpack(word);
            if policy.pack() == word {
                let text = policy.to_string();
                assert_eq!(text.parse::<Policy>().expect(&text), policy, "{text}");
            }
        }
        let policy: Policy = "linux-6.5/extending=async".parse().expect("it is one");
        assert_eq!(policy.unaligned, Unaligned::ConcurrentIfOneExtent);
        assert_eq!(policy.extending, Extending::Async);
        for text in [
            "",
            "linux-9",
            "diorite/",
            "diorite/read-lock",
            "diorite/read-lock=x",
            "/extending=async",
        ] {
            let said = text.parse::<Policy>().expect_err(text).to_string();
            assert!(said.starts_with(&format!("{text:?}")), "{said}");
        }
    }
}

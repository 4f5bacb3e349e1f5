//! The options of a simulated disk, and their text in a locator.
//!
//! Input: the text after `sim:`. Output: [`SimOptions`]. Invariant: every parsed value is in its range. Limits: sizes up to
//! 2^60 bytes, latencies up to an hour.

use crate::bio::{BioErrorKind, BioOp};
use crate::device::{DeviceError, DeviceErrorKind};
use crate::fault::{Fault, When};
use crate::size::parse_size;
use std::time::Duration;

/// What decides when a request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimClock {
    /// Real time: a request ends when its latency has passed, and is seen at reap.
    Real,
    /// Nothing ends until [`crate::SimDevice::step`] ends it, in an order chosen by the seed.
    Stepped,
    /// As stepped, but a `reap` that finds nothing, or a `wait` with nothing to reap, makes one step by itself.
    Auto,
}

/// The largest disk.
const MOST: u64 = 1 << 60;

/// A simulated disk. The default has no size, latency, cache or faults.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SimOptions {
    /// Size in bytes.
    pub size: u64,
    /// Service time of a request.
    pub latency: Duration,
    /// A random addition to the latency, from zero to this, chosen by the seed.
    pub jitter: Duration,
    /// Requests served at once, over all queues; 0 means no limit.
    pub parallel: u32,
    /// Bytes per second that reads and writes of all queues share; 0 means no limit. Real clock only.
    pub bandwidth: u64,
    /// The disk has a volatile write cache.
    pub volatile_cache: bool,
    /// The disk supports FUA; without it, the disk follows such a write by a flush.
    pub fua: bool,
    /// The seed of all random choices.
    pub seed: u64,
    /// What decides when a request has ended.
    pub clock: SimClock,
    /// The logical block: 512 or 4096.
    pub logical: u32,
    /// The largest atomic write in bytes, a power of two; 0 if it has none.
    pub atomic: u32,
    /// A wait sleeps until a thread of the queue wakes it, as an interrupt does; otherwise it sleeps until shortly before the time, and
    /// then looks at the clock. Real clock only.
    pub interrupts: bool,
    /// Track what is not durable, so that [`crate::SimDevice::crash`] can lose it. Costs a copy of every write.
    pub crash: bool,
    /// The faults.
    pub faults: Vec<Fault>,
}

crate::setters! {
    SimOptions {
        size: u64,
        latency: Duration,
        jitter: Duration,
        parallel: u32,
        bandwidth: u64,
        volatile_cache: bool,
        fua: bool,
        seed: u64,
        clock: SimClock,
        logical: u32,
        atomic: u32,
        interrupts: bool,
        crash: bool,
        faults: Vec<Fault>,
    } option {
    }
}

impl Default for SimOptions {
    fn default() -> Self {
        SimOptions {
            size: 0,
            latency: Duration::ZERO,
            jitter: Duration::ZERO,
            parallel: 0,
            bandwidth: 0,
            volatile_cache: false,
            fua: true,
            seed: 1,
            clock: SimClock::Real,
            logical: 512,
            atomic: 0,
            interrupts: false,
            crash: false,
            faults: Vec::new(),
        }
    }
}

impl SimOptions {
    /// A disk of `size` bytes for tests: stepped clock, volatile cache, and tracking of what is not durable.
    #[must_use]
    pub fn stepped(size: u64, seed: u64) -> SimOptions {
        SimOptions {
            size,
            seed,
            volatile_cache: true,
            clock: SimClock::Stepped,
            crash: true,
            ..SimOptions::default()
        }
    }

    /// Reads `SIZE[,key=value]...`: `latency=230us`, `jitter=20us`, `parallel=1000`, `bandwidth=2000M` (bytes per second),
    /// `cache=volatile|none`, `fua=yes|no`, `seed=1`, `clock=real|stepped|auto`, `logical=512|4096`, `atomic=64K`, `interrupts=yes|no`,
    /// `crash=yes|no`, and the faults `eio=`, `eagain=`, `nospace=`, `gone=` with `[read:|write:|flush:|discard:]` and then `7` (the
    /// 7th), `7+20` (20 from the 7th on), `every-7` or `1in500`.
    ///
    /// # Errors
    /// [`DeviceErrorKind::Locator`], naming the part that is invalid.
    pub fn parse(text: &str) -> Result<SimOptions, DeviceError> {
        let mut parts = text.split(',');
        let size = parts.next().unwrap_or_default();
        let mut options = SimOptions {
            size: parse_size(size)
                .ok()
                .filter(|n| *n <= MOST)
                .ok_or_else(|| wrong("a size such as 64M", size))?,
            ..SimOptions::default()
        };
        for part in parts {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| wrong("key=value", part))?;
            options.set(key, value)?;
        }
        options.size -= options.size % u64::from(options.logical);
        Ok(options)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), DeviceError> {
        let bad = || wrong(&format!("a value for {key}"), value);
        match key {
            "latency" => self.latency = parse_time(value).ok_or_else(bad)?,
            "jitter" => self.jitter = parse_time(value).ok_or_else(bad)?,
            "parallel" => self.parallel = value.parse().map_err(|_| bad())?,
            "bandwidth" => self.bandwidth = parse_size(value).map_err(|_| bad())?,
            "seed" => self.seed = value.parse().map_err(|_| bad())?,
            "cache" => self.volatile_cache = choose(value, "volatile", "none").ok_or_else(bad)?,
            "atomic" => {
                let most = parse_size(value).ok().and_then(|n| u32::try_from(n).ok());
                self.atomic = most.filter(|n| n.is_power_of_two()).ok_or_else(bad)?;
            }
            "fua" => self.fua = choose(value, "yes", "no").ok_or_else(bad)?,
            "interrupts" => {
                self.interrupts = choose(value, "yes", "no").ok_or_else(bad)?;
            }
            "crash" => self.crash = choose(value, "yes", "no").ok_or_else(bad)?,
            "logical" if matches!(value, "512" | "4096") => {
                self.logical = if value == "512" { 512 } else { 4096 };
            }
            "clock" => {
                self.clock = match value {
                    "real" => SimClock::Real,
                    "stepped" => SimClock::Stepped,
                    "auto" => SimClock::Auto,
                    _ => return Err(bad()),
                }
            }
            _ => self.faults.push(parse_fault(key, value).ok_or_else(bad)?),
        }
        Ok(())
    }
}

fn wrong(wanted: &str, found: &str) -> DeviceError {
    DeviceError::new(
        DeviceErrorKind::Locator,
        format!("sim: wants {wanted}, not \"{found}\""),
    )
}

fn choose(value: &str, yes: &str, no: &str) -> Option<bool> {
    (value == yes || value == no).then_some(value == yes)
}

fn parse_time(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok()?;
    let nanos = match &text[digits.len()..] {
        "ns" => number,
        "us" => number.checked_mul(1_000)?,
        "ms" => number.checked_mul(1_000_000)?,
        "s" => number.checked_mul(1_000_000_000)?,
        _ => return None,
    };
    Some(Duration::from_nanos(nanos)).filter(|t| *t <= Duration::from_secs(3600))
}

fn parse_fault(key: &str, value: &str) -> Option<Fault> {
    let kind = match key {
        "eio" => BioErrorKind::Io,
        "eagain" => BioErrorKind::WouldBlock,
        "nospace" => BioErrorKind::NoSpace,
        "gone" => BioErrorKind::Gone,
        _ => return None,
    };
    let (op, when) = match value.split_once(':') {
        None => (None, value),
        Some(("read", when)) => (Some(BioOp::Read), when),
        Some(("write", when)) => (Some(BioOp::Write), when),
        Some(("flush", when)) => (Some(BioOp::Flush), when),
        Some(("discard", when)) => (Some(BioOp::Discard), when),
        Some(_) => return None,
    };
    Some(Fault {
        kind,
        when: When::parse(when)?,
        op,
        range: None,
    })
}

//! One copy between two devices that are open.
//!
//! Input: devices. Output: how much was written; the first failure. Invariant: success means that every byte of the source is durable on
//! the target: all writes ended well, a flush began after the last of them and ended well, and what was read back is the same if that was
//! asked for. Limits: those of `ranges`.

use crate::copying::ranges::{
    self, Bufs, Equal, Failure, Found, Gaps, LARGE, Plan, Side, Write, Written,
};
use crate::host::process;
use crate::images::device::Opened;
use crate::output::report::Reason;
use diorite_block::{Bio, Blocking, Buf};
use std::sync::atomic::AtomicBool;

/// Why there is no copy.
pub(crate) struct Trouble {
    pub(crate) reason: Reason,
    pub(crate) code: u8,
}

impl From<Reason> for Trouble {
    fn from(reason: Reason) -> Trouble {
        Trouble { reason, code: 1 }
    }
}

impl Trouble {
    /// A signal arrived.
    pub(crate) fn interrupted() -> Trouble {
        Trouble {
            reason: Reason::new("interrupted"),
            code: process::interrupted(),
        }
    }
}

/// What becomes of zeros.
#[derive(Clone, Copy)]
pub(crate) enum Zeros {
    /// They are written, those of holes too, so that all of the target has space.
    Fill,
    /// Holes stay holes, and zeros that are stored are stored.
    AsTheyAre,
    /// Pieces of this size that hold nothing else become holes.
    Search(u64),
}

impl Zeros {
    /// As the option of `copy` says.
    pub(crate) fn of_option(size: u64) -> Zeros {
        match size {
            0 => Zeros::Fill,
            size => Zeros::Search(size),
        }
    }
}

/// How to copy.
#[derive(Clone, Copy)]
pub(crate) struct How {
    pub(crate) zeros: Zeros,
    /// Requests in flight.
    pub(crate) requests: u16,
    /// Read both back.
    pub(crate) verify: bool,
}

/// One copy between open devices.
pub(crate) struct Run<'a> {
    pub(crate) how: How,
    /// The words for both, in messages.
    pub(crate) names: (&'a str, &'a str),
    pub(crate) source: &'a Opened,
    pub(crate) target: &'a Opened,
    /// The target is all zeros.
    pub(crate) is_new: bool,
    pub(crate) stop: &'a AtomicBool,
    /// Is told of bytes that are done.
    pub(crate) step: &'a dyn Fn(u64),
}

impl Run<'_> {
    /// Copies, flushes, and verifies if that was asked for.
    pub(crate) fn all(&self) -> Result<Written, Trouble> {
        let unit = self.source.unit_with(self.target);
        // What is behind the last whole unit is a part of a sector of one of the two.
        let body = self.source.size / unit * unit;
        let mut written = self.body(body, unit)?;
        written.data += self.tail(body)?;
        self.check_length()?;
        self.flush()?;
        if self.how.verify {
            self.verify(body, unit)?;
        }
        Ok(written)
    }

    /// Refuses a source that has become shorter: the end of the copy would be zeros that nobody wrote.
    fn check_length(&self) -> Result<(), Trouble> {
        match self.source.shortened() {
            None => Ok(()),
            Some(why) => Err(Reason::new(format!("{}: {why}", self.names.0)).into()),
        }
    }

    fn body(&self, body: u64, unit: u64) -> Result<Written, Trouble> {
        let gaps = match (self.how.zeros, self.is_new) {
            (Zeros::Fill, _) => Gaps::Fill,
            (_, true) => Gaps::Skip,
            (_, false) => Gaps::Unmap,
        };
        let piece = match self.how.zeros {
            Zeros::Search(piece) => piece,
            Zeros::Fill | Zeros::AsTheyAre => 0,
        };
        let (source, target) = (&self.source.device, &self.target.device);
        let plan = Plan::of(source, 0..body, unit, gaps == Gaps::Skip);
        let mut write = Write::new(target.as_ref(), gaps, piece, unit);
        let bufs = Bufs::new(usize::from(self.how.requests))?;
        let mut step = |at| (self.step)(at);
        let ran = ranges::run(
            (source, target),
            plan,
            bufs,
            &mut write,
            (self.stop, &mut step),
        );
        let written = write.end().map_err(|failure| self.failed(failure))?;
        ran.map_err(|failure| self.failed(failure))?;
        Ok(written)
    }

    /// Copies the bytes behind the last whole unit, and leaves those behind them in the last sector of DST; returns their number.
    fn tail(&self, body: u64) -> Result<u64, Trouble> {
        let size = self.source.size;
        if body == size {
            return Ok(0);
        }
        let ours = self.last(Side::First, body)?;
        let mut theirs = self.last(Side::Second, body)?;
        let bytes = short(size - body);
        theirs.copy_in(0, &ours.as_slice()[..bytes]);
        let bio = Blocking::new(self.target.device.clone()).run(Bio::write(body, theirs, 0));
        bio.result
            .map_err(|error| self.request(Side::Second, "write", body, error))?;
        Ok(size - body)
    }

    /// The last sectors of one of the two, from `body` to the end of SRC.
    fn last(&self, side: Side, body: u64) -> Result<Buf, Trouble> {
        let opened = match side {
            Side::First => self.source,
            Side::Second => self.target,
        };
        let sector = u64::from(opened.device.geometry().logical);
        let len = (self.source.size - body).next_multiple_of(sector);
        Blocking::new(opened.device.clone())
            .read(body, Buf::zeroed(short(len)))
            .map_err(|error| self.request(side, "read", body, error))
    }

    fn flush(&self) -> Result<(), Trouble> {
        let device = &self.target.device;
        if !device.geometry().volatile_cache {
            return Ok(());
        }
        // All writes have ended, so this flush covers them.
        let flush = Blocking::new(device.clone()).run(Bio::flush(0));
        let size = self.source.size;
        flush
            .result
            .map_err(|error| self.request(Side::Second, "flush what was written up", size, error))
    }

    fn verify(&self, body: u64, unit: u64) -> Result<(), Trouble> {
        let (source, target) = (&self.source.device, &self.target.device);
        let plan = Plan::of_both(source, target, 0..body, unit);
        let half = usize::from(self.how.requests).div_ceil(2);
        let mut equal = Equal::new(Bufs::new(half)?);
        let mut step = |at| (self.step)(self.source.size + at);
        let ran = ranges::run(
            (source, target),
            plan,
            Bufs::new(half)?,
            &mut equal,
            (self.stop, &mut step),
        );
        ran.map_err(|failure| self.failed(failure))?;
        let found = equal.end().map_err(|failure| self.failed(failure))?;
        match found {
            Found::Differs(at) => Err(self.differs(at)),
            Found::Same if body == self.source.size => Ok(()),
            Found::Same => {
                let (ours, theirs) = (
                    self.last(Side::First, body)?,
                    self.last(Side::Second, body)?,
                );
                let bytes = short(self.source.size - body);
                let (a, b) = (&ours.as_slice()[..bytes], &theirs.as_slice()[..bytes]);
                let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
                match same == bytes {
                    true => Ok(()),
                    false => Err(self.differs(body + same as u64)),
                }
            }
        }
    }

    fn differs(&self, at: u64) -> Trouble {
        let (source, target) = self.names;
        Reason::new(format!(
            "{target}: byte {at} read back is not that of {source}: either changed meanwhile, or a device loses data"
        ))
        .into()
    }

    fn request(
        &self,
        side: Side,
        doing: &'static str,
        at: u64,
        error: diorite_block::BioError,
    ) -> Trouble {
        self.failed(Failure::Request {
            side,
            doing,
            at,
            error,
        })
    }

    fn failed(&self, failure: Failure) -> Trouble {
        let name = match failure.side() {
            Some(Side::First) => self.names.0,
            Some(Side::Second) => self.names.1,
            None => return Trouble::interrupted(),
        };
        let text = failure.to_string();
        let text = crate::output::report::without_number(&text);
        let shorter = match failure.side() {
            Some(Side::First) => self.source.shortened(),
            _ => None,
        };
        let more = shorter.map_or_else(String::new, |why| format!("; {why}"));
        Reason::new(format!("{name}: {text}{more}")).into()
    }
}

/// A length that is shorter than the largest sector.
fn short(len: u64) -> usize {
    debug_assert!(len <= LARGE as u64);
    usize::try_from(len).expect("a few sectors")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::device;
    use diorite_block::Locator;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    /// The defect: a source that was shorter than before said "input/output error", and if its end was a hole then, the copy had zeros
    /// there.
    #[test]
    fn a_source_that_becomes_shorter_is_told() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let size = 4 << 20;
        for (name, hole) in [("data", false), ("hole", true)] {
            let source = File::create(at(name)).expect("a file");
            source.set_len(size).expect("a file");
            if !hole {
                let bytes = vec![7; 4 << 20];
                source.write_all_at(&bytes, 0).expect("a file");
            }
            let new = File::create(at("new")).expect("a file");
            new.set_len(size).expect("a file");
            let open = |name: &str, write: bool| {
                let options = diorite::OpenOptions::default().write(write);
                device::open(&Locator::file(at(name)), &options).expect("a device")
            };
            let (from, to) = (open(name, false), open("new", true));
            source.set_len(1 << 20).expect("a file");
            let run = Run {
                how: How {
                    zeros: Zeros::of_option(4096),
                    requests: 4,
                    verify: false,
                },
                names: (name, "new"),
                source: &from,
                target: &to,
                is_new: true,
                stop: &AtomicBool::new(false),
                step: &|_| (),
            };
            let Err(error) = run.all() else {
                panic!("it is shorter");
            };
            let told = error.reason.to_string();
            let why = "shorter while it was read: it had 4194304 bytes and has 1048576 now";
            assert!(told.starts_with(name) && told.contains(why), "{told}");
        }
    }
}

//! Opens the two ends of a copy, so that neither is destroyed by the other.
//!
//! Input: two locators. Output: a [`Ends`]. Invariants: nothing is written to DST, and nothing is created, before it is known that the two
//! do not share a byte: the same device, overlapping ranges of one file, or one in a file of the other are refused by name; a volume that
//! holds both is opened once, for writing. Limits: what lies below block devices is known as far as /sys shows it.

use super::target::{self, Target};
use crate::args::{CopyArgs, Global};
use crate::images::device::{self, Opened};
use crate::images::location::{Host, Location, Step, held_below};
use crate::output::report::Reason;
use diorite::{Error, OpenOptions, Volume};
use diorite_block::Locator;

/// Both ends.
pub(super) struct Ends {
    pub(super) source: Opened,
    pub(super) target: Target,
}

/// The locators of both, with the words that name them.
pub(super) struct Named<'a> {
    pub(super) args: &'a CopyArgs,
    pub(super) source: Locator,
    pub(super) target: Locator,
}

impl Named<'_> {
    /// Opens both.
    pub(super) fn open(&self, global: &Global) -> Result<Ends, Reason> {
        let (from, to) = (
            Location::of(self.source.clone()),
            Location::of(self.target.clone()),
        );
        match from.host(&to) {
            Host::Overlaps => Err(self.refusal("they share bytes of one file of the host")),
            Host::Same => self.on_one((&from, &to), global),
            Host::Beside => self.apart(&to, global),
            Host::Apart => {
                let source =
                    self.source(device::open(&self.source, &device::options(global, false)))?;
                self.check_below(&to)?;
                let target = self.target(&to, source.size, global)?;
                Ok(Ends { source, target })
            }
        }
    }

    fn apart(&self, to: &Location, global: &Global) -> Result<Ends, Reason> {
        let source = self.source(device::open(&self.source, &device::options(global, false)))?;
        let target = self.target(to, source.size, global)?;
        Ok(Ends { source, target })
    }

    /// Refuses a target that SRC is stored on, or that is stored on SRC.
    fn check_below(&self, to: &Location) -> Result<(), Reason> {
        let held = held_below(to);
        let held = held.map_err(|why| Reason::new(format!("{}: {why}", self.args.target)))?;
        match held {
            None => Ok(()),
            Some(path) => {
                let why = format!("DST is {}, or is stored on it or under it", path.display());
                Err(self.refusal(&why))
            }
        }
    }

    /// Opens the target by itself.
    fn target(&self, to: &Location, size: u64, global: &Global) -> Result<Target, Reason> {
        let options = device::options(global, true);
        if to.inside.is_empty() {
            return target::on_host(&self.target, self.args, size, &options);
        }
        let holder = Volume::open_locator(&to.base, &options);
        let holder = holder.map_err(|e| self.of_target(&e))?;
        self.target_inside(vec![holder], &to.inside, size, &options)
    }

    fn target_inside(
        &self,
        volumes: Vec<Volume>,
        steps: &[Step],
        size: u64,
        options: &OpenOptions,
    ) -> Result<Target, Reason> {
        let Some((step, above)) = steps.split_last() else {
            return Err(self.refusal("DST is the image that SRC is in"));
        };
        let volumes = device::descend(volumes, above, options).map_err(|e| self.of_target(&e))?;
        target::inside(volumes, step, &self.target, self.args, size)
    }

    /// Opens both in the volume on the same device.
    fn on_one(&self, (from, to): (&Location, &Location), global: &Global) -> Result<Ends, Reason> {
        let (mut a, mut b) = (&from.inside[..], &to.inside[..]);
        self.check_nesting(a, b)?;
        let writes = device::options(global, true);
        let base = Volume::open_locator(&to.base, &writes);
        let mut volumes = vec![base.map_err(|e| self.of_target(&e))?];
        while let ([one, from_rest @ ..], [other, to_rest @ ..]) = (a, b) {
            let level = volumes.last().expect("there is an outermost volume");
            let inode = |step: &Step| level.resolve(&step.path, true);
            let (ours, theirs) = (inode(one), inode(other));
            // A file that does not exist yet is no other file.
            if !matches!((&ours, &theirs), (Ok(ours), Ok(theirs)) if ours == theirs) {
                break;
            }
            if one.part != other.part {
                // Whether they share bytes is not looked at.
                return Err(self.refusal("they are in parts of one file"));
            }
            self.check_nesting(from_rest, to_rest)?;
            volumes = self.step(volumes, other, &writes)?;
            (a, b) = (from_rest, to_rest);
        }
        let reads = device::options(global, false);
        let source = device::inside(volumes.clone(), a, &self.source, &reads);
        let source = self.source(source)?;
        let target = self.target_inside(volumes, b, source.size, &writes)?;
        Ok(Ends { source, target })
    }

    fn step(
        &self,
        volumes: Vec<Volume>,
        step: &Step,
        options: &OpenOptions,
    ) -> Result<Vec<Volume>, Reason> {
        device::descend(volumes, std::slice::from_ref(step), options)
            .map_err(|e| self.of_target(&e))
    }

    /// Refuses ends of which one is the other, or is in it, from the steps that are left in the same volume.
    fn check_nesting(&self, from: &[Step], to: &[Step]) -> Result<(), Reason> {
        match (from.is_empty(), to.is_empty()) {
            (false, false) => Ok(()),
            (true, true) => Err(self.refusal("they are the same device")),
            (true, false) => Err(self.refusal("DST is in a file of SRC")),
            (false, true) => {
                Err(self.refusal("SRC is in a file of DST, which would be overwritten"))
            }
        }
    }

    fn refusal(&self, why: &str) -> Reason {
        let CopyArgs { source, target, .. } = self.args;
        Reason::new(format!(
            "{source} cannot be copied to {target}: {why}; nothing was changed"
        ))
    }

    fn source(&self, opened: Result<Opened, Error>) -> Result<Opened, Reason> {
        opened.map_err(|e| of(&self.args.source, &e))
    }

    fn of_target(&self, error: &Error) -> Reason {
        of(&self.args.target, error)
    }
}

/// A reason that names what it is about.
pub(crate) fn of(name: &str, error: &Error) -> Reason {
    let reason = Reason::from(error);
    match reason.to_string().contains(name) {
        true => reason,
        false => Reason::new(format!("{name}: {reason}")),
    }
}

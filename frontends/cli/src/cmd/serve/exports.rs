//! Locators become devices under names.
//!
//! Input: the arguments. Output: exports, in their order. Invariants: a device is writable unless the command or its locator says
//! that it is not; a locator that is the name of an existing file is that file, whatever signs are in it; an image that has several of the
//! exported files is open once; no byte is in two exports of which one is writable. Limits: names without `/`, `?`, `!` and `:` before an
//! equals sign.

use crate::args::{Global, NbdArgs};
use crate::host::sandbox::Needs;
use crate::images::device;
use crate::images::location::{Host, Location, Step};
use crate::output::report::{Reason, Report};
use diorite::{Ino, OpenOptions, Volume, open_device};
use diorite_block::{Device, Locator};
use diorite_nbd::Export;
use std::path::Path;
use std::sync::Arc;

/// Opens all devices. None if one cannot be opened, which is reported.
pub(super) fn open(global: &Global, args: &NbdArgs, report: &mut Report) -> Option<Vec<Export>> {
    if args.name.len() > args.locators.len() {
        report.host("there are more names than locators");
        report.failed(2);
        return None;
    }
    let mut all: Vec<Wanted> = Vec::new();
    for (at, text) in args.locators.iter().enumerate() {
        let (name, locator) = divide(text);
        let name = args.name.get(at).map(String::as_str).or(name);
        let wanted = Wanted::new(args, name, locator);
        match wanted.and_then(|wanted| wanted.check_beside(&all).map(|()| wanted)) {
            Ok(wanted) => all.push(wanted),
            Err(why) => report.elsewhere(Path::new(text), why),
        }
    }
    if report.has_failed() {
        return None;
    }
    let mut open = Vec::new();
    let mut holders = Holders::default();
    for wanted in &all {
        let written = all.iter().any(|w| w.writes() && w.is_on(wanted));
        match holders.device(global, wanted, written) {
            Ok(device) => {
                open.push(Export::new(&*wanted.name, device).read_only(wanted.read_only));
            }
            Err(why) => report.elsewhere(Path::new(&wanted.text), why),
        }
    }
    (!report.has_failed()).then_some(open)
}

/// What of the host opening and serving the devices takes. Locators that cannot be understood need nothing.
pub(super) fn needs(global: &Global, args: &NbdArgs, needs: &mut Needs) {
    let journal = global.journal.iter().map(String::as_str);
    let texts = args.locators.iter().map(|text| divide(text).1);
    for locator in texts.chain(journal).flat_map(Locator::parse) {
        let read_only = args.read_only || says_read_only(&locator);
        Location::of(locator).permit(needs, read_only);
    }
}

/// The name, if there is one, and the locator.
fn divide(text: &str) -> (Option<&str>, &str) {
    let exists = Path::new(text).symlink_metadata().is_ok();
    match text.split_once('=') {
        Some((name, locator)) if !exists && !name.contains(['/', '?', '!', ':']) => {
            (Some(name), locator)
        }
        _ => (None, text),
    }
}

/// An export, not opened yet.
struct Wanted {
    name: String,
    text: String,
    locator: Locator,
    location: Location,
    read_only: bool,
}

impl Wanted {
    fn new(args: &NbdArgs, name: Option<&str>, text: &str) -> Result<Wanted, Reason> {
        let locator = Locator::parse(text).map_err(|e| Reason::new(e.to_string()))?;
        Ok(Wanted {
            name: name.map_or_else(|| own_name(&locator), str::to_owned),
            text: text.to_owned(),
            location: Location::of(locator.clone()),
            read_only: args.read_only || says_read_only(&locator),
            locator,
        })
    }

    fn writes(&self) -> bool {
        !self.read_only
    }

    /// Whether both are files in the volume on one device.
    fn is_on(&self, other: &Wanted) -> bool {
        let inside = |wanted: &Wanted| !wanted.location.inside.is_empty();
        let base = self.location.host(&other.location);
        inside(self) && inside(other) && base == Host::Same
    }

    /// Refuses what would be open for writing twice. Whoever ignores the locks of others still has no two writers here.
    fn check_beside(&self, others: &[Wanted]) -> Result<(), Reason> {
        let apart = |other: &&Wanted| {
            let base = self.location.host(&other.location);
            matches!(base, Host::Apart | Host::Beside)
                || self.is_on(other)
                || (self.read_only && other.read_only)
        };
        match others.iter().find(|other| !apart(other)) {
            None => Ok(()),
            Some(other) => Err(Reason::new(format!(
                "it has bytes of the export {:?}, and one of the two is writable; serve one of them, or both read-only",
                other.name
            ))),
        }
    }
}

/// Volumes that hold files which are exported: each is open once, for all of them.
#[derive(Default)]
struct Holders {
    volumes: Vec<(Location, Volume)>,
    files: Vec<Used>,
}

/// A file in one of the volumes that is in use.
struct Used {
    /// The place of its volume in the list.
    volume: usize,
    ino: Ino,
    writes: bool,
    /// It is a volume itself, of which other files are exported. Otherwise it is an export.
    is_volume: bool,
}

impl Holders {
    /// Opens a device. `written`: an export of the same volume is writable.
    fn device(
        &mut self,
        global: &Global,
        wanted: &Wanted,
        written: bool,
    ) -> Result<Arc<dyn Device>, Reason> {
        let opened = match wanted.location.inside.split_last() {
            None => open_device(&wanted.locator, &device::options(global, wanted.writes())),
            Some((last, above)) => {
                let options = device::options(global, written)
                    // A guest's disk may be preallocated, and that promises that it can be written.
                    .keep_for_maps(true);
                let at = self.holder(&wanted.location.base, above, &options)?;
                self.note(at, last, wanted.writes(), false)?;
                let volume = &self.volumes[at].1;
                volume.open_device_inside(&last.path, &last.part, wanted.writes())
            }
        };
        opened.map_err(|e| Reason::from(&e))
    }

    /// The place of the volume that is reached by these steps.
    fn holder(
        &mut self,
        base: &Locator,
        steps: &[Step],
        options: &OpenOptions,
    ) -> Result<usize, Reason> {
        let location = Location {
            base: base.clone(),
            inside: steps.to_vec(),
        };
        let is_it = |(held, _): &(Location, Volume)| {
            held.host(&location) == Host::Same && held.inside == location.inside
        };
        if let Some(at) = self.volumes.iter().position(is_it) {
            return Ok(at);
        }
        let volume = match steps.split_last() {
            None => Volume::open_locator(base, options),
            Some((last, above)) => {
                let outer = self.holder(base, above, options)?;
                self.note(outer, last, options.write, true)?;
                let outer = &self.volumes[outer].1;
                outer.open_part_inside(&last.path, &last.part, options)
            }
        };
        self.volumes
            .push((location, volume.map_err(|e| Reason::from(&e))?));
        Ok(self.volumes.len() - 1)
    }

    /// Notes that a file is in use, whatever its path; refuses it if an export has its bytes and one of the two writes.
    fn note(
        &mut self,
        volume: usize,
        step: &Step,
        writes: bool,
        is_volume: bool,
    ) -> Result<(), Reason> {
        // What is not there is reported by who opens it.
        let Ok(ino) = self.volumes[volume].1.resolve(&step.path, true) else {
            return Ok(());
        };
        let clashes = |used: &Used| {
            let is_same = (used.volume, used.ino) == (volume, ino);
            is_same && (used.writes || writes) && !(used.is_volume && is_volume)
        };
        if self.files.iter().any(clashes) {
            return Err(Reason::new(format!(
                "another export has bytes of {}, and one of the two is writable; serve one of them, or both read-only",
                step.path
            )));
        }
        self.files.push(Used {
            volume,
            ino,
            writes,
            is_volume,
        });
        Ok(())
    }
}

/// Whether a locator is to be opened for reading only, at any level.
fn says_read_only(locator: &Locator) -> bool {
    match locator {
        Locator::File(file) => file.ro,
        Locator::Inside { outer, part, .. } => part.ro || says_read_only(outer),
        Locator::Mem { .. } | Locator::Sim { .. } => false,
    }
}

/// The name of the file.
fn own_name(locator: &Locator) -> String {
    let path = match locator {
        Locator::File(file) => file.path.as_path(),
        Locator::Inside { path, .. } => Path::new(path),
        Locator::Mem { .. } => Path::new("mem"),
        Locator::Sim { .. } => Path::new("sim"),
    };
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_before_an_equals_sign() {
        for (text, name, locator) in [
            ("disk.img", None, "disk.img"),
            ("a=disk.img", Some("a"), "disk.img"),
            ("a=disk.img?part=1", Some("a"), "disk.img?part=1"),
            ("disk.img?part=1", None, "disk.img?part=1"),
            ("./a=b.img", None, "./a=b.img"),
            ("sim:1M,latency=1us", None, "sim:1M,latency=1us"),
            ("x=outer.img!/a=b", Some("x"), "outer.img!/a=b"),
            ("outer.img!/a=b", None, "outer.img!/a=b"),
        ] {
            assert_eq!(divide(text), (name, locator), "{text}");
        }
        let named = |text| own_name(&Locator::parse(text).expect("a locator"));
        assert_eq!(named("/images/disk.img?part=1"), "disk.img");
        assert_eq!(named("outer.img!/vm/inner.img"), "inner.img");
        assert_eq!(named("mem:1M"), "mem");
    }

    #[test]
    fn a_locator_says_whether_it_is_read_only() {
        for (text, read_only) in [
            ("disk.img", false),
            ("disk.img?ro", true),
            ("disk.img?ro!/inner.img", true),
            ("disk.img!/inner.img", false),
            ("disk.img!/inner.img?ro", true),
            ("disk.img!/inner.img?ro!/file", true),
        ] {
            let locator = Locator::parse(text).expect("a locator");
            assert_eq!(says_read_only(&locator), read_only, "{text}");
        }
    }
}

//! Locators become devices under names.
//!
//! Input: the arguments. Output: exports, in their order. Invariants: a device is writable unless the command or its locator says
//! that it is not; a locator that is the name of an existing file is that file, whatever signs are in it. Limits: names without
//! `/`, `?`, `!` and `:` before an equals sign.

use crate::args::{Global, NbdArgs};
use crate::image;
use crate::report::{Reason, Report};
use diorite::{OpenOptions, open_device};
use diorite_block::Locator;
use diorite_nbd::Export;
use std::path::Path;

/// Opens all devices. None if one cannot be opened, which is reported.
pub(super) fn open(global: &Global, args: &NbdArgs, report: &mut Report) -> Option<Vec<Export>> {
    if args.name.len() > args.locators.len() {
        report.host("there are more names than locators");
        report.failed(2);
        return None;
    }
    let mut all = Vec::new();
    for (at, text) in args.locators.iter().enumerate() {
        let (name, text) = divide(text);
        let name = args.name.get(at).map(String::as_str).or(name);
        match export(global, args, name, text) {
            Ok(export) => all.push(export),
            Err(why) => report.elsewhere(Path::new(text), why),
        }
    }
    (!report.has_failed()).then_some(all)
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

fn export(
    global: &Global,
    args: &NbdArgs,
    name: Option<&str>,
    text: &str,
) -> Result<Export, Reason> {
    let locator = Locator::parse(text).map_err(|e| Reason::new(e.to_string()))?;
    let read_only = args.read_only || says_read_only(&locator);
    let options = OpenOptions {
        write: !read_only,
        force: global.ignore_lock,
        ..image::options(global)
    };
    let device = open_device(&locator, &options).map_err(|e| Reason::from(&e))?;
    let name = name.map_or_else(|| own_name(&locator), str::to_owned);
    Ok(Export::new(name, device).read_only(read_only))
}

/// Whether the host's file of a locator is to be opened for reading only.
fn says_read_only(locator: &Locator) -> bool {
    match locator {
        Locator::File(file) => file.ro,
        Locator::Inside { outer, .. } => says_read_only(outer),
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
    fn the_file_at_the_bottom_says_whether_it_is_read_only() {
        for (text, read_only) in [
            ("disk.img", false),
            ("disk.img?ro", true),
            ("disk.img?ro!/inner.img", true),
            ("disk.img!/inner.img", false),
        ] {
            let locator = Locator::parse(text).expect("a locator");
            assert_eq!(says_read_only(&locator), read_only, "{text}");
        }
    }
}

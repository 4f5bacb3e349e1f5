//! `diorite getfattr`: prints the extended attributes of files in an image, as getfattr does.
//!
//! Input: an image and paths. Output: for each file that has attributes, its path and the attributes in the order of their
//! names. Invariant: with -R symbolic links are not followed. Limits: leading slashes of paths are removed, unless
//! --absolute-names is given.

use crate::args::{GetfattrArgs, Global};
use crate::images::image::{self, bytes};
use crate::output::Out;
use crate::output::report::{Reason, Report};
use crate::walking::paths;
use crate::words::attributes::encode;
use crate::words::inode_fields::JsonXattr;
use crate::words::names::json_name;
use diorite::xattr::Xattr;
use diorite::{Error, Volume};
use diorite_format::Ino;
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &GetfattrArgs) -> ExitCode {
    let mut report = Report::new("getfattr", &args.img);
    let Some(volume) = image::open(&args.img, global, &mut report) else {
        return report.exit_code();
    };
    let mut out = Out::new();
    for path in args.paths.iter().map(|p| bytes(p)) {
        if !args.recursive {
            let found = volume.resolve(path, !args.no_dereference);
            one(&volume, path, found, args, &mut out, &mut report);
            continue;
        }
        paths::walk(&volume, path, |path, found| {
            let found = found.map(|inode| inode.ino);
            one(&volume, path, found, args, &mut out, &mut report);
        });
    }
    out.finish();
    report.exit_code()
}

fn one(
    volume: &Volume,
    path: &[u8],
    found: Result<Ino, Error>,
    args: &GetfattrArgs,
    out: &mut Out,
    report: &mut Report,
) {
    match found.and_then(|ino| wanted(volume, ino, args)) {
        Ok(all) if all.is_empty() => {}
        Ok(all) if args.json.on => out.json(&JsonAttributes { path, all: &all }),
        Ok(all) => print(path, &all, args, out),
        Err(error) => {
            out.flush();
            let reason = match (&args.name, error.root()) {
                (Some(name), Error::NoAttribute { .. }) => {
                    let name = name.to_string_lossy();
                    Reason::new(format!("{name}: {}", Reason::from(&error)))
                }
                _ => Reason::from(&error),
            };
            report.file(path, reason);
        }
    }
}

/// The attributes that the options select.
fn wanted(volume: &Volume, ino: Ino, args: &GetfattrArgs) -> Result<Vec<Xattr>, Error> {
    if let Some(name) = &args.name {
        let name = bytes(name).to_vec();
        let value = volume.xattr(ino, &name)?;
        return Ok(vec![Xattr { name, value }]);
    }
    let mut all = volume.xattrs(ino)?;
    all.retain(|xattr| args.pattern.matches(&xattr.name));
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

fn print(path: &[u8], all: &[Xattr], args: &GetfattrArgs, out: &mut Out) {
    if args.only_values {
        all.iter().for_each(|xattr| out.bytes(&xattr.value));
        return;
    }
    out.bytes(&heading(path, args.absolute_names));
    for xattr in all {
        out.bytes(&escaped(&xattr.name));
        if args.dump || args.name.is_some() {
            out.bytes(b"=");
            out.bytes(&encode(&xattr.value, args.encoding));
        }
        out.bytes(b"\n");
    }
    out.bytes(b"\n");
}

/// The line that names a file, without leading slashes unless `absolute` is set.
pub(super) fn heading(path: &[u8], absolute: bool) -> Vec<u8> {
    let slashes = path.iter().take_while(|b| **b == b'/').count();
    let shown = if absolute { path } else { &path[slashes..] };
    let shown = if shown.is_empty() { b"." } else { shown };
    [b"# file: ", escaped(shown).as_slice(), b"\n"].concat()
}

/// A name escaped so that it fits on one line and `setfattr --restore` reads it.
fn escaped(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    for byte in name {
        match byte {
            b'\n' | b'\r' | b'=' | b'\\' => out.extend(format!("\\{byte:03o}").bytes()),
            other => out.push(*other),
        }
    }
    out
}

/// The fields of `--json`: `path`, `xattrs` (`[{"name", "value_hex"}]`).
struct JsonAttributes<'a> {
    path: &'a [u8],
    all: &'a [Xattr],
}

impl Serialize for JsonAttributes<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        json_name(&mut map, "path", self.path)?;
        let all: Vec<JsonXattr<'_>> = self.all.iter().map(JsonXattr).collect();
        map.serialize_entry("xattrs", &all)?;
        map.end()
    }
}

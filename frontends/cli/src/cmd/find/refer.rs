//! What an expression names: files whose times are compared, users and groups of the image.
//!
//! Input: references, names. Output: times, ids; none if one of them is not there, which is reported. Invariant: names are those of the
//! image's own /etc/passwd and /etc/group; "root" is 0 in any image. Limits: files of names over [`MOST`] bytes are read as far as that.

use super::parse::{Principal, Reference};
use crate::images::image;
use crate::output::report::{Reason, Report};
use crate::walking::paths;
use diorite::{Error, Volume};
use diorite_format::Timestamp;

/// Bytes of a file of names that are read.
const MOST: usize = 4 << 20;

/// The times that references stand for; a symbolic link is not followed.
pub(super) fn times(
    volume: &Volume,
    references: &[Reference],
    report: &mut Report,
) -> Option<Vec<Timestamp>> {
    let mut all = Vec::new();
    for reference in references {
        let (path, stamp) = match reference {
            Reference::Time(time) => {
                all.push(*time);
                continue;
            }
            Reference::File(path, stamp) => (path, stamp),
        };
        let found = volume
            .resolve(path, false)
            .and_then(|ino| paths::inode(volume, ino));
        match found.map(|inode| stamp.of(&inode)) {
            Ok(Some(time)) => all.push(time),
            Ok(None) => {
                report.file(path, Reason::new("no time of birth is stored"));
                return None;
            }
            Err(error) => {
                report.file(path, error);
                return None;
            }
        }
    }
    Some(all)
}

/// The ids of users and groups.
pub(super) fn ids(
    volume: &Volume,
    names: &[(Principal, Vec<u8>)],
    report: &mut Report,
) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for (principal, name) in names {
        let file: &[u8] = match principal {
            Principal::User => b"/etc/passwd",
            Principal::Group => b"/etc/group",
        };
        let found = match &name[..] {
            b"root" => Some(0),
            _ => text(volume, file).ok().and_then(|text| id_in(&text, name)),
        };
        let Some(id) = found else {
            let name = String::from_utf8_lossy(name);
            report.file(
                file,
                Reason::new(format!("'{name}' is not there; a number is an id")),
            );
            return None;
        };
        all.push(id);
    }
    Some(all)
}

fn text(volume: &Volume, path: &[u8]) -> Result<Vec<u8>, Error> {
    let file = image::find(volume, path, true)?;
    let mut text = vec![0; MOST.min(usize::try_from(file.size()).unwrap_or(MOST))];
    let len = file.read_bytes(0, &mut text)?;
    text.truncate(len);
    Ok(text)
}

/// The third field of the line that begins with this name.
fn id_in(text: &[u8], name: &[u8]) -> Option<u32> {
    let mut lines = text
        .split(|c| *c == b'\n')
        .map(|line| line.split(|c| *c == b':'));
    let mut fields = lines.find_map(|mut line| (line.next()? == name).then_some(line))?;
    std::str::from_utf8(fields.nth(1)?).ok()?.parse().ok()
}

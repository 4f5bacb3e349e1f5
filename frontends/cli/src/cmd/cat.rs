//! `diorite cat`: writes the contents of files to standard output.
//!
//! Input: an image and paths. Output: bytes. Invariant: the bytes before an error are printed first. Limits: those of
//! `crate::copying::in_order`.

use crate::args::{CatArgs, Global};
use crate::copying::in_order::Reader;
use crate::images::image::{self, bytes};
use crate::output::Out;
use crate::output::report::{Reason, Report};
use diorite::Volume;
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &CatArgs) -> ExitCode {
    let mut report = Report::new("cat", &args.img);
    let Some(volume) = image::open(&args.img, global, &mut report) else {
        return report.exit_code();
    };
    let mut reader = match Reader::new(&volume) {
        Ok(reader) => reader,
        Err(error) => {
            report.image(error);
            return report.exit_code();
        }
    };
    let mut out = Out::new();
    for path in args.paths.iter().map(|p| bytes(p)) {
        if let Err(reason) = one(&volume, &mut reader, path, &mut out) {
            report.file(path, reason);
        }
    }
    out.finish();
    report.exit_code()
}

fn one(volume: &Volume, reader: &mut Reader, path: &[u8], out: &mut Out) -> Result<(), Reason> {
    let file = image::find(volume, path, true)?;
    let inode = &*file.metadata();
    if inode.is_dir() {
        return Err(Reason::new("Is a directory"));
    }
    if !inode.is_file() {
        let word = crate::words::inode_fields::type_word(inode.file_type);
        return Err(Reason::new(format!(
            "Not a regular file ({word}): it has no contents"
        )));
    }
    reader.copy(&file, &mut |bytes| {
        out.bytes(bytes);
        Ok(())
    })
}

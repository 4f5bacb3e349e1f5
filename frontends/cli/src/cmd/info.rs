//! `diorite info`: prints the superblock as `dumpe2fs -h` does, which features can be read and written, and how the image was
//! opened.
//!
//! Input: an image. Output: lines, or one JSON object whose fields are those of [`fields`] and [`journal`], with `features`
//! (`[{"name", "set", "read", "write", "help"}]`), `can_read`, `can_write`, `notes` and `device`. Invariant: a volume that is
//! refused is described as far as its superblock goes, and the refusal is a message and exit code 1; without a superblock, the device is
//! described instead. Limits: times are local.

mod device;
mod features;
mod fields;
mod journal;
mod whole;

use crate::args::{Global, InfoArgs, JsonObject};
use crate::images::image;
use crate::output::Out;
use crate::output::report::Report;
use crate::words::times::Clock;
use device::{describe, read_superblock};
use diorite::{Error, Volume};
use diorite_block::Device;
use diorite_format::Superblock;
use fields::Field;
use serde_json::{Map, Value, json};
use std::process::ExitCode;
use std::sync::Arc;
use whole::Whole;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &InfoArgs) -> ExitCode {
    let mut report = Report::new("info", &args.img);
    if args.device {
        match Whole::of(&args.img, global) {
            Ok(whole) => whole.show(args, &report),
            Err(error) => report.image(error),
        }
        return report.exit_code();
    }
    match Volume::open(&args.img, &image::options(global)) {
        Ok(volume) => {
            image::warn_of_writers(&args.img, volume.notes(), &report);
            let subject = Subject::of(&volume, &mut report);
            subject.show(args);
        }
        Err(error) => {
            if let Some(subject) = Subject::refused(&args.img, global, &error) {
                image::warn_of_writers(&args.img, &subject.notes, &report);
                subject.show(args);
            } else if let Ok(whole) = Whole::of(&args.img, global) {
                whole.show(args, &report);
            }
            image::refused(&args.img, &mut report, &error);
        }
    }
    report.exit_code()
}

/// Prints the superblock alone.
pub(crate) fn superblock(global: &Global, img: &str, json: bool, report: &mut Report) {
    let Some(volume) = image::open(img, global, report) else {
        return;
    };
    let args = InfoArgs {
        verbose: false,
        device: false,
        json: JsonObject { on: json },
        img: img.to_owned(),
    };
    let subject = Subject::of(&volume, report);
    match json {
        true => subject.show(&args),
        false => {
            let mut out = Out::new();
            let fields = fields::of(&subject.sb, &Clock::local());
            fields
                .iter()
                .filter_map(Field::line)
                .for_each(|line| out.line(line));
            out.finish();
        }
    }
}

/// What the command prints.
struct Subject {
    sb: Superblock,
    device: Arc<dyn Device>,
    journal: Vec<Field>,
    notes: Vec<String>,
    /// Why the volume was not opened.
    refused: Option<String>,
}

impl Subject {
    fn of(volume: &Volume, report: &mut Report) -> Subject {
        let journal = journal::fields(volume).unwrap_or_else(|error| {
            report.image(error.at("the journal"));
            Vec::new()
        });
        Subject {
            sb: volume.superblock().clone(),
            device: volume.device().clone(),
            journal,
            notes: volume.notes().to_vec(),
            refused: None,
        }
    }

    /// A volume that the engine refuses to open, described by its superblock.
    fn refused(img: &str, global: &Global, why: &Error) -> Option<Subject> {
        let (device, sb) = read_superblock(img, global)?;
        Some(Subject {
            notes: device.report().fallbacks,
            device,
            sb,
            journal: Vec::new(),
            refused: Some(why.to_string()),
        })
    }

    fn show(&self, args: &InfoArgs) {
        let mut out = Out::new();
        let mut fields = fields::of(&self.sb, &Clock::local());
        fields.extend(self.journal.iter().cloned());
        if args.json.on {
            out.json(&self.json(&args.img, &fields));
        } else {
            self.text(args, &fields, &mut out);
        }
        out.finish();
    }

    fn text(&self, args: &InfoArgs, fields: &[Field], out: &mut Out) {
        for line in fields.iter().filter_map(Field::line) {
            out.line(line);
        }
        out.line("");
        for line in features::text(&self.sb, self.refused.as_deref()) {
            out.line(line);
        }
        if !self.notes.is_empty() {
            out.line("");
            out.line("Notes:");
            self.notes
                .iter()
                .for_each(|n| out.line(format_args!("  {n}")));
        }
        if args.verbose {
            out.line("");
            out.line("Device:");
            for line in device::text(self.device.as_ref()) {
                out.line(format_args!("  {line}"));
            }
        }
    }

    fn json(&self, img: &str, fields: &[Field]) -> Value {
        let mut object = Map::new();
        object.insert("image".into(), img.into());
        for field in fields.iter().filter(|f| !f.key.is_empty()) {
            object.insert(field.key.into(), field.value.clone());
        }
        object.insert("features".into(), features::json(&self.sb));
        let (read, write) = features::access(&self.sb, self.refused.as_deref());
        object.insert("can_read".into(), read.is_ok().into());
        object.insert("can_write".into(), write.is_ok().into());
        object.insert("why_not_read".into(), read.err().into());
        object.insert("why_not_write".into(), write.err().into());
        object.insert("notes".into(), json!(self.notes));
        object.insert("device".into(), describe(self.device.as_ref()));
        Value::Object(object)
    }
}

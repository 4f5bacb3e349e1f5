//! Undo files of commands that change an image: `-z FILE`, as programs of e2fsprogs have it.
//!
//! Input: the option, the image, the command. Output: the command's exit code, and how its changes are undone. Invariants: a command whose
//! undo file is not complete fails; an undo file is for the image alone, not for other devices of the command. Limits: nothing of an image
//! that the command makes.

use crate::args::Global;
use crate::output::complain_best_effort;
use crate::output::report::Reason;
use diorite::Undo;
use diorite_block::Locator;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Where e2fsprogs puts undo files without a name, by the environment.
const DIR: &str = "E2FSPROGS_UNDO_DIR";

/// The undo file of a command, with the name of the program in whose place it stands, on an image.
pub(crate) fn of(file: &str, program: &str, img: &str, target: Locator) -> Result<Undo, String> {
    Ok(Undo::new(target, &path(file, program, img)?))
}

/// The file that -z names. The empty name stands for one in the folder of the environment.
fn path(file: &str, program: &str, img: &str) -> Result<PathBuf, String> {
    if !file.is_empty() {
        return Ok(PathBuf::from(file));
    }
    let dir = std::env::var_os(DIR).ok_or_else(|| format!("-z '' needs a folder in {DIR}"))?;
    let name = Path::new(img).file_name().unwrap_or_default();
    let name = format!("{program}-{}.e2undo", name.to_string_lossy());
    Ok(Path::new(&dir).join(name))
}

/// Runs a command on an image, with an undo file if one is named.
pub(crate) fn with(
    global: &Global,
    (file, program, img): (Option<&str>, &str, &str),
    run: impl FnOnce(&Global) -> ExitCode,
) -> ExitCode {
    let Some(file) = file else {
        return run(global);
    };
    let target = Locator::parse(img).map_err(|error| error.to_string());
    let undo = match target.and_then(|target| of(file, program, img, target)) {
        Ok(undo) => undo,
        Err(why) => {
            complain_best_effort(format_args!("diorite: {img}: {why}"));
            return ExitCode::FAILURE;
        }
    };
    let global = Global {
        undo: Some(undo.clone()),
        ..global.clone()
    };
    let code = run(&global);
    match tell(&undo, img, code == ExitCode::SUCCESS) {
        Ok(()) => code,
        Err(why) => {
            complain_best_effort(format_args!("diorite: {img}: {why}"));
            ExitCode::FAILURE
        }
    }
}

/// Says how the changes of a command are undone, if there were any; `went_well`: it says that it did what it was asked for.
///
/// # Errors
/// The undo file has failed, or knows nothing of the changes.
pub(crate) fn tell(undo: &Undo, img: &str, went_well: bool) -> Result<(), Reason> {
    let file = undo.path().to_string_lossy();
    if let Some(failure) = undo.failure() {
        if undo.has_written() {
            let (file, img) = (quoted(&file), quoted(img));
            complain_best_effort(format_args!(
                "diorite: the undo file is not finished; to undo what was changed until then, run: diorite undo -f {file} {img}"
            ));
        }
        return Err(failure.into());
    }
    if went_well && undo.was_passed() {
        return Err(Reason::new(format!(
            "the undo file {file} has nothing of what was changed: the image was opened without it"
        )));
    }
    if undo.has_written() {
        let (file, img) = (quoted(&file), quoted(img));
        complain_best_effort(format_args!(
            "diorite: to undo this, run: diorite undo {file} {img}"
        ));
    }
    Ok(())
}

/// A word of a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%=".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_are_quoted_where_a_shell_needs_it() {
        assert_eq!(quoted("/tmp/a.img"), "/tmp/a.img");
        assert_eq!(quoted("q u'o.img"), r"'q u'\''o.img'");
        assert_eq!(quoted("d.img?part=2"), "'d.img?part=2'");
        assert_eq!(quoted(""), "''");
    }
}

//! The command `cargo xtask`: tasks of the project besides building.
//! Input: the command line. Output: images and their manifests, with a line for each on standard output.

#![expect(clippy::print_stdout, reason = "a command line tool prints")]

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;
use xtask::images::{RECIPES, RootFill, default_dir, ensure, make};

const USAGE: &str = "\
usage: cargo xtask images [--out DIR] [--root-fill auto|never] [--only NAME]... [--force]
       cargo xtask images --list
       cargo xtask crash ...   (power cuts and killed writers; `cargo xtask crash --help`)
       cargo xtask damage [--cases N] [--seed S]
       cargo xtask mutants ... (changes to the code that a test must notice; `cargo xtask mutants --help`)
       cargo xtask drawings [DIR]
       cargo xtask header

damage: changes fields of all structures of images, and compares the verdicts of check and e2fsck.

drawings: makes the documents' drawings, in docs/drawings or DIR.

header: makes frontends/c/diorite.h of the sources there (cbindgen).

images: makes ext4 test images with mke2fs, debugfs and, as root, the kernel, and beside each a
manifest of what is in it. --only may be given more than once; a trailing * stands for any
end. An image that is there already is kept unless --force is given. Without --out they go to
$DIORITE_IMAGES, or target/images.
";

/// What the command line requests.
struct Wish {
    out: PathBuf,
    root: RootFill,
    only: Vec<String>,
    force: bool,
    list: bool,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.split_first() {
        Some((task, rest)) if task == "crash" => return crash(rest),
        Some((task, rest)) if task == "damage" => return damage(rest),
        Some((task, rest)) if task == "mutants" => return mutants(rest),
        Some((task, rest)) if task == "drawings" => return drawings(rest),
        Some((task, [])) if task == "header" => return header(),
        _ => {}
    }
    match parse(&args) {
        Ok(Wish { list: true, .. }) => {
            for recipe in RECIPES {
                println!("{:30} {:>9} MiB  {}", recipe.name, recipe.mib, recipe.about);
            }
            ExitCode::SUCCESS
        }
        Ok(wish) => images(&wish),
        Err(why) => {
            eprint!("xtask: {why}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Runs the package of this task, which links diorite; this package does not.
fn crash(args: &[String]) -> ExitCode {
    let words = "run --quiet --locked --package diorite-crash --";
    become_cargo(words, args, &[])
}

/// Runs the package of this task.
fn mutants(args: &[String]) -> ExitCode {
    let words = "run --quiet --locked --package diorite-mutants --";
    become_cargo(words, args, &[])
}

/// Makes the drawings.
fn drawings(args: &[String]) -> ExitCode {
    let dir = match args {
        [] => xtask::drawings::folder(),
        [dir] => PathBuf::from(dir),
        _ => {
            eprint!("xtask: drawings takes at most one directory\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match xtask::drawings::write_all(&dir) {
        Ok(made) => {
            for path in made {
                println!("{}", path.display());
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("xtask: {}: {error}", dir.display());
            ExitCode::FAILURE
        }
    }
}

/// Makes the header of libdiorite.
fn header() -> ExitCode {
    let path = xtask::header::path();
    let made = xtask::header::made();
    let written = made.and_then(|text| std::fs::write(&path, text).map_err(|e| e.to_string()));
    match written {
        Ok(()) => {
            println!("{}", path.display());
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the campaign, which is a test of the engine.
fn damage(args: &[String]) -> ExitCode {
    let (mut cases, mut seed) = ("20000".to_owned(), "1".to_owned());
    for pair in args.chunks(2) {
        match pair {
            [name, value] if name == "--cases" => cases.clone_from(value),
            [name, value] if name == "--seed" => seed.clone_from(value),
            _ => {
                eprint!("xtask: damage takes --cases N and --seed S\n{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    let words = "test --quiet --locked --package diorite --test damage -- --nocapture";
    let env = [("DIORITE_DAMAGE_CASES", cases), ("DIORITE_SEED", seed)];
    become_cargo(words, &[], &env)
}

/// Replaces this process by cargo.
fn become_cargo(words: &str, args: &[String], env: &[(&str, String)]) -> ExitCode {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let error = std::process::Command::new(cargo)
        .args(words.split(' '))
        .args(args)
        .envs(env.iter().map(|(name, value)| (name, value)))
        .exec();
    eprintln!("xtask: cargo could not be started: {error}");
    ExitCode::FAILURE
}

fn parse(args: &[String]) -> Result<Wish, String> {
    let mut wish = Wish {
        out: default_dir(),
        root: RootFill::Auto,
        only: Vec::new(),
        force: false,
        list: false,
    };
    let mut args = args.iter();
    if args.next().map(String::as_str) != Some("images") {
        return Err(
            "the tasks are `images`, `crash`, `damage`, `mutants`, `drawings` and `header`".into(),
        );
    }
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} wants a value"));
        match arg.as_str() {
            "--out" => wish.out = value()?.into(),
            "--only" => wish.only.push(value()?.clone()),
            "--force" => wish.force = true,
            "--list" => wish.list = true,
            "--root-fill" => {
                wish.root = match value()?.as_str() {
                    "auto" => RootFill::Auto,
                    "never" => RootFill::Never,
                    other => return Err(format!("--root-fill is auto or never, not {other:?}")),
                }
            }
            other => return Err(format!("what is {other:?}?")),
        }
    }
    Ok(wish)
}

/// True if one of the patterns matches the name, or if there is no pattern.
fn wanted(only: &[String], name: &str) -> bool {
    let fits = |pattern: &String| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    };
    only.is_empty() || only.iter().any(fits)
}

fn images(wish: &Wish) -> ExitCode {
    let chosen = RECIPES.iter().filter(|r| wanted(&wish.only, r.name));
    let chosen: Vec<_> = chosen.collect();
    if chosen.is_empty() {
        eprintln!("xtask: no recipe fits {:?} (see --list)", wish.only);
        return ExitCode::from(2);
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let make_some = || {
        while let Some(recipe) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
            if !image(recipe.name, wish) {
                failed.store(true, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(make_some);
        }
    });
    if failed.into_inner() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Makes one image, or keeps the existing one, and prints its path; false if it could not be made.
fn image(name: &str, wish: &Wish) -> bool {
    let start = Instant::now();
    let one = if wish.force { make } else { ensure };
    match one(name, &wish.out, wish.root) {
        Ok(made) => {
            let seconds = start.elapsed().as_secs_f64();
            println!("{} ({seconds:.1} s)", made.image.display());
            true
        }
        Err(error) => {
            eprintln!("xtask: {name}: {error}");
            false
        }
    }
}

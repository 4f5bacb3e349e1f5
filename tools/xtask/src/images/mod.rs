//! What it is: makes an image, step by step.
//! Input: a recipe's name, a directory, permission to use root. Output: [`Made`].
//! Steps: tree -> `mke2fs -d` -> debugfs script -> hash, `e2fsck -fyD` -> kernel -> `e2fsck -fn` -> judge -> manifest.
//! Invariants: an image gets its name only after `e2fsck -fn` found nothing in it; mounts and scratch files are removed on every
//! path; the same recipe gives the same tree.

mod by_debugfs;
mod by_kernel;
mod kernel;
mod mount;
mod recipes;
mod script;
mod tree;

pub use recipes::{Fill, Hash, RECIPES, Recipe};

use crate::error::{Error, Result, at};
use crate::manifest::{Entry, Header, Manifest, VERSION};
use crate::run;
use mount::Mount;
use std::path::{Path, PathBuf};

/// Whether root's privileges may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootFill {
    /// If this process is root and the kernel can mount the image.
    Auto,
    /// Never: the image is what an ordinary user gets.
    Never,
}

/// A finished image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// The image.
    pub image: PathBuf,
    /// Its manifest.
    pub manifest: PathBuf,
}

impl Made {
    fn paths(dir: &Path, name: &str) -> Self {
        Self {
            image: dir.join(format!("{name}.img")),
            manifest: dir.join(format!("{name}.manifest.jsonl")),
        }
    }
}

/// The default directory of images: `DIORITE_IMAGES`, or `target/images` of the workspace.
#[must_use]
pub fn default_dir() -> PathBuf {
    let workspace = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    std::env::var_os("DIORITE_IMAGES")
        .map_or_else(|| Path::new(workspace).join("target/images"), PathBuf::from)
}

/// Makes the image `name` in `dir`, replacing an existing one.
///
/// # Errors
/// The recipe is unknown, a tool is missing or fails, or e2fsck finds something.
pub fn make(name: &str, dir: &Path, root: RootFill) -> Result<Made> {
    let recipe = Recipe::named(name).ok_or_else(|| Error::NoRecipe(name.into()))?;
    std::fs::create_dir_all(dir).map_err(at(dir))?;
    let _turn = turn(dir, name)?;
    build(recipe, dir, root)
}

/// Like [`make`], but keeps an existing image whose manifest has this version and was made with the same privileges. Processes that
/// need the same image wait for each other.
///
/// # Errors
/// As [`make`].
pub fn ensure(name: &str, dir: &Path, root: RootFill) -> Result<Made> {
    let recipe = Recipe::named(name).ok_or_else(|| Error::NoRecipe(name.into()))?;
    std::fs::create_dir_all(dir).map_err(at(dir))?;
    let _turn = turn(dir, name)?;
    let made = Made::paths(dir, name);
    let fits = |header: &Header| header.root_used || !may_mount(recipe, root);
    match Manifest::load(&made.manifest) {
        Ok(manifest) if made.image.exists() && fits(&manifest.header) => Ok(made),
        _ => build(recipe, dir, root),
    }
}

/// A lock on `NAME.lock`, released when the file is closed.
fn turn(dir: &Path, name: &str) -> Result<std::fs::File> {
    let path = dir.join(format!("{name}.lock"));
    let file = std::fs::File::create(&path).map_err(at(&path))?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).map_err(at(&path))?;
    Ok(file)
}

fn may_mount(recipe: &Recipe, root: RootFill) -> bool {
    root == RootFill::Auto && recipe.mountable() && rustix::process::geteuid().is_root()
}

fn build(recipe: &'static Recipe, dir: &Path, root: RootFill) -> Result<Made> {
    let scratch = tempfile::Builder::new()
        .prefix("diorite-image-")
        .tempdir_in(dir)
        .map_err(at(dir))?;
    let image = scratch.path().join("image");
    let source = scratch.path().join("tree");
    std::fs::create_dir(&source).map_err(at(&source))?;
    tree::make(recipe, &source)?;
    mke2fs(recipe, &source, &image)?;
    if recipe.fill != Fill::Bare {
        run::debugfs_script(&image, &script::write(recipe, scratch.path())?, true)?;
        index(recipe, &image)?;
    }
    let kernel_filled = kernel_part(recipe, &image, root)?;
    run::check(&image)?;
    let (truth, note, entries) = judge(recipe, &image, scratch.path(), root)?;
    let header = Header {
        diorite_manifest: VERSION,
        recipe: recipe.name.into(),
        block_size: recipe.block,
        root_used: may_mount(recipe, root),
        kernel_filled,
        truth: truth.into(),
        note,
    };
    let made = Made::paths(dir, recipe.name);
    std::fs::rename(&image, &made.image).map_err(at(&made.image))?;
    Manifest { header, entries }.store(&made.manifest)?;
    Ok(made)
}

/// The UUID and the hash seed are fixed, so that names are in the same leaves in every run.
fn mke2fs(recipe: &Recipe, source: &Path, image: &Path) -> Result<()> {
    const UUID: &str = "d10417e0-0000-4000-8000-000000000001";
    let mut args: Vec<String> = ["-q", "-F", "-U", UUID, "-L", "diorite", "-m", "1"]
        .map(String::from)
        .into();
    args.extend([
        "-b".into(),
        recipe.block.to_string(),
        "-I".into(),
        recipe.inode.to_string(),
    ]);
    if recipe.cluster != recipe.block {
        args.extend(["-C".into(), recipe.cluster.to_string()]);
    }
    if recipe.is_rich() {
        args.extend(["-N".into(), "8192".into()]);
    }
    args.extend(recipe.args.iter().map(ToString::to_string));
    if !recipe.args.contains(&"-E") {
        args.extend(["-E".into(), format!("hash_seed={UUID}")]);
    }
    args.extend([
        "-d".into(),
        source.display().to_string(),
        image.display().to_string(),
    ]);
    args.push(format!("{}M", recipe.mib));
    run::run("mke2fs", &args).map(drop)
}

/// Sets the hash, then builds the indexes with e2fsck, because mke2fs makes linear directories.
fn index(recipe: &Recipe, image: &Path) -> Result<()> {
    const SIGNED: u32 = 1;
    const UNSIGNED: u32 = 2;
    if let Some(hash) = recipe.hash {
        let image_text = image.display().to_string();
        run::run(
            "tune2fs",
            &["-E", &format!("hash_alg={}", hash.name), &image_text],
        )?;
        let flags = if hash.signed { SIGNED } else { UNSIGNED };
        let script = image.with_extension("hash");
        std::fs::write(&script, format!("set_super_value flags {flags}\n")).map_err(at(&script))?;
        run::debugfs_script(image, &script, true)?;
    }
    if recipe.index {
        run::rebuild_dirs(image)
    } else {
        Ok(())
    }
}

/// Adds the kernel's part; returns whether it did.
fn kernel_part(recipe: &Recipe, image: &Path, root: RootFill) -> Result<bool> {
    if !recipe.is_rich() || !may_mount(recipe, root) {
        return Ok(false);
    }
    // In a container, root may not be allowed to mount; that is no failure of the image.
    let Ok(mount) = Mount::new(image, true) else {
        return Ok(false);
    };
    kernel::fill(recipe, &mount.root())?;
    mount.end()?;
    Ok(true)
}

/// What the kernel finds in an image. It is mounted read-only unless `write` is set; with `write`, a journal is replayed first.
///
/// # Errors
/// The image cannot be mounted or unmounted, which needs root, or a file of it cannot be read.
pub fn told_by_kernel(image: &Path, write: bool) -> Result<Vec<Entry>> {
    let mount = Mount::new(image, write)?;
    let entries = by_kernel::walk(&mount.root())?;
    mount.end()?;
    Ok(entries)
}

/// What debugfs finds in an image; `scratch` is a directory for its scripts.
///
/// # Errors
/// debugfs is missing, complains, or its output cannot be parsed.
pub fn told_by_debugfs(image: &Path, scratch: &Path) -> Result<Vec<Entry>> {
    by_debugfs::walk(image, scratch)
}

/// The entries by the kernel, or by debugfs if the kernel cannot be used; the note says why it cannot.
fn judge(
    recipe: &Recipe,
    image: &Path,
    scratch: &Path,
    root: RootFill,
) -> Result<(&'static str, String, Vec<Entry>)> {
    let note = if may_mount(recipe, root) {
        match Mount::new(image, false) {
            Ok(mount) => {
                let entries = by_kernel::walk(&mount.root())?;
                mount.end()?;
                return Ok(("kernel", String::new(), entries));
            }
            Err(error) => error.to_string(),
        }
    } else if recipe.mountable() {
        "no root".to_owned()
    } else {
        format!("the kernel cannot mount blocks of {} bytes", recipe.block)
    };
    Ok(("debugfs", note, told_by_debugfs(image, scratch)?))
}

#[cfg(test)]
mod tests;

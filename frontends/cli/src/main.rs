//! The `diorite` command: it reads the command line, and each command is a module of its own.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `args` | the definitions of all commands and options |
//! | `usage` | the process's arguments -> a parsed command line, or the end of the process |
//! | `manual` | the definitions in `args` -> help, man pages |
//! | `cmd` | a parsed command line -> output and messages |
//! | `image` | a locator, paths -> a volume, files |
//! | `foreign` | a file without an ext4 superblock -> what it is |
//! | `signatures` | a device -> the kind of file system or partition table on it |
//! | `replace` | a device whose contents are to be replaced -> the user's permission |
//! | `walk` | a file -> its extents, in windows |
//! | `descent` | a path -> the file there and all files below it, one after the other |
//! | `paths` | paths in an image -> other paths; all paths below one |
//! | `attributes` | attribute values, patterns, ACLs and flags as text -> their bytes, and back |
//! | `sizes`, `modes` | coreutils' notation for sizes and permissions -> new sizes and permissions |
//! | `format` | a template, an inode -> text |
//! | `facts`, `names`, `times` | inodes, names and times of an image -> text, JSON |
//! | `stream` | a file -> its bytes, in order |
//! | `memory` | the host's memory and limits -> the budget of cached pages |
//! | `flow`, `process`, `progress` | what `get`, `put` and `cp` share: requests in flight, limits, the bar |
//! | `device`, `lineage` | a locator -> a whole device; whether two of them share bytes |
//! | `pump` | two devices -> many requests in flight, to copy or compare |
//! | `encoding` | devices -> compressed and sparse files with block maps, and back |
//! | `report` | errors -> messages and the exit code |
//! | `service`, `sandbox` | what commands share that serve: signals, the pid file; what the process may reach |
//! | `fresh`, `made` | a path -> a file that is there whole or not at all; the same as a device |
//! | `owners` | `UID:GID` -> a user and a group |
//! | `output` | lines -> standard output |

mod args;
mod attributes;
mod cmd;
mod descent;
mod device;
mod encoding;
mod facts;
mod flow;
mod foreign;
mod format;
mod fresh;
mod image;
mod lineage;
mod made;
mod manual;
mod memory;
mod modes;
mod names;
mod output;
mod owners;
mod paths;
mod process;
mod progress;
mod pump;
mod replace;
mod report;
mod sandbox;
mod service;
mod signatures;
mod sizes;
mod stream;
mod times;
mod undoing;
mod usage;
mod walk;

use args::{Cli, Command};
use std::process::ExitCode;

fn main() -> ExitCode {
    process::outlive_limits();
    if let Err(why) = process::check_limits() {
        output::complain_best_effort(format_args!("diorite: {why}"));
        return ExitCode::FAILURE;
    }
    diorite_block::locator::register_qcow2(diorite_qcow2::open);
    let cli = usage::read();
    // Caches nothing that counts: its start is most of its time.
    if !matches!(cli.command, Command::Info(_)) {
        memory::fit_cache();
    }
    output::exit_code(run(&cli))
}

/// Runs the command.
fn run(cli: &Cli) -> ExitCode {
    let global = &cli.global;
    match &cli.command {
        Command::Info(args) => cmd::info::run(global, args),
        Command::Ls(args) => cmd::ls::run(global, args),
        Command::Tree(args) => cmd::tree::run(global, args),
        Command::Find(w) => cmd::find::run(&w.global(global), &w.args),
        Command::Stat(args) => cmd::stat::run(global, args),
        Command::Cat(args) => cmd::cat::run(global, args),
        Command::Readlink(args) => cmd::readlink::run(global, args),
        Command::Df(args) => cmd::df::run(global, args),
        Command::Du(args) => cmd::du::run(global, args),
        Command::Compare(args) => cmd::compare::run(global, args),
        Command::Copy(w) => cmd::copy::run(&w.global(global), &w.args),
        Command::Cmp(args) => cmd::cmp::run(global, args),
        Command::Check(w) => {
            let named = (w.args.undo.as_deref(), "e2fsck", &*w.args.img);
            undoing::with(&w.global(global), named, |g| cmd::check::run(g, &w.args))
        }
        Command::Get(args) => cmd::get::run(global, args),
        Command::Put(w) => cmd::put::run(&w.global(global), &w.args),
        Command::Cp(w) => cmd::cp::run(&w.global(global), &w.args),
        Command::Edit(w) => {
            let named = (w.args.undo.as_deref(), "debugfs", &*w.args.img);
            undoing::with(&w.global(global), named, |g| cmd::edit::run(g, &w.args))
        }
        Command::Extents(args) => cmd::extents::run(global, args),
        Command::Truncate(w) => cmd::truncate::run(&w.global(global), &w.args),
        Command::Fallocate(w) => cmd::fallocate::run(&w.global(global), &w.args),
        Command::Mkfs(w) => cmd::mkfs::run(&w.global(global), &w.args),
        Command::Import(w) => cmd::import::run(&w.global(global), &w.args),
        Command::Disk(w) => cmd::disk::run(&w.global(global), &w.args),
        Command::Export(args) => cmd::export::run(global, args),
        Command::Label(w) => cmd::label::run(&w.global(global), &w.args),
        Command::Uuid(w) => cmd::label::run_uuid(&w.global(global), &w.args),
        Command::Grow(w) => {
            let named = (w.args.undo.as_deref(), "resize2fs", &*w.args.img);
            undoing::with(&w.global(global), named, |g| cmd::resize::grow(g, &w.args))
        }
        Command::Shrink(w) => {
            let named = (w.args.undo.as_deref(), "resize2fs", &*w.args.img);
            undoing::with(&w.global(global), named, |g| {
                cmd::resize::shrink(g, &w.args)
            })
        }
        Command::Minimise(w) => {
            let named = (w.args.undo.as_deref(), "resize2fs", &*w.args.img);
            undoing::with(&w.global(global), named, |g| {
                cmd::resize::minimise(g, &w.args)
            })
        }
        Command::Resize2fs(w) => {
            let named = (w.args.undo.as_deref(), "resize2fs", &*w.args.img);
            undoing::with(&w.global(global), named, |g| {
                cmd::resize::stand_in::run(g, &w.args)
            })
        }
        Command::Tune(w) => {
            let named = (w.args.undo.as_deref(), "tune2fs", &*w.args.img);
            undoing::with(&w.global(global), named, |g| cmd::tune::run(g, &w.args))
        }
        Command::Undo(w) => cmd::undo::run(&w.global(global), &w.args),
        Command::Mkdir(w) => cmd::mkdir::run(&w.global(global), &w.args),
        Command::Rm(w) => cmd::rm::run(&w.global(global), &w.args),
        Command::Rmdir(w) => cmd::rmdir::run(&w.global(global), &w.args),
        Command::Mv(w) => cmd::mv::run(&w.global(global), &w.args),
        Command::Ln(w) => cmd::ln::run(&w.global(global), &w.args),
        Command::Mknod(w) => cmd::mknod::run(&w.global(global), &w.args),
        Command::Touch(w) => cmd::touch::run(&w.global(global), &w.args),
        Command::Chmod(w) => cmd::chmod::run(&w.global(global), &w.args),
        Command::Chown(w) => cmd::chown::run(&w.global(global), &w.args),
        Command::Getfattr(args) => cmd::getfattr::run(global, args),
        Command::Setfattr(w) => cmd::setfattr::run(&w.global(global), &w.args),
        Command::Getfacl(args) => cmd::getfacl::run(global, args),
        Command::Setfacl(w) => cmd::setfacl::run(&w.global(global), &w.args),
        Command::Lsattr(args) => cmd::lsattr::run(global, args),
        Command::Chattr(w) => cmd::chattr::run(&w.global(global), &w.args),
        Command::Sync(w) => cmd::sync::run(&w.global(global), &w.args),
        Command::Sparsify(w) => cmd::sparsify::run(&w.global(global), &w.args),
        Command::Zerofree(w) => cmd::zerofree::run(&w.global(global), &w.args),
        Command::Recover(w) => cmd::recover::run(&w.global(global), &w.args),
        Command::Mount(w) => cmd::mount::run(&w.global(global), &w.args),
        Command::Umount(args) => cmd::umount::run(global, args),
        Command::Serve(w) => cmd::serve::run(&w.global(global), &w.args),
        Command::Bench(w) => cmd::bench::run(&w.global(global), &w.args),
        Command::Generate(args) => cmd::generate::run(args),
    }
}

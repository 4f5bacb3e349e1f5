//! The `diorite` command: it reads the command line, and each command is a module of its own.
//!
//! | module, the lowest layer first | takes -> gives |
//! |---|---|
//! | `words` | words of the command line and of its output -> sizes, times, permissions, owners, names, attributes; and back |
//! | `output` | lines, messages, progress -> standard output and standard error, the exit code |
//! | `host` | limits, signals, paths of the host -> settings of the process, the sandbox, new files |
//! | `args` | the definitions of all commands and options |
//! | `manual` | the definitions in `args` -> help, man pages |
//! | `copying` | devices, files -> copies and comparisons with many requests in flight |
//! | `images` | locators -> open volumes and devices |
//! | `encoding` | devices -> compressed and sparse files with block maps, and back |
//! | `targets` | a device or a path -> what a command may fill as a whole |
//! | `walking` | an open volume -> trees, paths, extents |
//! | `usage` | the process's arguments -> a parsed command line, or the end of the process |
//! | `cmd` | a parsed command line -> output and messages |
//!
//! Each module takes from those above it in this list only; a test of `tools/xtask` checks that.

mod args;
mod cmd;
mod copying;
mod encoding;
mod host;
mod images;
mod manual;
mod output;
mod targets;
mod usage;
mod walking;
mod words;

use args::{Cli, Command, Global, Look};
use host::{memory, process};
use images::undo_file;
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
    if !matches!(cli.command, Command::Look(Look::Info(_))) {
        memory::fit_cache();
    }
    output::exit_code(run(&cli))
}

/// Runs the command.
fn run(cli: &Cli) -> ExitCode {
    let global = &cli.global;
    match &cli.command {
        Command::Look(command) => look(global, command),
        Command::Compare(args) => cmd::compare::run(global, args),
        Command::Copy(w) => cmd::copy::run(&w.global(global), &w.args),
        Command::Cmp(args) => cmd::cmp::run(global, args),
        Command::Check(w) => {
            let named = (w.args.undo.as_deref(), "e2fsck", &*w.args.img);
            undo_file::with(&w.global(global), named, |g| cmd::check::run(g, &w.args))
        }
        Command::Get(args) => cmd::get::run(global, args),
        Command::Put(w) => cmd::put::run(&w.global(global), &w.args),
        Command::Cp(w) => cmd::cp::run(&w.global(global), &w.args),
        Command::Edit(w) => {
            let named = (w.args.undo.as_deref(), "debugfs", &*w.args.img);
            undo_file::with(&w.global(global), named, |g| cmd::edit::run(g, &w.args))
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
            let named = (w.args.undo.file.as_deref(), "resize2fs", &*w.args.img);
            undo_file::with(&w.global(global), named, |g| cmd::resize::grow(g, &w.args))
        }
        Command::Shrink(w) => {
            let named = (w.args.undo.file.as_deref(), "resize2fs", &*w.args.img);
            undo_file::with(&w.global(global), named, |g| {
                cmd::resize::shrink(g, &w.args)
            })
        }
        Command::Minimise(w) => {
            let named = (w.args.undo.file.as_deref(), "resize2fs", &*w.args.img);
            undo_file::with(&w.global(global), named, |g| {
                cmd::resize::minimise(g, &w.args)
            })
        }
        Command::Resize2fs(w) => {
            let named = (w.args.undo.file.as_deref(), "resize2fs", &*w.args.img);
            undo_file::with(&w.global(global), named, |g| {
                cmd::resize::stand_in::run(g, &w.args)
            })
        }
        Command::Tune(w) => {
            let named = (w.args.undo.file.as_deref(), "tune2fs", &*w.args.img);
            undo_file::with(&w.global(global), named, |g| cmd::tune::run(g, &w.args))
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

/// Runs a command that looks at an image.
fn look(global: &Global, command: &Look) -> ExitCode {
    match command {
        Look::Info(args) => cmd::info::run(global, args),
        Look::Ls(args) => cmd::ls::run(global, args),
        Look::Tree(args) => cmd::tree::run(global, args),
        Look::Find(w) => cmd::find::run(&w.global(global), &w.args),
        Look::Stat(args) => cmd::stat::run(global, args),
        Look::Cat(args) => cmd::cat::run(global, args),
        Look::Readlink(args) => cmd::readlink::run(global, args),
        Look::Df(args) => cmd::df::run(global, args),
        Look::Du(args) => cmd::du::run(global, args),
    }
}

//! `diorite serve`: devices for clients, until a signal ends it.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `exports` | locators -> devices under names |
//! | `stats` | counters -> lines |
//! | `sweeper` | what a server in its sandbox says -> its pid file made; that and its socket removed |
//!
//! Input: options. Output: a line that says where clients can connect; statistics; an exit code. Invariants: the line, the pid
//! file and the ready descriptor come after clients can connect; after a signal the server is drained before devices are closed; before the
//! first device is opened the process is in a sandbox that has only what it needs, and before the first client is heard it is not root's
//! any more. Limits: NBD.

mod exports;
mod stats;
mod sweeper;

use crate::args::{Global, NbdArgs, Serve, ServeArgs};
use crate::host::process::spare_from_oom;
use crate::host::sandbox::{Needs, Sandbox};
use crate::host::service::{Event, PidFile, Ready, Signals};
use crate::output::report::{Reason, Report};
use diorite_fuse::become_nobody;
use diorite_nbd::{Listen, Listeners, Options, Server, tls};
use rustix::process::{Pid, Signal, geteuid, getppid, set_parent_process_death_signal};
use std::process::ExitCode;
use sweeper::Sweeper;

/// Rings for clients, at most, and for what works beside them.
const MOST_RINGS: usize = 128;
const RINGS: usize = 32;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &ServeArgs) -> ExitCode {
    let Serve::Nbd(args) = &args.how;
    if let Some(socket) = args.sweep {
        return sweeper::run(socket, args);
    }
    let mut report = Report::new("serve nbd", &args.locators[0]);
    if let Err(why) = serve(global, args, &mut report) {
        report.host(why);
    }
    report.exit_code()
}

fn serve(global: &Global, args: &NbdArgs, report: &mut Report) -> Result<(), Reason> {
    let text = |what: &'static str| move |e: std::io::Error| Reason::new(format!("{what}: {e}"));
    // Before anything is opened: a signal from now on ends the server in order.
    let mut signals = Signals::watch().map_err(text("cannot watch for signals"))?;
    let parent = getppid();
    if !end_with_parent(args, parent)? {
        return Ok(());
    }
    spare_from_oom();
    let options = options(args)?;
    let ready = args.ready_fd.map(Ready::open).transpose()?;
    // Outside of the sandbox: names are made and removed there, for which a whole directory would have to be permitted.
    let sweeper = (!args.no_sandbox).then(Sweeper::start).transpose()?;
    let listeners = Listeners::open(&addresses(args), options);
    let listeners = listeners.map_err(|e| Reason::new(e.to_string()))?;
    let mut sweeper = sweeper.map(Sweeper::made).transpose()?;
    let sandbox = match args.no_sandbox {
        true => None,
        false => Some(enter(global, args, report)?),
    };
    let Some(exports) = exports::open(global, args, report) else {
        return Ok(());
    };
    let pid_file = match (&mut sweeper, args.pid_file.as_deref()) {
        (Some(sweeper), Some(_)) => sweeper.write_pid_file().map(|()| None)?,
        (None, Some(path)) => Some(PidFile::write(path)?),
        (_, None) => None,
    };
    if sandbox.is_some() && geteuid().is_root() {
        // Everything is open that root is needed for.
        become_nobody().map_err(|e| Reason::host("the user nobody", e))?;
        // The kernel forgets it with the user.
        if !end_with_parent(args, parent)? {
            return Ok(());
        }
    }
    let server = listeners.serve(exports);
    let server = server.map_err(|e| Reason::new(e.to_string()))?;
    tell(ready, &server, report)?;
    if let (Some(sandbox), true) = (&sandbox, args.verbose) {
        report.done(sandbox.state());
    }
    while signals.next().map_err(text("cannot wait for signals"))? == Event::Stats {
        stats::print(&server, report);
    }
    for (name, error) in server.drain() {
        report.host(format_args!(
            "export {name:?}: {error}: data that clients wrote may be lost"
        ));
    }
    if args.verbose {
        stats::print(&server, report);
    }
    drop(pid_file);
    Ok(())
}

/// Limits the process to the files and system calls that it needs.
fn enter(global: &Global, args: &NbdArgs, report: &Report) -> Result<Sandbox, Reason> {
    let mut sandbox = needs(global, args).enter()?;
    if let Some(gap) = sandbox.gap() {
        report.warn(format_args!("{gap} (--no-sandbox does not say so)"));
    }
    sandbox.limit_calls(usize::from(args.connections).min(MOST_RINGS) + RINGS)?;
    Ok(sandbox)
}

/// A signal comes when the parent process ends, if that was asked for. False: it has ended.
fn end_with_parent(args: &NbdArgs, parent: Option<Pid>) -> Result<bool, Reason> {
    if !args.exit_with_parent {
        return Ok(true);
    }
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|e| Reason::host("cannot watch the parent process", e))?;
    Ok(getppid() == parent)
}

/// What the server opens from the start to its end.
fn needs(global: &Global, args: &NbdArgs) -> Needs {
    let mut needs = Needs::new();
    exports::needs(global, args, &mut needs);
    needs
}

fn options(args: &NbdArgs) -> Result<Options, Reason> {
    let tls = match (&args.tls_cert, &args.tls_key) {
        (Some(cert), Some(key)) => {
            let config = tls::config(cert, key, args.tls_ca.as_deref());
            Some(config.map_err(|e| Reason::new(e.to_string()))?)
        }
        _ => None,
    };
    Ok(Options::default()
        .connections(usize::from(args.connections))
        .tls(tls)
        .insecure_tcp(args.insecure_tcp))
}

fn addresses(args: &NbdArgs) -> Vec<Listen> {
    let socket = args.socket.clone().map(Listen::Unix);
    let listen = args.listen.map(Listen::Tcp);
    socket.into_iter().chain(listen).collect()
}

/// Says that clients can connect: on standard output, to the ready descriptor.
fn tell(ready: Option<Ready>, server: &Server, report: &Report) -> Result<(), Reason> {
    for address in server.addresses() {
        let uri = address.uri("");
        report.done(format_args!("listening at {address}: {uri}"));
    }
    ready.map_or(Ok(()), Ready::tell)
}

//! `diorite serve`: devices for clients, until a signal ends it.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `exports` | locators -> devices under names |
//! | `stats` | counters -> lines |
//!
//! Input: options. Output: a line that says where clients can connect; statistics; an exit code. Invariants: the line, the pid
//! file and the ready descriptor come after clients can connect; after a signal the server is drained before devices are closed; before the
//! first device is opened the process is in a sandbox that has only what it needs.
//! Limits: NBD.

mod exports;
mod stats;

use crate::args::{Global, NbdArgs, Serve, ServeArgs};
use crate::report::{Reason, Report};
use crate::sandbox::Needs;
use crate::service::{Event, PidFile, Ready, Signals};
use diorite_nbd::{Listen, Options, Server, tls};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::process::ExitCode;

/// Runs the command.
pub(crate) fn run(global: &Global, args: &ServeArgs) -> ExitCode {
    let Serve::Nbd(args) = &args.how;
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
    if args.exit_with_parent {
        let parent = getppid();
        set_parent_process_death_signal(Some(Signal::TERM))
            .map_err(|e| Reason::host("cannot watch the parent process", e))?;
        if getppid() != parent {
            return Ok(());
        }
    }
    let options = options(args)?;
    let ready = args.ready_fd.map(Ready::open).transpose()?;
    let mut sandbox = match args.no_sandbox {
        true => None,
        false => Some(needs(global, args).enter()?),
    };
    let Some(exports) = exports::open(global, args, report) else {
        return Ok(());
    };
    let server = Server::start(exports, &addresses(args), options)
        .map_err(|e| Reason::new(e.to_string()))?;
    if let Some(sandbox) = &mut sandbox {
        sandbox.limit_calls()?;
    }
    let told = tell(args, ready, &server, report);
    let pid_file = told?;
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

/// What the server opens from the start to its end.
fn needs(global: &Global, args: &NbdArgs) -> Needs {
    let mut needs = Needs::new();
    // Nobody outside the sandbox names the holder of an image.
    needs.processes();
    exports::needs(global, args, &mut needs);
    for path in args.socket.iter() {
        needs.socket(path);
    }
    for path in args.pid_file.iter() {
        needs.new_file(path);
    }
    if args.listen.is_some() {
        needs.tcp();
    }
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
    Ok(Options {
        connections: usize::from(args.connections),
        tls,
        insecure_tcp: args.insecure_tcp,
        ..Options::default()
    })
}

fn addresses(args: &NbdArgs) -> Vec<Listen> {
    let socket = args.socket.clone().map(Listen::Unix);
    let listen = args.listen.map(Listen::Tcp);
    socket.into_iter().chain(listen).collect()
}

/// Says that clients can connect: on standard output, in the pid file, to the ready descriptor.
fn tell(
    args: &NbdArgs,
    ready: Option<Ready>,
    server: &Server,
    report: &Report,
) -> Result<Option<PidFile>, Reason> {
    for address in server.addresses() {
        let uri = address.uri("");
        report.done(format_args!("listening at {address}: {uri}"));
    }
    let pid_file = args.pid_file.as_deref().map(PidFile::write).transpose()?;
    ready.map_or(Ok(()), Ready::tell)?;
    Ok(pid_file)
}

//! Options of `serve`.
//!
//! Input: the process's arguments. Output: options. Invariant: parsing opens nothing. Limits: none of its own.

use clap::{Args, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;

/// `serve`.
#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    #[command(subcommand)]
    pub(crate) how: Serve,
}

/// The protocols.
#[derive(Debug, Subcommand)]
pub(crate) enum Serve {
    /// Serve devices over NBD: images, block devices, and files inside images
    #[command(
        long_about = NBD,
        after_help = "Examples:\n  \
            diorite serve nbd --socket /tmp/disk.sock disk.img\n  \
            diorite serve nbd --listen 127.0.0.1:10809 data=disk.img 'vm=outer.img!/vm/disk.img'\n  \
            diorite serve nbd --read-only --listen 0.0.0.0:10809 --tls-cert c.pem --tls-key k.pem disk.img"
    )]
    Nbd(NbdArgs),
}

const NBD: &str = "\
Serve devices over NBD, the network block device protocol, until a signal ends it: image files, block devices, and files inside \
images (OUTER!/path). Clients are qemu, libnbd's tools (nbdcopy, nbdinfo), nbd-client and others.

Several locators become several exports. An export's name is the NAME of NAME=LOCATOR, or of the option --name at the same place \
in the order; otherwise the file's name. The first export is also the default one, which clients get who give no name.

Devices are opened for writing unless --read-only is given or the locator has ?ro. Requests are multiples of the device's logical \
block, which clients are told; others are refused. A flush makes durable what was acknowledged on all connections.

A Unix socket is accessible to its owner only. TCP without TLS is possible on loopback addresses only, unless --insecure-tcp is \
given. With --tls-cert and --tls-key, TCP clients have to begin TLS; with --tls-ca, they have to show a certificate that this \
authority signed.

Before it opens the first image the process gives up what it does not need: it can open no other files (Landlock) and make only the system \
calls that serving takes (seccomp), and root's becomes the user nobody's when everything is open; -v says so. A kernel without Landlock is \
always named. A second process, outside of that, makes the pid file and removes it and the socket.

All clients together get 1 GiB of memory, of which each may have 1 MiB of its own; more only if more than 512 may be \
connected. A client that takes no replies, or announces what it does not send, \
delays nobody else; a write of more than 2 MiB is written in pieces as it arrives.

SIGTERM and SIGINT end the server: requests under way end, later ones are refused, everything is made durable. SIGUSR1 prints \
statistics. If the process is killed, nothing is lost that was flushed.

Exit status: 0 if a signal ended it; 1 if a device or address could not be opened, or a flush at the end failed; 2 for wrong usage.";

/// `serve nbd`.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("at").required(true).multiple(true).args(["socket", "listen"]))]
pub(crate) struct NbdArgs {
    /// Listen at this Unix socket
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Listen at this TCP address; port 0 is any free one
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// The name of the export, for each locator in order
    #[arg(long, value_name = "NAME", action = clap::ArgAction::Append)]
    pub(crate) name: Vec<String>,
    /// Refuse writes
    #[arg(short, long)]
    pub(crate) read_only: bool,
    /// Clients at once; more are turned away
    #[arg(long, value_name = "N", default_value = "128", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) connections: u16,
    /// The server's certificate, and those between it and its authority (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key", requires = "listen")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Clients need a certificate signed by this authority (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Permit TCP without TLS on addresses that are not loopback: everybody there can read and write
    #[arg(long)]
    pub(crate) insecure_tcp: bool,
    /// Write the process's number to this file when clients can connect; it is removed at the end
    #[arg(long, value_name = "FILE")]
    pub(crate) pid_file: Option<PathBuf>,
    /// Write a line to this descriptor when clients can connect
    #[arg(long, value_name = "N")]
    pub(crate) ready_fd: Option<u32>,
    /// End when the process ends that started this one
    #[arg(long)]
    pub(crate) exit_with_parent: bool,
    /// Do not limit the process to the files and system calls that it needs
    #[arg(long)]
    pub(crate) no_sandbox: bool,
    /// Print statistics at the end
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// The process removes what the one at the other end of this socket leaves.
    #[arg(long, hide = true, value_name = "N")]
    pub(crate) sweep: Option<u32>,
    /// What to serve: LOCATOR or NAME=LOCATOR
    #[arg(required = true, value_name = "LOCATOR")]
    pub(crate) locators: Vec<String>,
}

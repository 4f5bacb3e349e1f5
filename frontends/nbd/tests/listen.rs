//! Where a server listens: Unix sockets and their names, TCP, TLS.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use diorite_block::MemDevice;
use diorite_nbd::{Address, Export, Listen, Options, Server, ServerError, tls};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

fn start(listen: Listen, options: Options) -> Result<Server, ServerError> {
    let export = Export::new("a", Arc::new(MemDevice::new(1 << 20)));
    Server::start(vec![export], &[listen], options)
}

#[test]
fn a_unix_socket_is_for_its_owner_alone() {
    let bed = serve(vec![Arc::new(MemDevice::new(1 << 20))]);
    let mode = std::fs::metadata(&bed.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(bed.client("", How::Simple).size > 0, "the default export");
}

#[test]
fn the_socket_of_a_server_that_is_gone_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    // Its name stays when it is closed.
    drop(UnixListener::bind(&path).unwrap());
    let server = start(Listen::Unix(path.clone()), Options::default()).unwrap();
    Client::connect(&path, "a", How::Simple);
    let second = start(Listen::Unix(path.clone()), Options::default());
    assert!(matches!(second, Err(ServerError::Answered(_))));
    Client::connect(&path, "a", How::Simple);
    // Something else has the name now: it stays.
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "mine").unwrap();
    drop(server);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    let third = start(Listen::Unix(path.clone()), Options::default());
    assert!(matches!(third, Err(ServerError::InTheWay(_))));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn names_of_exports_differ() {
    let export = || Export::new("a", Arc::new(MemDevice::new(1 << 20)));
    let dir = tempfile::tempdir().unwrap();
    let at = [Listen::Unix(dir.path().join("s"))];
    let twice = Server::start(vec![export(), export()], &at, Options::default());
    assert!(matches!(twice, Err(ServerError::SameName(_))));
    let none = Server::start(vec![], &at, Options::default());
    assert!(matches!(none, Err(ServerError::NoExport)));
    assert!(!dir.path().join("s").exists());
}

#[test]
fn tcp_without_tls_is_for_loopback() {
    let any = Listen::Tcp("0.0.0.0:0".parse().unwrap());
    let refused = start(any.clone(), Options::default());
    assert!(matches!(refused, Err(ServerError::Insecure(_))));
    let permitted = Options::default().insecure_tcp(true);
    start(any, permitted).unwrap();
    let loopback = Listen::Tcp("127.0.0.1:0".parse().unwrap());
    let server = start(loopback, Options::default()).unwrap();
    let Address::Tcp(at, false) = server.addresses()[0] else {
        panic!("{:?}", server.addresses());
    };
    let mut stream = TcpStream::connect(at).unwrap();
    greet(&mut stream).unwrap();
    let mut client = Client::choose(Box::new(stream), "a", How::Extended).unwrap();
    assert_eq!(client.write(0, 0, &[1; 4096]), 0);
    assert_eq!(client.ask(READ, 0, 0, 4096).data, [1; 4096]);
    assert_eq!(
        server.addresses()[0].uri("x y"),
        format!("nbd://{at}/x%20y")
    );
}

#[test]
fn a_uri_names_the_socket() {
    let at = Address::Unix("/tmp/a b".into());
    assert_eq!(at.uri("e?"), "nbd+unix:///e%3F?socket=/tmp/a%20b");
}

/// Makes an authority, and certificates that it signed, with openssl. False if that is not possible.
fn certificates(dir: &Path) -> bool {
    let openssl = |args: &[&str]| {
        let made = xtask::run::tool("openssl")
            .args(args)
            .current_dir(dir)
            .output();
        made.is_ok_and(|out| out.status.success())
    };
    let key = [
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ];
    let ca = [
        "req", "-x509", "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.pem",
    ];
    let mut all = openssl(&[&ca[..], &key].concat());
    for name in ["server", "client"] {
        let (keyout, out) = (format!("{name}.key"), format!("{name}.pem"));
        let signed = [
            "req",
            "-x509",
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-keyout",
            &keyout,
            "-out",
            &out,
        ];
        all &= openssl(&[&signed[..], &key].concat());
    }
    all
}

fn client_config(dir: &Path, with_certificate: bool) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_file(dir.join("ca.pem")).unwrap();
    roots.add(ca).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    Arc::new(match with_certificate {
        false => builder.with_no_client_auth(),
        true => {
            let chain = vec![CertificateDer::from_pem_file(dir.join("client.pem")).unwrap()];
            let key = PrivateKeyDer::from_pem_file(dir.join("client.key")).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    })
}

fn secured(at: std::net::SocketAddr, config: Arc<ClientConfig>) -> std::io::Result<Client> {
    let mut stream = TcpStream::connect(at)?;
    greet(&mut stream)?;
    option(&mut stream, 5, &[])?;
    assert_eq!(option_reply(&mut stream)?.0, 1);
    let name = ServerName::try_from("localhost").unwrap();
    let tls = ClientConnection::new(config, name).map_err(std::io::Error::other)?;
    Client::choose(Box::new(StreamOwned::new(tls, stream)), "a", How::Extended)
}

#[test]
fn with_certificates_tls_is_required() {
    let dir = tempfile::tempdir().unwrap();
    if !certificates(dir.path()) {
        xtask::skip::skipped("openssl makes no certificates here");
        return;
    }
    let file = |name: &str| dir.path().join(name);
    for mutual in [false, true] {
        let ca = file("ca.pem");
        let config = tls::config(
            &file("server.pem"),
            &file("server.key"),
            mutual.then_some(&*ca),
        );
        let options = Options::default().tls(config.unwrap());
        let server = start(Listen::Tcp("127.0.0.1:0".parse().unwrap()), options).unwrap();
        let Address::Tcp(at, true) = server.addresses()[0] else {
            panic!("{:?}", server.addresses());
        };
        // Without TLS.
        let mut stream = TcpStream::connect(at).unwrap();
        greet(&mut stream).unwrap();
        assert!(Client::choose(Box::new(stream), "a", How::Simple).is_err());
        // With it, many requests under way, large and small.
        let mut client = secured(at, client_config(dir.path(), mutual)).unwrap();
        for n in 0..100u64 {
            client.send(WRITE, 0, n * 4096, 4096, &[n as u8 + 1; 4096]);
        }
        for _ in 0..100 {
            assert_eq!(client.recv().errno, 0);
        }
        let all = client.ask(READ, 0, 0, 100 * 4096).data;
        assert!((0..100).all(|n| all[n * 4096] == n as u8 + 1));
        assert_eq!(client.write(0, 0, &vec![3; 1 << 20]), 0);
        for _ in 0..20 {
            client.send(READ, 0, 0, 1 << 20, &[]);
        }
        for _ in 0..20 {
            assert_eq!(client.recv().data, vec![3; 1 << 20]);
        }
        if mutual {
            assert!(secured(at, client_config(dir.path(), false)).is_err());
        }
        // Nonsense instead of TLS.
        let mut stream = TcpStream::connect(at).unwrap();
        greet(&mut stream).unwrap();
        option(&mut stream, 5, &[]).unwrap();
        option_reply(&mut stream).unwrap();
        let _ = option(&mut stream, 7, &name_and("a", &[0, 0]));
        let _ = stream.read_to_end(&mut Vec::new());
        drop(client);
        while server.stats().connected > 0 {
            std::thread::yield_now();
        }
        assert_eq!(server.stats().in_use, 0);
    }
    let wrong = tls::config(&file("server.pem"), &file("client.key"), None);
    assert!(wrong.is_err(), "the key of another certificate");
    assert!(tls::config(&file("server.key"), &file("server.key"), None).is_err());
}

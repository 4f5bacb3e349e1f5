//! The server's side of TLS: certificates and keys from files.
//!
//! Input: paths of PEM files. Output: a configuration. Invariants: TLS 1.2 and later; with certificates of an authority, clients have to
//! show one that it signed. Limits: X.509; no pre-shared keys.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

/// Why there is no configuration: what was read, and what is wrong with it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(String);

fn wrong(path: &Path, what: impl Display) -> TlsError {
    TlsError(format!("{}: {what}", path.display()))
}

/// A configuration with the server's certificate (and those between it and its authority), its key, and perhaps the authority that signs
/// clients' certificates.
///
/// # Errors
/// A file cannot be read, or does not hold what it should; the key is not that of the certificate.
pub fn config(cert: &Path, key: &Path, ca: Option<&Path>) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = certificates(cert)?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|e| wrong(key, e))?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| TlsError(e.to_string()))?;
    let builder = match ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            for root in certificates(ca)? {
                roots.add(root).map_err(|e| wrong(ca, e))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|e| wrong(ca, e))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let config = builder
        .with_single_cert(chain, secret)
        .map_err(|e| wrong(cert, e))?;
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).map_err(|e| wrong(path, e))?;
    let all: Result<Vec<_>, _> = read.collect();
    let all = all.map_err(|e| wrong(path, e))?;
    match all.is_empty() {
        true => Err(wrong(path, "there is no certificate in it")),
        false => Ok(all),
    }
}

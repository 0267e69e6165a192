//! Redis with TLS, and a client that speaks as much of its protocol as `MGET` takes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use hotset_cluster::etcd::Tls;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::Section;

const PORT: u16 = 6390;

/// A server that ends with this.
pub(super) struct Redis {
    process: Child,
    host: String,
    pub(super) port: u16,
}

impl Redis {
    /// Starts it; nothing where there is none.
    pub(super) fn start(folder: &Path, host: &str) -> Option<Self> {
        let file = |name: &str| folder.join(name).display().to_string();
        let process = Command::new("redis-server")
            .args(["--bind", host, "--port", "0", "--tls-port", &PORT.to_string()])
            .args(["--tls-cert-file", &file("certificate"), "--tls-key-file", &file("key")])
            .args(["--tls-ca-cert-file", &file("authority"), "--tls-auth-clients", "no"])
            .args(["--protected-mode", "no"])
            .args(["--tls-protocols", "TLSv1.3", "--save", "", "--appendonly", "no", "--dir", &file("")])
            .stdout(Stdio::null())
            .spawn()
            .ok()?;
        Some(Self { process, host: host.to_owned(), port: PORT })
    }

    pub(super) fn client(&self, tls: &Tls) -> Client {
        Client::new(&self.host, self.port, tls)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// One connection.
pub(super) struct Client {
    stream: BufReader<StreamOwned<ClientConnection, TcpStream>>,
    asked: Vec<u8>,
}

impl Client {
    pub(super) fn new(host: &str, port: u16, tls: &Tls) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(tls.authority.as_bytes()).expect("PEM")).expect("a root");
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[&TLS13])
            .expect("TLS 1.3")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(host.to_owned()).expect("a name");
        let connection = ClientConnection::new(Arc::new(config), name).expect("TLS");
        let socket = (0..400).find_map(|_| {
            TcpStream::connect((host, port))
                .inspect_err(|_| std::thread::sleep(Duration::from_millis(25)))
                .ok()
        });
        let socket = socket.expect("a server that answers");
        socket.set_nodelay(true).expect("a socket");
        // More than a reply of small samples.
        let stream = BufReader::with_capacity(256 << 10, StreamOwned::new(connection, socket));
        Self { stream, asked: Vec::new() }
    }

    /// Puts all samples of a section.
    pub(super) fn fill(&mut self, section: &Section) {
        for at in 0..section.samples() {
            self.begin(&["SET", &key(section.size, at)], 1);
            self.part(&section.sample(at));
            self.send();
            assert_eq!(self.line(), "+OK");
        }
    }

    /// Gets samples into places.
    pub(super) fn get(&mut self, samples: usize, slots: &[u32], places: &mut [&mut [u8]]) {
        self.begin(&["MGET"], slots.len());
        for &slot in slots {
            self.part(key(places[0].len(), slot as usize % samples).as_bytes());
        }
        self.send();
        assert_eq!(self.line(), format!("*{}", slots.len()));
        for place in places {
            assert_eq!(self.line(), format!("${}", place.len()));
            self.stream.read_exact(place).expect("a sample");
            self.stream.read_exact(&mut [0; 2]).expect("its end");
        }
    }

    fn begin(&mut self, words: &[&str], more: usize) {
        self.asked.clear();
        write!(self.asked, "*{}\r\n", words.len() + more).expect("memory");
        words.iter().for_each(|word| self.part(word.as_bytes()));
    }

    fn part(&mut self, part: &[u8]) {
        write!(self.asked, "${}\r\n", part.len()).expect("memory");
        self.asked.extend_from_slice(part);
        self.asked.extend_from_slice(b"\r\n");
    }

    fn send(&mut self) {
        self.stream.get_mut().write_all(&self.asked).expect("a connection");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }
}

fn key(size: usize, at: usize) -> String {
    format!("{size}/{at}")
}

//! The loopback port that metrics are scraped from.
//!
//! One thread answers one small HTTP request at a time: there is one page, and its readers come every few
//! seconds. Whoever is slow to ask or to read is dropped, so that nobody holds the thread.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use hotset_core::{Error, Result};

use crate::metrics;
use crate::server::Host;
use crate::session;

/// How long a client has for its request, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest request that is read.
const LONGEST: u64 = 8 << 10;

/// Listens on a loopback port; 0 chooses a free one. Returns the port.
pub(crate) fn start(port: u16, host: &Arc<Host>) -> Result<u16> {
    let failed = |error: std::io::Error| {
        Error::invalid(format!(
            "cannot listen on loopback port {port}: {error}; choose another `metrics` port"
        ))
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?.port();
    // A weak handle: a thread that waits for a client must not keep the server from ending.
    let host = Arc::downgrade(host);
    let run = move || {
        for stream in listener.incoming() {
            let Some(host) = host.upgrade() else { break };
            if let Err(error) = stream.and_then(|stream| answer(&stream, &host)) {
                tracing::debug!(%error, "a request for metrics failed");
            }
        }
    };
    std::thread::Builder::new().name("hotset-metrics".into()).spawn(run).map_err(failed)?;
    Ok(bound)
}

fn answer(mut stream: &TcpStream, host: &Arc<Host>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream.take(LONGEST));
    let mut asked = String::new();
    reader.read_line(&mut asked)?;
    // The rest of the head says nothing that changes the answer, but must be read before the end.
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let mut words = asked.split_whitespace();
    let (status, body) = match (words.next(), words.next()) {
        (Some("GET"), Some("/metrics")) => ("200 OK", metrics::render(&session::stats(host, ""))),
        (Some("GET"), _) => ("404 Not Found", "metrics are at /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "only GET is answered\n".to_owned()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

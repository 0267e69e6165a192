//! The loopback address that metrics are scraped from.
//!
//! There is one page. One thread gives it to all its readers and waits for none of them: requests are read as they
//! arrive, answers written as they are taken. A reader has [`PATIENCE`] for all of it, however busy it is, and at
//! most [`MOST`] are there at a time: one more takes the place of the oldest. So neither slow clients nor those that come in
//! numbers keeps the page from others.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hotset_core::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::metrics;
use crate::server::Host;

/// How long a reader has to ask and to take the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most readers at a time.
const MOST: usize = 32;
/// The longest request that is read.
const LONGEST: usize = 8 << 10;
/// How often the thread looks whether the server is still there.
const TICK: Duration = Duration::from_millis(250);

/// Reads a port of loopback, or an address with one. Others than loopback are refused: nothing here is encrypted, and
/// nobody is asked for a token.
pub fn loopback(text: &str) -> Result<SocketAddr> {
    if let Ok(port) = text.parse() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    let address: SocketAddr = text.replace("localhost:", "127.0.0.1:").parse().map_err(|_| {
        Error::invalid(format!(
            "`metrics` cannot be `{text}`: give a port, or an address like `127.0.0.1:9464`"
        ))
    })?;
    if !address.ip().is_loopback() {
        return Err(Error::invalid(format!(
            "`metrics` is `{text}`, which other hosts can reach: that takes TLS and a token, and this listener has neither. \
             Give `metrics` a port, which is loopback's, and let a proxy with TLS and a token of its own pass it on"
        )));
    }
    Ok(address)
}

/// Listens on an address of loopback; port 0 chooses a free one. Returns the address.
pub(crate) fn start(address: SocketAddr, host: &Arc<Host>) -> Result<SocketAddr> {
    let failed = |error: io::Error| {
        Error::invalid(format!("cannot listen on {address}: {error}; choose another `metrics` port"))
    };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    // A weak handle: a thread that waits for a reader must not keep the server from ending.
    let host = Arc::downgrade(host);
    let run = move || {
        serve(
            &listener,
            || host.strong_count() > 0,
            || host.upgrade().map(|host| metrics::render(&host.service.stats())).unwrap_or_default(),
        );
    };
    std::thread::Builder::new().name("hotset-metrics".into()).spawn(run).map_err(failed)?;
    Ok(bound)
}

/// Gives `page` to every reader, while the server is `alive`.
fn serve(listener: &TcpListener, alive: impl Fn() -> bool, page: impl Fn() -> String) {
    let mut readers: VecDeque<Reader> = VecDeque::new();
    while alive() {
        wait(listener, &readers);
        if let Err(error) = accept(listener, &mut readers) {
            // Out of descriptors, most likely; those that are here go on.
            tracing::debug!(%error, "cannot accept a reader of metrics");
            std::thread::sleep(TICK);
        }
        let now = Instant::now();
        readers.retain_mut(|reader| !reader.step(&page).unwrap_or(true) && !reader.overdue(now));
    }
}

/// Waits until a reader comes, asks or takes, but not for long.
fn wait(listener: &TcpListener, readers: &VecDeque<Reader>) {
    let mut asked = vec![PollFd::new(listener, PollFlags::IN)];
    asked.extend(readers.iter().map(|reader| {
        PollFd::new(&reader.stream, if reader.answer.is_empty() { PollFlags::IN } else { PollFlags::OUT })
    }));
    let tick = Timespec { tv_sec: 0, tv_nsec: i64::from(TICK.subsec_nanos()) };
    // Interrupted or not, what follows finds out what there is to do.
    let _ = poll(&mut asked, Some(&tick));
}

/// Accepts all connections that wait.
fn accept(listener: &TcpListener, readers: &mut VecDeque<Reader>) -> io::Result<()> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(true)?;
                if readers.len() == MOST {
                    readers.pop_front();
                }
                readers.push_back(Reader::new(stream, Instant::now()));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// A reader of the page.
struct Reader {
    stream: TcpStream,
    since: Instant,
    asked: Vec<u8>,
    /// Empty until all was asked.
    answer: Vec<u8>,
    written: usize,
}

impl Reader {
    fn new(stream: TcpStream, since: Instant) -> Self {
        Self { stream, since, asked: Vec::new(), answer: Vec::new(), written: 0 }
    }

    fn overdue(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= PATIENCE
    }

    /// Goes on as far as that needs no waiting; whether it is done with.
    fn step(&mut self, page: &impl Fn() -> String) -> io::Result<bool> {
        match self.go_on(page) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            done => done.map(|()| true),
        }
    }

    fn go_on(&mut self, page: &impl Fn() -> String) -> io::Result<()> {
        let mut piece = [0; 1024];
        while self.answer.is_empty() {
            let count = self.stream.read(&mut piece)?;
            self.asked.extend(&piece[..count]);
            if count == 0 || whole(&self.asked) {
                self.answer = answer(&self.asked, page);
            } else if self.asked.len() > LONGEST {
                return Ok(());
            }
        }
        while self.written < self.answer.len() {
            self.written += self.stream.write(&self.answer[self.written..])?;
        }
        Ok(())
    }
}

/// Whether a request's head has come to its end.
fn whole(asked: &[u8]) -> bool {
    [b"\r\n\r\n".as_slice(), b"\n\n"].iter().any(|end| asked.windows(end.len()).any(|part| part == *end))
}

fn answer(asked: &[u8], page: &impl Fn() -> String) -> Vec<u8> {
    let asked = String::from_utf8_lossy(asked);
    let mut words = asked.lines().next().unwrap_or_default().split_whitespace();
    let (status, body) = match (words.next(), words.next()) {
        (Some("GET"), Some("/metrics")) => ("200 OK", page()),
        (Some("GET"), _) => ("404 Not Found", "metrics are at /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "only GET is answered\n".to_owned()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// A page that is served until `work` is done.
    fn served(work: impl FnOnce(SocketAddr)) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let alive = AtomicBool::new(true);
        std::thread::scope(|scope| {
            scope.spawn(|| serve(&listener, || alive.load(Ordering::SeqCst), || "page".repeat(1 << 20)));
            work(address);
            alive.store(false, Ordering::SeqCst);
        });
    }

    fn scraped(address: SocketAddr) -> usize {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert!(said.starts_with("HTTP/1.1 200 OK"));
        said.split_once("\r\n\r\n").unwrap().1.len()
    }

    #[test]
    fn a_client_that_asks_slowly_or_not_at_all_keeps_the_page_from_no_other() {
        served(|address| {
            let mut slow = TcpStream::connect(address).unwrap();
            for byte in b"GET" {
                slow.write_all(&[*byte]).unwrap();
                assert_eq!(scraped(address), 4 << 20);
            }
        });
    }

    #[test]
    fn one_more_than_fit_takes_the_place_of_the_oldest() {
        served(|address| {
            let mut first = TcpStream::connect(address).unwrap();
            let silent: Vec<_> = (0..MOST).map(|_| TcpStream::connect(address).unwrap()).collect();
            assert_eq!(scraped(address), 4 << 20);
            assert_eq!(first.read(&mut [0]).unwrap(), 0, "it was hung up on");
            drop(silent);
        });
    }

    #[test]
    fn a_byte_now_and_then_wins_no_time() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let came = Instant::now();
        let mut reader = Reader::new(stream, came);
        slow.write_all(b"G").unwrap();
        reader.stream.set_nonblocking(true).unwrap();
        assert!(!reader.step(&String::new).unwrap());
        assert!(!reader.overdue(came + PATIENCE - Duration::from_millis(1)));
        assert!(reader.overdue(came + PATIENCE));
    }

    #[test]
    fn other_questions_are_answered_too() {
        let page = || "page".to_owned();
        for (asked, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("", "405"),
            ("GET /metrics\n", "200"),
        ] {
            let said = String::from_utf8(answer(asked.as_bytes(), &page)).unwrap();
            assert!(said.starts_with(&format!("HTTP/1.1 {status}")), "{asked}: {said}");
        }
    }

    #[test]
    fn only_loopback_is_listened_on() {
        for (text, address) in [
            ("9464", "127.0.0.1:9464"),
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("127.1.2.3:80", "127.1.2.3:80"),
            ("localhost:9464", "127.0.0.1:9464"),
            ("[::1]:9464", "[::1]:9464"),
        ] {
            assert_eq!(loopback(text).unwrap(), address.parse().unwrap(), "{text}");
        }
        for text in ["0.0.0.0:9464", "[::]:9464", "10.1.2.3:80", "[::ffff:127.0.0.1]:80"] {
            let refused = loopback(text).unwrap_err().message;
            assert!(refused.contains("`metrics`") && refused.contains("TLS"), "{refused}");
        }
        for text in ["", "70000", "host:80", "127.0.0.1"] {
            assert!(loopback(text).unwrap_err().message.contains("`metrics` cannot be"), "{text}");
        }
    }
}

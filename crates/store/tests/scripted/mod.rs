//! An HTTP server that answers as a test tells it to.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a client asked.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) method: String,
    /// With its query.
    pub(crate) path: String,
    /// Of `Range: bytes=a-b`: a and b + 1.
    pub(crate) range: Option<(usize, usize)>,
    /// What it sent along.
    pub(crate) body: Vec<u8>,
}

/// What to say.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) tag: &'static str,
    pub(crate) body: Vec<u8>,
    /// Bytes of the body that are sent before the connection is closed.
    pub(crate) sent: usize,
    pub(crate) after: Duration,
    /// Where else to ask.
    pub(crate) location: String,
}

impl Answer {
    pub(crate) fn status(status: u16) -> Self {
        let (body, location) = (b"why".to_vec(), String::new());
        Self { status, tag: "v1", body, sent: usize::MAX, after: Duration::ZERO, location }
    }

    pub(crate) fn object(tag: &'static str, body: &[u8]) -> Self {
        Self { status: 200, tag, body: body.to_vec(), ..Self::status(200) }
    }
}

type Script = Box<dyn FnMut(&Asked) -> Answer + Send>;

pub(crate) struct Scripted {
    pub(crate) port: u16,
    script: Arc<Mutex<Script>>,
    pub(crate) requests: Arc<AtomicUsize>,
    /// Requests under way, and the most there were.
    pub(crate) under_way: Arc<[AtomicUsize; 2]>,
    stop: Arc<AtomicBool>,
}

impl Scripted {
    pub(crate) fn new(script: impl FnMut(&Asked) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let script: Arc<Mutex<Script>> = Arc::new(Mutex::new(Box::new(script)));
        let (requests, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (told, counted, stopped) = (Arc::clone(&script), Arc::clone(&requests), Arc::clone(&stop));
        let under_way = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let going = Arc::clone(&under_way);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let (told, counted, stopped) =
                    (Arc::clone(&told), Arc::clone(&counted), Arc::clone(&stopped));
                let going = Arc::clone(&going);
                std::thread::spawn(
                    move || {
                        while serve(&stream, &told, &counted, &stopped, &going).is_some() {}
                    },
                );
            }
        });
        Self { port, script, requests, under_way, stop }
    }

    /// From now on answers are these.
    pub(crate) fn now(&self, script: impl FnMut(&Asked) -> Answer + Send + 'static) {
        *self.script.lock().unwrap() = Box::new(script);
    }

    pub(crate) fn count(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// One request on a connection; `None` when it is over.
fn serve(
    stream: &TcpStream,
    script: &Mutex<Script>,
    requests: &AtomicUsize,
    stopped: &AtomicBool,
    [now, most]: &[AtomicUsize; 2],
) -> Option<()> {
    let mut lines = BufReader::new(stream);
    let mut first = String::new();
    lines.read_line(&mut first).ok().filter(|count| *count > 0)?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (mut range, mut length) = (None, 0);
    loop {
        let mut line = String::new();
        lines.read_line(&mut line).ok().filter(|count| *count > 0)?;
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(bytes) = line.strip_prefix("range: bytes=") {
            let (from, to) = bytes.split_once('-')?;
            range = Some((from.parse().ok()?, to.parse::<usize>().ok()? + 1));
        }
        if let Some(count) = line.strip_prefix("content-length: ") {
            length = count.parse().ok()?;
        }
    }
    let mut body = Vec::new();
    lines.by_ref().take(length).read_to_end(&mut body).ok()?;
    if stopped.load(Ordering::SeqCst) {
        return None;
    }
    requests.fetch_add(1, Ordering::SeqCst);
    let asked = Asked { method, path, range, body };
    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    let answer = (script.lock().unwrap())(&asked);
    std::thread::sleep(answer.after);
    now.fetch_sub(1, Ordering::SeqCst);
    reply(stream, &asked, &answer)
}

fn reply(mut stream: &TcpStream, asked: &Asked, answer: &Answer) -> Option<()> {
    let total = answer.body.len();
    let (mut status, mut body, mut extra) = (answer.status, &answer.body[..], String::new());
    if let (200, Some((from, to))) = (status, asked.range) {
        if from >= total {
            (status, body) = (416, &[]);
        } else {
            body = &body[from..to.min(total)];
            status = 206;
            extra = format!("Content-Range: bytes {from}-{}/{total}\r\n", to.min(total) - 1);
        }
    }
    if !answer.location.is_empty() {
        extra.push_str(&format!("Location: {}\r\n", answer.location));
    }
    let head = format!(
        "HTTP/1.1 {status} Told\r\nContent-Length: {}\r\nETag: \"{}\"\r\n\
         Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n{extra}\r\n",
        body.len(),
        answer.tag
    );
    stream.write_all(head.as_bytes()).ok()?;
    if asked.method == "HEAD" {
        return Some(());
    }
    stream.write_all(&body[..answer.sent.min(body.len())]).ok()?;
    if answer.sent < body.len() {
        let _ = stream.shutdown(std::net::Shutdown::Both);
        return None;
    }
    Some(())
}

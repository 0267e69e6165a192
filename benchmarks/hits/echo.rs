//! The floor of the readers' row: a server that does nothing but answer, a thread for each connection.
//!
//! A connection begins with two 32-bit little-endian numbers, the bytes of a request and of an answer. Then
//! each request is read whole and answered, until the other end closes.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};

fn serve(mut stream: UnixStream) -> std::io::Result<()> {
    let mut length = || -> std::io::Result<usize> {
        let mut bytes = [0; 4];
        stream.read_exact(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes) as usize)
    };
    let (mut request, answer) = (vec![0; length()?], vec![7; length()?]);
    loop {
        stream.read_exact(&mut request)?;
        stream.write_all(&answer)?;
    }
}

fn main() -> std::io::Result<()> {
    let path = std::env::args_os().nth(1).ok_or(std::io::ErrorKind::InvalidInput)?;
    for stream in UnixListener::bind(path)?.incoming() {
        let stream = stream?;
        // A connection that ends is how a reader says that it is done.
        std::thread::spawn(move || serve(stream));
    }
    Ok(())
}

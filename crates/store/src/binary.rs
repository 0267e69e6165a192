//! The few shapes our own files are written in: little-endian numbers, and text after its length.
//!
//! Reading never panics and never allocates for a length it has not seen the bytes of.

use std::io::{self, Write};

/// The bytes end before the value does, or are no text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is cut short or garbled")]
pub(crate) struct Garbled;

/// Takes values off the front of bytes.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Garbled> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Garbled)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Garbled> {
        self.take(N)?.try_into().map_err(|_| Garbled)
    }

    pub(crate) fn number(&mut self) -> Result<u32, Garbled> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn long(&mut self) -> Result<u64, Garbled> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Garbled> {
        let length = self.array().map(u16::from_le_bytes)?;
        std::str::from_utf8(self.take(length.into())?).map_err(|_| Garbled)
    }

    /// So many texts as their count says.
    pub(crate) fn texts(&mut self) -> Result<Vec<String>, Garbled> {
        let count = self.number()?;
        (0..count).map(|_| self.text().map(str::to_owned)).collect()
    }
}

/// Writes what [`Reader`] reads.
pub(crate) struct Writer<W>(pub(crate) W);

impl<W: Write> Writer<W> {
    pub(crate) fn number(&mut self, value: u32) -> io::Result<()> {
        self.0.write_all(&value.to_le_bytes())
    }

    pub(crate) fn long(&mut self, value: u64) -> io::Result<()> {
        self.0.write_all(&value.to_le_bytes())
    }

    /// A count that [`Reader::number`] reads.
    pub(crate) fn count(&mut self, count: usize) -> io::Result<()> {
        self.number(u32::try_from(count).map_err(|_| too_long())?)
    }

    pub(crate) fn text(&mut self, text: &str) -> io::Result<()> {
        let length = u16::try_from(text.len()).map_err(|_| too_long())?;
        self.0.write_all(&length.to_le_bytes())?;
        self.0.write_all(text.as_bytes())
    }

    pub(crate) fn texts(&mut self, texts: &[String]) -> io::Result<()> {
        self.count(texts.len())?;
        texts.iter().try_for_each(|text| self.text(text))
    }
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "a text or list is too long to be kept")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_cut_short_is_garbled() {
        let mut writer = Writer(Vec::new());
        writer.number(u32::MAX).unwrap();
        writer.long(u64::MAX - 1).unwrap();
        writer.texts(&["é".into(), String::new()]).unwrap();
        let bytes = writer.0;
        let read = |bytes: &[u8]| {
            let mut reader = Reader(bytes);
            let values = (reader.number()?, reader.long()?, reader.texts()?);
            Ok((values, reader.0.len()))
        };
        let values = (u32::MAX, u64::MAX - 1, vec!["é".to_owned(), String::new()]);
        assert_eq!(read(&bytes), Ok((values, 0)));
        for length in 0..bytes.len() {
            assert_eq!(read(&bytes[..length]), Err(Garbled));
        }
    }

    #[test]
    fn a_count_of_billions_with_nothing_behind_it_is_garbled() {
        assert_eq!(Reader(&u32::MAX.to_le_bytes()).texts(), Err(Garbled));
        assert_eq!(Reader(&[2, 0, 0xff, 0xfe]).text(), Err(Garbled));
        assert!(Writer(Vec::new()).text(&"x".repeat(1 << 16)).is_err());
    }
}

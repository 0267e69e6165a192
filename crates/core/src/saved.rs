//! Saved state as bytes: what policies and strategies write down so that a restart changes nothing.
//!
//! Numbers are short where they are small (seven bits a byte, the lowest first), an id takes the bytes that
//! the largest id of the catalog needs. A checksum over the bytes, the name of whose they are and the number
//! of samples comes last, so that what is damaged, cut short or foreign is told from what is whole.
//! Every read says `None` where it cannot be; nothing is allocated for more than the bytes that are there.

use crate::Id;

/// The bytes of the checksum.
const SEAL: usize = 8;

/// How many bytes an id of a catalog of `samples` takes.
fn width(samples: usize) -> usize {
    let bits = usize::BITS - samples.saturating_sub(1).leading_zeros();
    bits.div_ceil(8).clamp(1, 4) as usize
}

/// A hash of `name`, the number of samples and `bytes`, eight bytes a step, with the numbers of FNV-1a: any one of them that
/// changes changes it, since every step can be undone.
fn checksum(name: &str, samples: usize, bytes: &[u8]) -> u64 {
    let step =
        |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(u64::BITS / 2);
    let (words, rest) = bytes.as_chunks::<8>();
    let rest = rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
    let head = [samples as u64, bytes.len() as u64, rest];
    let hash = name.bytes().map(u64::from).chain(head).fold(0xcbf2_9ce4_8422_2325, step);
    words.iter().map(|word| u64::from_le_bytes(*word)).fold(hash, step)
}

/// Writes what [`Reader`] reads.
pub(crate) struct Writer {
    bytes: Vec<u8>,
    samples: usize,
}

impl Writer {
    /// Of a catalog of `samples`.
    pub(crate) fn new(samples: usize) -> Self {
        Self { bytes: Vec::new(), samples }
    }

    /// A number that is often small.
    pub(crate) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    /// The lowest `count` bytes of a number.
    pub(crate) fn fixed(&mut self, number: u64, count: usize) {
        self.bytes.extend(&number.to_le_bytes()[..count]);
    }

    /// How many ids there are, and each.
    pub(crate) fn ids(&mut self, ids: impl ExactSizeIterator<Item = Id>) {
        self.number(ids.len() as u64);
        match width(self.samples) {
            1 => self.all::<1>(ids),
            2 => self.all::<2>(ids),
            3 => self.all::<3>(ids),
            _ => self.all::<4>(ids),
        }
    }

    /// The lowest `W` bytes of each id.
    fn all<const W: usize>(&mut self, ids: impl ExactSizeIterator<Item = Id>) {
        let begin = self.bytes.len();
        self.bytes.resize(begin + W * ids.len(), 0);
        let places = self.bytes[begin..].as_chunks_mut::<W>().0;
        places.iter_mut().zip(ids).for_each(|(place, id)| place.copy_from_slice(&id.to_le_bytes()[..W]));
    }

    /// One bit each.
    pub(crate) fn bits(&mut self, bits: impl Iterator<Item = bool>) {
        let (mut byte, mut held) = (0, 0);
        for bit in bits {
            byte |= u8::from(bit) << held;
            held += 1;
            if held == 8 {
                self.bytes.push(byte);
                (byte, held) = (0, 0);
            }
        }
        if held > 0 {
            self.bytes.push(byte);
        }
    }

    /// As many bits, none of them set.
    pub(crate) fn no_bits(&mut self, count: usize) {
        self.bytes.resize(self.bytes.len() + count.div_ceil(8), 0);
    }

    /// A text.
    pub(crate) fn text(&mut self, text: &str) {
        self.sealed(text.as_bytes());
    }

    /// What was sealed apart.
    pub(crate) fn sealed(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.bytes.extend(bytes);
    }

    /// All that was written, as the state of `name`.
    pub(crate) fn seal(mut self, name: &str) -> Vec<u8> {
        let sum = checksum(name, self.samples, &self.bytes);
        self.fixed(sum, SEAL);
        self.bytes
    }

    /// The same, to be sealed later.
    pub(crate) fn unsealed(self, name: &'static str) -> Unsealed {
        Unsealed { writer: self, name }
    }
}

/// All that was written, without its checksum, which takes longer than the rest and can be made without any lock.
pub struct Unsealed {
    writer: Writer,
    name: &'static str,
}

impl Unsealed {
    /// Of what cannot be saved.
    pub fn nothing() -> Self {
        Writer::new(0).unsealed("nothing")
    }

    /// As bytes that can be read again.
    pub fn seal(self) -> Vec<u8> {
        self.writer.seal(self.name)
    }
}

/// Reads what [`Writer`] wrote, in the same order.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    samples: usize,
}

impl<'a> Reader<'a> {
    /// Of what was written for `name` and as many samples.
    pub(crate) fn open(saved: &'a [u8], name: &str, samples: usize) -> Option<Self> {
        let (bytes, seal) = saved.split_at_checked(saved.len().checked_sub(SEAL)?)?;
        (seal == checksum(name, samples, bytes).to_le_bytes()).then_some(Self { bytes, samples })
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(taken)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0u64, 0);
        loop {
            let byte = self.take(1)?[0];
            let part = u64::from(byte & 0x7f);
            if shift > 63 || part << shift >> shift != part {
                return None;
            }
            number |= part << shift;
            if byte < 0x80 {
                return Some(number);
            }
            shift += 7;
        }
    }

    pub(crate) fn fixed(&mut self, count: usize) -> Option<u64> {
        let mut number = [0; 8];
        number.get_mut(..count)?.copy_from_slice(self.take(count)?);
        Some(u64::from_le_bytes(number))
    }

    /// Ids of the catalog, which may come twice.
    pub(crate) fn ids(&mut self) -> Option<Vec<Id>> {
        let width = width(self.samples);
        let count = usize::try_from(self.number()?).ok()?;
        let bytes = self.take(count.checked_mul(width)?)?;
        let id = |bytes: &[u8]| bytes.iter().rev().fold(0, |id, &byte| id << 8 | Id::from(byte));
        let ids: Vec<Id> = bytes.chunks_exact(width).map(id).collect();
        ids.iter().all(|&id| (id as usize) < self.samples).then_some(ids)
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.sealed()?).ok()
    }

    /// What was sealed apart.
    pub(crate) fn sealed(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        self.take(length)
    }

    pub(crate) fn bits(&mut self, count: usize) -> Option<impl Iterator<Item = bool> + use<'a>> {
        let bytes = self.take(count.div_ceil(8))?;
        Some((0..count).map(move |place| bytes[place / 8] >> (place % 8) & 1 == 1))
    }

    /// Whether all was read.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Nothing may be left.
    pub(crate) fn end(self) -> Option<()> {
        self.is_empty().then_some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_id_takes_what_the_largest_one_needs() {
        assert_eq!([0, 1, 256, 257, 1 << 16, 1 << 24, usize::MAX].map(width), [1, 1, 1, 2, 2, 3, 4]);
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            numbers in proptest::collection::vec(any::<u64>(), 0..9),
            ids in proptest::collection::vec(0u32..70_000, 0..20),
            bits in proptest::collection::vec(any::<bool>(), 0..20),
            text: String,
        ) {
            let mut writer = Writer::new(70_000);
            writer.text(&text);
            numbers.iter().for_each(|&number| writer.number(number));
            writer.ids(ids.iter().copied());
            writer.bits(bits.iter().copied());
            writer.fixed(0x0123_4567, 3);
            let saved = writer.seal("owner");
            let mut reader = Reader::open(&saved, "owner", 70_000).unwrap();
            prop_assert_eq!(reader.text(), Some(&text[..]));
            for number in numbers {
                prop_assert_eq!(reader.number(), Some(number));
            }
            prop_assert_eq!(reader.ids(), Some(ids));
            prop_assert_eq!(reader.bits(bits.len()).map(Vec::from_iter), Some(bits));
            prop_assert_eq!(reader.fixed(3), Some(0x0023_4567));
            prop_assert!(reader.fixed(1).is_none() && reader.end().is_some());
            prop_assert!(Reader::open(&saved, "another", 70_000).is_none());
            prop_assert!(Reader::open(&saved, "owner", 70_001).is_none());
        }

        #[test]
        fn what_was_not_written_is_refused_and_never_too_much_for_it(
            bytes in proptest::collection::vec(any::<u8>(), 0..40), samples in 0usize..300
        ) {
            prop_assert!(Reader::open(&bytes, "owner", samples).is_none());
            let mut reader = Reader { bytes: &bytes, samples };
            while let Some(ids) = reader.ids() {
                prop_assert!(ids.iter().all(|&id| (id as usize) < samples));
            }
        }
    }
}

//! The footer of a Parquet file, looked through before it is parsed.
//!
//! The library builds the tree of columns by calling itself for every group, and makes room for as many things as the
//! file says there are. A file of a few kilobytes can so use up the stack or ask for more memory than there is, and
//! neither can be caught: the process ends. So the footer (Thrift's compact protocol) is walked here first, without
//! calls inside calls, and what no table of samples needs is refused.

use hotset_core::{Error, Result};

/// Groups inside groups; tables of samples have one or two.
const DEEPEST: usize = 64;
/// The longest footer: some hundred bytes for every column of every row group.
const LONGEST: usize = 64 << 20;
/// Structures inside structures that are passed over; the format has about six.
const NESTED: usize = 32;

const MAGIC: &[u8; 4] = b"PAR1";
/// Field numbers of `FileMetaData` and `SchemaElement`.
const SCHEMA: i16 = 2;
const CHILDREN: i16 = 5;

/// Types of the compact protocol.
const STOP: u8 = 0;
const I32: u8 = 5;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// Refuses a file whose footer cannot be parsed safely.
pub(super) fn check(file: &[u8]) -> Result<()> {
    let wrong = |why: &str| Err(Error::invalid(format!("it is no Parquet: {why}")));
    let Some((rest, MAGIC)) = file.split_last_chunk::<4>() else { return wrong("it does not end as one") };
    let Some((rest, length)) = rest.split_last_chunk::<4>() else { return wrong("it is too short") };
    let length = u32::from_le_bytes(*length) as usize;
    if length > LONGEST {
        return Err(Error::invalid(format!(
            "its footer has `{length}` bytes and `{LONGEST}` are read; write it with larger row groups"
        )));
    }
    let Some(begin) = rest.len().checked_sub(length) else { return wrong("it was cut short") };
    match (Compact { rest: &rest[begin..] }).metadata() {
        Some(depth) if depth <= DEEPEST => Ok(()),
        Some(_) => Err(Error::invalid(format!(
            "its columns lie in more than `{DEEPEST}` groups inside groups; write `key` and `label` as columns of their own"
        ))),
        None => wrong("its footer cannot be read"),
    }
}

/// A reader of the compact protocol; `None` is what cannot be.
struct Compact<'a> {
    rest: &'a [u8],
}

impl Compact<'_> {
    /// How deep the groups of the schema lie in each other.
    fn metadata(&mut self) -> Option<usize> {
        let mut deepest = 0;
        let mut last = 0;
        while let Some((id, kind)) = self.field(&mut last)? {
            if (id, kind) == (SCHEMA, LIST) {
                deepest = deepest.max(self.schema()?);
            } else {
                self.skip(kind)?;
            }
        }
        Some(deepest)
    }

    fn schema(&mut self) -> Option<usize> {
        let (count, kind) = self.list()?;
        if kind != STRUCT {
            return None;
        }
        let mut deepest = 0;
        // How many children are still to come, for each group that the next element lies in.
        let mut open: Vec<usize> = Vec::new();
        for element in 0..count {
            deepest = deepest.max(open.len());
            if deepest > DEEPEST {
                return Some(deepest);
            }
            if let Some(left) = open.last_mut() {
                *left -= 1;
            }
            match self.children()? {
                0 => {}
                children if children < count - element => open.push(children),
                _ => return None,
            }
            while open.last() == Some(&0) {
                open.pop();
            }
        }
        Some(deepest)
    }

    /// How many children a schema element says it has.
    fn children(&mut self) -> Option<usize> {
        let mut children = 0;
        let mut last = 0;
        while let Some((id, kind)) = self.field(&mut last)? {
            if (id, kind) == (CHILDREN, I32) {
                children = usize::try_from(self.zigzag()?).ok()?;
            } else {
                self.skip(kind)?;
            }
        }
        Some(children)
    }

    /// Passes over a value, and what lies in it.
    fn skip(&mut self, kind: u8) -> Option<()> {
        // What is left to pass over: so many values of a kind, or of two in turn.
        let mut left: Vec<(usize, u8, u8)> = vec![(1, kind, kind)];
        // Alone, as a field, a boolean is in its type.
        let mut alone = true;
        while let Some((count, kind, other)) = left.pop() {
            if count > 1 {
                left.push((count - 1, other, kind));
            }
            match kind {
                1 | 2 if alone => {}
                1..=3 => self.take(1).map(|_| ())?,
                4..=6 => self.number().map(|_| ())?,
                7 => self.take(8).map(|_| ())?,
                8 => {
                    let length = usize::try_from(self.number()?).ok()?;
                    self.take(length)?;
                }
                LIST | 10 => {
                    let (count, kind) = self.list()?;
                    if count > 0 {
                        left.push((count, kind, kind));
                    }
                }
                11 => {
                    let count = usize::try_from(self.number()?).ok()?;
                    if count > 0 {
                        let kinds = *self.take(1)?.first()?;
                        let values = count.checked_mul(2).filter(|values| *values <= self.rest.len())?;
                        left.push((values, kinds >> 4, kinds & 15));
                    }
                }
                STRUCT => match self.field(&mut 0)? {
                    None => {}
                    // The field, and then the rest of the structure, which begins as a whole one does.
                    Some((_, field)) => {
                        left.push((1, STRUCT, STRUCT));
                        if field > 2 {
                            left.push((1, field, field));
                        }
                    }
                },
                13 => self.take(16).map(|_| ())?,
                _ => return None,
            }
            alone = false;
            if left.len() > 2 * NESTED {
                return None;
            }
        }
        Some(())
    }

    /// The number and type of the next field; the inner `None` where the structure ends.
    fn field(&mut self, last: &mut i16) -> Option<Option<(i16, u8)>> {
        let head = *self.take(1)?.first()?;
        let kind = head & 15;
        if kind == STOP {
            return Some(None);
        }
        *last = match head >> 4 {
            0 => i16::try_from(self.zigzag()?).ok()?,
            delta => last.checked_add(i16::from(delta))?,
        };
        Some(Some((*last, kind)))
    }

    /// How many values a list has, and of which type. Each takes a byte at least.
    fn list(&mut self) -> Option<(usize, u8)> {
        let head = *self.take(1)?.first()?;
        let count = match head >> 4 {
            15 => usize::try_from(self.number()?).ok()?,
            count => usize::from(count),
        };
        (count <= self.rest.len()).then_some((count, head & 15))
    }

    fn number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first()?;
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Some(value);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        self.number().map(|value| (value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A file of nothing but a footer.
    fn file(footer: &[u8]) -> Vec<u8> {
        [&b"PAR1"[..], footer, &(footer.len() as u32).to_le_bytes(), MAGIC].concat()
    }

    /// A schema of elements with so many children each, and nothing else.
    fn schema(children: &[u32]) -> Vec<u8> {
        let mut footer = vec![0x15, 2, 0x19, 0xfc];
        number(&mut footer, children.len() as u64);
        for &children in children {
            // A name, and how many children; zigzag doubles what is not negative.
            footer.extend([0x48, 1, b'g', 0x15]);
            number(&mut footer, 2 * u64::from(children));
            footer.push(0);
        }
        footer.push(0);
        file(&footer)
    }

    fn number(to: &mut Vec<u8>, mut value: u64) {
        while value > 127 {
            to.push(value as u8 | 128);
            value >>= 7;
        }
        to.push(value as u8);
    }

    #[test]
    fn groups_inside_groups_are_counted_and_too_many_refused() {
        let nested = |depth: usize| [vec![1; depth], vec![0]].concat();
        assert_eq!(check(&schema(&nested(DEEPEST))), Ok(()));
        for depth in [DEEPEST + 1, 5_000, 1_000_000] {
            let error = check(&schema(&nested(depth))).unwrap_err();
            assert!(error.message.contains("groups inside groups"), "{}", error.message);
        }
        // As a whole table it is refused before anything calls itself.
        let table = schema(&nested(5_000));
        assert!(super::super::read(super::super::Format::Parquet, table, "").is_err());
        // Many beside each other are as wide as they like.
        assert_eq!(check(&schema(&[vec![100_000], vec![0; 100_000]].concat())), Ok(()));
        assert_eq!(check(&schema(&[2, 2, 0, 0, 1, 0])), Ok(()));
    }

    #[test]
    fn more_than_there_can_be_is_refused() {
        assert!(check(&schema(&[i32::MAX as u32, 0])).is_err(), "more children than elements");
        let mut many = vec![0x19, 0xfc];
        number(&mut many, 1 << 40);
        assert!(check(&file(&many)).is_err(), "more elements than bytes");
        for wrong in [&b""[..], b"PAR1", b"\xff\xff\xff\xffPAR1", b"\x09\0\0\0PAR1", b"PAR1\0\0\0\0PARE"] {
            assert!(check(wrong).is_err());
        }
    }

    proptest! {
        #[test]
        fn any_footer_is_read_without_a_panic(footer in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = check(&file(&footer));
        }

        #[test]
        fn what_the_library_writes_is_let_pass_and_a_flipped_byte_never_panics(
            at in any::<prop::sample::Index>(),
            with in any::<u8>(),
        ) {
            let mut table = super::super::parquet::sample();
            prop_assert_eq!(check(&table), Ok(()));
            let at = at.index(table.len());
            table[at] = with;
            let _ = check(&table);
        }
    }
}

//! The `.npy` format of NumPy: one array, a short header of text before its plain bytes.
//!
//! The header is a Python dictionary of three entries, `descr`, `fortran_order` and `shape`, of which only
//! the literal forms that NumPy writes are taken. Numbers of any width that a trace or a list of sizes may
//! have become `f64`; Python objects, which a file could use to run code, are refused. Memory grows with the
//! bytes that are there, never with those a header claims.
//!
//! NumPy Enhancement Proposal 1, versions 1.0 to 3.0.

use std::io::{ErrorKind, Read};

use half::f16;
use hotset_core::{Error, Result};

/// How every `.npy` file begins.
pub(crate) const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// The longest header taken: a thousand times what a plain array needs.
const LONGEST_HEADER: u32 = 1 << 17;

/// Bytes read at a time.
const CHUNK: usize = 1 << 18;

/// An array's numbers and shape.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Array<T> {
    /// The length of each dimension.
    pub shape: Vec<usize>,
    /// All numbers, the last dimension running fastest.
    pub values: Vec<T>,
}

/// The numbers an array may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Element {
    Float(usize),
    Signed(usize),
    Unsigned(usize),
}

impl Element {
    fn parse(descr: &str) -> Option<(Self, bool)> {
        let mut characters = descr.chars();
        let big = match characters.next()? {
            '<' | '|' | '=' => false,
            '>' => true,
            _ => return None,
        };
        let kind = characters.next()?;
        let width: usize = characters.as_str().parse().ok()?;
        let element = match (kind, width) {
            ('f', 2 | 4 | 8) => Self::Float(width),
            ('i', 1 | 2 | 4 | 8) => Self::Signed(width),
            ('u', 1 | 2 | 4 | 8) => Self::Unsigned(width),
            _ => return None,
        };
        Some((element, big))
    }

    fn width(self) -> usize {
        let (Self::Float(width) | Self::Signed(width) | Self::Unsigned(width)) = self;
        width
    }

    /// The number in `bytes`, little-endian.
    fn decode(self, bytes: [u8; 8]) -> f64 {
        let whole = u64::from_le_bytes(bytes);
        match self {
            Self::Float(2) => f16::from_bits(whole as u16).to_f64(),
            Self::Float(4) => f64::from(f32::from_bits(whole as u32)),
            Self::Float(_) => f64::from_bits(whole),
            Self::Signed(width) => {
                let unused = 64 - 8 * width as u32;
                ((whole << unused) as i64 >> unused) as f64
            }
            Self::Unsigned(_) => whole as f64,
        }
    }
}

struct Header {
    element: Element,
    big: bool,
    fortran: bool,
    shape: Vec<usize>,
}

/// Reads one array from `from`, of which errors speak as `name`. `convert` makes a number of the array's
/// type, and says what is wrong with one that has no place in it.
pub(crate) fn read<T: Copy>(
    from: &mut dyn Read,
    name: &str,
    convert: &dyn Fn(f64) -> std::result::Result<T, &'static str>,
) -> Result<Array<T>> {
    let header = header(from, name)?;
    let total = header.shape.iter().try_fold(1usize, |product, &length| product.checked_mul(length));
    let Some(total) = total.filter(|total| total.checked_mul(header.element.width()).is_some()) else {
        return Err(bad(name, &format!("its shape {:?} is too large", header.shape)));
    };
    let values = numbers(from, name, &header, total, convert)?;
    let values = if header.fortran { row_major(&values, &header.shape) } else { values };
    Ok(Array { shape: header.shape, values })
}

fn numbers<T: Copy>(
    from: &mut dyn Read,
    name: &str,
    header: &Header,
    total: usize,
    convert: &dyn Fn(f64) -> std::result::Result<T, &'static str>,
) -> Result<Vec<T>> {
    let width = header.element.width();
    let mut values = Vec::new();
    let mut chunk = vec![0u8; CHUNK];
    while values.len() < total {
        let wanted = (total - values.len()).min(CHUNK / width) * width;
        from.read_exact(&mut chunk[..wanted]).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => bad(
                name,
                &format!("it ends before the {total} numbers that its shape {:?} says", header.shape),
            ),
            _ => bad(name, &error.to_string()),
        })?;
        if values.try_reserve(wanted / width).is_err() {
            return Err(bad(name, "it does not fit this machine's memory"));
        }
        for number in chunk[..wanted].chunks_exact(width) {
            let mut bytes = [0u8; 8];
            bytes[..width].copy_from_slice(number);
            if header.big {
                bytes[..width].reverse();
            }
            let number = header.element.decode(bytes);
            values.push(convert(number).map_err(|reason| {
                let place = place(values.len(), &header.shape, header.fortran);
                bad(name, &format!("the number at {place:?} is `{number}`: {reason}"))
            })?);
        }
    }
    Ok(values)
}

/// Where the `index`-th number of a file stands in its array.
fn place(mut index: usize, shape: &[usize], fortran: bool) -> Vec<usize> {
    let mut place = vec![0; shape.len()];
    let mut settle = |dimension: usize| {
        place[dimension] = index % shape[dimension].max(1);
        index /= shape[dimension].max(1);
    };
    match fortran {
        true => (0..shape.len()).for_each(&mut settle),
        false => (0..shape.len()).rev().for_each(&mut settle),
    }
    place
}

/// Numbers whose first dimension ran fastest, so that the last one does.
fn row_major<T: Copy>(values: &[T], shape: &[usize]) -> Vec<T> {
    let mut strides = Vec::with_capacity(shape.len());
    let mut stride = 1;
    for &length in shape {
        strides.push(stride);
        stride *= length;
    }
    (0..values.len())
        .map(|index| {
            let at = place(index, shape, false);
            values[at.iter().zip(&strides).map(|(at, stride)| at * stride).sum::<usize>()]
        })
        .collect()
}

fn header(from: &mut dyn Read, name: &str) -> Result<Header> {
    let mut bytes = |count: usize| {
        let mut bytes = vec![0u8; count];
        from.read_exact(&mut bytes).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => bad(name, "it ends within its header"),
            _ => bad(name, &error.to_string()),
        })?;
        Ok::<_, Error>(bytes)
    };
    let start = bytes(8)?;
    if start[..6] != MAGIC[..] {
        return Err(bad(name, "it does not begin as NumPy's arrays do"));
    }
    let length = match start[6] {
        1 => bytes(2)?.iter().rev().fold(0, |length, &byte| length << 8 | u32::from(byte)),
        2 | 3 => bytes(4)?.iter().rev().fold(0, |length, &byte| length << 8 | u32::from(byte)),
        version => return Err(bad(name, &format!("its format version {version} is unknown"))),
    };
    if length > LONGEST_HEADER {
        return Err(bad(name, &format!("its header claims {length} bytes")));
    }
    let text = String::from_utf8(bytes(length as usize)?).map_err(|_| bad(name, "its header is no text"))?;
    parse(&text).map_err(|reason| bad(name, &reason))
}

/// Takes the header's dictionary apart.
fn parse(text: &str) -> std::result::Result<Header, String> {
    let entry = |key: &str| {
        [format!("'{key}':"), format!("\"{key}\":")]
            .iter()
            .find_map(|key| text.split_once(key.as_str()))
            .map(|(_, rest)| rest.trim_start())
            .ok_or_else(|| format!("its header has no `{key}`"))
    };
    let descr = entry("descr")?;
    let descr = descr
        .strip_prefix(['\'', '"'])
        .and_then(|rest| rest.split_once(['\'', '"']))
        .map(|(descr, _)| descr)
        .ok_or("its `descr` names no single type of number: save a plain array of floats")?;
    let (element, big) = Element::parse(descr).ok_or_else(|| {
        format!(
            "its numbers are of type `{descr}`: save floats or whole numbers, not objects (`astype('f4')`)"
        )
    })?;
    let order = entry("fortran_order")?;
    let fortran = match (order.starts_with("True"), order.starts_with("False")) {
        (true, false) => true,
        (false, true) => false,
        _ => return Err("its `fortran_order` is neither `True` nor `False`".into()),
    };
    let shape = entry("shape")?
        .strip_prefix('(')
        .and_then(|rest| rest.split_once(')'))
        .map(|(shape, _)| shape)
        .ok_or("its `shape` is no tuple")?;
    let shape = shape
        .split(',')
        .map(str::trim)
        .filter(|length| !length.is_empty())
        .map(|length| length.parse::<usize>().map_err(|_| format!("its shape ({shape}) holds `{length}`")))
        .collect::<std::result::Result<Vec<usize>, String>>()?;
    Ok(Header { element, big, fortran, shape })
}

fn bad(name: &str, reason: &str) -> Error {
    Error::invalid(format!("cannot use `{name}`: {reason}"))
}

#[cfg(test)]
#[path = "npy_tests.rs"]
mod tests;

//! The headers of a tar file: ustar, GNU and pax, as far as names and lengths go.
//!
//! A header is a block of 512 bytes; the member's bytes follow, padded to whole blocks. Long names and lengths
//! come in members of their own before the one they belong to. Nothing is unpacked and no name is ever used as
//! a path. Sparse files, whose bytes in the archive are not the file's, are refused, whichever of the ways of writing
//! them down was used.

use hotset_core::{Error, Result};

pub(super) const BLOCK: u64 = 512;

/// The longest name or pax record that is read.
const LONGEST: u64 = 1 << 16;

/// The first bytes of what people call tar files and are compressed, or none.
const OTHERS: [(&[u8], &str); 7] = [
    (&[0x1f, 0x8b], "gzip"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstd"),
    (&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz"),
    (b"BZh", "bzip2"),
    (&[0x04, 0x22, 0x4d, 0x18], "lz4"),
    (b"PK\x03\x04", "zip"),
    (&[0x5d, 0, 0], "lzma"),
];

/// Bytes of a file, by their place.
pub(super) trait Source {
    /// How many there are.
    fn len(&self) -> u64;
    /// `count` bytes from `offset` on, which are there.
    fn bytes(&mut self, offset: u64, count: u64) -> Result<&[u8]>;
}

/// A regular file in a tar file, or a link to one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: String,
    /// Where its bytes begin.
    pub(super) offset: u64,
    pub(super) size: u64,
    /// What it is a link to: it has no bytes of its own.
    pub(super) link: Option<String>,
}

/// Calls `each` with every regular file and every link, in the order of the tar file, until it says `false`.
pub(super) fn members<S: Source>(
    shard: &str,
    source: &mut S,
    each: &mut dyn FnMut(Member, &mut S) -> Result<bool>,
) -> Result<()> {
    let broken = |why: String| Error::invalid(format!("the shard `{shard}` is no whole tar file: {why}"));
    let end = source.len();
    if end >= 8 {
        let first = source.bytes(0, 8)?;
        if let Some((_, what)) = OTHERS.iter().find(|(magic, _)| first.starts_with(magic)) {
            return Err(Error::invalid(format!(
                "the shard `{shard}` is {what}, and only plain tar files can be read at any place: unpack it once \
                 (compressed images gain nothing from it)"
            )));
        }
    }
    let mut at = 0;
    let mut long = Long::default();
    let (mut any, mut ended) = (false, false);
    while at + BLOCK <= end {
        let header = source.bytes(at, BLOCK)?;
        if header.iter().all(|byte| *byte == 0) {
            ended = true;
            break;
        }
        let header =
            Header::parse(header).ok_or_else(|| broken(format!("at byte `{at}` there is no header")))?;
        any = true;
        let size = match header.kind {
            b'0' | 0 | b'7' => long.size.unwrap_or(header.size),
            _ => header.size,
        };
        let offset = at + BLOCK;
        let next = size
            .checked_next_multiple_of(BLOCK)
            .and_then(|padded| offset.checked_add(padded))
            .filter(|_| offset.checked_add(size).is_some_and(|last| last <= end))
            .ok_or_else(|| broken(format!("`{}` reaches beyond its end", header.name)))?;
        match header.kind {
            b'x' if size > LONGEST => {
                // The map of a sparse file may be as long; its first records say that it is one.
                long.records(source.bytes(offset, LONGEST)?);
                let name = long.name.unwrap_or_else(|| format!("the member at byte {at}"));
                return Err(match long.sparse {
                    true => sparse(shard, &name),
                    false => broken(format!("an extended header of `{size}` bytes at byte `{at}`")),
                });
            }
            b'L' | b'K' if size > LONGEST => {
                return Err(broken(format!("a name of `{size}` bytes at byte `{at}`")));
            }
            b'L' => long.name = Some(text(source.bytes(offset, size)?)),
            b'K' => long.link = Some(text(source.bytes(offset, size)?)),
            b'x' => {
                if !long.records(source.bytes(offset, size)?) {
                    return Err(broken(format!("the extended header at byte `{at}` cannot be read")));
                }
            }
            b'0' | 0 | b'7' | b'1' | b'2' | b'S' => {
                let long = std::mem::take(&mut long);
                let name = long.name.unwrap_or(header.name);
                if long.sparse || header.kind == b'S' {
                    return Err(sparse(shard, &name));
                }
                let linked = matches!(header.kind, b'1' | b'2');
                let link = linked.then(|| long.link.unwrap_or(header.link));
                if !each(Member { name, offset, size, link }, source)? {
                    return Ok(());
                }
            }
            // What is said of the whole file.
            b'g' => {}
            // Folders and devices.
            _ => long = Long::default(),
        }
        at = next;
    }
    // Some tools leave the closing blocks out, but none leaves half a block.
    if !ended && at < end {
        return Err(broken(format!("it ends in the header at byte `{at}`")));
    }
    if !any {
        return Err(broken("it holds nothing".into()));
    }
    Ok(())
}

fn sparse(shard: &str, name: &str) -> Error {
    Error::invalid(format!(
        "`{name}` in the shard `{shard}` is a sparse file: its bytes lie there without its holes, so they are not the \
         file's; write the shard again without `--sparse` (`-S`)"
    ))
}

/// What an extended header says of the next member.
#[derive(Default)]
struct Long {
    name: Option<String>,
    link: Option<String>,
    size: Option<u64>,
    /// Whether its bytes lie there without its holes.
    sparse: bool,
}

impl Long {
    /// Reads pax records: `LENGTH KEY=VALUE\n`, where the length is that of all of it; whether they could be read.
    fn records(&mut self, mut bytes: &[u8]) -> bool {
        // The name of a sparse file; `path` is then one that was made up.
        let mut meant = None;
        while let Some(blank) = bytes.iter().position(|byte| *byte == b' ') {
            let length =
                std::str::from_utf8(&bytes[..blank]).ok().and_then(|digits| digits.parse::<usize>().ok());
            let Some(record) = length.filter(|length| *length > blank).and_then(|length| bytes.get(..length))
            else {
                return false;
            };
            bytes = &bytes[record.len()..];
            let record = &record[blank + 1..];
            let record = record.strip_suffix(b"\n").unwrap_or(record);
            // GNU tar's three ways (0.0, 0.1, 1.0) all have records of this name; the other is star's.
            self.sparse |= record.starts_with(b"GNU.sparse.") || record.starts_with(b"SCHILY.realsize=");
            if let Some(path) = record.strip_prefix(b"path=") {
                self.name = Some(text(path));
            } else if let Some(path) = record.strip_prefix(b"linkpath=") {
                self.link = Some(text(path));
            } else if let Some(path) = record.strip_prefix(b"GNU.sparse.name=") {
                meant = Some(text(path));
            } else if let Some(size) = record.strip_prefix(b"size=") {
                self.size = std::str::from_utf8(size).ok().and_then(|size| size.parse().ok());
                if self.size.is_none() {
                    return false;
                }
            }
        }
        self.name = meant.or(self.name.take());
        bytes.iter().all(|byte| *byte == 0)
    }
}

struct Header {
    name: String,
    link: String,
    size: u64,
    kind: u8,
}

impl Header {
    fn parse(block: &[u8]) -> Option<Self> {
        let field = |from: usize, to: usize| block.get(from..to);
        let stored = octal(field(148, 156)?)?;
        // The checksum is taken with its own field blank.
        let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
        let own: u64 = field(148, 156)?.iter().map(|byte| u64::from(*byte)).sum();
        if sum - own + 8 * u64::from(b' ') != stored {
            return None;
        }
        let mut name = text(field(0, 100)?);
        if field(257, 262)? == b"ustar" && field(263, 265)? != b" \0" {
            let prefix = text(field(345, 500)?);
            if !prefix.is_empty() {
                name = format!("{prefix}/{name}");
            }
        }
        Some(Self {
            name,
            link: text(field(157, 257)?),
            size: number(field(124, 136)?)?,
            kind: *block.get(156)?,
        })
    }
}

/// A length: octal digits, or for large ones 255 bits behind a set one.
fn number(field: &[u8]) -> Option<u64> {
    match field.first()? {
        0x80 => {
            let (zero, low) = field[1..].split_last_chunk::<8>()?;
            zero.iter().all(|byte| *byte == 0).then(|| u64::from_be_bytes(*low))
        }
        _ => octal(field),
    }
}

fn octal(field: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(field).ok()?;
    let digits = text.trim_matches(|c: char| c == ' ' || c == '\0');
    if digits.is_empty() { Some(0) } else { u64::from_str_radix(digits, 8).ok() }
}

/// Up to the first zero byte.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
#[path = "tar_tests.rs"]
pub(super) mod tests;

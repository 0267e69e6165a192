//! How long decoding takes: done by Python, on images that were read while storage was measured.

use std::time::Duration;

use hotset_core::Result;
use hotset_store::Opened;
use serde::Serialize;

/// What decoding came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Decoded {
    /// Seconds of one core for a sample.
    pub seconds: f64,
    /// How many samples were decoded.
    pub samples: usize,
    /// By what, and what they are.
    pub by: String,
}

/// Decodes samples for some time at most: `None` where it cannot, with the reason.
pub type Decoder<'a> = dyn Fn(&[&[u8]], Duration) -> Result<std::result::Result<Decoded, String>> + Sync + 'a;

/// What images begin with: JPEG, PNG, WebP, GIF, BMP, TIFF.
const IMAGES: [&[u8]; 7] = [b"\xff\xd8\xff", b"\x89PNG", b"RIFF", b"GIF8", b"BM", b"II*\0", b"MM\0*"];

/// Decodes the images among samples that were read whole; otherwise says why not.
pub(super) fn measure(
    opened: &Opened,
    kept: &[(u32, Vec<u8>)],
    time: Duration,
    decoder: Option<&Decoder<'_>>,
) -> Result<std::result::Result<Decoded, String>> {
    let Some(decoder) = decoder else {
        return Ok(Err(
            "decoding was not measured: this `hotset` is a bare binary; the one of the Python package \
                       measures it"
                .into(),
        ));
    };
    let images: Vec<&[u8]> = kept
        .iter()
        .filter(|(id, bytes)| bytes.len() as u64 == opened.catalog.size(*id))
        .filter_map(|(id, bytes)| image(opened.catalog.spans(*id), bytes))
        .collect();
    if images.is_empty() {
        return Ok(Err("decoding was not measured: no image was among the samples that were read".into()));
    }
    decoder(&images, time)
}

/// The image that a sample is, or the part of it that is one.
fn image<'a>(spans: &[u32], sample: &'a [u8]) -> Option<&'a [u8]> {
    let is_image = |bytes: &&[u8]| IMAGES.iter().any(|begin| bytes.starts_with(begin));
    if spans.is_empty() {
        return Some(sample).filter(is_image);
    }
    let parts = spans.chunks_exact(2).filter_map(|span| {
        let from = span[0] as usize;
        sample.get(from..from.checked_add(span[1] as usize)?)
    });
    parts.into_iter().find(is_image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_known_by_its_first_bytes_whole_or_as_a_part() {
        assert!(image(&[], b"\xff\xd8\xff\xe0jpeg").is_some());
        assert_eq!(image(&[], b"some text"), None);
        let sample = b"label..\xff\xd8\xff\xe0jpeg";
        assert_eq!(image(&[0, 5, 7, 8], sample), Some(&sample[7..]));
        assert_eq!(image(&[0, 5], sample), None);
        assert_eq!(image(&[u32::MAX, 0, 900, 8], sample), None, "what is missing is no part");
    }
}

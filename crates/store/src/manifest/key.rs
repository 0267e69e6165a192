//! Keys as manifests write them: below the root, or with the root before them.

use hotset_core::{Error, Result};

pub(super) struct Keys<'a> {
    root: &'a str,
    manifest: &'a str,
}

impl<'a> Keys<'a> {
    pub(super) fn new(root: &'a str, manifest: &'a str) -> Self {
        Self { root, manifest }
    }

    /// The key below the root that row `row` names.
    pub(super) fn below<'k>(&self, written: &'k str, row: usize) -> Result<&'k str> {
        let root = self.root.trim_end_matches('/');
        let below = written.strip_prefix(root).and_then(|rest| rest.strip_prefix('/')).unwrap_or(written);
        let stays = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
        if !below.contains("://") && below.split('/').all(stays) {
            return Ok(below);
        }
        Err(Error::invalid(format!(
            "row `{}` of the manifest `{}` names `{written}`, which does not lie below `{}`; name its place with `root`",
            row + 1,
            self.manifest,
            self.root
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lie_below_the_root_however_they_are_written() {
        let keys = Keys::new("s3://bucket/train", "m.csv");
        assert_eq!(keys.below("a/b.jpg", 0).unwrap(), "a/b.jpg");
        assert_eq!(keys.below("s3://bucket/train/a.jpg", 0).unwrap(), "a.jpg");
        for wrong in ["", "../a", "/etc/passwd", "a//b", "a/./b", "s3://other/a", "a\0"] {
            let error = keys.below(wrong, 6).unwrap_err();
            assert!(error.message.contains("row `7`") && error.message.contains("`root`"));
        }
        assert_eq!(Keys::new("/", "m").below("/a/b", 0).unwrap(), "a/b");
    }
}

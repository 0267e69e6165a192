//! Layouts: how files below a root become samples.
//!
//! `images` is what `torchvision.datasets.ImageFolder` makes of a directory, order and labels included.
//! `files` is every file below the root, by path, without labels. `shards` are tar files with the samples of the
//! WebDataset layout inside; a `manifest` is a table of keys. A [`Selection`] is one of the first two with the file name extensions to take.

use std::fmt;
use std::str::FromStr;

use hotset_core::{Error, Result};

/// The extensions that torchvision's `ImageFolder` takes.
const IMAGES: [&str; 9] = [".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"];

/// How files below a root become samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// One folder a class, as torchvision's `ImageFolder` reads it.
    Images,
    /// Every file whose name, and whose folders' names, do not begin with a dot; no labels.
    Files,
    /// Tar files, whose members with one name and several extensions are one sample.
    Shards,
    /// What a table of keys names.
    Manifest,
}

impl Layout {
    /// Every layout.
    pub const ALL: [Self; 4] = [Self::Images, Self::Files, Self::Shards, Self::Manifest];

    /// Its name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Images => "images",
            Self::Files => "files",
            Self::Shards => "shards",
            Self::Manifest => "manifest",
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Layout {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|layout| layout.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(|layout| format!("`{layout}`")).join(", ");
            Error::invalid(format!("unknown layout `{name}`; the known ones are {known}"))
        })
    }
}

/// Which files to take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selection {
    pub(crate) layout: Layout,
    /// Lower case, each with its dot, sorted unless they are the layout's own. Empty: every file.
    pub(crate) extensions: Vec<String>,
}

impl Selection {
    /// The layout's own extensions if `extensions` is empty.
    pub(crate) fn new(layout: Layout, extensions: &[String]) -> Result<Self> {
        let mut taken = Vec::with_capacity(extensions.len());
        for extension in extensions {
            let bare = extension.strip_prefix('.').unwrap_or(extension);
            if bare.is_empty() || bare.contains(['/', '\0']) {
                return Err(Error::invalid(format!(
                    "`{extension}` in `extensions` is no file name extension; write it like `.jpg`"
                )));
            }
            taken.push(format!(".{}", bare.to_lowercase()));
        }
        taken.sort_unstable();
        taken.dedup();
        if taken.is_empty() && layout == Layout::Images {
            taken = IMAGES.map(str::to_owned).to_vec();
        }
        Ok(Self { layout, extensions: taken })
    }

    /// Whether a file of this name is a sample.
    pub(crate) fn takes(&self, name: &str) -> bool {
        if self.hides(name) {
            return false;
        }
        if self.extensions.is_empty() {
            return true;
        }
        // Most names are plain, and this is asked of every one of millions.
        if name.is_ascii() {
            let ends = |extension: &String| {
                let tail = name.len().checked_sub(extension.len()).and_then(|from| name.get(from..));
                tail.is_some_and(|tail| tail.eq_ignore_ascii_case(extension))
            };
            return self.extensions.iter().any(ends);
        }
        let name = name.to_lowercase();
        self.extensions.iter().any(|extension| name.ends_with(extension))
    }

    /// Whether files and folders of this name are passed over. torchvision looks into hidden ones too.
    pub(crate) fn hides(&self, name: &str) -> bool {
        self.layout == Layout::Files && name.starts_with('.')
    }

    /// The extensions, for messages.
    pub(crate) fn shown(&self) -> String {
        self.extensions.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_is_known_by_its_name_and_an_unknown_one_lists_them() {
        for layout in Layout::ALL {
            assert_eq!(layout.name().parse::<Layout>(), Ok(layout));
        }
        let error = "tar".parse::<Layout>().unwrap_err();
        assert_eq!(
            error.message,
            "unknown layout `tar`; the known ones are `images`, `files`, `shards`, `manifest`"
        );
    }

    #[test]
    fn extensions_match_in_any_case_with_or_without_their_dot() {
        let selection = Selection::new(Layout::Files, &["JPG".into(), ".tar.gz".into()]).unwrap();
        assert!(selection.takes("a.jpg") && selection.takes("A.JpG") && selection.takes("b.TAR.GZ"));
        assert!(selection.takes("Ä.JPG") && !selection.takes("Ä.JPX"));
        assert!(!selection.takes("ajpg") && !selection.takes("b.gz") && !selection.takes(".a.jpg"));
        assert!(Selection::new(Layout::Files, &[]).unwrap().takes("anything"));
        for wrong in ["", ".", "a/b"] {
            assert!(
                Selection::new(Layout::Files, &[wrong.into()]).unwrap_err().message.contains("`extensions`")
            );
        }
    }

    #[test]
    fn images_take_what_torchvision_takes_hidden_files_too() {
        let selection = Selection::new(Layout::Images, &[]).unwrap();
        assert!(selection.takes("a.JPEG") && selection.takes(".webp") && selection.takes(".a.Tiff"));
        assert!(!selection.takes("a.txt") && !selection.takes("jpg"));
    }
}

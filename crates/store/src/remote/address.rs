//! Addresses of object stores, as users write them: `s3://bucket/train`.
//!
//! Behind `s3://`, `gs://` and `az://` everything is the key as it stands, as the stores' own tools have it;
//! behind `http://` it is a URL, with `%20` for a blank.

use hotset_core::{Error, Result};
use object_store::path::Path;

/// Schemes and the kind of store behind each.
const SCHEMES: [(&str, Kind); 10] = [
    ("s3", Kind::S3),
    ("s3a", Kind::S3),
    ("gs", Kind::Google),
    ("az", Kind::Azure),
    ("azure", Kind::Azure),
    ("abfs", Kind::Azure),
    ("abfss", Kind::Azure),
    ("adl", Kind::Azure),
    ("http", Kind::Http),
    ("https", Kind::Http),
];

/// The longest address or whole key, in bytes. No store has longer keys (S3 takes 1,024), and clients panic where what
/// they make a URL of passes 64 KiB, with three bytes for each that is escaped.
pub(crate) const LONGEST: usize = 8 << 10;
/// What is shown of a longer one.
const SHOWN: usize = 100;

/// Whose protocol a store speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    S3,
    Google,
    Azure,
    Http,
}

/// A prefix of keys in an object store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) kind: Kind,
    /// Scheme and bucket or host: what a client is made from.
    pub(crate) base: String,
    /// What all keys begin with; empty for the whole bucket.
    pub(crate) prefix: Path,
}

impl Address {
    /// The address that `written` is, if its scheme is one of an object store.
    pub(crate) fn parse(written: &str) -> Option<Result<Self>> {
        let (scheme, rest) = written.split_once("://")?;
        let scheme = scheme.to_ascii_lowercase();
        let (scheme, kind) = SCHEMES.into_iter().find(|(known, _)| *known == scheme)?;
        if let Err(why) = check_length(written) {
            return Some(Err(Error::invalid(format!("the address {why}"))));
        }
        Some(Self::behind(scheme, kind, rest).map_err(|why| {
            let written = without_credentials(written);
            Error::invalid(format!(
                "`{written}` is no address of a store: {why}; write it like `s3://bucket/train`"
            ))
        }))
    }

    fn behind(scheme: &str, kind: Kind, rest: &str) -> std::result::Result<Self, String> {
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        if host.is_empty() {
            return Err(format!("it names no {}", if kind == Kind::Http { "host" } else { "bucket" }));
        }
        if kind == Kind::Http && host.contains('@') {
            return Err(
                "it holds a name or a password, and addresses are shown and written down; give them as \
                        `http_user` and `http_password` in `storage_options`"
                    .into(),
            );
        }
        // The client makes a URL of it, and panics where it cannot.
        let named =
            |c: char| c.is_ascii_alphanumeric() || "._-".contains(c) || (kind == Kind::Azure && c == '@');
        if kind != Kind::Http && !host.chars().all(named) {
            return Err(format!("`{}` is no name of a bucket", without_credentials(host)));
        }
        let path = path.trim_end_matches('/');
        let prefix = match kind {
            Kind::Http if path.contains(['?', '#']) => return Err("it has a query".into()),
            Kind::Http => Path::from_url_path(path),
            _ => Path::parse(path),
        };
        let prefix = prefix.map_err(|error| error.to_string())?;
        Ok(Self { kind, base: format!("{scheme}://{host}"), prefix })
    }

    /// The address in one way of writing, for showing and for names.
    pub(crate) fn shown(&self) -> String {
        match self.prefix.as_ref() {
            "" => self.base.clone(),
            prefix => format!("{}/{prefix}", self.base),
        }
    }

    /// The whole key of one below the prefix, or why there can be none.
    pub(crate) fn key(&self, below: &str) -> std::result::Result<Path, String> {
        let whole = match self.prefix.as_ref() {
            "" => below.to_owned(),
            prefix => format!("{prefix}/{below}"),
        };
        check_length(&whole).map_err(|why| format!("the key {why}"))?;
        Path::parse(whole).map_err(|error| error.to_string())
    }

    /// The key below the prefix, of a whole one.
    pub(crate) fn below<'a>(&self, whole: &'a Path) -> &'a str {
        let whole = whole.as_ref();
        match self.prefix.as_ref() {
            "" => whole,
            prefix => whole.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/')).unwrap_or(whole),
        }
    }
}

/// A URL, or the host of one, without the name and password that may stand before an `@`.
pub(crate) fn without_credentials(written: &str) -> String {
    let (scheme, rest) = match written.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), written),
    };
    let host = rest.find('/').unwrap_or(rest.len());
    match rest[..host].rfind('@') {
        Some(at) => format!("{scheme}…{}", &rest[at..]),
        None => written.to_owned(),
    }
}

/// Refuses what a client would panic on, by how it begins.
pub(crate) fn check_length(text: &str) -> std::result::Result<(), String> {
    if text.len() <= LONGEST {
        return Ok(());
    }
    let end = text.char_indices().map(|(at, _)| at).nth(SHOWN).unwrap_or(text.len());
    let (begin, length) = (&text[..end], text.len());
    Err(format!("that begins with `{begin}` has `{length}` bytes, and no store takes more than `{LONGEST}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(written: &str) -> Address {
        Address::parse(written).unwrap().unwrap()
    }

    #[test]
    fn a_bucket_and_a_prefix_come_apart() {
        let address = parse("S3://bucket/some/train//");
        assert_eq!((address.kind, address.base.as_str()), (Kind::S3, "s3://bucket"));
        assert_eq!(address.shown(), "s3://bucket/some/train");
        assert_eq!(address.key("a/b.png").unwrap().as_ref(), "some/train/a/b.png");
        assert_eq!(address.below(&address.key("a/b.png").unwrap()), "a/b.png");
        let bare = parse("gs://bucket");
        assert_eq!((bare.shown().as_str(), bare.key("a").unwrap().as_ref()), ("gs://bucket", "a"));
    }

    #[test]
    fn a_key_or_an_address_that_no_request_could_hold_is_refused_by_its_beginning() {
        let address = parse("s3://bucket/train");
        assert!(address.key(&"x".repeat(LONGEST - "train/".len())).is_ok());
        for long in [format!("a/{}", "x".repeat(70_000)), "ü".repeat(LONGEST)] {
            let error = address.key(&long).unwrap_err();
            let begin = long.chars().take(20).collect::<String>();
            assert!(error.contains(&format!("begins with `train/{begin}")) && error.len() < 400, "{error}");
            let error = Address::parse(&format!("s3://bucket/{long}")).unwrap().unwrap_err();
            assert!(error.message.contains("begins with `s3://bucket/"), "{}", error.message);
            assert!(error.message.len() < 400);
        }
    }

    #[test]
    fn keys_stand_as_they_are_and_urls_are_urls() {
        assert_eq!(parse("s3://bucket/50% done").prefix.as_ref(), "50% done");
        assert_eq!(parse("https://host/50%25%20done").prefix.as_ref(), "50% done");
        assert_eq!(parse("https://host:81/x").base, "https://host:81");
    }

    #[test]
    fn a_password_in_an_address_is_refused_and_not_shown() {
        for written in
            ["http://me:hunter2@host/train", "https://me:hunter2@host:81", "s3://key:hunter2@bucket/a"]
        {
            let error = Address::parse(written).unwrap().unwrap_err();
            assert!(!error.message.contains("hunter2"), "{}", error.message);
            assert!(error.message.contains("…@"), "{}", error.message);
        }
        let error = Address::parse("http://me:hunter2@host/train").unwrap().unwrap_err();
        assert!(error.message.contains("`http_password`") && error.message.contains("`http://…@host/train`"));
        assert_eq!(parse("abfss://container@account.dfs.core.windows.net/a").kind, Kind::Azure);
        assert_eq!(parse("https://host/a@b").shown(), "https://host/a@b");
    }

    #[test]
    fn what_is_no_address_is_refused_and_a_path_is_none() {
        for wrong in [
            "s3://",
            "s3:///train",
            "s3://bucket/a//b",
            "s3://bucket/../a",
            "http://host/a?b",
            "s3://buc ket/a",
            "gs://ü/a",
        ] {
            let error = Address::parse(wrong).unwrap().unwrap_err();
            assert!(error.message.contains(&format!("`{wrong}`")), "{}", error.message);
        }
        for other in ["/data/train", "file:///data", "ftp://host/a"] {
            assert!(Address::parse(other).is_none());
        }
    }
}

//! What a store's answers mean, told apart by what to do about them.

use hotset_core::Error;
use object_store::Error as Failure;
use object_store::client::{HttpError, HttpErrorKind};

use crate::store::ReadError;

/// The longest cause that is shown; some stores answer with pages.
const SHOWN: usize = 300;

/// What a panic of the client is told as.
pub(crate) const GAVE_UP: &str = "the client gave up on what the store answered";

/// Why a read failed.
pub(crate) fn tell(failure: &Failure) -> ReadError {
    match failure {
        Failure::NotFound { .. } => ReadError::Vanished,
        Failure::Precondition { .. } => ReadError::Modified,
        Failure::PermissionDenied { .. } | Failure::Unauthenticated { .. } => {
            ReadError::Refused(cause(failure))
        }
        Failure::NotSupported { .. }
        | Failure::NotImplemented { .. }
        | Failure::InvalidPath { .. }
        | Failure::UnknownConfigurationKey { .. } => ReadError::Refused(cause(failure)),
        // The other end is not the server that was asked for, and will not be a minute later.
        _ if cause(failure).contains("certificate") => ReadError::Refused(cause(failure)),
        other => match status(&other.to_string()) {
            None if is_connecting(failure) => ReadError::Unreachable(no_answer(failure)),
            Some(404 | 410) => ReadError::Vanished,
            Some(429 | 503) => ReadError::Busy(cause(failure)),
            // 408: the store waited too long for us; 409: it is being written.
            Some(408 | 409) => ReadError::Transient(cause(failure)),
            Some(300..=399) => ReadError::Refused(redirected(failure)),
            Some(400..=499) => ReadError::Refused(cause(failure)),
            _ => ReadError::Transient(cause(failure)),
        },
    }
}

/// Redirections within a server are followed: this one leads to another.
fn redirected(failure: &Failure) -> String {
    let cause = cause(failure);
    let cause = cause.trim_end_matches(':');
    format!("{cause}, and other servers are not asked: name the one that is meant, as `aws_endpoint` for S3")
}

/// Whether no connection was made, so that nothing was asked.
fn is_connecting(failure: &Failure) -> bool {
    let mut error: Option<&dyn std::error::Error> = Some(failure);
    while let Some(inner) = error {
        let kind = inner.downcast_ref::<HttpError>().map(HttpError::kind);
        // A connection that is not made in time is told as a timeout, as an answer is that does not come.
        if kind == Some(HttpErrorKind::Connect) || inner.to_string().contains("(Connect)") {
            return true;
        }
        error = inner.source();
    }
    false
}

/// Which host does not answer, and why.
fn no_answer(failure: &Failure) -> String {
    let host = host(&failure.to_string()).unwrap_or_else(|| "its host".to_owned());
    format!("{host} does not answer: {}", cause(failure))
}

/// Scheme, host and port of the first URL in a message.
fn host(message: &str) -> Option<String> {
    let (before, after) = message.split_once("://")?;
    let scheme = before.rsplit(|c: char| !c.is_ascii_alphanumeric()).next()?;
    let host = after.split(|c: char| c.is_whitespace() || "/?#()".contains(c)).next()?;
    let host = host.rsplit('@').next()?;
    Some(format!("`{scheme}://{host}`"))
}

/// Whether the store says that the object has no such bytes.
pub(crate) fn out_of_range(failure: &Failure) -> bool {
    matches!(failure, Failure::Generic { .. })
        && (status(&failure.to_string()) == Some(416) || failure.to_string().contains("requested range"))
}

/// Why the store at `place` could not be listed.
pub(crate) fn refuse(place: &str, failure: &Failure) -> Error {
    let why = cause(failure);
    if matches!(failure, Failure::InvalidPath { .. }) {
        return Error::invalid(format!(
            "`{place}` holds an object whose key no path can name: {why}; rename or remove it, or name the samples in a \
             manifest (`hotset.Manifest`)"
        ));
    }
    match tell(failure) {
        ReadError::Vanished => Error::invalid(format!("there is no `{place}`: {why}")),
        ReadError::Refused(_)
            if matches!(failure, Failure::NotSupported { .. }) || why.contains("status code: 405") =>
        {
            Error::invalid(format!(
                "`{place}` cannot be listed, as most web servers cannot: {why}; name the files in a manifest \
                 (`hotset.Manifest`)"
            ))
        }
        ReadError::Refused(why) => Error::invalid(format!(
            "the store does not let us list `{place}`: {why}; look at the credentials and at `storage_options`"
        )),
        ReadError::Unreachable(why) => Error::unavailable(format!(
            "`{place}` could not be listed: {why}; look at the address and its port, such as `aws_endpoint`, in \
             `storage_options`"
        )),
        _ => Error::unavailable(format!("`{place}` could not be listed: {why}")),
    }
}

/// The innermost cause worth showing, in one short line.
pub(crate) fn cause(failure: &Failure) -> String {
    let mut error: &dyn std::error::Error = failure;
    while let Some(source) = error.source() {
        error = source;
    }
    let innermost = error.to_string();
    // The transport's own words ("connection refused", "invalid certificate") say more than their wrapping, and
    // show no address; a status is worth keeping.
    let whole = failure.to_string();
    let text = if status(&whole).is_none() || status(&innermost).is_some() { innermost } else { whole };
    let text = brief(&text).unwrap_or(text).split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// Status, code and message of an answer in the XML of S3 and its like.
fn brief(text: &str) -> Option<String> {
    let (status, _) = text.split_once("status code: ")?.1.split_once(": <")?;
    let element = |name: &str| {
        let (_, after) = text.split_once(&format!("<{name}>"))?;
        after.split_once(&format!("</{name}>")).map(|(inside, _)| inside)
    };
    Some(format!("status code: {status}: {}: {}", element("Code")?, element("Message").unwrap_or("")))
}

/// The HTTP status in the store crate's message, which keeps it nowhere else that can be reached.
pub(crate) fn status(message: &str) -> Option<u16> {
    let (_, after) = message.split_once("status code: ")?;
    after.get(..3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hotset_core::Kind;

    fn generic(text: &str) -> Failure {
        Failure::Generic { store: "S3", source: text.to_owned().into() }
    }

    #[test]
    fn statuses_are_told_apart_by_what_to_do() {
        let answered =
            |status: &str| tell(&generic(&format!("Server returned non-2xx status code: {status}: why")));
        assert!(matches!(answered("429 Too Many Requests"), ReadError::Busy(_)));
        assert!(matches!(answered("503 Slow Down"), ReadError::Busy(_)));
        assert!(matches!(answered("500 Internal Server Error"), ReadError::Transient(_)));
        assert!(matches!(answered("400 Bad Request"), ReadError::Refused(_)));
        let moved = answered("301 Moved");
        assert!(matches!(&moved, ReadError::Refused(why) if why.contains("as `aws_endpoint`")), "{moved}");
        assert_eq!(answered("404 Not Found"), ReadError::Vanished);
        assert!(matches!(tell(&generic("connection reset")), ReadError::Transient(_)));
        assert!(matches!(tell(&generic("invalid peer certificate: UnknownIssuer")), ReadError::Refused(_)));
        let path = String::new;
        let source = || "why".into();
        assert_eq!(tell(&Failure::NotFound { path: path(), source: source() }), ReadError::Vanished);
        assert_eq!(tell(&Failure::Precondition { path: path(), source: source() }), ReadError::Modified);
        let denied = Failure::PermissionDenied { path: path(), source: source() };
        assert!(matches!(tell(&denied), ReadError::Refused(_)));
        assert_eq!(refuse("s3://b", &denied).kind, Kind::Invalid);
        assert_eq!(refuse("s3://b", &generic("reset")).kind, Kind::Unavailable);
        assert!(out_of_range(&generic("status code: 416 Range Not Satisfiable")));
    }

    #[test]
    fn the_transports_own_words_are_shown() {
        let refused = std::io::Error::other(std::io::Error::from_raw_os_error(111));
        let failure = Failure::Generic { store: "S3", source: Box::new(refused) };
        assert!(cause(&failure).starts_with("Connection refused"), "{}", cause(&failure));
    }

    #[test]
    fn a_host_that_is_not_reached_is_named_without_what_follows_it() {
        for (message, expected) in [
            (
                "Error performing GET http://127.0.0.1:9/bucket?list-type=2 in 1ms",
                Some("`http://127.0.0.1:9`"),
            ),
            ("for url (https://key:secret@s3.host/a)", Some("`https://s3.host`")),
            ("nowhere", None),
        ] {
            assert_eq!(host(message).as_deref(), expected);
        }
        let connecting = generic("error sending request: client error (Connect)");
        let told = tell(&connecting);
        assert!(matches!(&told, ReadError::Unreachable(why) if why.contains("does not answer")), "{told}");
        assert!(refuse("s3://b", &connecting).message.contains("look at the address and its port"));
    }

    #[test]
    fn causes_are_one_short_line() {
        let long = format!("<Error>\n  <Code>X</Code> {}", "y".repeat(1_000));
        assert!(cause(&generic(&long)).len() < SHOWN + 4);
        assert!(!cause(&generic(&long)).contains('\n'));
        let answer = "non-2xx status code: 404 Not Found: <?xml?><Error><Code>NoSuchBucket</Code><Message>None \
                      here</Message></Error>";
        assert_eq!(cause(&generic(answer)), "status code: 404 Not Found: NoSuchBucket: None here");
    }
}

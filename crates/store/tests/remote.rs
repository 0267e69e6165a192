//! What a store says is told apart, and never more than one attempt is made for a read.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scripted;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hotset_core::{Error, Kind};
use hotset_store::{Layout, Location, Opened, ReadError, Request, open};
use reqwest::Url;
use scripted::{Answer, Asked, Scripted};

/// The page of a listing of `keys` below `train`, all of eight bytes and of version `v1`.
fn page(keys: &[&str], prefixes: &[&str]) -> Answer {
    let objects: String = keys
        .iter()
        .map(|key| {
            format!(
                "<Contents><Key>train/{key}</Key><Size>8</Size><ETag>\"v1\"</ETag>\
                 <LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            )
        })
        .collect();
    let common: String = prefixes
        .iter()
        .map(|key| format!("<CommonPrefixes><Prefix>train/{key}/</Prefix></CommonPrefixes>"))
        .collect();
    let text = format!("<ListBucketResult>{objects}{common}</ListBucketResult>");
    Answer::object("page", text.as_bytes())
}

/// A store that lists one object `a`, and answers reads with `eight` of version `v1`.
fn usual(asked: &Asked) -> Answer {
    if asked.path.contains("list-type=2") { page(&["a"], &[]) } else { Answer::object("v1", b"12345678") }
}

fn request(server: &Scripted, layout: Layout, options: &[(&str, &str)]) -> Request {
    let endpoint = format!("http://127.0.0.1:{}", server.port);
    let usual = [("aws_endpoint", endpoint.as_str()), ("aws_skip_signature", "true"), ("timeout", "400ms")];
    let options = usual.iter().chain(options);
    Request {
        place: "s3://bucket/train".into(),
        layout,
        extensions: Vec::new(),
        label: String::new(),
        root: String::new(),
        storage_options: options.map(|(name, value)| (name.to_string(), value.to_string())).collect(),
    }
}

fn opened(server: &Scripted) -> Opened {
    open(&request(server, Layout::Files, &[]), None, &mut |_| Ok(())).unwrap()
}

fn read(opened: &Opened) -> Result<Vec<u8>, ReadError> {
    let mut bytes = vec![0; 8];
    opened.catalog.with_location(0, |at| opened.store.read(at, &mut bytes)).map(|()| bytes)
}

/// What a read comes to when every GET is answered so, and how many requests it made.
fn told(answer: Answer) -> (ReadError, usize) {
    let server = Scripted::new(usual);
    let opened = opened(&server);
    server.now(move |_| answer.clone());
    let before = server.count();
    (read(&opened).unwrap_err(), server.count() - before)
}

#[test]
fn bytes_out_are_bytes_in() {
    let server = Scripted::new(usual);
    assert_eq!(read(&opened(&server)).unwrap(), b"12345678");
}

#[test]
fn statuses_are_told_apart_after_one_request() {
    for (status, kind, retriable) in [
        (400, Kind::Invalid, false),
        (401, Kind::Invalid, false),
        (403, Kind::Invalid, false),
        (404, Kind::Changed, false),
        (429, Kind::Unavailable, true),
        (500, Kind::Unavailable, true),
        (503, Kind::Unavailable, true),
    ] {
        let (error, requests) = told(Answer::status(status));
        assert_eq!((error.retriable(), requests), (retriable, 1), "{status}: {error}");
        assert_eq!(Error::from(error).kind, kind, "{status}");
    }
    assert!(matches!(told(Answer::status(429)).0, ReadError::Busy(_)));
    assert!(matches!(told(Answer::status(503)).0, ReadError::Busy(_)));
    assert!(matches!(told(Answer::status(500)).0, ReadError::Transient(_)));
    assert!(matches!(told(Answer::status(403)).0, ReadError::Refused(why) if why.contains("403")));
}

#[test]
fn an_object_of_another_version_or_length_is_never_taken() {
    assert_eq!(told(Answer::object("v2", b"abcdefgh")).0, ReadError::Modified);
    let longer = ReadError::Resized { expected: 8, found: 9 };
    assert_eq!(told(Answer::object("v1", b"123456789")).0, longer);
    let shorter = ReadError::Resized { expected: 8, found: 3 };
    assert_eq!(told(Answer::object("v2", b"abc")).0, shorter);
}

#[test]
fn half_an_object_is_a_failure_in_passing() {
    for sent in [0, 5] {
        let (error, requests) = told(Answer { sent, ..Answer::object("v1", b"12345678") });
        assert!(error.retriable(), "{error}");
        assert_eq!(requests, 1);
    }
}

#[test]
fn a_store_that_stalls_is_given_up_after_the_time_set_and_read_when_it_is_back() {
    let server = Scripted::new(usual);
    let opened = opened(&server);
    server.now(|asked| Answer { after: Duration::from_secs(3), ..usual(asked) });
    assert!(read(&opened).unwrap_err().retriable());
    server.now(usual);
    assert_eq!(read(&opened).unwrap(), b"12345678");
}

#[test]
fn a_store_that_is_not_there_is_a_failure_in_passing() {
    let server = Scripted::new(usual);
    let opened = opened(&server);
    drop(server);
    let error = read(&opened).unwrap_err();
    assert!(error.retriable(), "{error}");
}

#[test]
fn a_range_beyond_the_end_is_short_and_one_inside_is_read() {
    let server = Scripted::new(usual);
    let opened = opened(&server);
    let version = opened.catalog.with_location(0, |at| at.version);
    let part = |offset, into: &mut [u8]| {
        opened.store.read(Location { key: "a", offset, version, whole: false }, into)
    };
    let mut three = [0; 3];
    part(4, &mut three).unwrap();
    assert_eq!(&three, b"567");
    assert_eq!(part(6, &mut three), Err(ReadError::Short { from: 6, to: 9 }));
    assert_eq!(part(8, &mut three), Err(ReadError::Short { from: 8, to: 11 }));
    server.now(|_| Answer::object("v2", b"abcdefgh"));
    assert_eq!(part(0, &mut three), Err(ReadError::Modified));
}

#[test]
fn a_listing_is_tried_again_by_itself() {
    let mut failures = 2;
    let server = Scripted::new(move |asked| {
        failures -= i32::from(failures > 0);
        if failures > 0 { Answer::status(503) } else { usual(asked) }
    });
    assert_eq!(opened(&server).catalog.len(), 1);
    assert_eq!(server.requests.load(Ordering::SeqCst), 2);
}

#[test]
fn a_listing_whose_pages_are_cut_short_is_tried_again() {
    for layout in [Layout::Files, Layout::Images] {
        let mut answered = 0;
        let server = Scripted::new(move |asked| {
            let whole = if asked.path.contains("delimiter=%2F") {
                page(&[], &["b"])
            } else {
                page(&["b/a.png"], &[])
            };
            // Every page is cut once.
            answered += 1;
            if answered % 2 == 1 { Answer { sent: 20, ..whole } } else { whole }
        });
        let opened = open(&request(&server, layout, &[]), None, &mut |_| Ok(())).unwrap();
        assert_eq!(opened.catalog.key(0), "b/a.png");
        assert_eq!(server.count(), if layout == Layout::Files { 2 } else { 4 });
    }
}

#[test]
fn a_listing_goes_on_behind_the_last_key_it_had() {
    let mut failed = false;
    let server = Scripted::new(move |asked| {
        if asked.path.contains("start-after=train%2Fb") {
            return page(&["c", "d"], &[]);
        }
        if asked.path.contains("continuation-token=more") {
            failed = true;
            return Answer { sent: 20, ..page(&["c"], &[]) };
        }
        assert!(!failed, "the first page was asked for again");
        let first = String::from_utf8(page(&["a", "b"], &[]).body).unwrap();
        let more = "<ListBucketResult><NextContinuationToken>more</NextContinuationToken>";
        Answer::object("page", first.replace("<ListBucketResult>", more).as_bytes())
    });
    let catalog = opened(&server).catalog;
    let keys: Vec<String> = (0..catalog.len() as u32).map(|id| catalog.key(id)).collect();
    assert_eq!(keys, ["a", "b", "c", "d"]);
    assert_eq!(server.count(), 3);
}

#[test]
fn a_kept_listing_is_of_one_server_however_slowly_it_is_read() {
    let listings = tempfile::tempdir().unwrap();
    let first = Scripted::new(usual);
    let other = Scripted::new(|_| page(&["b"], &[]));
    let listed = |server: &Scripted, options: &[(&str, &str)]| {
        let request = request(server, Layout::Files, options);
        open(&request, Some(listings.path()), &mut |_| Ok(())).unwrap().catalog.key(0)
    };
    assert_eq!((listed(&first, &[]), listed(&other, &[])), ("a".into(), "b".into()));
    let asked = first.count();
    assert_eq!(listed(&first, &[("throttle.latency", "1ms")]), "a");
    assert_eq!(first.count(), asked, "it is kept");
}

#[test]
fn a_listing_that_is_refused_names_the_place_and_what_to_look_at() {
    let server = Scripted::new(|_| Answer::status(403));
    let error = open(&request(&server, Layout::Files, &[]), None, &mut |_| Ok(())).err().unwrap();
    assert_eq!(error.kind, Kind::Invalid);
    assert!(error.message.contains("`s3://bucket/train`") && error.message.contains("`storage_options`"));
    assert!(error.message.contains("403"), "{}", error.message);
}

#[test]
fn classes_are_listed_side_by_side_and_come_in_their_order() {
    let server = Scripted::new(|asked: &Asked| {
        if asked.path.contains("delimiter=%2F") {
            return page(&["loose.png"], &["b", "a b", "B"]);
        }
        match asked.path.split("prefix=").nth(1).unwrap().split('&').next().unwrap() {
            "train%2Fb%2F" => page(&["b/a/2.png", "b/10.png", "b/9.png", "b/a-b.png", "b/none.txt"], &[]),
            "train%2Fa%20b%2F" | "train%2Fa+b%2F" => page(&["a b/1.JPG"], &[]),
            "train%2FB%2F" => page(&["B/1.png"], &[]),
            other => panic!("{other}"),
        }
    });
    let opened = open(&request(&server, Layout::Images, &[]), None, &mut |_| Ok(())).unwrap();
    let catalog = &opened.catalog;
    assert_eq!(catalog.classes(), ["B", "a b", "b"]);
    let keys: Vec<_> =
        (0..catalog.len() as u32).map(|id| (catalog.key(id), catalog.label(id).unwrap())).collect();
    let expected = ["B/1.png", "a b/1.JPG", "b/10.png", "b/9.png", "b/a-b.png", "b/a/2.png"];
    assert_eq!(keys, expected.map(str::to_owned).into_iter().zip([0, 1, 2, 2, 2, 2]).collect::<Vec<_>>());
    assert_eq!(server.count(), 4, "one request for the classes and one for each");
}

#[test]
fn many_classes_take_one_request_a_page_some_at_a_time_and_few_bytes_a_sample() {
    const CLASSES: usize = 60;
    const PAGE: usize = 500;
    let class = |number: usize| format!("n{:08}", 1_440_764 + number);
    let server = Scripted::new(move |asked: &Asked| {
        if asked.path.contains("delimiter=%2F") {
            let classes: Vec<String> = (0..CLASSES).map(class).collect();
            return page(&[], &classes.iter().map(String::as_str).collect::<Vec<_>>());
        }
        let name =
            asked.path.split("prefix=train%2F").nth(1).unwrap().split("%2F").next().unwrap().to_owned();
        let second = asked.path.contains("continuation-token=second");
        let from = if second { 10_026 + PAGE } else { 10_026 };
        let keys: Vec<String> =
            (from..from + PAGE).map(|number| format!("{name}/{name}_{number}.JPEG")).collect();
        let answer = page(&keys.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
        let body = String::from_utf8(answer.body.clone()).unwrap();
        let more = "<ListBucketResult><NextContinuationToken>second</NextContinuationToken>";
        let body = if second { body } else { body.replace("<ListBucketResult>", more) };
        // Long enough that others begin meanwhile.
        Answer { body: body.into_bytes(), after: Duration::from_millis(5), ..answer }
    });
    let mut told = Vec::new();
    let opened = open(&request(&server, Layout::Images, &[("timeout", "30s")]), None, &mut |count| {
        told.push(count);
        Ok(())
    });
    let catalog = opened.unwrap().catalog;
    let samples = CLASSES * 2 * PAGE;
    assert_eq!(catalog.len(), samples);
    assert_eq!(server.count(), 1 + 2 * CLASSES, "no page was asked for twice");
    let most = server.under_way[1].load(Ordering::SeqCst);
    assert!((2..=32).contains(&most), "{most} at a time");
    assert!(told.is_sorted() && told.last() == Some(&(samples as u64)), "{told:?}");
    // The name of twenty bytes, and twelve.
    assert!(catalog.memory() < 33 * samples, "{}", catalog.memory());
    assert_eq!(catalog.key(999), "n01440764/n01440764_11025.JPEG");
    assert_eq!((catalog.label(999), catalog.label(1_000)), (Some(0), Some(1)));
}

#[test]
fn a_listing_without_end_is_ended_by_whoever_hears_of_it() {
    for layout in [Layout::Files, Layout::Images] {
        let next = AtomicUsize::new(0);
        let server = Scripted::new(move |asked: &Asked| {
            if asked.path.contains("delimiter=%2F") {
                return page(&[], &["a", "b"]);
            }
            let number = next.fetch_add(1, Ordering::SeqCst);
            let answer = page(&[&format!("a/{number:08}.png")], &[]);
            let body = String::from_utf8(answer.body.clone()).unwrap();
            let more = format!("<ListBucketResult><NextContinuationToken>{number}</NextContinuationToken>");
            let body = body.replace("<ListBucketResult>", &more).into_bytes();
            Answer { body, after: Duration::from_millis(5), ..answer }
        });
        let enough = &mut |_| Err(Error::unavailable("enough"));
        let error = open(&request(&server, layout, &[]), None, enough).err().unwrap();
        assert_eq!(error.message, "enough");
        let asked = server.count();
        assert!(asked < 500, "{asked} requests");
    }
}

#[test]
fn a_web_server_that_cannot_list_is_told_to_need_a_manifest() {
    let server = Scripted::new(|_| Answer::status(405));
    let mut wanted = request(&server, Layout::Files, &[]);
    wanted.place = format!("http://127.0.0.1:{}/train", server.port);
    wanted.storage_options.clear();
    let error = open(&wanted, None, &mut |_| Ok(())).err().unwrap();
    assert!(error.message.contains("hotset.Manifest"), "{}", error.message);
}

#[test]
fn a_listing_with_a_key_that_no_request_could_hold_is_refused_by_its_beginning() {
    let long = format!("class/{}.png", "x".repeat(70_000));
    let listed = long.clone();
    let server = Scripted::new(move |_| page(&["a.png", &listed], &[]));
    let error = open(&request(&server, Layout::Files, &[]), None, &mut |_| Ok(())).err().unwrap();
    assert_eq!(error.kind, Kind::Invalid);
    assert!(error.message.contains("begins with `train/class/xxx"), "{error}");
    assert!(error.message.len() < 500, "{error}");
    // A class, whose keys would be asked for by its name.
    let server = Scripted::new(move |_| page(&[], &["a", &long]));
    let error = open(&request(&server, Layout::Images, &[]), None, &mut |_| Ok(())).err().unwrap();
    assert!(error.message.contains("begins with `train/class/xxx"), "{error}");
}

#[test]
fn a_manifest_with_a_key_that_no_request_could_hold_is_refused_by_its_row() {
    let server = Scripted::new(usual);
    let directory = tempfile::tempdir().unwrap();
    let table = directory.path().join("m.csv");
    std::fs::write(&table, format!("key,length\na.png,8\n{},8\n", "x".repeat(100_000))).unwrap();
    let place = table.display().to_string();
    let root = "s3://bucket/train".to_owned();
    let asked = Request { place, root, ..request(&server, Layout::Manifest, &[]) };
    let error = open(&asked, None, &mut |_| Ok(())).err().unwrap();
    assert!(error.message.contains("row `2`") && error.message.contains("begins with `train/xxx"), "{error}");
    // One that is asked for all the same, by a reader that has its name from elsewhere.
    let read = opened(&server)
        .store
        .read(Location { key: &"x".repeat(70_000), offset: 0, version: 0, whole: true }, &mut [0; 8]);
    assert!(matches!(read, Err(ReadError::Refused(why)) if why.contains("begins with")));
}

#[test]
fn an_answer_that_the_client_panics_on_is_an_error_and_no_panic() {
    let token = "t".repeat(100_000);
    let text = format!(
        "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>\
         </ListBucketResult>"
    );
    let server = Scripted::new(move |_| Answer::object("page", text.as_bytes()));
    let error = open(&request(&server, Layout::Files, &[]), None, &mut |_| Ok(())).err().unwrap();
    assert_eq!(error.kind, Kind::Invalid);
    assert!(error.message.contains("the client gave up"), "{error}");
}

/// A page of the sorted `keys`, as S3 gives it: below the prefix asked for, behind a key, grouped by `/`.
fn page_of(keys: &[&str], asked: &Asked) -> Answer {
    let url = Url::parse(&format!("http://bucket{}", asked.path)).unwrap();
    let value =
        |name: &str| url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
    let (prefix, after) = (value("prefix").unwrap(), value("start-after").unwrap_or_default());
    let most = value("max-keys").map_or(1_000, |most| most.parse().unwrap());
    let grouped = value("delimiter").is_some();
    let mut found: Vec<(&str, bool)> = Vec::new();
    for key in keys.iter().filter(|key| key.starts_with(&prefix) && ***key > *after) {
        let group = key[prefix.len()..].find('/').filter(|_| grouped);
        let entry = group.map_or((*key, false), |at| (&key[..=prefix.len() + at], true));
        if found.last() != Some(&entry) {
            found.push(entry);
        }
    }
    let more = if found.len() > most { "<NextContinuationToken>more</NextContinuationToken>" } else { "" };
    found.truncate(most);
    let entry = |(key, group): &(&str, bool)| match group {
        true => format!("<CommonPrefixes><Prefix>{key}</Prefix></CommonPrefixes>"),
        false => format!(
            "<Contents><Key>{key}</Key><Size>{}</Size><ETag>\"v1\"</ETag>\
             <LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>",
            if key.ends_with('/') { 0 } else { 8 }
        ),
    };
    let entries: String = found.iter().map(entry).collect();
    Answer::object("page", format!("<ListBucketResult>{entries}{more}</ListBucketResult>").as_bytes())
}

#[test]
fn keys_that_no_path_can_name_are_left_out_and_all_others_listed() {
    const KEYS: [&str; 13] = [
        "train//a.png",
        "train/a.png",
        "train/b-.png",
        "train/b/",
        "train/b/./x.png",
        "train/b//c.png",
        "train/b//d.png",
        "train/b/0",
        "train/b/c.png",
        "train/d/../e.png",
        "train/d/y.png",
        "train/e/..",
        "train/e/z.png",
    ];
    // The empty object of a folder is known by what follows it, which `b-.png` hides.
    let files = ["a.png", "b", "b-.png", "b/0", "b/c.png", "d/y.png", "e/z.png"];
    let images = ["b/c.png", "d/y.png", "e/z.png"];
    for (layout, expected) in [(Layout::Files, &files[..]), (Layout::Images, &images)] {
        let server = Scripted::new(|asked| page_of(&KEYS, asked));
        let catalog = open(&request(&server, layout, &[]), None, &mut |_| Ok(())).unwrap().catalog;
        let keys: Vec<String> = (0..catalog.len() as u32).map(|id| catalog.key(id)).collect();
        assert_eq!(keys, expected, "{layout:?}");
    }
}

#[test]
fn a_store_that_lists_from_its_first_key_whatever_was_asked_gets_an_error_that_names_the_key() {
    let server = Scripted::new(|_| page(&["a.png", "b//c.png"], &[]));
    let error = open(&request(&server, Layout::Files, &[]), None, &mut |_| Ok(())).err().unwrap();
    assert_eq!(error.kind, Kind::Invalid);
    assert!(error.message.contains("train/b//c.png") && error.message.contains("manifest"), "{error}");
    assert!(!error.message.contains("credentials"), "{error}");
}

#[test]
fn a_store_whose_pages_are_longer_than_was_asked_gets_an_error_rather_than_lose_keys() {
    let keys = ["train/000.png", "train/001.png", "train/002//b.png", "train/003.png", "train/004.png"];
    let server = Scripted::new(move |asked| {
        let path = asked.path.replace("max-keys=", "ignored=");
        page_of(&keys, &Asked { path, ..asked.clone() })
    });
    let error = open(&request(&server, Layout::Files, &[]), None, &mut |_| Ok(())).err().unwrap();
    assert_eq!(error.kind, Kind::Invalid);
    assert!(error.message.contains("train/002//b.png"), "{error}");
}

#[test]
fn credentials_are_not_taken_to_another_server() {
    let credentials = [
        ("aws_skip_signature", "false"),
        ("aws_access_key_id", "key"),
        ("aws_secret_access_key", "secret"),
        ("aws_session_token", "token"),
    ];
    let other = Scripted::new(usual);
    let server = Scripted::new(usual);
    let opened = open(&request(&server, Layout::Files, &credentials), None, &mut |_| Ok(())).unwrap();
    let elsewhere = format!("http://127.0.0.1:{}/bucket/train/a", other.port);
    for status in [301, 302, 307, 308] {
        let location = elsewhere.clone();
        server.now(move |_| Answer { location: location.clone(), ..Answer::status(status) });
        let error = read(&opened).unwrap_err();
        assert!(matches!(&error, ReadError::Refused(why) if why.contains(&status.to_string())), "{error}");
    }
    assert_eq!(other.count(), 0, "no other server was asked");
    // Its own server may send it about.
    server.now(|asked| {
        let location = "/bucket/train/b".to_owned();
        if asked.path.ends_with("/a") { Answer { location, ..Answer::status(307) } } else { usual(asked) }
    });
    assert_eq!(read(&opened).unwrap(), b"12345678");
}

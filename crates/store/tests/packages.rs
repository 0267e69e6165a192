//! Packages over the S3 protocol: what is asked of the store, and what its answers come to.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scripted;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use hotset_core::{Error, Kind};
use hotset_store::ReadError;
use hotset_store::package::{Dataset, Draft, PackagePlace, PackageStore, WriteError};
use scripted::{Answer, Asked, Scripted};

const IDENTITY: &str = "a dataset";

/// A bucket that keeps what it is sent, and what was asked of it.
#[derive(Clone, Default)]
struct Bucket {
    objects: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Bucket {
    fn answer(&self, asked: &Asked) -> Answer {
        let (path, query) = asked.path.split_once('?').unwrap_or((&asked.path, ""));
        let key = path.strip_prefix("/bucket").unwrap().trim_start_matches('/').to_owned();
        let mut objects = self.objects.lock().unwrap();
        let ranged = if asked.range.is_some() { " part" } else { "" };
        self.asked.lock().unwrap().push(format!("{}{ranged}", asked.method));
        match asked.method.as_str() {
            "PUT" => {
                objects.insert(key, asked.body.clone());
                Answer::object("v1", b"")
            }
            "GET" if query.contains("list-type=2") => {
                let entry = |(key, bytes): (&String, &Vec<u8>)| {
                    format!(
                        "<Contents><Key>{key}</Key><Size>{}</Size><ETag>\"v1\"</ETag>\
                         <LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>",
                        bytes.len()
                    )
                };
                let listed: String = objects.iter().map(entry).collect();
                let page = format!("<ListBucketResult>{listed}</ListBucketResult>");
                Answer::object("page", page.as_bytes())
            }
            "GET" => objects.get(&key).map_or(Answer::status(404), |bytes| Answer::object("v1", bytes)),
            "POST" if query.starts_with("delete") => {
                let body = String::from_utf8_lossy(&asked.body).into_owned();
                let keys = body.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next());
                let deleted: String = keys
                    .map(|key| {
                        objects.remove(key);
                        format!("<Deleted><Key>{key}</Key></Deleted>")
                    })
                    .collect();
                let page = format!("<DeleteResult>{deleted}</DeleteResult>");
                Answer::object("page", page.as_bytes())
            }
            "DELETE" => {
                objects.remove(&key);
                Answer { status: 204, ..Answer::object("v1", b"") }
            }
            _ => Answer::status(400),
        }
    }

    /// What was asked since it was last looked at.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

fn stage() -> (Bucket, Scripted) {
    let bucket = Bucket::default();
    let told = bucket.clone();
    (bucket, Scripted::new(move |asked| told.answer(asked)))
}

fn options(server: &Scripted) -> BTreeMap<String, String> {
    let endpoint = format!("http://127.0.0.1:{}", server.port);
    [("aws_endpoint", endpoint.as_str()), ("aws_skip_signature", "true"), ("timeout", "400ms")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

fn packages(server: &Scripted) -> PackageStore {
    let dataset = Dataset { place: "s3://bucket/train", identity: IDENTITY };
    PackageStore::open("s3://bucket/packages", &options(server), dataset, "job").unwrap()
}

fn package(number: u32, count: u32) -> Vec<u8> {
    let sizes: Vec<(u32, u64)> = (0..count).map(|id| (id, 4)).collect();
    let mut draft = Draft::new(IDENTITY, number, &sizes).unwrap();
    (0..count).for_each(|id| assert!(draft.put(id, &id.to_le_bytes()).is_ok()));
    draft.finish().unwrap()
}

#[test]
fn a_package_is_one_request_to_write_one_to_read_and_one_to_look_into() {
    let (bucket, server) = stage();
    let first = packages(&server);
    first.write(3, &package(3, 40)).unwrap();
    assert_eq!(bucket.asked(), ["PUT"]);
    let mut bytes = Vec::new();
    first.read(3, &mut bytes).unwrap();
    assert_eq!((bucket.asked(), &bytes), (vec!["GET".to_owned()], &package(3, 40)));

    let next = packages(&server);
    next.read(3, &mut bytes).unwrap();
    assert_eq!(bucket.asked(), ["GET"], "of an unknown length");
    let scan = next.scan(&mut |_| {}).unwrap();
    assert_eq!(bucket.asked(), ["GET", "GET part"], "the list, and one index");
    assert_eq!(scan.packages[0].ids().len(), 40);
    next.read(3, &mut bytes).unwrap();
    assert_eq!((bucket.asked(), &bytes), (vec!["GET".to_owned()], &package(3, 40)));
    next.remove(3).unwrap();
    assert_eq!(next.read(3, &mut bytes), Err(ReadError::Vanished));
}

#[test]
fn keys_are_those_of_the_layout_and_strangers_in_the_bucket_stay() {
    let (bucket, server) = stage();
    let packages = packages(&server);
    packages.write(3, &package(3, 4)).unwrap();
    let key = bucket.objects.lock().unwrap().keys().next().unwrap().clone();
    let parts: Vec<&str> = key.split('/').collect();
    assert_eq!((parts[0], parts[1].len(), parts[2].len(), parts[3]), ("packages", 16, 16, "00000003.hotset"));
    let stranger = key.replace("00000003", "00000004");
    let beside = key.replace("00000003.hotset", "notes.txt");
    for other in [&stranger, &beside, &"packages/readme".to_owned()] {
        bucket.objects.lock().unwrap().insert(other.clone(), b"not ours".to_vec());
    }
    let room = PackagePlace::open("s3://bucket/packages", &options(&server)).unwrap();
    assert_eq!(room.owners().unwrap()[0].packages(), 2);
    assert_eq!(packages.drop_all().unwrap().packages, 1);
    let left: Vec<String> = bucket.objects.lock().unwrap().keys().cloned().collect();
    assert_eq!(left.len(), 3);
    assert!(left.contains(&stranger) && left.contains(&beside));
}

#[test]
fn a_write_that_is_refused_names_the_setting_and_one_that_fails_in_passing_is_tried_again() {
    let (_, server) = stage();
    let packages = packages(&server);
    for status in [403, 404] {
        server.now(move |_| Answer::status(status));
        let error = packages.write(0, &package(0, 4)).unwrap_err();
        assert!(matches!(error, WriteError::Refused { .. }), "{error}");
        let error = Error::from(error);
        assert_eq!(error.kind, Kind::Invalid);
        assert!(error.message.contains("`packages=`"), "{error}");
        assert!(error.message.contains("`s3://bucket/packages`"), "{error}");
    }
    let mut failures = 2;
    server.now(move |_| {
        failures -= i32::from(failures > 0);
        if failures > 0 { Answer::status(503) } else { Answer::object("v1", b"") }
    });
    packages.write(0, &package(0, 4)).unwrap();
    let mut bytes = Vec::new();
    server.now(|_| Answer::status(503));
    let before = server.count();
    assert!(packages.read(0, &mut bytes).unwrap_err().retriable());
    assert_eq!(server.count(), before + 1, "a read is tried once");
}

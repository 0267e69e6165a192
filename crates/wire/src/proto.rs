//! The messages of `proto/hotset.proto`, and failures as errors.

use std::fmt;

use hotset_core::{Error, Kind};

// Generated: the comments in `hotset.proto` are the documentation.
#[allow(missing_docs, unreachable_pub, clippy::all)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/hotset.v1.rs"));
}

pub use generated::*;

impl fmt::Debug for OpenDataset {
    /// Names the storage options and leaves out their values, which may be credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenDataset")
            .field("place", &self.place)
            .field("layout", &self.layout)
            .field("extensions", &self.extensions)
            .field("storage_options", &self.storage_options.keys().collect::<Vec<_>>())
            .field("expect", &self.expect)
            .field("label", &self.label)
            .field("root", &self.root)
            .finish()
    }
}

impl fmt::Debug for OpenJob {
    /// Names the options of the place for packages and leaves out their values, which may be credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenJob")
            .field("job", &self.job)
            .field("settings", &self.settings)
            .field("package_options", &self.package_options.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let kind = match error.kind {
            Kind::Invalid => FailureKind::Invalid,
            Kind::Changed => FailureKind::Changed,
            Kind::Unavailable => FailureKind::Unavailable,
            Kind::Lost => FailureKind::Lost,
            _ => FailureKind::Internal,
        };
        Self { kind: kind.into(), message: error.message, sample: error.sample, key: error.key }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let kind = match failure.kind() {
            FailureKind::Invalid => Kind::Invalid,
            FailureKind::Changed => Kind::Changed,
            FailureKind::Unavailable => Kind::Unavailable,
            FailureKind::Lost => Kind::Lost,
            FailureKind::Internal => Kind::Internal,
        };
        Self { kind, message: failure.message, sample: failure.sample, key: failure.key }
    }
}

/// Implements the way from a message into the request or response that carries it.
macro_rules! carried_by {
    ($carrier:ident, $module:ident: $($message:ident),* $(,)?) => {
        $(impl From<$message> for $carrier {
            fn from(message: $message) -> Self {
                Self { kind: Some($module::Kind::$message(message)) }
            }
        })*
    };
}

carried_by!(Request, request: Hello, OpenDataset, OpenJob, CloseJob, BeginEpoch, GetBatch, Released, Report,
    GetStats, Describe, Reevaluate, Reevaluated, EndEpoch, GetMemory, PutState, GetContents, PutContents);
carried_by!(Response, response: Failure, Progress, Segments, Welcome, DatasetOpened, JobOpened, JobClosed,
    EpochBegun, Batch, Reported, Stats, Described, Memory, Noted, ContentsGot, ContentsPut);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_carries_every_kind_of_error_there_and_back() {
        for kind in [Kind::Invalid, Kind::Changed, Kind::Unavailable, Kind::Lost, Kind::Internal] {
            let error = Error::new(kind, "what happened").of_sample(7, "cat/7.jpg");
            assert_eq!(Error::from(Failure::from(error.clone())), error);
        }
    }

    #[test]
    fn a_kind_of_a_later_version_is_internal() {
        let failure = Failure { kind: 99, ..Failure::default() };
        assert_eq!(Error::from(failure).kind, Kind::Internal);
    }

    #[test]
    fn a_request_shows_no_credentials() {
        let request = Request::from(OpenDataset {
            place: "s3://bucket/train".into(),
            storage_options: [("secret_access_key".to_string(), "hunter2".to_string())].into(),
            ..OpenDataset::default()
        });
        let job = Request::from(OpenJob {
            package_options: [("secret_access_key".to_string(), "hunter2".to_string())].into(),
            ..OpenJob::default()
        });
        for shown in [format!("{request:?}"), format!("{job:?}")] {
            assert!(shown.contains("secret_access_key") && !shown.contains("hunter2"), "{shown}");
        }
    }

    #[test]
    fn stats_are_written_as_json_by_their_field_names() {
        let stats = Stats {
            server: Some(ServerStats { pid: 5, ..ServerStats::default() }),
            jobs: vec![JobStats {
                job: "j".into(),
                epochs: vec![EpochStats::default()],
                ..JobStats::default()
            }],
        };
        let json: serde_json::Value = serde_json::from_str(&serde_json::to_string(&stats).unwrap()).unwrap();
        assert_eq!(json["server"]["pid"], 5);
        assert_eq!(json["jobs"][0]["epochs"][0]["storage_reads"], 0);
    }
}

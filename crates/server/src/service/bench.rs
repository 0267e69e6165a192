//! A service over a small dataset, driven without a socket.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::PathBuf;
use std::time::Duration;

use hotset_wire::proto::{
    BeginEpoch, CloseJob, GetMemory, JobOpened, JobSettings, MemoryKind, OpenDataset, OpenJob, Report,
    Request,
};

use super::*;
use crate::access::{Audience, Quota};

/// This process's user.
fn own() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A caller that stays until it is told to go.
#[derive(Default)]
pub(super) struct Caller {
    pub(super) gone: bool,
    pub(super) heard: Vec<proto::Progress>,
}

impl super::Caller for Caller {
    fn check(&mut self) -> Result<()> {
        if self.gone { Err(Error::unavailable("the client has gone")) } else { Ok(()) }
    }

    fn progress(&mut self, progress: proto::Progress) {
        self.heard.push(progress);
    }
}

pub(super) struct Bench {
    pub(super) service: Service,
    pub(super) dataset: String,
    pub(super) data: tempfile::TempDir,
    pub(super) state: tempfile::TempDir,
    pub(super) records: tempfile::TempDir,
    /// Has the dataset open, so that it stays, and speaks for clients that a test does not name.
    other: RefCell<Client>,
}

impl Bench {
    /// Over three samples: `a`, `b` and `c`.
    pub(super) fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            fs::write(data.path().join(name), name).unwrap();
        }
        let [state, records] = [(), ()].map(|()| tempfile::tempdir().unwrap());
        Self::over(data, state, records, Quota::default())
    }

    /// The same, where users may take no more than that.
    pub(super) fn within(quota: Quota) -> Self {
        let Self { data, state, records, .. } = Self::new();
        Self::over(data, state, records, quota)
    }

    fn over(
        data: tempfile::TempDir,
        state: tempfile::TempDir,
        records: tempfile::TempDir,
        quota: Quota,
    ) -> Self {
        let options = Options {
            socket: PathBuf::new(),
            audience: Audience::Own,
            quota,
            tenants: false,
            shared: None,
            digests: None,
            embedded: false,
            watch: Vec::new(),
            memory: Some(1 << 30),
            concurrency: hotset_engine::Concurrency::Fixed(1),
            retries: 0,
            linger: Duration::ZERO,
            patience: Duration::from_secs(1),
            metrics: None,
            listings: None,
            record: Some(records.path().to_owned()),
            state: Some(state.path().to_owned()),
            cluster: None,
        };
        let service = Service::new(&options, Arc::new(Accounts::new(quota))).unwrap();
        let other = RefCell::new(service.connect(0, own(), None));
        let mut bench = Self { service, dataset: String::new(), data, state, records, other };
        bench.dataset = bench.open_dataset(&bench.other).dataset;
        bench
    }

    /// Another service with the same files, after this one was killed.
    pub(super) fn killed(self) -> Self {
        Self::over(self.data, self.state, self.records, Quota::default())
    }

    /// A client of another user.
    pub(super) fn stranger(&self) -> RefCell<Client> {
        RefCell::new(self.service.connect(99, own() + 1, None))
    }

    pub(super) fn client(&self, process: u32) -> RefCell<Client> {
        RefCell::new(self.service.connect(process, own(), None))
    }

    pub(super) fn leave(&self, client: &RefCell<Client>) {
        self.service.disconnect(&client.borrow());
    }

    /// The reply to a request that has one.
    pub(super) fn ask(&self, client: &RefCell<Client>, request: impl Into<Request>) -> Result<Reply> {
        let (client, caller) = (&mut client.borrow_mut(), &mut Caller::default());
        let reply = self.service.handle(client, request.into().kind.unwrap(), caller)?;
        Ok(reply.unwrap())
    }

    pub(super) fn open_dataset(&self, client: &RefCell<Client>) -> proto::DatasetOpened {
        let place = self.data.path().to_str().unwrap().to_owned();
        let asked = OpenDataset { place, layout: "files".into(), ..OpenDataset::default() };
        match self.ask(client, asked).unwrap().message {
            response::Kind::DatasetOpened(opened) => opened,
            other => panic!("{other:?}"),
        }
    }

    /// A job with a strategy that learns from losses.
    pub(super) fn asked(&self, job: &str) -> OpenJob {
        let settings = JobSettings {
            dataset: self.dataset.clone(),
            cache: "100%".into(),
            strategy: "iis".into(),
            ..JobSettings::default()
        };
        OpenJob { job: job.into(), settings: Some(settings), lasting: true, ..OpenJob::default() }
    }

    pub(super) fn open(&self, client: &RefCell<Client>, asked: OpenJob) -> Result<JobOpened> {
        match self.ask(client, asked)?.message {
            response::Kind::JobOpened(opened) => Ok(opened),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn close(&self, client: &RefCell<Client>, job: &str) {
        self.ask(client, CloseJob { job: job.into(), moves: false }).unwrap();
    }

    /// The ids that rank 0 of 1 trains.
    pub(super) fn begin(&self, client: &RefCell<Client>, job: &str, epoch: u64) -> Result<Vec<u32>> {
        let reply =
            self.ask(client, BeginEpoch { job: job.into(), epoch, world: 1, ..BeginEpoch::default() })?;
        Ok(words(reply).into_iter().map(u32::from_le_bytes).collect())
    }

    /// Trains an epoch, with losses that follow from sample and epoch.
    pub(super) fn train(&self, client: &RefCell<Client>, job: &str, epoch: u64) -> Vec<u32> {
        let ids = self.begin(client, job, epoch).unwrap();
        for (at, &id) in ids.iter().enumerate() {
            self.report(job, epoch, at as u64 + 1, id);
        }
        ids
    }

    pub(super) fn report(&self, job: &str, epoch: u64, upto: u64, id: u32) {
        let scores = vec![(id * 7 + epoch as u32 * 5 % 11) as f32];
        let report = Report { job: job.into(), epoch, upto, ids: vec![id], scores, ..Report::default() };
        self.ask(&self.other, report).unwrap();
    }

    pub(super) fn scores(&self, job: &str) -> Vec<f32> {
        let asked = GetMemory { job: job.into(), kind: MemoryKind::Scores.into() };
        words(self.ask(&self.other, asked).unwrap()).into_iter().map(f32::from_le_bytes).collect()
    }

    /// Whether nothing was reported of any sample.
    pub(super) fn knows_nothing(&self, job: &str) -> bool {
        self.scores(job).iter().all(|score| score.is_nan())
    }

    pub(super) fn files(&self) -> usize {
        fs::read_dir(self.state.path()).unwrap().count()
    }
}

/// What lies in the first memory of a reply.
pub(super) fn bytes(reply: Reply) -> Vec<u8> {
    let mut file = File::from(reply.descriptors.into_iter().next().unwrap());
    file.rewind().unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

fn words(reply: Reply) -> Vec<[u8; 4]> {
    bytes(reply).chunks_exact(4).map(|word| word.try_into().unwrap()).collect()
}

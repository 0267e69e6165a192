//! Two nodes that ask each other, in many orders.

use std::sync::{Mutex, Weak};

use hotset_core::cluster::{Given, Node, Placement, View, Wanted};
use hotset_core::sampling::{Reevaluation, Residents};
use hotset_engine::{Cluster, Placed, Role, Unplaced};

use super::*;

/// What both nodes see.
#[derive(Default)]
struct Both(Mutex<Vec<Weak<Engine>>>);

impl Both {
    fn engine(&self, number: usize) -> hotset_core::Result<Arc<Engine>> {
        let engine = self.0.lock().unwrap()[number].upgrade();
        engine.ok_or_else(|| hotset_core::Error::unavailable("the node is gone"))
    }
}

/// One of them; the other fails now and then.
struct One {
    name: String,
    both: Arc<Both>,
}

impl Cluster for One {
    fn name(&self) -> &str {
        &self.name
    }

    fn settle(&self, _job: &str, drawn: Unplaced) -> hotset_core::Result<Placed> {
        let node = |number: u64| Node {
            name: number.to_string(),
            address: number.to_string(),
            capacity: 1,
            rack: None,
            draining: false,
            revision: 1,
        };
        let view = Arc::new(View::new((0..2).map(node)));
        let placement = Arc::new(Placement::new(&view));
        let ranks = [Some("0"), Some("1")];
        drawn.place((view, placement), &self.name, ranks, thread_rng().gen_bool(0.5))
    }

    fn plan(&self, job: &str, epoch: u64, _: Option<u32>) -> hotset_core::Result<Placed> {
        let bytes = self.both.engine(0)?.placed(job, epoch, Duration::from_secs(600))?;
        Placed::restore(&bytes, SAMPLES, &self.name)
    }

    fn residents(&self, _: &str, _: Option<u64>, _: usize) -> Residents {
        unreachable!("the strategy does not look at residents")
    }

    fn reevaluation(&self, _: &str, _: u64) -> hotset_core::Result<Reevaluation> {
        unreachable!("the strategy evaluates nothing")
    }

    fn fetch(
        &self,
        owner: &Node,
        wanted: &Wanted,
        deadline: Duration,
        places: &mut [&mut [u8]],
    ) -> hotset_core::Result<Vec<Given>> {
        thread::yield_now();
        if thread_rng().gen_ratio(1, 6) {
            places.iter_mut().for_each(|place| place.fill(0xee));
            return Err(hotset_core::Error::unavailable("now and then"));
        }
        let enough = thread_rng().gen_range(0..8);
        let mut given = Vec::new();
        let owner = self.both.engine(owner.address.parse().unwrap())?;
        owner.give(wanted, Instant::now() + deadline, &mut |answer| {
            // An asker that goes in the middle.
            if given.len() > enough {
                return false;
            }
            if let Some(place) = places.get_mut(given.len()).filter(|_| !answer.bytes.is_empty()) {
                place.copy_from_slice(answer.bytes);
            }
            given.push(Given { kind: answer.kind, hit: answer.hit });
            true
        });
        Ok(given)
    }
}

const SAMPLES: usize = 12;

/// A rank begins an epoch, as servers have it.
fn begin(engines: &[Arc<Engine>; 2], rank: u32, epoch: u64) {
    let of = (rank, 2);
    let plan = match rank {
        0 => engines[0].begin_epoch("job", epoch, of, 0, false),
        _ => engines[0].note_begun("job", epoch, of, 0, false),
    };
    let plan = plan.unwrap();
    engines[1].plan_ahead("job", epoch, plan.digest()).unwrap();
    let there = match rank {
        0 => engines[1].note_begun("job", epoch, of, 0, false),
        _ => engines[1].begin_epoch("job", epoch, of, 0, false),
    };
    assert_eq!(there.unwrap(), plan);
}

#[test]
fn two_nodes_ask_each_other_and_fail() {
    schedules(|| {
        let both = Arc::new(Both::default());
        let engines = [0, 1].map(|_| engine());
        *both.0.lock().unwrap() = engines.iter().map(Arc::downgrade).collect();
        let policy = ["lru", "minio", "lfu"][thread_rng().gen_range(0..3)];
        let (prefetch, size) = (thread_rng().gen_bool(0.7), thread_rng().gen_range(100..700));
        let mains: Vec<Client> = (0..2)
            .map(|number| {
                let opened = dataset(SAMPLES, size, if thread_rng().gen_bool(0.3) { 8 } else { 0 });
                let one = One { name: number.to_string(), both: Arc::clone(&both) };
                engines[number].join_cluster(Arc::new(one), Duration::from_secs(600));
                let main = Client::new(&engines[number], &opened, "job");
                let asked = JobRequest { prefetch, ..request(&opened, "30%", policy) };
                let capacity = 6 * size;
                let role = if number == 0 { Role::Home { capacity } } else { Role::Follower { capacity } };
                engines[number].open_job_as(main.session, asked, None, role).unwrap();
                main
            })
            .collect();
        let ranks: Vec<_> = mains
            .into_iter()
            .zip(0u32..)
            .map(|(mut main, rank)| {
                let engines = engines.clone();
                thread::spawn(move || {
                    for epoch in 0..2 {
                        begin(&engines, rank, epoch);
                        let own = &engines[rank as usize];
                        let bytes = own.placed("job", epoch, Duration::ZERO).unwrap();
                        let plan = Placed::restore(&bytes, SAMPLES, "").unwrap().plan;
                        let ids: Vec<Id> = plan.rank_ids(rank).collect();
                        for batch in ids.chunks(3) {
                            let index = |&id: &Id| Index { epoch: Some(epoch), sample: id.into() }.into_raw();
                            main.read(rank, &batch.iter().map(index).collect::<Vec<_>>(), Purpose::Served);
                            if thread_rng().gen_ratio(1, 8) {
                                break;
                            }
                        }
                    }
                    main.go();
                })
            })
            .collect();
        ranks.into_iter().for_each(|rank| rank.join().unwrap());
        engines.iter().for_each(|engine| engine.end_job("job"));
        // Questions may be under way that were asked ahead.
        for engine in &engines {
            while engine.stats().occupied > 0 || engine.stats().waiting > 0 {
                thread::yield_now();
            }
            is_quiet(engine);
        }
        engines.iter().for_each(|engine| engine.stop());
    });
}

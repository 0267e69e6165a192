//! Events as bytes and back, whole, cut short and damaged.

use proptest::prelude::*;

use super::*;
use crate::bits::Bits;
use crate::counters::Counters;
use crate::packages::Draft;
use crate::run::{PendingPackage, Saved, SavedPacking, SavedSchedule};
use crate::tally;

/// One event of each kind, with all that each may hold.
fn all() -> Vec<Event> {
    let settings = [("fraction".to_owned(), "0.5".to_owned())].into_iter().collect::<setup::Settings>();
    let opening = Opening {
        dataset: "memory".into(),
        sizes: Arc::new(vec![10u64, 300, 7]),
        policy: "icache".into(),
        settings: settings.clone(),
        capacity: 1 << 40,
        seed: u64::MAX,
    };
    let setup = |epochs, packages| Setup {
        job: "größer".into(),
        strategy: "iis".into(),
        settings: settings.clone(),
        capacity: 9,
        seed: 3,
        epochs,
        pad: true,
        packages,
    };
    let made = SetupPackages::Made { bytes: 5, found: vec![(3, vec![2, 0]), (4, vec![1])], next: 9 };
    let report = |id, step, value| Report { id, value, loss: 0.5, epoch: 3, step, late: id == 2 };
    let slots = Slots { first: 5, step: 3, count: 7 };
    let steps = [
        Step::Ready,
        Step::Begun { rank: 1, start: 2 },
        Step::BegunAgain { rank: 1, start: 0 },
        Step::Entered,
        Step::Forgotten,
        Step::Closed { rank: 3 },
        Step::Abandoned { from: 4 },
        Step::Overtaken { slot: 300, margin: 256 },
        Step::Recut { world: 2 },
        Step::Removed,
        Step::Taken(slots),
        Step::GivenBack(slots, Before::Ahead),
        Step::GivenBack(slots, Before::Decided),
        Step::GivenBack(slots, Before::Again),
        Step::Served(slots),
        Step::WereServed(slots),
        Step::Settled { slot: 9, hit: true },
    ];
    let rates = Some(Rates { storage: 1.5, training: f64::INFINITY });
    let planned = |circumstances| Event::Planned { member: 1, epoch: 2, world: 3, circumstances };
    let counters = PlanCounters { hit: 3, storage_bytes: 1 << 33, ..PlanCounters::default() };
    let mut events = vec![
        Event::Opened(Arc::new(opening)),
        Event::Joined(1),
        Event::Made(1, Arc::new(setup(None, None))),
        Event::Made(1, Arc::new(setup(Some(90), Some(made)))),
        Event::Made(1, Arc::new(setup(Some(0), Some(SetupPackages::Runs(vec![(0, 3), (9, 1)]))))),
        Event::Resumed { member: 1, state: Arc::new(RunState::default()), opened: true },
        Event::Resumed { member: 1, state: Arc::new(state()), opened: false },
        Event::Left(1),
        Event::Resized(77),
        Event::Weighed { member: 1, benefit: 1.5 },
        planned(Circumstances::default()),
        planned(Circumstances { rates, others_at: Some(7) }),
        Event::Told(
            1,
            Arc::new(Told { reevaluated: vec![(2, 0.5), (0, 1.5)], accuracy: Some(0.25), order: None }),
        ),
        Event::Told(0, Arc::new(Told { order: Some([4, 4, 0, 2].into()), ..Told::default() })),
        Event::Drawn { member: 1, digest: u64::MAX },
        Event::Reported {
            member: 1,
            reports: vec![report(0, 7, 0.5), report(2, 8, 0.25), report(1, 8, 0.5)],
        },
        Event::Closed(1, 2),
        Event::Rewound(1, 2),
        Event::PackageLost(1, 2),
        Event::PackingStopped(1),
        Event::Decided { member: 1, slots: 2 },
        Event::Passed(1),
        Event::RanksGone(1),
        Event::Scored { member: 1, scores: vec![(2, 0.5), (1, 0.0)] },
        Event::Saved(1),
        Event::Pinned { member: 1, epoch: 2, ids: vec![2, 0, 1] },
        Event::LookedUp { member: 1, epoch: 2, ids: (0..300).collect() },
        Event::Counted(1, vec![(0, PlanCounters::default()), (4, counters)]),
        Event::End,
    ];
    events.extend(steps.map(|step| Event::Epoch { member: 1, epoch: 2, step }));
    events
}

/// A state that has something of everything.
fn state() -> RunState {
    let counters = Counters::of_named([("hit", 3), ("late", 5)]);
    let draft = Draft { ids: vec![3, 1], early: true };
    let pending = PendingPackage { epoch: 3, draft, complete: true, written: false };
    let packing = SavedPacking {
        pending: [(7, pending)].into(),
        moved: [2, 5].into(),
        packed: Some(2),
        living: Some([1, 7].into()),
    };
    let (last, closed) = (Some((3, 2, vec![9, 8])), Some(2));
    let planner = Saved { table: vec![1, 2], strategy: vec![3], last, closed, packing, rest: vec![4, 5, 6] };
    let schedule = SavedSchedule {
        plan: vec![7; 300],
        package: Some(9),
        packages: vec![1, 7],
        states: vec![0x14, 0x22],
        told: Some(0),
        layout: Vec::new(),
    };
    let mut seen = Bits::new(200);
    seen.insert(130);
    let counted = tally::Saved {
        epochs: [(3, counters.clone())].into(),
        unplanned: Counters::default(),
        past: counters,
        seen,
    };
    RunState { policy: vec![1; 9], planner, schedules: vec![schedule], begun: [(0, 3)].into(), counted }
}

#[test]
fn what_was_noted_is_read_and_what_is_damaged_or_cut_short_is_not() {
    for event in all() {
        let bytes = encode(&event);
        assert_eq!(decode(&bytes).as_ref(), Some(&event));
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end]), None, "{event:?} without its end");
            let mut damaged = bytes.clone();
            damaged[end] ^= 16;
            assert_eq!(decode(&damaged), None, "{event:?} damaged at {end}");
        }
    }
    let in_order = encode(&Event::LookedUp { member: 1, epoch: 2, ids: (0..300).collect() });
    assert!(in_order.len() < 320, "ids in order take a byte each: {}", in_order.len());
}

#[test]
fn slots_of_a_batch_are_one_event() {
    let served = |slot| Event::Epoch { member: 0, epoch: 1, step: Step::Served(Slots::one(slot)) };
    let mut event = served(4);
    assert!(event.extend(&served(7)) && event.extend(&served(10)));
    assert!(!event.extend(&served(12)) && !event.extend(&served(10)), "those do not go on from there");
    let slots = Slots { first: 4, step: 3, count: 3 };
    assert_eq!(event, Event::Epoch { member: 0, epoch: 1, step: Step::Served(slots) });
    assert_eq!(slots.iter().collect::<Vec<_>>(), [4, 7, 10]);
    assert!(!served(7).extend(&served(4)), "back is another event");
    let mut decided = Event::Decided { member: 0, slots: 1 };
    assert!(decided.extend(&Event::Decided { member: 0, slots: 2 }));
    assert!(!decided.extend(&Event::Decided { member: 1, slots: 2 }));
    assert_eq!(decided, Event::Decided { member: 0, slots: 3 });
}

#[test]
fn a_log_that_does_not_fit_itself_ends_with_the_reason() {
    for event in all() {
        let mut playback = Playback::new();
        playback.play(&event);
        let silent = matches!(event, Event::Opened(_) | Event::Joined(_) | Event::Saved(_) | Event::End);
        assert_eq!(
            playback.ended().is_some_and(|why| why.contains("does not fit itself")),
            !silent,
            "{event:?}"
        );
    }
}

proptest! {
    #[test]
    fn no_order_of_events_is_a_panic(order in proptest::collection::vec(0usize..200, 0..60)) {
        let (mut playback, all) = (Playback::new(), all());
        playback.play(&all[0]);
        playback.play(&Event::Made(0, Arc::new(Setup { capacity: 100, ..match &all[2] {
            Event::Made(_, setup) => (**setup).clone(),
            _ => unreachable!(),
        }})));
        for number in order {
            // Most are of the job that has joined.
            let bytes = encode(&all[number % all.len()]);
            let mut event = decode(&bytes).unwrap();
            match &mut event {
                Event::Epoch { member, epoch, .. } | Event::Planned { member, epoch, .. } => (*member, *epoch) = (0, 1),
                Event::Decided { member, .. } | Event::Told(member, _) | Event::RanksGone(member)
                | Event::Passed(member) | Event::Reported { member, .. } => *member = 0,
                _ => {}
            }
            playback.play(&event);
        }
    }
}

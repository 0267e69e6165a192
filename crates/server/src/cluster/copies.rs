//! Copies of jobs that other nodes are the home of, for when their home is gone.
//!
//! A home sends the state of a job to one other node as an epoch begins, and each report before it acknowledges it. A report
//! says which state it came after; those that a newer state holds are dropped, in whatever order the two arrive. What comes of another
//! home is of another count: it begins anew with a later home, and of an earlier one nothing is taken.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use hotset_core::{Error, Result};
use hotset_wire::nodes::{Copy, Invite, StatePart, copy};
use hotset_wire::proto::Report;

use crate::lock::Lock;

/// The copies on this node, by job.
#[derive(Default)]
pub(super) struct Copies(Lock<HashMap<String, Kept>>);

/// What a node would go on from.
#[derive(Debug, Clone, Default)]
pub(super) struct Kept {
    opening: String,
    /// The home that it comes of, and the fence of that.
    sender: String,
    fence: i64,
    pub(super) generation: u64,
    /// A state as it comes, and its generation.
    coming: (u64, Vec<u8>),
    pub(super) state: Arc<Vec<u8>>,
    pub(super) invite: Invite,
    reports: Vec<(u64, Report)>,
    /// The last of each rank, whichever state holds it.
    pub(super) heard: BTreeMap<u32, Report>,
    /// Whether the home has let go of the job.
    pub(super) take_over: bool,
}

impl Kept {
    /// What was reported since the state.
    pub(super) fn reports(&self) -> impl Iterator<Item = &Report> {
        self.reports.iter().map(|(_, report)| report)
    }
}

impl Copies {
    /// Takes a copy, or a part of one, from a home. False: another node is the home by now.
    pub(super) fn take(&self, sender: &str, copy: Copy) -> Result<bool> {
        let mut all = self.0.lock();
        let kept = all.entry(copy.job).or_default();
        let (same_opening, same_sender) = (kept.opening == copy.opening, kept.sender == sender);
        if same_opening && !same_sender && copy.fence < kept.fence {
            return Ok(false);
        }
        // A node that is home a second time counts its states anew.
        let again = matches!(&copy.kind, Some(copy::Kind::State(part)) if part.from == 0)
            && copy.fence > kept.fence
            && copy.generation <= kept.generation;
        if !same_opening || !same_sender || again {
            *kept = Kept { opening: copy.opening, sender: sender.to_owned(), ..Kept::default() };
        }
        kept.fence = kept.fence.max(copy.fence);
        match copy.kind {
            // A later one was faster.
            Some(copy::Kind::State(_)) if copy.generation < kept.generation => {}
            Some(copy::Kind::State(StatePart { invite, length, from, bytes })) => {
                // Its home goes on, so it has not let go of the job.
                kept.take_over = false;
                if from == 0 {
                    kept.coming.0 = copy.generation;
                }
                if kept.coming.0 != copy.generation || from > kept.coming.1.len() as u64 {
                    return Err(Error::unavailable("a part of a state comes that follows on none"));
                }
                kept.coming.1.truncate(from as usize);
                kept.coming.1.extend(bytes);
                if kept.coming.1.len() as u64 == length {
                    kept.state = Arc::new(std::mem::take(&mut kept.coming.1));
                    kept.invite = invite.unwrap_or_default();
                    kept.generation = copy.generation;
                    kept.reports.retain(|(generation, _)| *generation >= copy.generation);
                }
            }
            Some(copy::Kind::Report(_)) if kept.take_over => return Ok(false),
            Some(copy::Kind::Report(_)) if kept.state.is_empty() => {
                return Err(Error::unavailable("a report comes without the state that it is to be added to"));
            }
            Some(copy::Kind::Report(report)) => {
                kept.heard.insert(report.rank, report.clone());
                if copy.generation >= kept.generation {
                    kept.reports.push((copy.generation, report));
                }
            }
            Some(copy::Kind::TakeOver(_)) => kept.take_over = true,
            None => {}
        }
        Ok(true)
    }

    /// The copy of a job, if it is whole.
    pub(super) fn of(&self, job: &str, opening: &str) -> Option<Kept> {
        let all = self.0.lock();
        all.get(job).filter(|kept| kept.opening == opening && !kept.state.is_empty()).cloned()
    }

    /// Forgets a job that has ended.
    pub(super) fn forget(&self, job: &str) {
        self.0.lock().remove(job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(opening: &str, generation: u64, kind: copy::Kind) -> Copy {
        Copy { job: "exp".into(), opening: opening.into(), generation, fence: 5, kind: Some(kind) }
    }

    fn state(bytes: &[u8], from: u64, length: u64) -> copy::Kind {
        let (invite, bytes) = (Some(Invite::default()), bytes.to_vec());
        copy::Kind::State(StatePart { invite, length, from, bytes })
    }

    fn report(rank: u32, upto: u64) -> copy::Kind {
        copy::Kind::Report(Report { job: "exp".into(), rank, upto, ..Report::default() })
    }

    fn take(copies: &Copies, copy: Copy) {
        assert!(copies.take("a", copy).unwrap());
    }

    fn uptos(kept: &Kept) -> Vec<u64> {
        kept.reports().map(|report| report.upto).collect()
    }

    #[test]
    fn a_state_comes_in_parts_and_reports_belong_to_the_state_they_came_after() {
        let copies = Copies::default();
        take(&copies, copy("one", 1, state(b"ab", 0, 4)));
        assert!(copies.of("exp", "one").is_none(), "it is not whole");
        take(&copies, copy("one", 1, state(b"cd", 2, 4)));
        take(&copies, copy("one", 1, report(0, 1)));
        // A report that was taken after the next state comes before it.
        take(&copies, copy("one", 2, report(0, 2)));
        take(&copies, copy("one", 2, state(b"efg", 0, 3)));
        take(&copies, copy("one", 1, report(1, 1)));
        let kept = copies.of("exp", "one").unwrap();
        assert_eq!((kept.state.as_slice(), uptos(&kept)), (b"efg".as_slice(), vec![2]));
        assert_eq!(kept.heard.values().map(|report| report.upto).collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn a_job_that_begins_anew_has_another_copy() {
        let copies = Copies::default();
        take(&copies, copy("one", 5, state(b"ab", 0, 2)));
        take(&copies, copy("one", 5, report(0, 1)));
        take(&copies, copy("two", 1, state(b"c", 0, 1)));
        assert!(copies.of("exp", "one").is_none());
        assert!(uptos(&copies.of("exp", "two").unwrap()).is_empty());
        copies.forget("exp");
        assert!(copies.of("exp", "two").is_none());
    }
    #[test]
    fn of_an_earlier_home_nothing_is_taken_and_a_later_one_begins_anew() {
        let copies = Copies::default();
        take(&copies, copy("one", 40, state(b"old", 0, 3)));
        take(&copies, copy("one", 40, report(0, 7)));
        let later = |generation, kind| Copy { fence: 9, ..copy("one", generation, kind) };
        assert!(copies.take("b", later(1, state(b"ne", 0, 3))).unwrap());
        assert!(
            copies.of("exp", "one").is_none(),
            "the old state is of no use, and the new one is not whole"
        );
        assert!(!copies.take("a", copy("one", 41, state(b"w", 2, 3))).unwrap(), "it is home no more");
        assert!(copies.take("b", later(1, state(b"w", 2, 3))).unwrap());
        let kept = copies.of("exp", "one").unwrap();
        assert_eq!((kept.state.as_slice(), kept.generation), (b"new".as_slice(), 1));
        assert!(
            uptos(&kept).is_empty() && kept.heard.is_empty(),
            "the new state holds what the old home was told"
        );
        // The same home under a later fence: its key was lost and put again.
        let again = Copy { fence: 12, ..later(1, report(0, 8)) };
        assert!(copies.take("b", again).unwrap() && copies.take("b", later(1, report(1, 8))).unwrap());
        assert_eq!(uptos(&copies.of("exp", "one").unwrap()), [8, 8]);
    }

    #[test]
    fn parts_of_two_states_are_not_put_together() {
        let copies = Copies::default();
        take(&copies, copy("one", 1, state(b"ab", 0, 4)));
        take(&copies, copy("one", 2, state(b"xy", 0, 4)));
        assert!(copies.take("a", copy("one", 1, state(b"cd", 2, 4))).is_err());
        assert!(copies.take("a", copy("one", 2, state(b"z", 3, 4))).is_err(), "a part is missing");
        take(&copies, copy("one", 2, state(b"yz", 1, 3)));
        assert_eq!(copies.of("exp", "one").unwrap().state.as_slice(), b"xyz");
    }
    #[test]
    fn a_node_that_is_home_a_second_time_counts_anew_and_an_older_state_comes_too_late() {
        let copies = Copies::default();
        let of = |fence, generation, kind| Copy { fence, ..copy("one", generation, kind) };
        take(&copies, of(5, 7, state(b"first", 0, 5)));
        take(&copies, of(5, 7, report(0, 3)));
        take(&copies, of(5, 6, state(b"older", 0, 5)));
        assert_eq!(copies.of("exp", "one").unwrap().generation, 7);
        take(&copies, of(9, 1, state(b"second", 0, 6)));
        let kept = copies.of("exp", "one").unwrap();
        assert_eq!((kept.state.as_slice(), kept.generation), (b"second".as_slice(), 1));
        assert!(uptos(&kept).is_empty(), "the state holds it");
    }

    #[test]
    fn a_report_without_its_state_is_refused_and_so_is_one_of_a_job_that_was_handed_over() {
        let copies = Copies::default();
        assert!(copies.take("a", copy("one", 1, report(0, 1))).is_err());
        take(&copies, copy("one", 1, state(b"ab", 0, 2)));
        take(&copies, copy("one", 1, copy::Kind::TakeOver(hotset_wire::nodes::Noted {})));
        assert!(copies.of("exp", "one").unwrap().take_over);
        assert!(!copies.take("a", copy("one", 1, report(0, 1))).unwrap(), "it goes where the job goes on");
        // Its home has not heard that it was taken over, and goes on.
        take(&copies, copy("one", 2, state(b"cd", 0, 2)));
        assert!(!copies.of("exp", "one").unwrap().take_over);
        take(&copies, copy("one", 2, report(0, 2)));
    }
}

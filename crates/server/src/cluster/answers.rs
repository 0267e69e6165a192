//! Answers to questions of other nodes: each is worked on once, however often it is asked.
//!
//! A question has a thread until its answer is there. Whoever asks waits for a while, is told that it is not there yet, and asks
//! again under the same number; so no call between nodes lasts long, and one that broke off is no second question. What was
//! answered stays for a while, for an asker that did not hear it: [`KEPT`], and a long answer [`KEPT_LONG`] after it was sent.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hotset_core::{Error, Result};
use hotset_wire::nodes::Piece;

use crate::lock::Lock;

/// How long an answer is kept that was given.
const KEPT: Duration = Duration::from_secs(120);
/// How long one is kept, after it was sent, that is no short one.
const KEPT_LONG: Duration = Duration::from_secs(10);
const SHORT: usize = 1 << 20;
/// The most bytes in a piece of an answer.
const PIECE: usize = 16 << 20;
/// The longest that a call waits, whatever its asker would.
const LONGEST: Duration = Duration::from_secs(5);

/// A question: the node that asks it, the start of that node, and its number there.
pub(super) type Number = (String, String, u64);

#[derive(Default)]
pub(super) struct Answers(Lock<Table>);

#[derive(Default)]
struct Table {
    questions: HashMap<Number, State>,
    /// When answers go, by how long they are kept: the first one first.
    short: VecDeque<(Instant, Number)>,
    long: VecDeque<(Instant, Number)>,
}

enum State {
    Working,
    /// The encoded answer.
    Done(Arc<Vec<u8>>),
}

impl Table {
    /// Lets go of what has been kept for long enough. It takes a step for each.
    fn expire(&mut self, now: Instant) {
        for queue in [&mut self.short, &mut self.long] {
            while let Some((_, number)) = queue.pop_front_if(|(until, _)| *until <= now) {
                self.questions.remove(&number);
            }
        }
    }
}

impl Answers {
    /// Lets go of what has been kept for long enough, whether something is asked or not.
    pub(super) fn expire(&self) {
        self.0.lock().expire(Instant::now());
    }

    /// The next piece of the answer to a question, which `work` finds, encoded, if it was not asked before.
    pub(super) fn answer(
        self: &Arc<Self>,
        number: Number,
        from: u64,
        wait: Duration,
        work: impl FnOnce() -> Arc<Vec<u8>> + Send + 'static,
    ) -> Result<Piece> {
        let until = Instant::now() + wait.min(LONGEST);
        let mut table = self.0.lock();
        table.expire(Instant::now());
        if !table.questions.contains_key(&number) {
            if from > 0 {
                // The rest of another answer would not fit to what has come.
                return Err(Error::invalid("the rest of an answer was asked for too late"));
            }
            table.questions.insert(number.clone(), State::Working);
            drop(table);
            self.begin(&number, work)?;
            table = self.0.lock();
        }
        loop {
            match table.questions.get(&number) {
                Some(State::Done(answer)) => {
                    let answer = Arc::clone(answer);
                    let from = usize::try_from(from).unwrap_or(usize::MAX).min(answer.len());
                    let to = (from + PIECE).min(answer.len());
                    if to == answer.len() && answer.len() > SHORT {
                        table.long.push_back((Instant::now() + KEPT_LONG, number));
                    }
                    drop(table);
                    let (length, piece) = (answer.len() as u64, answer[from..to].to_vec());
                    return Ok(Piece { pending: false, length, piece });
                }
                Some(State::Working) => {}
                None => return Err(Error::unavailable("the question could not be worked on: ask again")),
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Piece { pending: true, ..Piece::default() });
            }
            table = table.wait_for(left);
        }
    }

    fn begin(
        self: &Arc<Self>,
        number: &Number,
        work: impl FnOnce() -> Arc<Vec<u8>> + Send + 'static,
    ) -> Result<()> {
        let (own, done) = (Arc::clone(self), number.clone());
        let run = move || {
            let answer = work();
            let mut table = own.0.lock();
            table.short.push_back((Instant::now() + KEPT, done.clone()));
            table.questions.insert(done, State::Done(answer));
            table.signal();
        };
        let started = std::thread::Builder::new().name("hotset-answer".into()).spawn(run);
        started.map(drop).map_err(|error| {
            self.0.lock().questions.remove(number);
            Error::unavailable(format!("cannot start a thread for a question of another node: {error}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn answer(length: usize) -> Arc<Vec<u8>> {
        Arc::new((0..length).map(|at| at as u8).collect())
    }

    fn number(number: u64) -> Number {
        ("a".into(), "start".into(), number)
    }

    #[test]
    fn a_question_that_is_asked_again_is_worked_on_once() {
        let (answers, worked) = (Arc::<Answers>::default(), Arc::<AtomicUsize>::default());
        let ask = || {
            let worked = Arc::clone(&worked);
            answers.answer(number(1), 0, Duration::from_millis(20), move || {
                worked.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(300));
                answer(3)
            })
        };
        assert!(ask().unwrap().pending, "it takes longer than the asker waits");
        let heard = loop {
            let piece = ask().unwrap();
            if !piece.pending {
                break piece;
            }
        };
        assert_eq!(heard.piece, *answer(3));
        assert_eq!(ask().unwrap().length, heard.length, "it did not hear the first time");
        assert_eq!(worked.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_long_answer_comes_in_pieces_and_is_kept_for_one_that_did_not_hear_the_last() {
        let answers = Arc::<Answers>::default();
        let mut whole = Vec::new();
        loop {
            let from = whole.len() as u64;
            let piece = answers.answer(number(2), from, LONGEST, || answer(PIECE * 2)).unwrap();
            assert!(!piece.pending && piece.piece.len() <= PIECE);
            whole.extend(piece.piece);
            if whole.len() as u64 == piece.length {
                break;
            }
        }
        assert_eq!(whole, *answer(PIECE * 2));
        let last = answers.answer(number(2), PIECE as u64, LONGEST, || unreachable!()).unwrap();
        assert_eq!(last.piece, whole[PIECE..], "once more");
        answers.0.lock().expire(Instant::now() + KEPT_LONG);
        assert!(answers.0.lock().questions.is_empty());
        let late = answers.answer(number(2), 5, LONGEST, || answer(9)).unwrap_err();
        assert!(late.message.contains("too late"), "{late}");
    }

    #[test]
    fn a_short_answer_goes_after_a_while_and_others_stay() {
        let answers = Arc::<Answers>::default();
        for question in 0..5 {
            answers.answer(number(question), 0, LONGEST, || answer(3)).unwrap();
        }
        answers.0.lock().expire(Instant::now() + KEPT / 2);
        assert_eq!(answers.0.lock().questions.len(), 5);
        answers.0.lock().expire(Instant::now() + KEPT);
        assert!(answers.0.lock().questions.is_empty() && answers.0.lock().short.is_empty());
    }
}

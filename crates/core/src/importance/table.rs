//! The last score of every sample of a job.
//!
//! Reports come late, twice, out of order and from many ranks: the newest (epoch, step) wins, and what comes
//! twice changes nothing. A score that is not a number, infinite or negative is refused and counted, and the
//! old one stays.
//!
//! **The cut.** The plan of epoch e + 1 is made while e is still trained, from the reports of the first 95 %
//! of each rank's slots. A report of a later slot is marked `late`: it waits beside the table until that plan
//! was made, so that which reports a plan is made from never depends on how fast they came.
//!
//! **Losses.** Where scores are not the losses themselves, the table keeps each sample's last loss beside its
//! score, so that a strategy can see how far training has come ([`Table::mean_loss`]).
//!
//! 12 bytes a sample, 16 where losses are kept, and 24 for each late report. Reports are applied in slices of at most [`SLICE`], so
//! that a lock is held for a bounded while.

use super::score::{Score, valid};
use crate::Id;
use crate::saved::{Reader, Writer};

/// The most reports applied in one call.
pub const SLICE: usize = 4096;

/// The share of each rank's slots whose reports the next plan is made from.
pub const CUT: f64 = 0.95;

/// The first position of a rank's `slots` whose report is late.
pub fn cut(slots: usize) -> usize {
    (slots as f64 * CUT).ceil() as usize
}

/// One sample's score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Report {
    /// The sample.
    pub id: Id,
    /// Its score.
    pub value: f32,
    /// The loss that the score was made from.
    pub loss: f32,
    /// The epoch in which it was trained.
    pub epoch: u32,
    /// How far that epoch had come: a rank's step, or position.
    pub step: u32,
    /// Whether it is of a slot beyond the [`cut`].
    pub late: bool,
}

/// What was reported of each sample.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// Not a number where nothing was reported.
    values: Vec<f32>,
    /// Each sample's last loss; empty where scores are losses.
    losses: Vec<f32>,
    stamps: Vec<u64>,
    late: Vec<Report>,
    /// The newest epoch whose plan was made.
    planned: Option<u32>,
    reported: usize,
    taken: u64,
    rejected: u64,
}

impl Table {
    /// A table of `samples` of which nothing is known.
    pub fn new(samples: usize) -> Self {
        Self { values: vec![f32::NAN; samples], stamps: vec![0; samples], ..Self::default() }
    }

    /// A table of scores that are made as `score` says, with losses beside them where those differ.
    pub fn of_scores(samples: usize, score: Score) -> Self {
        let losses = if score == Score::Loss { Vec::new() } else { vec![f32::NAN; samples] };
        Self { losses, ..Self::new(samples) }
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// How many samples have a score that the next plan may use.
    pub fn reported(&self) -> usize {
        self.reported
    }

    /// Scores taken so far.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Scores refused so far: not a number, infinite or negative, or of no sample.
    pub fn rejected(&self) -> u64 {
        self.rejected
    }

    /// The score of `id` that the next plan uses.
    pub fn value(&self, id: Id) -> Option<f32> {
        self.values.get(id as usize).copied().filter(|value| !value.is_nan())
    }

    /// The mean of every reported sample's last loss, as the next plan sees it; nothing before the first report.
    pub fn mean_loss(&self) -> Option<f64> {
        let losses = if self.losses.is_empty() { &self.values } else { &self.losses };
        let known = losses.iter().filter(|loss| !loss.is_nan());
        let sum: f64 = known.map(|loss| f64::from(*loss)).sum();
        (self.reported > 0).then(|| sum / self.reported as f64)
    }

    /// Applies the first of `reports`, at most [`SLICE`]; how many. The caller goes on with the others.
    pub fn apply(&mut self, reports: &[Report]) -> usize {
        let slice = &reports[..reports.len().min(SLICE)];
        for report in slice {
            if !valid(report.value) || !valid(report.loss) || report.id as usize >= self.values.len() {
                self.rejected += 1;
                continue;
            }
            self.taken += 1;
            if report.late && self.planned.is_none_or(|planned| report.epoch >= planned) {
                self.late.push(*report);
            } else {
                self.put(report);
            }
        }
        slice.len()
    }

    /// Notes that the plan of `epoch` was made: what was late in the epoch before now counts, through
    /// [`Self::settle`].
    pub fn planned(&mut self, epoch: u32) {
        self.planned = self.planned.max(Some(epoch));
    }

    /// Training goes back to `epoch`: scores of it and of later epochs stay until there are newer ones, which those
    /// of the training that begins over are.
    pub fn rewind(&mut self, epoch: u32) {
        for stamp in &mut self.stamps {
            if (*stamp >> 32) as u32 >= epoch {
                *stamp = 0;
            }
        }
        self.late.retain(|report| report.epoch < epoch);
        self.planned = self.planned.map(|planned| planned.min(epoch));
    }

    /// Applies late reports whose time has come, at most [`SLICE`] of them. True while there are more.
    pub fn settle(&mut self) -> bool {
        let Some(planned) = self.planned else { return false };
        let mut budget = SLICE;
        let mut place = 0;
        while place < self.late.len() && budget > 0 {
            if self.late[place].epoch < planned {
                let report = self.late.swap_remove(place);
                self.put(&report);
                budget -= 1;
            } else {
                place += 1;
            }
        }
        budget == 0
    }

    /// Every sample's score as the next plan uses it, not a number where there is none.
    pub fn snapshot(&self) -> Vec<f32> {
        self.values.clone()
    }

    /// Every sample's newest score, late ones too; not a number where there is none.
    pub fn newest(&self) -> Vec<f32> {
        let mut values = self.values.clone();
        let mut late: Vec<&Report> = self.late.iter().collect();
        late.sort_by_key(|report| (report.epoch, report.step));
        for report in late {
            let stamp = u64::from(report.epoch) << 32 | u64::from(report.step);
            if values[report.id as usize].is_nan() || stamp >= self.stamps[report.id as usize] {
                values[report.id as usize] = report.value;
            }
        }
        values
    }

    /// Every sample's score in `epoch`, late ones too; not a number where it was not reported in that epoch.
    pub fn of_epoch(&self, epoch: u32) -> Vec<f32> {
        let of = |(&value, &stamp): (&f32, &u64)| {
            if (stamp >> 32) as u32 == epoch { value } else { f32::NAN }
        };
        let mut values: Vec<f32> = self.values.iter().zip(&self.stamps).map(of).collect();
        let mut late: Vec<&Report> = self.late.iter().filter(|report| report.epoch == epoch).collect();
        late.sort_by_key(|report| report.step);
        for report in late {
            values[report.id as usize] = report.value;
        }
        values
    }

    /// All of it as bytes: about 8 a sample, 12 where losses are kept, and as many a late report.
    pub fn save(&self) -> Vec<u8> {
        let mut writer = Writer::new(self.values.len());
        // Before the first report there is nothing to look for.
        let some = if self.reported == 0 { 0 } else { self.values.len() };
        let (values, stamps) = (&self.values[..some], &self.stamps[..some]);
        let newest = stamps.iter().map(|stamp| stamp >> 32).max().unwrap_or_default();
        for number in
            [self.planned.map_or(0, |planned| u64::from(planned) + 1), self.taken, self.rejected, newest]
        {
            writer.number(number);
        }
        let keeps = !self.losses.is_empty();
        writer.bits(std::iter::once(keeps));
        writer.bits(values.iter().map(|value| !value.is_nan()));
        writer.no_bits(self.values.len() - some);
        for (id, (value, stamp)) in values.iter().zip(stamps).enumerate() {
            if value.is_nan() {
                continue;
            }
            writer.fixed(u64::from(value.to_bits()), 4);
            if keeps {
                writer.fixed(u64::from(self.losses[id].to_bits()), 4);
            }
            writer.number(newest - (stamp >> 32));
            writer.number(stamp & u64::from(u32::MAX));
        }
        writer.ids(self.late.iter().map(|report| report.id));
        for report in &self.late {
            writer.fixed(u64::from(report.value.to_bits()), 4);
            if keeps {
                writer.fixed(u64::from(report.loss.to_bits()), 4);
            }
            writer.number(u64::from(report.epoch));
            writer.number(u64::from(report.step));
        }
        writer.seal("table")
    }

    /// What [`Self::save`] wrote for as many samples; nothing if it cannot be that.
    pub fn restore(samples: usize, saved: &[u8]) -> Option<Self> {
        let mut reader = Reader::open(saved, "table", samples)?;
        let mut table = Self::new(samples);
        let short = |number: u64| u32::try_from(number).ok();
        let value = |reader: &mut Reader<'_>| {
            let value = f32::from_bits(reader.fixed(4)? as u32);
            Some(value).filter(|value| valid(*value))
        };
        table.planned = reader.number()?.checked_sub(1).map(|planned| planned as u32);
        (table.taken, table.rejected) = (reader.number()?, reader.number()?);
        let newest = reader.number()?;
        let keeps = reader.bits(1)?.next()?;
        if keeps {
            table.losses = vec![f32::NAN; samples];
        }
        let reported: Vec<bool> = reader.bits(samples)?.collect();
        for id in (0..samples).filter(|id| reported[*id]) {
            table.values[id] = value(&mut reader)?;
            if keeps {
                table.losses[id] = value(&mut reader)?;
            }
            let epoch = short(newest.checked_sub(reader.number()?)?)?;
            table.stamps[id] = u64::from(epoch) << 32 | u64::from(short(reader.number()?)?);
            table.reported += 1;
        }
        for id in reader.ids()? {
            let score = value(&mut reader)?;
            let loss = if keeps { value(&mut reader)? } else { score };
            let epoch = short(reader.number()?)?;
            table.late.push(Report {
                id,
                value: score,
                loss,
                epoch,
                step: short(reader.number()?)?,
                late: true,
            });
        }
        reader.end()?;
        Some(table)
    }

    /// Bytes on the heap.
    pub fn memory(&self) -> usize {
        12 * self.values.capacity() + 4 * self.losses.capacity() + size_of::<Report>() * self.late.capacity()
    }

    fn put(&mut self, report: &Report) {
        let id = report.id as usize;
        let stamp = u64::from(report.epoch) << 32 | u64::from(report.step);
        if self.values[id].is_nan() {
            self.reported += 1;
        } else if stamp < self.stamps[id] {
            return;
        }
        (self.values[id], self.stamps[id]) = (report.value, stamp);
        if let Some(loss) = self.losses.get_mut(id) {
            *loss = report.loss;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(id: Id, value: f32, epoch: u32, step: u32) -> Report {
        Report { id, value, loss: value, epoch, step, late: false }
    }

    #[test]
    fn the_newest_epoch_and_step_wins_whatever_the_order() {
        let mut table = Table::new(2);
        table.apply(&[
            report(0, 3.0, 2, 0),
            report(0, 1.0, 1, 9),
            report(0, 4.0, 2, 1),
            report(0, 3.0, 2, 0),
        ]);
        assert_eq!((table.value(0), table.value(1), table.reported()), (Some(4.0), None, 1));
    }

    #[test]
    fn a_training_that_goes_back_is_heard_again() {
        let mut table = Table::new(2);
        table.apply(&[
            report(0, 3.0, 50, 7),
            report(1, 2.0, 3, 0),
            Report { late: true, ..report(1, 9.0, 50, 8) },
        ]);
        table.rewind(10);
        table.apply(&[report(0, 1.0, 10, 0), report(1, 5.0, 2, 0)]);
        assert_eq!((table.value(0), table.value(1)), (Some(1.0), Some(2.0)), "what came before stays");
        table.planned(60);
        assert!(!table.settle());
        assert_eq!(table.value(1), Some(2.0), "what was late in the other future is gone");
    }

    #[test]
    fn what_is_no_loss_is_refused_and_the_old_one_stays() {
        let mut table = Table::new(1);
        table.apply(&[report(0, 2.0, 0, 0)]);
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.1] {
            table.apply(&[report(0, value, 1, 0)]);
        }
        table.apply(&[report(7, 1.0, 1, 0)]);
        assert_eq!((table.value(0), table.taken(), table.rejected()), (Some(2.0), 1, 5));
    }

    #[test]
    fn a_report_beyond_the_cut_counts_for_the_plan_after_the_next() {
        let mut table = Table::new(2);
        let late = Report { late: true, ..report(0, 5.0, 3, 96) };
        table.apply(&[report(0, 1.0, 2, 0), late]);
        table.planned(3);
        assert!(!table.settle());
        assert_eq!(table.value(0), Some(1.0), "the plan of epoch 4 is made without it");
        table.planned(4);
        assert!(!table.settle());
        assert_eq!(table.value(0), Some(5.0));
        table.apply(&[Report { late: true, ..report(1, 7.0, 3, 97) }]);
        assert_eq!(table.value(1), Some(7.0), "that plan was made, so it counts at once");
    }

    #[test]
    fn an_epoch_is_seen_whole_with_what_was_late() {
        let mut table = Table::new(3);
        let late = Report { late: true, ..report(1, 5.0, 3, 96) };
        table.apply(&[report(0, 1.0, 3, 0), report(2, 1.0, 2, 0), late]);
        let seen = table.of_epoch(3);
        assert_eq!(seen[..2], [1.0, 5.0]);
        assert!(seen[2].is_nan());
    }

    #[test]
    fn no_call_applies_more_than_a_slice() {
        let reports: Vec<Report> =
            (0..10_000).map(|id| Report { late: true, ..report(id, 1.0, 0, 0) }).collect();
        let mut table = Table::new(10_000);
        let (mut done, mut calls) = (0, 0);
        while done < reports.len() {
            done += table.apply(&reports[done..]);
            calls += 1;
        }
        assert_eq!((calls, table.reported()), (3, 0));
        table.planned(1);
        let slices = std::iter::repeat_with(|| table.settle()).take_while(|more| *more).count();
        assert_eq!((slices, table.reported()), (2, 10_000));
    }

    #[test]
    fn what_was_saved_goes_on_the_same() {
        let mut table = Table::new(4);
        table.planned(2);
        let late = Report { late: true, ..report(1, 5.0, 3, 96) };
        table.apply(&[report(0, 1.0, 3, 0), report(2, 1.5, 2, 7), late, report(3, -1.0, 0, 0)]);
        let saved = table.save();
        let mut restored = Table::restore(4, &saved).unwrap();
        assert_eq!((restored.reported(), restored.taken(), restored.rejected()), (2, 3, 1));
        for table in [&mut table, &mut restored] {
            table.planned(4);
            table.settle();
            table.apply(&[report(0, 9.0, 2, 0)]);
        }
        assert_eq!(table.save(), restored.save());
        assert!(
            Table::restore(5, &saved).is_none() && Table::restore(4, &saved[..saved.len() - 3]).is_none()
        );
        assert!(Table::restore(0, &[]).is_none());
    }

    #[test]
    fn losses_are_kept_beside_scores_that_are_none() {
        let mut table = Table::of_scores(4, Score::Rank);
        assert_eq!(table.mean_loss(), None);
        let scored = |id, loss, step| Report { loss, ..report(id, 3.0, 0, step) };
        table.apply(&[scored(0, 1.0, 4), scored(1, 2.0, 0), Report { late: true, ..scored(2, 90.0, 99) }]);
        assert_eq!(table.mean_loss(), Some(1.5), "the mean of losses, not of scores, without what is late");
        table.apply(&[scored(0, 7.0, 3), scored(1, 2.0, 0)]);
        assert_eq!(table.mean_loss(), Some(1.5), "what is older or comes twice changes nothing");
        let mut restored = Table::restore(4, &table.save()).unwrap();
        for table in [&mut table, &mut restored] {
            table.planned(1);
            table.settle();
            assert_eq!((table.mean_loss(), table.value(2)), (Some(31.0), Some(3.0)));
        }
        assert_eq!(table.save(), restored.save());
        let mut plain = Table::of_scores(2, Score::Loss);
        plain.apply(&[report(0, 1.0, 0, 0), report(1, 2.0, 0, 0)]);
        assert_eq!(plain.mean_loss(), Some(1.5));
    }

    #[test]
    fn the_cut_is_the_first_late_position() {
        assert_eq!((cut(100), cut(10), cut(1), cut(0)), (95, 10, 1, 0));
    }
}

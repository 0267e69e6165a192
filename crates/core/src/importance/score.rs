//! What is kept of the losses of one mini-batch.
//!
//! `Loss` is the loss itself (iCache, ImPACT). `Rank` is SHADE's rank score (equations 3, 5 and 6): within the
//! batch, the logarithm of how many samples have a smaller loss. `Batch` is the mean of the batch for all its
//! samples, the coarse score of SHADE's baselines.
//!
//! Differs from the paper: SHADE gives no value for its constant b0; it is 10 here. Losses that cannot be
//! (not a number, infinite, negative) take no part and get no score.

/// Added to a rank before its logarithm, so that the easiest sample of a batch keeps a weight.
const B0: f32 = 10.0;

/// A way to turn losses into scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Score {
    /// The loss itself.
    Loss,
    /// SHADE's rank within the mini-batch.
    Rank,
    /// The mini-batch's mean loss.
    Batch,
}

/// Whether a loss is one.
pub(crate) fn valid(loss: f32) -> bool {
    loss.is_finite() && loss >= 0.0
}

impl Score {
    /// The scores of one mini-batch's losses, not a number where a loss is none.
    pub fn of(self, losses: &[f32]) -> Vec<f32> {
        let kept = |score: f32, loss: f32| if valid(loss) { score } else { f32::NAN };
        match self {
            Self::Loss => losses.iter().map(|&loss| kept(loss, loss)).collect(),
            Self::Batch => {
                let (sum, count) = losses
                    .iter()
                    .filter(|loss| valid(**loss))
                    .fold((0.0, 0u32), |(sum, count), &loss| (sum + f64::from(loss), count + 1));
                let mean = (sum / f64::from(count.max(1))) as f32;
                losses.iter().map(|&loss| kept(mean, loss)).collect()
            }
            Self::Rank => {
                let mut sorted: Vec<f32> = losses.iter().copied().filter(|&loss| valid(loss)).collect();
                sorted.sort_unstable_by(f32::total_cmp);
                let smaller = |loss: f32| sorted.partition_point(|&other| other < loss) as f32;
                losses.iter().map(|&loss| kept((smaller(loss) + B0).ln(), loss)).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_counts_the_smaller_losses_of_its_batch_and_ties_share_it() {
        let scores = Score::Rank.of(&[0.5, 2.0, 0.5, f32::NAN, 1.0, -1.0]);
        let expected = [10.0f32.ln(), 13.0f32.ln(), 10.0f32.ln()];
        assert_eq!(scores[..3], expected);
        assert_eq!(scores[4], 12.0f32.ln());
        assert!(scores[3].is_nan() && scores[5].is_nan());
    }

    #[test]
    fn a_batch_shares_its_mean() {
        let scores = Score::Batch.of(&[1.0, 3.0, f32::INFINITY]);
        assert_eq!(scores[..2], [2.0, 2.0]);
        assert!(scores[2].is_nan());
    }

    #[test]
    fn nothing_reported_is_nothing_scored() {
        for score in [Score::Loss, Score::Rank, Score::Batch] {
            assert!(score.of(&[]).is_empty());
            assert!(score.of(&[f32::NAN])[0].is_nan());
        }
    }
}

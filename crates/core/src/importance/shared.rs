//! What a sample is worth to all jobs of a dataset together (iCache III-D).
//!
//! RIV(i, j) is the percentile of sample i for job j; AIV(i) is the sum over eligible jobs of a job's benefit
//! times its RIV. Admission and eviction use AIV; substitution uses each job's own H-list, so that other jobs
//! never decide which of my hard samples I train.

/// The benefit above which a job is cache-eligible.
const ELIGIBLE: f64 = 1.5;

/// One job's part in the sum.
#[derive(Debug, Clone, Copy)]
pub struct Share<'a> {
    /// Its time without the cache over its time with it.
    pub benefit: f64,
    /// Its percentile of every sample.
    pub percentiles: &'a [f32],
}

/// The aggregated importance of every sample, over the jobs that are cache-eligible.
pub fn aggregate(samples: usize, shares: &[Share<'_>]) -> Vec<f32> {
    let mut sums = vec![0.0f32; samples];
    for share in shares.iter().filter(|share| share.benefit > ELIGIBLE && share.benefit.is_finite()) {
        for (sum, percentile) in sums.iter_mut().zip(share.percentiles) {
            *sum += (share.benefit * f64::from(*percentile)) as f32;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benefits_weigh_percentiles_and_the_ineligible_leave_the_sum() {
        let one = Share { benefit: 2.0, percentiles: &[0.25, 0.75] };
        let two = Share { benefit: 4.0, percentiles: &[0.5, 0.25] };
        let idle = Share { benefit: 1.5, percentiles: &[1.0, 1.0] };
        assert_eq!(aggregate(2, &[one, two, idle]), [2.5, 2.5]);
        assert_eq!(aggregate(2, &[idle]), [0.0, 0.0]);
    }
}

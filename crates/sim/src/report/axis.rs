//! Axes: round numbers that cover what is shown.

/// Round numbers, evenly spaced, from at or below `low` to at or above `high`: `count` of them or a few more.
pub(super) fn ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let (low, high) = if low.is_finite() && high.is_finite() { (low, high.max(low)) } else { (0.0, 1.0) };
    let span = if high > low { high - low } else { low.abs().max(1.0) };
    let rough = span / count.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|&step| step >= rough);
    let step = step.unwrap_or(10.0 * power);
    let first = (low / step + 1e-9).floor() * step;
    let steps = ((high - first) / step - 1e-9).ceil().max(1.0) as usize;
    (0..=steps).map(|index| first + index as f64 * step).collect()
}

/// A tick for people: thousands as `25k`, no trailing zeros.
pub(super) fn label(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{scaled:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{}{unit}", if text == "-0" { "0" } else { text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_range() {
        assert_eq!(ticks(0.0, 48_900.0, 5), [0.0, 10_000.0, 20_000.0, 30_000.0, 40_000.0, 50_000.0]);
        assert_eq!(ticks(20.0, 80.0, 4), [20.0, 40.0, 60.0, 80.0]);
        for (low, high) in [(0.0, 0.0), (3.0, 3.0), (f64::NAN, 1.0), (0.0, 1e-12), (-5.0, 7.0)] {
            let ticks = ticks(low, high, 5);
            assert!((2..12).contains(&ticks.len()), "{low} {high} {ticks:?}");
        }
    }

    #[test]
    fn labels_are_short() {
        let labels: Vec<String> = [0.0, 0.25, 2500.0, 25_000.0, 1.5e6].into_iter().map(label).collect();
        assert_eq!(labels, ["0", "0.25", "2500", "25k", "1.5M"]);
    }
}

//! Plots as SVG, drawn here: a report must open anywhere, also without a network.
//!
//! No series is told by its colour alone: lines differ in marker and dash, bars in hatching, and both carry
//! names and numbers in text. Colours are those of Okabe and Ito, which the colour-blind can tell apart.

use std::fmt::Write;

use super::axis::{label, ticks};

const COLOURS: [&str; 8] =
    ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555", "#8C6D00"];
const DASHES: [&str; 4] = ["", "7 4", "2 3", "9 3 2 3"];
const HATCHES: [&str; 4] = ["solid", "diagonal", "dots", "lines"];
const WIDTH: f64 = 760.0;

/// A named line through points.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// What the line shows.
    pub name: String,
    /// Its points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// A plot of lines over two axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Lines {
    /// What is to be seen.
    pub title: String,
    /// The horizontal axis.
    pub x: String,
    /// The vertical axis, which begins at 0.
    pub y: String,
    /// The lines.
    pub series: Vec<Series>,
    /// Whether points are marked; better not where there are hundreds.
    pub markers: bool,
}

impl Lines {
    /// The plot as an `<svg>` element.
    pub fn svg(&self) -> String {
        let legend_top = 300.0;
        let columns = 3;
        let rows = self.series.len().div_ceil(columns);
        let height = legend_top + 20.0 * rows as f64 + 10.0;
        let (left, right, top, bottom) = (64.0, WIDTH - 16.0, 34.0, 250.0);
        let points = || self.series.iter().flat_map(|series| &series.points);
        let range = |values: &mut dyn Iterator<Item = f64>| {
            values
                .filter(|value| value.is_finite())
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                    (low.min(value), high.max(value))
                })
        };
        let (x_low, x_high) = range(&mut points().map(|point| point.0));
        let (_, y_high) = range(&mut points().map(|point| point.1));
        let (x_ticks, y_ticks) = (ticks(x_low, x_high, 6), ticks(0.0, y_high, 5));
        let at = |value: f64, ticks: &[f64], from: f64, to: f64| {
            let (first, last) = (ticks[0], ticks[ticks.len() - 1]);
            from + (value - first) / (last - first) * (to - from)
        };
        let mut svg = open(height, &self.title);
        for &tick in &y_ticks {
            let y = at(tick, &y_ticks, bottom, top);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 6.0,
                y + 4.0,
                label(tick)
            );
        }
        for &tick in &x_ticks {
            let x = at(tick, &x_ticks, left, right);
            let _ = write!(
                svg,
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 17.0,
                label(tick)
            );
        }
        let _ = write!(
            svg,
            "<line class=\"axis\" x1=\"{left}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text x=\"{left}\" y=\"{:.1}\">{}</text>",
            (left + right) / 2.0,
            bottom + 35.0,
            escape(&self.x),
            top - 12.0,
            escape(&self.y),
        );
        for (index, series) in self.series.iter().enumerate() {
            let places: Vec<(f64, f64)> = series
                .points
                .iter()
                .filter(|point| point.0.is_finite() && point.1.is_finite())
                .map(|&(x, y)| (at(x, &x_ticks, left, right), at(y, &y_ticks, bottom, top)))
                .collect();
            svg.push_str(&line(index, &places));
            if self.markers {
                places.iter().for_each(|&place| svg.push_str(&marker(index, place)));
            }
            let x = left + (index % columns) as f64 * (right - left) / columns as f64;
            let y = legend_top + 8.0 + 20.0 * (index / columns) as f64;
            svg.push_str(&line(index, &[(x, y), (x + 26.0, y)]));
            if self.markers {
                svg.push_str(&marker(index, (x + 13.0, y)));
            }
            let _ = write!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                x + 32.0,
                y + 4.0,
                escape(&series.name)
            );
        }
        svg.push_str("</svg>");
        svg
    }
}

/// A plot of horizontal bars, each of parts that add up.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    /// What is to be seen.
    pub title: String,
    /// The horizontal axis.
    pub x: String,
    /// The names of the parts.
    pub parts: Vec<String>,
    /// Each bar's name and its parts' values.
    pub bars: Vec<(String, Vec<f64>)>,
}

impl Bars {
    /// The plot as an `<svg>` element.
    pub fn svg(&self) -> String {
        let (left, right, top, row) = (210.0, WIDTH - 90.0, 56.0, 24.0);
        let bottom = top + row * self.bars.len() as f64;
        let sum = |values: &[f64]| values.iter().filter(|value| value.is_finite()).sum::<f64>();
        let ticks = ticks(0.0, self.bars.iter().map(|bar| sum(&bar.1)).fold(0.0, f64::max), 5);
        let scale = (right - left) / ticks[ticks.len() - 1];
        let mut svg = open(bottom + 46.0, &self.title);
        for &tick in &ticks {
            let x = left + tick * scale;
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 16.0,
                label(tick)
            );
        }
        let mut x = left;
        for (index, part) in self.parts.iter().enumerate().filter(|_| self.parts.len() > 1) {
            let _ = write!(
                svg,
                "<rect x=\"{x:.1}\" y=\"30\" width=\"20\" height=\"14\" {}/><text x=\"{:.1}\" y=\"41\">{}</text>",
                fill(index),
                x + 26.0,
                escape(part)
            );
            x += 46.0 + 7.5 * part.chars().count() as f64;
        }
        for (index, (name, values)) in self.bars.iter().enumerate() {
            let y = top + row * index as f64 + 4.0;
            let _ = write!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 8.0,
                y + 12.0,
                escape(name)
            );
            let mut x = left;
            for (part, value) in values.iter().enumerate().filter(|(_, value)| value.is_finite()) {
                let width = value.max(0.0) * scale;
                let _ = write!(
                    svg,
                    "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\" {}/>",
                    row - 8.0,
                    fill(part)
                );
                x += width;
            }
            let _ =
                write!(svg, "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", x + 6.0, y + 12.0, exact(sum(values)));
        }
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text></svg>",
            (left + right) / 2.0,
            bottom + 36.0,
            escape(&self.x)
        );
        svg
    }
}

/// A number beside its bar: whole where it is large.
fn exact(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

fn open(height: f64, title: &str) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#222\"><title>{}</title><style>\
         .grid{{stroke:#ddd}}.axis{{stroke:#444}}</style><defs>",
        escape(title)
    );
    for (index, hatch) in HATCHES.iter().enumerate() {
        let colour = COLOURS[index];
        let drawn = match *hatch {
            "diagonal" => "<path d=\"M0 8L8 0\" stroke=\"#fff\" stroke-width=\"2\"/>",
            "dots" => "<circle cx=\"4\" cy=\"4\" r=\"1.6\" fill=\"#fff\"/>",
            "lines" => "<path d=\"M0 4H8\" stroke=\"#fff\" stroke-width=\"2\"/>",
            _ => "",
        };
        let _ = write!(
            svg,
            "<pattern id=\"{hatch}\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\">\
             <rect width=\"8\" height=\"8\" fill=\"{colour}\"/>{drawn}</pattern>"
        );
    }
    svg.push_str("</defs>");
    svg
}

fn fill(part: usize) -> String {
    let index = part % HATCHES.len();
    format!("fill=\"url(#{})\" stroke=\"{}\"", HATCHES[index], COLOURS[index])
}

fn line(index: usize, places: &[(f64, f64)]) -> String {
    let points: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    format!(
        "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"2\" stroke-dasharray=\"{}\" points=\"{}\"/>",
        COLOURS[index % COLOURS.len()],
        DASHES[index % DASHES.len()],
        points.join(" ")
    )
}

fn marker(index: usize, (x, y): (f64, f64)) -> String {
    let shape = match index % 5 {
        0 => "M-4 0A4 4 0 1 0 4 0A4 4 0 1 0 -4 0Z",
        1 => "M-4 -4H4V4H-4Z",
        2 => "M0 -5L5 4H-5Z",
        3 => "M0 -5L5 0L0 5L-5 0Z",
        _ => "M-4 -4L4 4M-4 4L4 -4",
    };
    let colour = COLOURS[index % COLOURS.len()];
    format!(
        "<path transform=\"translate({x:.1} {y:.1})\" d=\"{shape}\" fill=\"{colour}\" stroke=\"{colour}\"/>"
    )
}

/// Text that cannot become markup.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_appear_as_text_and_never_as_markup() {
        let lines = Lines {
            title: "a <b>".into(),
            x: "cache".into(),
            y: "reads".into(),
            series: vec![Series { name: "lru & co".into(), points: vec![(20.0, 5.0), (80.0, f64::NAN)] }],
            markers: true,
        };
        let svg = lines.svg();
        assert!(svg.contains("a &lt;b&gt;") && svg.contains("lru &amp; co") && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn bars_carry_their_numbers_and_survive_having_none() {
        let mut bars = Bars {
            title: "t".into(),
            x: "s".into(),
            parts: vec!["computing".into(), "wait".into()],
            bars: vec![("lru".into(), vec![10.0, 2.5]), ("none".into(), vec![])],
        };
        assert!(bars.svg().contains(">12.50<") && bars.svg().contains("wait"));
        bars.bars.clear();
        assert!(!bars.svg().contains("NaN") && !bars.svg().contains("inf"));
    }

    #[test]
    fn an_empty_plot_is_still_a_plot() {
        let lines =
            Lines { title: String::new(), x: String::new(), y: String::new(), series: vec![], markers: true };
        assert!(!lines.svg().contains("NaN") && lines.svg().ends_with("</svg>"));
    }
}

//! Lines over two axes, as SVG that takes its colours from the page.

use std::fmt::Write as _;

use super::html::escape;

/// How an axis maps values to places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps for equal differences, from zero.
    Linear,
    /// Equal steps for equal ratios; values of zero and less are left out.
    Log,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What is counted, with its unit.
    pub label: String,
    /// Its scale.
    pub scale: Scale,
}

impl Axis {
    /// A linear axis.
    #[must_use]
    pub fn linear(label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            scale: Scale::Linear,
        }
    }

    /// A logarithmic axis.
    #[must_use]
    pub fn log(label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            scale: Scale::Log,
        }
    }
}

/// One line of a plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Points (x, y), x not falling.
    pub points: Vec<(f64, f64)>,
}

/// A plot.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// Left to right.
    pub x: Axis,
    /// Bottom to top.
    pub y: Axis,
    /// The lines; their colours repeat after `COLOURS`.
    pub series: Vec<Series>,
}

/// Colours that the page's style gives.
pub const COLOURS: usize = 8;

/// Points of a line that are drawn at most: more than the picture is wide.
const POINTS_MAX: usize = 1200;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 44.0;

/// Values to places along one axis.
#[derive(Clone, Copy, Debug)]
struct Range {
    scale: Scale,
    low: f64,
    high: f64,
}

impl Range {
    /// Holds `values`, widened to whole ticks; an empty one is 0 to 1.
    fn of(scale: Scale, values: impl Iterator<Item = f64>) -> Self {
        let shown = values.filter(|value| is_shown(scale, *value));
        let (low, high) = shown.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        if low > high {
            return Self {
                scale,
                low: if scale == Scale::Log { 1.0 } else { 0.0 },
                high: if scale == Scale::Log { 10.0 } else { 1.0 },
            };
        }
        match scale {
            Scale::Linear => {
                let step = nice_step(high.max(f64::MIN_POSITIVE));
                let high = (high / step).ceil().max(1.0) * step;
                Self {
                    scale,
                    low: 0.0,
                    high,
                }
            }
            Scale::Log => {
                let low = 10_f64.powf(low.log10().floor());
                let high = 10_f64.powf(high.log10().ceil()).max(low * 10.0);
                Self { scale, low, high }
            }
        }
    }

    /// Where `value` lies, 0 to 1.
    fn place(self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value / self.low).log10() / (self.high / self.low).log10(),
        }
    }

    fn ticks(self) -> Vec<f64> {
        let mut ticks = Vec::new();
        match self.scale {
            Scale::Linear => {
                let step = nice_step(self.high);
                let mut tick = self.low;
                while tick <= self.high + step / 2.0 {
                    ticks.push(tick);
                    tick += step;
                }
            }
            Scale::Log => {
                let mut tick = self.low;
                while tick <= self.high * 1.001 {
                    ticks.push(tick);
                    tick *= 10.0;
                }
            }
        }
        ticks
    }
}

fn is_shown(scale: Scale, value: f64) -> bool {
    value.is_finite() && (scale == Scale::Linear || value > 0.0)
}

/// 1, 2 or 5 times a power of ten, so that 4 to 10 steps make `high`.
///
/// 87 gives 20 (five steps), 340 gives 50 (seven), 1.3 gives 0.2 (seven).
fn nice_step(high: f64) -> f64 {
    let rough = high / 8.0;
    let power = 10_f64.powf(rough.log10().floor());
    let digit = rough / power;
    let nice = match digit {
        d if d <= 1.0 => 1.0,
        d if d <= 2.0 => 2.0,
        d if d <= 5.0 => 5.0,
        _ => 10.0,
    };
    nice * power
}

/// A number as short as it is exact enough for a tick.
fn short(value: f64) -> String {
    let magnitude = value.abs();
    let (scaled, suffix) = if magnitude >= 1e9 {
        (value / 1e9, "G")
    } else if magnitude >= 1e6 {
        (value / 1e6, "M")
    } else if magnitude >= 1e4 {
        (value / 1e3, "k")
    } else {
        (value, "")
    };
    let text = format!("{scaled:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{suffix}")
}

/// Where a point is drawn.
struct Canvas {
    x: Range,
    y: Range,
}

impl Canvas {
    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let left = LEFT + self.x.place(x) * (WIDTH - LEFT - RIGHT);
        let top = HEIGHT - BOTTOM - self.y.place(y) * (HEIGHT - TOP - BOTTOM);
        (left, top)
    }
}

impl Plot {
    /// A `figure` element with the picture and its legend.
    #[must_use]
    pub fn to_html(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let canvas = Canvas {
            x: Range::of(self.x.scale, points().map(|point| point.0)),
            y: Range::of(self.y.scale, points().map(|point| point.1)),
        };
        let title = escape(&self.title);
        let mut out = format!(
            "<figure><figcaption>{title}</figcaption>\n\
             <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">\n"
        );
        self.draw_axes(&canvas, &mut out);
        for (number, series) in self.series.iter().enumerate() {
            self.draw_series(&canvas, number % COLOURS, series, &mut out);
        }
        out.push_str("</svg>\n<ul class=\"legend\">");
        for (number, series) in self.series.iter().enumerate() {
            let (colour, name) = (number % COLOURS, escape(&series.name));
            let _ = write!(out, "<li><span class=\"b{colour}\"></span>{name}</li>");
        }
        out.push_str("</ul></figure>\n");
        out
    }

    fn draw_axes(&self, canvas: &Canvas, out: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for tick in canvas.y.ticks() {
            let (_, y) = canvas.at((canvas.x.low, tick));
            let (x, low, text) = (LEFT - 8.0, y + 4.0, short(tick));
            let _ = writeln!(
                out,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/>\
                 <text class=\"end\" x=\"{x}\" y=\"{low:.1}\">{text}</text>"
            );
        }
        for tick in canvas.x.ticks() {
            let (x, _) = canvas.at((tick, canvas.y.low));
            let (end, low, text) = (bottom + 4.0, bottom + 18.0, short(tick));
            let _ = writeln!(
                out,
                "<path class=\"axis\" d=\"M{x:.1} {bottom}V{end}\"/>\
                 <text class=\"mid\" x=\"{x:.1}\" y=\"{low}\">{text}</text>"
            );
        }
        let (middle, height) = ((LEFT + right) / 2.0, (TOP + bottom) / 2.0);
        let (x, y) = (escape(&self.x.label), escape(&self.y.label));
        let low = HEIGHT - 6.0;
        let _ = writeln!(
            out,
            "<path class=\"axis\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>\
             <text class=\"mid label\" x=\"{middle}\" y=\"{low}\">{x}</text>\
             <text class=\"mid label\" transform=\"translate(14 {height}) rotate(-90)\">{y}</text>"
        );
    }

    fn draw_series(&self, canvas: &Canvas, colour: usize, series: &Series, out: &mut String) {
        let shown = |point: &&(f64, f64)| {
            is_shown(self.x.scale, point.0) && is_shown(self.y.scale, point.1)
        };
        let points: Vec<_> = series.points.iter().filter(shown).collect();
        let step = points.len().div_ceil(POINTS_MAX).max(1);
        let last = points.len().saturating_sub(1);
        let mut path = String::new();
        for (number, &&point) in points.iter().enumerate() {
            if number % step != 0 && number != last {
                continue;
            }
            let (x, y) = canvas.at(point);
            let verb = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{verb}{x:.1} {y:.1}");
        }
        let _ = writeln!(out, "<path class=\"line l{colour}\" d=\"{path}\"/>");
        // Few points are measurements; a curve through many needs no dots.
        if points.len() <= 24 {
            for &&point in &points {
                let (x, y) = canvas.at(point);
                let value = format!("{}: {}, {}", series.name, short(point.0), short(point.1));
                let _ = writeln!(
                    out,
                    "<circle class=\"f{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"><title>{}</title></circle>",
                    escape(&value)
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: Vec<(f64, f64)>) -> String {
        let plot = Plot {
            title: "Rate <by> RTT".to_owned(),
            x: Axis::log("RTT, ms"),
            y: Axis::linear("MB/s"),
            series: vec![Series {
                name: "ours".to_owned(),
                points,
            }],
        };
        plot.to_html()
    }

    #[test]
    fn steps_are_round_numbers() {
        assert!((nice_step(87.0) - 20.0).abs() < 1e-9);
        assert!((nice_step(340.0) - 50.0).abs() < 1e-9);
        assert!((nice_step(1.3) - 0.2).abs() < 1e-9);
    }

    #[test]
    fn ranges_hold_their_values_between_whole_ticks() {
        let range = Range::of(Scale::Linear, [3.0, 87.0].into_iter());
        assert!((range.low, range.high) == (0.0, 100.0));
        let range = Range::of(Scale::Log, [0.0, 1.0, 400.0].into_iter());
        assert!((range.low - 1.0).abs() < 1e-9 && (range.high - 1000.0).abs() < 1e-6);
        assert_eq!(range.ticks().len(), 4);
    }

    #[test]
    fn a_line_goes_from_its_first_point_to_its_last() {
        let html = plot(vec![(1.0, 0.0), (10.0, 50.0), (100.0, 100.0)]);
        let left = LEFT;
        let right = WIDTH - RIGHT;
        let (bottom, top) = (HEIGHT - BOTTOM, TOP);
        assert!(
            html.contains(&format!("d=\"M{left:.1} {bottom:.1}L")),
            "{html}"
        );
        assert!(html.contains(&format!("L{right:.1} {top:.1}\"")), "{html}");
        assert!(html.contains("Rate &lt;by&gt; RTT"));
    }

    #[test]
    fn what_has_no_place_is_left_out() {
        let html = plot(vec![(0.0, 1.0), (f64::NAN, 1.0), (1.0, 1.0)]);
        assert_eq!(html.matches("<circle").count(), 1);
        assert!(!html.contains("NaN"));
        assert!(plot(Vec::new()).contains("<svg"));
    }

    #[test]
    fn a_long_series_is_thinned_but_keeps_its_end() {
        let points = (1..=100_000)
            .map(|n| (f64::from(n), f64::from(n)))
            .collect();
        let html = plot(points);
        assert!(html.matches('L').count() <= POINTS_MAX + 10);
    }

    #[test]
    fn ticks_are_short() {
        assert_eq!(short(0.0), "0");
        assert_eq!(short(0.2), "0.2");
        assert_eq!(short(2_500_000.0), "2.5M");
        assert_eq!(short(20_000.0), "20k");
    }
}

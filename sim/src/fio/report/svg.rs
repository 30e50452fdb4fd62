//! Plots as inline SVG: lines over an x axis, stacked bars over names.

use std::fmt::Write as _;

/// Colours that stay apart for colour-blind readers (Okabe and Ito), in order of use.
pub const COLOURS: [&str; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f",
];

/// How numbers along an axis are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// From 0, evenly.
    Linear,
    /// By powers of ten.
    Log,
}

/// A line, or a staircase, of a plot.
pub struct Line {
    pub name: String,
    pub colour: &'static str,
    pub points: Vec<(f64, f64)>,
    /// A value holds until the next point.
    pub step: bool,
    /// Drawn broad and faint, for others to lie upon.
    pub behind: bool,
}

/// A plot of lines.
pub struct Plot<'a> {
    pub title: String,
    pub width: f64,
    pub height: f64,
    /// Marks on the x axis: place and text.
    pub x_ticks: Vec<(f64, String)>,
    pub x_range: (f64, f64),
    pub x_label: &'a str,
    pub y_label: &'a str,
    pub y_scale: Scale,
    /// Writes a value of the y axis.
    pub y_text: fn(f64) -> String,
    pub lines: Vec<Line>,
}

const LEFT: f64 = 76.0;
const RIGHT: f64 = 26.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 42.0;

/// Text made safe for HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// About `count` round numbers from 0 to `max`.
pub fn linear_ticks(max: f64, count: usize) -> Vec<f64> {
    if max <= 0.0 {
        return vec![0.0];
    }
    let rough = max / count as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|m| m * power)
        .into_iter()
        .find(|step| *step >= rough)
        .unwrap_or(rough);
    (0..=(max / step).ceil() as usize)
        .map(|i| i as f64 * step)
        .collect()
}

impl Plot<'_> {
    /// The plot as an `<svg>` element.
    pub fn svg(&self) -> String {
        let values = || {
            self.lines
                .iter()
                .flat_map(|line| line.points.iter().map(|point| point.1))
        };
        let max = values().fold(0.0, f64::max);
        let ticks = match self.y_scale {
            Scale::Linear => linear_ticks(max, 4),
            Scale::Log => {
                let least = values()
                    .filter(|value| *value > 0.0)
                    .fold(f64::INFINITY, f64::min);
                let (lo, hi) = if least.is_finite() {
                    (least.log10().floor(), max.log10().ceil())
                } else {
                    (0.0, 1.0)
                };
                (lo as i32..=(hi.max(lo + 1.0)) as i32)
                    .map(|power| 10f64.powi(power))
                    .collect()
            }
        };
        let (low, high) = (ticks[0], ticks[ticks.len() - 1].max(1e-9));
        let (width, height) = (self.width - LEFT - RIGHT, self.height - TOP - BOTTOM);
        let x = |value: f64| {
            let (from, to) = self.x_range;
            LEFT + (value - from) / (to - from).max(1e-9) * width
        };
        let y = |value: f64| {
            let part = match self.y_scale {
                Scale::Linear => value / high,
                Scale::Log => (value.max(low).log10() - low.log10()) / (high.log10() - low.log10()),
            };
            TOP + height - part * height
        };
        let mut out = open(self.width, self.height, &self.title);
        for tick in &ticks {
            let at = y(*tick);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>",
                LEFT + width
            );
            let _ = write!(
                out,
                "<text class=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                (self.y_text)(*tick)
            );
        }
        for (tick, text) in &self.x_ticks {
            let at = x(*tick);
            let base = TOP + height;
            let _ = write!(
                out,
                "<line class=\"tick\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{base:.1}\" y2=\"{:.1}\"/>",
                base + 4.0
            );
            let _ = write!(
                out,
                "<text class=\"mid\" x=\"{at:.1}\" y=\"{:.1}\">{text}</text>",
                base + 16.0
            );
        }
        labels(
            &mut out,
            self.x_label,
            self.y_label,
            width,
            height,
            self.height,
        );
        for line in &self.lines {
            let mut path = String::new();
            let mut before = None;
            for &(at, value) in &line.points {
                let (px, py) = (x(at), y(value));
                match before {
                    None => {
                        let _ = write!(path, "M{px:.1} {py:.1}");
                    }
                    Some(_) if line.step => {
                        let _ = write!(path, "H{px:.1}V{py:.1}");
                    }
                    Some(_) => {
                        let _ = write!(path, "L{px:.1} {py:.1}");
                    }
                }
                before = Some(py);
            }
            let _ = write!(
                out,
                "<path{} d=\"{path}\" stroke=\"{}\"><title>{}</title></path>",
                if line.behind { " class=\"behind\"" } else { "" },
                line.colour,
                escape(&line.name)
            );
        }
        out.push_str("</svg>");
        out
    }
}

/// Stacked bars, one a name.
pub struct Bars<'a> {
    pub title: String,
    pub width: f64,
    pub height: f64,
    pub x_label: &'a str,
    pub y_label: &'a str,
    pub y_text: fn(f64) -> String,
    /// Names of the parts, from the bottom up.
    pub parts: &'a [&'a str],
    /// A name and its parts' values.
    pub bars: Vec<(String, Vec<f64>)>,
}

impl Bars<'_> {
    /// The plot as an `<svg>` element.
    pub fn svg(&self) -> String {
        let max = self
            .bars
            .iter()
            .map(|(_, parts)| parts.iter().sum::<f64>())
            .fold(0.0, f64::max);
        let ticks = linear_ticks(max.max(1.0), 4);
        let high = ticks[ticks.len() - 1];
        let (width, height) = (self.width - LEFT - RIGHT, self.height - TOP - BOTTOM);
        let mut out = open(self.width, self.height, &self.title);
        for tick in &ticks {
            let at = TOP + height - tick / high * height;
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>",
                LEFT + width
            );
            let _ = write!(
                out,
                "<text class=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                (self.y_text)(*tick)
            );
        }
        let slot = width / self.bars.len().max(1) as f64;
        let every = (36.0 / slot).ceil().max(1.0) as usize;
        for (index, (name, parts)) in self.bars.iter().enumerate() {
            let left = LEFT + slot * index as f64;
            let mut base = TOP + height;
            for ((value, part), colour) in parts.iter().zip(self.parts).zip(COLOURS) {
                let tall = value / high * height;
                base -= tall;
                let _ = write!(
                    out,
                    "<rect x=\"{:.1}\" y=\"{base:.1}\" width=\"{:.1}\" height=\"{tall:.1}\" fill=\"{colour}\"><title>{}: {value} {part}</title></rect>",
                    left + slot * 0.15,
                    slot * 0.7,
                    escape(name),
                );
            }
            if index % every == 0 {
                let _ = write!(
                    out,
                    "<text class=\"mid\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                    left + slot / 2.0,
                    TOP + height + 16.0,
                    escape(name)
                );
            }
        }
        labels(
            &mut out,
            self.x_label,
            self.y_label,
            width,
            height,
            self.height,
        );
        out.push_str("</svg>");
        out
    }
}

fn open(width: f64, height: f64, title: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\"><text class=\"title\" x=\"{LEFT}\" y=\"16\">{}</text>",
        escape(title)
    )
}

fn labels(out: &mut String, x_label: &str, y_label: &str, width: f64, height: f64, full: f64) {
    let base = TOP + height;
    let _ = write!(
        out,
        "<line class=\"tick\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{base:.1}\" y2=\"{base:.1}\"/>",
        LEFT + width
    );
    let _ = write!(
        out,
        "<text class=\"mid\" x=\"{:.1}\" y=\"{:.1}\">{x_label}</text>",
        LEFT + width / 2.0,
        full - 6.0
    );
    let middle = TOP + height / 2.0;
    let _ = write!(
        out,
        "<text class=\"mid\" transform=\"translate(13 {middle:.1}) rotate(-90)\">{y_label}</text>"
    );
}

/// A legend: colours and names in a row.
pub fn legend<'a>(entries: impl IntoIterator<Item = (&'static str, &'a str)>) -> String {
    let mut out = String::from("<p class=\"legend\">");
    for (colour, name) in entries {
        let _ = write!(
            out,
            "<span><i style=\"background:{colour}\"></i>{}</span> ",
            escape(name)
        );
    }
    out.push_str("</p>");
    out
}

//! A small piece of SVG: lines, texts and two axes. The background is white and set, so that a plot
//! can be read on a dark page too.

use std::fmt::Write as _;

pub(super) const WIDTH: f64 = 700.0;
pub(super) const HEIGHT: f64 = 480.0;
/// Where the axes are: left, right, top and bottom.
pub(super) const LEFT: f64 = 84.0;
pub(super) const RIGHT: f64 = WIDTH - 24.0;
pub(super) const TOP: f64 = 116.0;
pub(super) const BOTTOM: f64 = HEIGHT - 98.0;

pub(super) const INK: &str = "#1c1c1c";
pub(super) const FAINT: &str = "#d8d8d8";
/// Told apart by those who see few colours too.
pub(super) const COLOURS: [&str; 3] = ["#0060a8", "#c04a00", "#2a7d3f"];

/// A drawing in the making.
pub(super) struct Svg(String);

impl Svg {
    /// A white sheet with a title, and with where it comes from at its foot.
    pub(super) fn new(title: &str, source: &str) -> Self {
        let mut svg = Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             width=\"{WIDTH}\" height=\"{HEIGHT}\" font-family=\"sans-serif\" role=\"img\">\n\
             <title>{}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
            escaped(title)
        ));
        svg.text((LEFT, 30.0), 17.0, "start", INK, title);
        svg.text((LEFT, HEIGHT - 10.0), 12.0, "start", "#555555", source);
        svg
    }

    pub(super) fn text(
        &mut self,
        (x, y): (f64, f64),
        size: f64,
        // Where the text stands to its point, as SVG calls it.
        anchor: &str,
        colour: &str,
        text: &str,
    ) {
        let _ = writeln!(
            self.0,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" \
             fill=\"{colour}\">{}</text>",
            escaped(text)
        );
    }

    /// What a colour stands for: lines of text under the title.
    pub(super) fn legend(&mut self, place: usize, text: &str) {
        let y = 54.0 + 20.0 * f64::from(u8::try_from(place).unwrap_or(0));
        let colour = COLOURS[place % COLOURS.len()];
        self.text((LEFT, y), 14.0, "start", colour, text);
    }

    /// A remark under the axes.
    pub(super) fn remark(&mut self, text: &str) {
        let place = (f64::midpoint(LEFT, RIGHT), BOTTOM + 64.0);
        self.text(place, 12.5, "middle", INK, text);
    }

    /// A text along the left axis.
    pub(super) fn text_upwards(&mut self, (x, y): (f64, f64), text: &str) {
        let _ = writeln!(
            self.0,
            "<text transform=\"translate({x:.1} {y:.1}) rotate(-90)\" font-size=\"14\" \
             text-anchor=\"middle\" fill=\"{INK}\">{}</text>",
            escaped(text)
        );
    }

    pub(super) fn line(&mut self, points: &[(f64, f64)], colour: &str, style: &str) {
        let _ = writeln!(
            self.0,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" {style}/>",
            listed(points)
        );
    }

    pub(super) fn area(&mut self, points: &[(f64, f64)], colour: &str) {
        let _ = writeln!(
            self.0,
            "<polygon points=\"{}\" fill=\"{colour}\" fill-opacity=\"0.25\" stroke=\"{colour}\" \
             stroke-width=\"1.5\"/>",
            listed(points)
        );
    }

    pub(super) fn dot(&mut self, (x, y): (f64, f64), colour: &str) {
        let _ = writeln!(
            self.0,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>"
        );
    }

    /// The two axes, with what they are of.
    pub(super) fn axes(&mut self, across: &Axis, along: &str, upwards: &Axis, up: &str) {
        for (value, label) in &across.ticks {
            let x = across.at(*value);
            self.line(&[(x, TOP), (x, BOTTOM)], FAINT, "stroke-width=\"1\"");
            self.text((x, BOTTOM + 20.0), 13.0, "middle", INK, label);
        }
        for (value, label) in &upwards.ticks {
            let y = upwards.at(*value);
            self.line(&[(LEFT, y), (RIGHT, y)], FAINT, "stroke-width=\"1\"");
            self.text((LEFT - 8.0, y + 4.5), 13.0, "end", INK, label);
        }
        let corner = [(LEFT, TOP), (LEFT, BOTTOM), (RIGHT, BOTTOM)];
        self.line(&corner, INK, "stroke-width=\"1.2\"");
        let middle = f64::midpoint(LEFT, RIGHT);
        self.text((middle, BOTTOM + 44.0), 14.0, "middle", INK, along);
        self.text_upwards((18.0, f64::midpoint(TOP, BOTTOM)), up);
    }

    pub(super) fn finished(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

/// Which value is where.
pub(super) struct Axis {
    values: (f64, f64),
    pixels: (f64, f64),
    is_logarithmic: bool,
    pub(super) ticks: Vec<(f64, String)>,
}

impl Axis {
    pub(super) const fn linear(values: (f64, f64), pixels: (f64, f64)) -> Self {
        Self {
            values,
            pixels,
            is_logarithmic: false,
            ticks: Vec::new(),
        }
    }

    /// Each ten times as much is as far from the last.
    pub(super) fn logarithmic(values: (f64, f64), pixels: (f64, f64)) -> Self {
        Self {
            is_logarithmic: true,
            ..Self::linear(values, pixels)
        }
    }

    /// Says where values are to be named.
    pub(super) fn with_ticks(mut self, ticks: impl IntoIterator<Item = (f64, String)>) -> Self {
        self.ticks.extend(ticks);
        self
    }

    pub(super) fn at(&self, value: f64) -> f64 {
        let scaled = |value: f64| {
            if self.is_logarithmic {
                value.max(1e-9).log10()
            } else {
                value
            }
        };
        let (from, to) = (scaled(self.values.0), scaled(self.values.1));
        let part = ((scaled(value) - from) / (to - from)).clamp(0.0, 1.0);
        self.pixels.0 + part * (self.pixels.1 - self.pixels.0)
    }
}

fn listed(points: &[(f64, f64)]) -> String {
    let points = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}"));
    points.collect::<Vec<_>>().join(" ")
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() < 1e-9
    }

    #[test]
    fn an_axis_puts_values_where_they_belong_and_none_outside() {
        let axis = Axis::logarithmic((0.1, 10.0), (0.0, 200.0));
        assert!(close(axis.at(1.0), 100.0) && close(axis.at(10.0), 200.0));
        assert!(close(axis.at(0.0), 0.0) && close(axis.at(99.0), 200.0));
        let axis = Axis::linear((0.0, 4.0), (100.0, 0.0));
        assert!(close(axis.at(1.0), 75.0));
    }

    #[test]
    fn a_text_cannot_break_the_drawing() {
        let svg = Svg::new("a < b & \"c\"", "").finished();
        assert!(svg.contains("<title>a &lt; b &amp; &quot;c&quot;</title>"));
        assert!(svg.ends_with("</svg>\n"));
    }
}

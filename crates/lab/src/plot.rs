//! Line plots and bar charts as SVG, readable on light and on dark pages.

use std::fmt::Write;
use std::path::Path;

use anyhow::Context;

/// A plot of one or several series over the same axes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plot {
    /// Title above the plot.
    pub(crate) title: String,
    /// Title below the horizontal axis.
    pub(crate) x_label: String,
    /// Title beside the vertical axis, which begins at zero.
    pub(crate) y_label: String,
    /// Whether the horizontal axis is logarithmic.
    pub(crate) logarithmic: bool,
    /// The lines of the plot.
    pub(crate) series: Vec<Series>,
}

/// Points joined by a line.
#[derive(Debug, Clone, Default)]
pub(crate) struct Series {
    /// Name in the legend.
    pub(crate) name: String,
    /// Points in the order in which the line joins them.
    pub(crate) points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const TOP: f64 = 48.0;
const BOTTOM: f64 = 58.0;
/// An upper estimate of the width of a character of 12 pixels.
const CHARACTER: f64 = 7.0;

/// Colours with a contrast of at least 3 on white and on dark pages.
const COLOURS: [&str; 6] = ["#1f7fd0", "#d55e00", "#0f9d6e", "#b060b8", "#b27d00", "#7d8590"];
/// Dash patterns: a line below shows through the gaps.
const DASHES: [&str; 6] = ["none", "9 6", "2 5", "12 4 2 4", "5 3", "1 3"];
/// Outlines of markers around a centre, so that markers at the same place are all visible.
const OUTLINES: [&str; 6] = [
    "m-6 0a6 6 0 1 0 12 0a6 6 0 1 0 -12 0",
    "m-4.5 -4.5h9v9h-9z",
    "m0 -7l6.5 11h-13z",
    "m0 -7l7 7l-7 7l-7 -7z",
    "m-5 -5l10 10m0 -10l-10 10",
    "m0 -6v12m-6 -6h12",
];

const STYLE: &str = "<style>.page{fill:#fff}.ink{fill:#1b1f24}.axis{fill:none;stroke:#1b1f24}\
    .grid{stroke:#d8dee4}@media(prefers-color-scheme:dark){.page{fill:#161b22}.ink{fill:#e6edf3}\
    .axis{stroke:#e6edf3}.grid{stroke:#3d444d}}</style>\n";

/// A linear or logarithmic scale from values to coordinates.
struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    logarithmic: bool,
}

impl Scale {
    fn new(values: impl Iterator<Item = f64>, page: (f64, f64), logarithmic: bool) -> Scale {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|v| v.is_finite() && (*v > 0.0 || !logarithmic)) {
            low = low.min(value);
            high = high.max(value);
        }
        if !logarithmic {
            low = low.min(0.0);
        }
        // Without points, or with equal ones, any range will do.
        if low >= high || !low.is_finite() || !high.is_finite() {
            let middle = if high.is_finite() { high.max(1.0) } else { 1.0 };
            (low, high) = (if logarithmic { middle / 2.0 } else { 0.0 }, middle * 1.1);
        }
        Scale { low, high, from: page.0, to: page.1, logarithmic }
    }

    fn at(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + share * (self.to - self.from)
    }

    /// The distance between two ticks of a linear scale, a round number.
    fn step(&self) -> f64 {
        let rough = (self.high - self.low) / 6.0;
        let power = 10_f64.powf(rough.log10().floor());
        let factors = [1.0, 2.0, 5.0, 10.0];
        factors.iter().map(|f| f * power).find(|s| *s >= rough).unwrap_or(rough)
    }

    /// The ticks of the scale, at round numbers.
    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let powers = (0..64).map(|power| 2_f64.powi(power - 16));
            return powers.filter(|p| *p >= self.low * 0.999 && *p <= self.high * 1.001).collect();
        }
        let step = self.step();
        let first = (self.low / step).ceil() as i64;
        (first..).map(|i| i as f64 * step).take_while(|t| *t <= self.high).take(50).collect()
    }
}

impl Plot {
    /// The plot as SVG.
    pub(crate) fn svg(&self) -> String {
        let (x, y) = self.scales();
        let mut svg = page(HEIGHT, &self.title);
        draw_axes(&mut svg, &x, &y);
        let (centre, middle) = ((x.from + x.to) / 2.0, (y.from + y.to) / 2.0);
        text(&mut svg, (centre, HEIGHT - 14.0), "middle", "", &self.x_label);
        let turned = format!(" transform='rotate(-90 18 {middle})'");
        text(&mut svg, (18.0, middle), "middle", &turned, &self.y_label);
        for (i, series) in self.series.iter().enumerate() {
            // Points that the scale cannot show are left out.
            let places = series.points.iter().map(|point| (x.at(point.0), y.at(point.1)));
            let places: Vec<_> = places.filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
            self.draw_line(&mut svg, "series", i, &places);
            // A curve of many points has few markers, and curves that coincide have them at
            // different points.
            let stride = if places.len() > 24 { places.len() / 8 } else { 1 };
            let first = stride * i / self.series.len();
            for &place in places.iter().skip(first).step_by(stride) {
                draw_marker(&mut svg, i, place);
            }
            let (from, at) = (x.to + 20.0, TOP + 10.0 + 22.0 * i as f64);
            self.draw_line(&mut svg, "legend", i, &[(from, at), (from + 48.0, at)]);
            draw_marker(&mut svg, i, (from + 24.0, at));
            text(&mut svg, (from + 56.0, at + 4.0), "start", "", &series.name);
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// Writes the plot as `NAME.svg` into a directory, which is created; nothing without one.
    pub(crate) fn write(&self, directory: Option<&Path>, name: &str) -> anyhow::Result<()> {
        let Some(directory) = directory else { return Ok(()) };
        std::fs::create_dir_all(directory).context(directory.display().to_string())?;
        let path = directory.join(format!("{name}.svg"));
        std::fs::write(&path, self.svg()).context(path.display().to_string())
    }

    /// The scales of both axes, with room for tick labels at the left and the legend at the right.
    fn scales(&self) -> (Scale, Scale) {
        let points = || self.series.iter().flat_map(|s| &s.points);
        let mut y = Scale::new(points().map(|p| p.1), (HEIGHT - BOTTOM, TOP), false);
        y.high = (y.high / y.step()).ceil() * y.step();
        let longest = y.ticks().into_iter().map(|tick| number(tick).len()).max().unwrap_or(0);
        let left = 38.0 + CHARACTER * longest as f64;
        let longest = self.series.iter().map(|s| s.name.chars().count()).max().unwrap_or(0);
        let right = (WIDTH - 84.0 - CHARACTER * longest as f64).max(WIDTH / 2.0);
        (Scale::new(points().map(|p| p.0), (left, right), self.logarithmic), y)
    }

    /// Draws the line of a series. Later series are narrower and lie above the earlier ones.
    fn draw_line(&self, svg: &mut String, class: &str, i: usize, places: &[(f64, f64)]) {
        let list: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let (points, dashes, colour) = (list.join(" "), DASHES[i % 6], COLOURS[i % 6]);
        let width = 1.8 + 0.8 * (self.series.len() - 1 - i).min(3) as f64;
        let style = format!("stroke-width='{width:.1}' stroke-dasharray='{dashes}'");
        let stroke = format!("fill='none' stroke='{colour}' {style}");
        let _ = writeln!(svg, "<polyline class='{class}' points='{points}' {stroke}/>");
    }
}

fn draw_axes(svg: &mut String, x: &Scale, y: &Scale) {
    let (left, right, bottom) = (x.from, x.to, y.from);
    for tick in y.ticks() {
        let at = y.at(tick);
        let _ = writeln!(svg, "<path class='grid' d='M{left:.1} {at:.1}H{right:.1}'/>");
        text(svg, (left - 8.0, at + 4.0), "end", "", &number(tick));
    }
    for tick in x.ticks() {
        let at = x.at(tick);
        let _ = writeln!(svg, "<path class='axis' d='M{at:.1} {bottom}v5'/>");
        text(svg, (at, bottom + 19.0), "middle", "", &number(tick));
    }
    let _ = writeln!(svg, "<path class='axis' d='M{left:.1} {TOP}V{bottom}H{right:.1}'/>");
}

/// A chart of horizontal bars.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bars {
    /// Title above the bars.
    pub(crate) title: String,
    /// The bars from top to bottom.
    pub(crate) bars: Vec<Bar>,
}

/// A bar: a value with the range of its measurements.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) range: (f64, f64),
}

impl Bars {
    /// The chart as SVG.
    pub(crate) fn svg(&self) -> String {
        const LINE: f64 = 24.0;
        let longest = self.bars.iter().map(|bar| bar.name.chars().count()).max().unwrap_or(0);
        let left = (24.0 + CHARACTER * longest as f64).min(WIDTH / 2.0);
        let numbers = self.bars.iter().flat_map(|bar| [bar.value, bar.range.1]);
        let scale = Scale::new(numbers, (left, WIDTH - 80.0), false);
        let mut svg = page(TOP + LINE * self.bars.len() as f64 + 16.0, &self.title);
        for (i, bar) in self.bars.iter().enumerate().filter(|(_, bar)| bar.value.is_finite()) {
            let middle = TOP + LINE * (i as f64 + 0.5);
            text(&mut svg, (left - 8.0, middle + 4.0), "end", "", &bar.name);
            let (top, width) = (middle - 9.0, (scale.at(bar.value) - left).max(0.0));
            let place = format!("x='{left:.1}' y='{top:.1}' width='{width:.1}' height='18'");
            let _ = writeln!(svg, "<rect class='bar' {place} fill='{}'/>", COLOURS[0]);
            let (least, most) = (scale.at(bar.range.0), scale.at(bar.range.1));
            if least.is_finite() && most.is_finite() {
                let d = format!("M{least:.1} {middle}m0 -4v8m0 -4H{most:.1}m0 -4v8");
                let _ = writeln!(svg, "<path class='axis' d='{d}'/>");
            }
            let end = (scale.at(bar.value.max(bar.range.1)) + 8.0, middle + 4.0);
            text(&mut svg, end, "start", "", &number(bar.value.round()));
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// The start of an SVG file: the page and its title, in smaller letters if it is long.
fn page(height: f64, title: &str) -> String {
    let mut svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' \
         width='{WIDTH}' height='{height}' font-family='sans-serif' font-size='12'>\n\
         {STYLE}<rect class='page' width='{WIDTH}' height='{height}'/>\n"
    );
    let size = (1.6 * WIDTH / title.chars().count().max(1) as f64).min(15.0);
    let bold = format!(" font-weight='bold' font-size='{size:.1}'");
    text(&mut svg, (WIDTH / 2.0, 26.0), "middle", &bold, title);
    svg
}

fn draw_marker(svg: &mut String, i: usize, (x, y): (f64, f64)) {
    let (outline, colour) = (OUTLINES[i % 6], COLOURS[i % 6]);
    let stroke = format!("fill='none' stroke='{colour}' stroke-width='1.6'");
    let _ = writeln!(svg, "<path d='M{x:.1} {y:.1}{outline}' {stroke}/>");
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, more: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let place = format!("x='{x:.1}' y='{y:.1}' text-anchor='{anchor}'{more}");
    let _ = writeln!(svg, "<text class='ink' {place}>{text}</text>");
}

/// Formats a number with as many digits as it needs, in groups of three.
fn number(value: f64) -> String {
    let text = format!("{:.4}", value.abs());
    let (whole, rest) = text.trim_end_matches('0').split_once('.').unwrap_or((&text, ""));
    let groups: Vec<&[u8]> = whole.as_bytes().rchunks(3).rev().collect();
    let whole = String::from_utf8_lossy(&groups.join(&b',')).into_owned();
    let sign = if value < 0.0 { "-" } else { "" };
    if rest.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{rest}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, points: &[(f64, f64)]) -> Series {
        Series { name: name.to_owned(), points: points.to_vec() }
    }

    /// The coordinates of each series in an SVG file.
    fn drawn(svg: &str) -> Vec<Vec<(f64, f64)>> {
        let document = roxmltree::Document::parse(svg).expect("well-formed XML");
        assert_eq!(document.root_element().tag_name().name(), "svg");
        let lines = document.descendants().filter(|n| n.attribute("class") == Some("series"));
        let point = |p: &str| -> (f64, f64) {
            let (x, y) = p.split_once(',').expect("two numbers");
            (x.parse().expect("x"), y.parse().expect("y"))
        };
        let lines = lines.map(|line| line.attribute("points").unwrap_or("").split_whitespace());
        lines.map(|points| points.map(point).collect()).collect()
    }

    #[test]
    fn points_stand_where_they_belong() {
        let plot = Plot {
            title: "Speed & <size>".to_owned(),
            logarithmic: true,
            series: vec![
                series("a", &[(1.0, 0.0), (4.0, 10.0), (16.0, 20.0)]),
                series("b", &[(1.0, 20.0), (16.0, 0.0)]),
            ],
            ..Plot::default()
        };
        let svg = plot.svg();
        let drawn = drawn(&svg);
        let (Scale { from: left, to: right, .. }, Scale { from: bottom, .. }) = plot.scales();
        assert_eq!(drawn[0][0], (left, bottom));
        assert_eq!(drawn[0][1], ((left + right) / 2.0, (TOP + bottom) / 2.0));
        assert_eq!(drawn[0][2], (right, TOP));
        assert_eq!(drawn[1], [(left, TOP), (right, bottom)]);
        assert!(svg.contains("Speed &amp; &lt;size&gt;"));
    }

    #[test]
    fn lines_that_coincide_are_all_seen() {
        let line = [(1.0, 1.0), (2.0, 3.0), (3.0, 2.0)];
        let series = ["naive", "shrink"].map(|name| series(name, &line)).to_vec();
        let svg = Plot { title: "T".into(), series, ..Plot::default() }.svg();
        let lines: Vec<&str> = svg.lines().filter(|line| line.contains("'series'")).collect();
        assert!(lines[0].contains("width='2.6' stroke-dasharray='none'"), "{}", lines[0]);
        assert!(lines[1].contains("width='1.8' stroke-dasharray='9 6'"), "{}", lines[1]);
        for outline in &OUTLINES[..2] {
            assert_eq!(svg.matches(outline).count(), line.len() + 1, "one more in the legend");
        }
    }

    #[test]
    fn odd_numbers_make_no_odd_files() {
        for points in [vec![], vec![(0.0, 0.0)], vec![(f64::NAN, 1.0), (2.0, f64::INFINITY)]] {
            for logarithmic in [false, true] {
                let series = vec![series("odd", &points)];
                let plot = Plot { series, logarithmic, ..Plot::default() };
                for (x, y) in drawn(&plot.svg()).into_iter().flatten() {
                    assert!(x.is_finite() && y.is_finite());
                }
            }
        }
    }

    #[test]
    fn bars_are_as_long_as_they_should_be() {
        let bar = |name: &str, value| Bar { name: name.into(), value, range: (value / 2.0, value) };
        let bars = vec![bar("a < b", 50.0), bar("b", 100.0), bar("odd", f64::NAN)];
        let svg = Bars { title: "T".into(), bars }.svg();
        let document = roxmltree::Document::parse(&svg).expect("well-formed XML");
        let bars = document.descendants().filter(|n| n.attribute("class") == Some("bar"));
        let width = |n: roxmltree::Node<'_, '_>| n.attribute("width").and_then(|w| w.parse().ok());
        let widths: Vec<f64> = bars.filter_map(width).collect();
        assert_eq!(widths.len(), 2);
        assert!((widths[1] - 2.0 * widths[0]).abs() < 0.2, "{widths:?}");
        assert!(svg.contains("a &lt; b"));
    }

    #[test]
    fn ticks_are_round() {
        let scale = Scale::new([0.0, 17.3].into_iter(), (0.0, 1.0), false);
        assert_eq!(scale.ticks(), [0.0, 5.0, 10.0, 15.0]);
        let scale = Scale::new([1.0, 64.0].into_iter(), (0.0, 1.0), true);
        assert_eq!(scale.ticks(), [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]);
        let written = [0.0, 0.25, 100.0, 20_000.0, -1_500_000.0].map(number);
        assert_eq!(written, ["0", "0.25", "100", "20,000", "-1,500,000"]);
    }
}

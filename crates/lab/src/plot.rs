//! Line plots as SVG, with nothing but text.

use std::fmt::Write;

/// A plot of one or several series over the same axes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plot {
    /// Above the plot.
    pub(crate) title: String,
    /// Below the horizontal axis.
    pub(crate) x_label: String,
    /// Beside the vertical axis, which begins at zero.
    pub(crate) y_label: String,
    /// Whether equal factors are equally far apart on the horizontal axis.
    pub(crate) logarithmic: bool,
    /// What is plotted.
    pub(crate) series: Vec<Series>,
}

/// Points joined by a line.
#[derive(Debug, Clone, Default)]
pub(crate) struct Series {
    /// In the legend.
    pub(crate) name: String,
    /// In the order in which they are joined.
    pub(crate) points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;

/// Told apart by people who see few colours, too.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// A linear or logarithmic scale from numbers to the page.
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
        // No points, or all alike: any scale will do.
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

    /// Round numbers along the scale.
    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let powers = (0..64).map(|power| 2_f64.powi(power - 16));
            return powers.filter(|p| *p >= self.low * 0.999 && *p <= self.high * 1.001).collect();
        }
        let rough = (self.high - self.low) / 6.0;
        let power = 10_f64.powf(rough.log10().floor());
        let factors = [1.0, 2.0, 5.0, 10.0];
        let step = factors.iter().map(|f| f * power).find(|s| *s >= rough).unwrap_or(rough);
        let first = (self.low / step).ceil() as i64;
        (first..).map(|i| i as f64 * step).take_while(|t| *t <= self.high).take(50).collect()
    }
}

impl Plot {
    /// The plot as a file's text.
    pub(crate) fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|s| &s.points);
        let x = Scale::new(points().map(|p| p.0), (LEFT, WIDTH - RIGHT), self.logarithmic);
        let y = Scale::new(points().map(|p| p.1), (HEIGHT - BOTTOM, TOP), false);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
        );
        text(&mut svg, (WIDTH - RIGHT + LEFT) / 2.0, 22.0, "middle", &self.title);
        axes(&mut svg, &x, &y);
        text(&mut svg, (WIDTH - RIGHT + LEFT) / 2.0, HEIGHT - 10.0, "middle", &self.x_label);
        text(&mut svg, 8.0, TOP - 14.0, "start", &self.y_label);
        for (i, series) in self.series.iter().enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            draw(&mut svg, series, colour, &x, &y);
            let at = TOP + 18.0 * i as f64;
            let (from, to) = (WIDTH - RIGHT + 12.0, WIDTH - RIGHT + 36.0);
            let _ = writeln!(
                svg,
                "<line x1=\"{from}\" y1=\"{at}\" x2=\"{to}\" y2=\"{at}\" stroke=\"{colour}\" \
                 stroke-width=\"2\"/>"
            );
            text(&mut svg, to + 6.0, at + 4.0, "start", &series.name);
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// Bars beside each other, from top to bottom.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bars {
    /// Above the bars.
    pub(crate) title: String,
    /// From top to bottom.
    pub(crate) bars: Vec<Bar>,
}

/// A number with the least and the most it was measured as.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) range: (f64, f64),
}

impl Bars {
    /// The bars as a file's text.
    pub(crate) fn svg(&self) -> String {
        const LINE: f64 = 24.0;
        const NAMES: f64 = 200.0;
        let height = TOP + LINE * self.bars.len() as f64 + 20.0;
        let numbers = self.bars.iter().flat_map(|bar| [bar.value, bar.range.1]);
        let scale = Scale::new(numbers, (NAMES, WIDTH - 80.0), false);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
        );
        text(&mut svg, WIDTH / 2.0, 22.0, "middle", &self.title);
        for (i, bar) in self.bars.iter().enumerate().filter(|(_, bar)| bar.value.is_finite()) {
            let top = TOP + LINE * i as f64;
            let middle = top + LINE / 2.0;
            text(&mut svg, NAMES - 8.0, middle + 4.0, "end", &bar.name);
            let (width, colour) = ((scale.at(bar.value) - NAMES).max(0.0), COLOURS[0]);
            let _ = writeln!(
                svg,
                "<rect class=\"bar\" x=\"{NAMES}\" y=\"{:.1}\" width=\"{width:.1}\" \
                 height=\"{}\" fill=\"{colour}\"/>",
                top + 3.0,
                LINE - 6.0
            );
            let (least, most) = (scale.at(bar.range.0), scale.at(bar.range.1));
            if least.is_finite() && most.is_finite() {
                let _ = writeln!(
                    svg,
                    "<line x1=\"{least:.1}\" y1=\"{middle:.1}\" x2=\"{most:.1}\" \
                     y2=\"{middle:.1}\" stroke=\"black\"/>"
                );
            }
            let end = scale.at(bar.value.max(bar.range.1));
            text(&mut svg, end + 6.0, middle + 4.0, "start", &format!("{:.0}", bar.value));
        }
        svg.push_str("</svg>\n");
        svg
    }
}

fn axes(svg: &mut String, x: &Scale, y: &Scale) {
    let (left, right, bottom) = (LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM);
    for tick in y.ticks() {
        let at = y.at(tick);
        let _ = writeln!(
            svg,
            "<line x1=\"{left}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>"
        );
        text(svg, left - 6.0, at + 4.0, "end", &number(tick));
    }
    for tick in x.ticks() {
        let at = x.at(tick);
        let end = bottom + 5.0;
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" y1=\"{bottom}\" x2=\"{at:.1}\" y2=\"{end}\" stroke=\"black\"/>"
        );
        text(svg, at, bottom + 18.0, "middle", &number(tick));
    }
    let _ = writeln!(
        svg,
        "<polyline points=\"{left},{TOP} {left},{bottom} {right},{bottom}\" fill=\"none\" \
         stroke=\"black\"/>"
    );
}

fn draw(svg: &mut String, series: &Series, colour: &str, x: &Scale, y: &Scale) {
    // What has no place on the scale is left out.
    let places = series.points.iter().map(|&(px, py)| (x.at(px), y.at(py)));
    let places: Vec<(f64, f64)> =
        places.filter(|(px, py)| px.is_finite() && py.is_finite()).collect();
    let list: Vec<String> = places.iter().map(|(px, py)| format!("{px:.1},{py:.1}")).collect();
    let _ = writeln!(
        svg,
        "<polyline class=\"series\" points=\"{}\" fill=\"none\" stroke=\"{colour}\" \
         stroke-width=\"2\"/>",
        list.join(" ")
    );
    // Few points are measurements to be seen; many are a curve.
    if places.len() <= 24 {
        for (px, py) in places {
            let _ =
                writeln!(svg, "<circle cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
    }
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>");
}

/// A number with as many digits as it needs.
fn number(value: f64) -> String {
    let text = format!("{value:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text.is_empty() || text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, points: &[(f64, f64)]) -> Series {
        Series { name: name.to_owned(), points: points.to_vec() }
    }

    /// The coordinates of each series as the file has them.
    fn drawn(svg: &str) -> Vec<Vec<(f64, f64)>> {
        let document = roxmltree::Document::parse(svg).expect("well-formed XML");
        assert_eq!(document.root_element().tag_name().name(), "svg");
        let lines = document.descendants().filter(|n| n.attribute("class") == Some("series"));
        let point = |p: &str| -> (f64, f64) {
            let (x, y) = p.split_once(',').expect("two numbers");
            (x.parse().expect("x"), y.parse().expect("y"))
        };
        let points = |n: roxmltree::Node<'_, '_>| {
            n.attribute("points").unwrap_or("").split_whitespace().map(point).collect()
        };
        lines.map(points).collect()
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
        let (left, right, bottom) = (LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM);
        assert_eq!(drawn[0][0], (left, bottom));
        assert_eq!(drawn[0][1], ((left + right) / 2.0, (TOP + bottom) / 2.0));
        assert_eq!(drawn[0][2], (right, TOP));
        assert_eq!(drawn[1], [(left, TOP), (right, bottom)]);
        assert!(svg.contains("Speed &amp; &lt;size&gt;"));
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
        let bar = |name: &str, value: f64| Bar {
            name: name.to_owned(),
            value,
            range: (value * 0.5, value),
        };
        let bars = vec![bar("a < b", 50.0), bar("b", 100.0), bar("odd", f64::NAN)];
        let svg = Bars { title: "T".into(), bars }.svg();
        let document = roxmltree::Document::parse(&svg).expect("well-formed XML");
        let widths: Vec<f64> = document
            .descendants()
            .filter(|n| n.attribute("class") == Some("bar"))
            .map(|n| n.attribute("width").unwrap_or("").parse().expect("a number"))
            .collect();
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
    }
}

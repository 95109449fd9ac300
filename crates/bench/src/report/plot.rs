//! Bars in groups, drawn as SVG.
//!
//! How: one unit on the horizontal axis for each group; the bars of a group share the middle of
//! its unit, and a thin line on each shows its spread.

use anyhow::anyhow;
use plotters::prelude::*;

use super::Plot;

/// Pixels, before the page scales them.
const SIZE: (u32, u32) = (1100, 420);

/// What part of its unit a group fills.
const FILLED: f64 = 0.84;

/// Told apart also by people who do not see all colours (after Okabe and Ito).
const COLORS: [RGBColor; 8] = [
    RGBColor(128, 128, 128),
    RGBColor(0, 114, 178),
    RGBColor(86, 180, 233),
    RGBColor(0, 158, 115),
    RGBColor(230, 159, 0),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(240, 228, 66),
];

/// The plot as an `<svg>` element.
pub(super) fn svg(plot: &Plot) -> anyhow::Result<String> {
    let mut text = String::new();
    draw(plot, &mut text).map_err(|why| anyhow!("{}: {why}", plot.title))?;
    Ok(text)
}

fn draw(plot: &Plot, into: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(into, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let highs = plot.groups.iter().flat_map(|group| group.values.iter().flatten());
    let top = highs.map(|spread| spread.high).fold(0.0, f64::max).max(f64::MIN_POSITIVE) * 1.08;
    let mut chart = ChartBuilder::on(&area)
        .caption(&plot.title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..position(plot.groups.len()), 0.0..top)?;
    let name = |at: &f64| {
        let group = plot
            .groups
            .iter()
            .enumerate()
            .find(|(index, _)| (position(*index) + 0.5 - at).abs() < 0.01);
        group.map_or(String::new(), |(_, group)| group.name.clone())
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .y_desc(&plot.unit)
        .x_labels(2 * plot.groups.len() + 1)
        .x_label_formatter(&name)
        .draw()?;
    let width = FILLED / position(plot.series.len().max(1));
    for (at, series) in plot.series.iter().enumerate() {
        let color = COLORS[at % COLORS.len()];
        let bars = plot.groups.iter().enumerate().filter_map(|(index, group)| {
            let spread = group.values.get(at).copied().flatten()?;
            let left = position(index) + (1.0 - FILLED) / 2.0 + width * position(at);
            Some((left, spread))
        });
        let bars: Vec<_> = bars.collect();
        chart
            .draw_series(bars.iter().map(|(left, spread)| {
                Rectangle::new([(*left, 0.0), (left + width * 0.92, spread.median)], color.filled())
            }))?
            .label(series)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], color.filled()));
        chart.draw_series(bars.iter().map(|(left, spread)| {
            let middle = left + width * 0.46;
            PathElement::new(vec![(middle, spread.low), (middle, spread.high)], BLACK)
        }))?;
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).draw()?;
    area.present()?;
    Ok(())
}

/// Positions on an axis are counted in whole groups or bars, of which there are few.
fn position(index: usize) -> f64 {
    f64::from(u32::try_from(index).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spread;
    use crate::report::Group;

    #[test]
    fn every_bar_is_drawn_and_named() {
        let values = vec![Spread::of([1.0, 2.0]), None];
        let plot = Plot {
            title: "the title".into(),
            unit: "Mpps".into(),
            series: vec!["limit".into(), "ringway".into()],
            groups: vec![Group { name: "64 bytes".into(), values }],
        };
        let svg = svg(&plot).expect("drawn");
        for part in ["<svg", "the title", "Mpps", "limit", "ringway", "64 bytes"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
    }
}

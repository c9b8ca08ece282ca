//! The plot of losses and accuracies.

use std::error::Error as StdError;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use telegrad_cli::cannot_write;

use super::report::Epoch;
use crate::Error;

const SIZE: (u32, u32) = (900, 380);
const LOSS: RGBColor = RGBColor(31, 119, 180);
const ACCURACY: RGBColor = RGBColor(214, 100, 20);

/// Draws the epochs into an SVG file.
pub(super) fn write(path: &Path, epochs: &[Epoch], test_accuracy: f64) -> Result<(), Error> {
    let mut svg = String::new();
    draw(&mut svg, epochs, test_accuracy).map_err(|error| error.to_string())?;
    std::fs::write(path, svg).map_err(|error| cannot_write(path, &error))?;
    Ok(())
}

fn draw(into: &mut String, epochs: &[Epoch], test_accuracy: f64) -> Result<(), Box<dyn StdError>> {
    let root = SVGBackend::with_string(into, SIZE).into_drawing_area();
    root.fill(&WHITE).map_err(text)?;
    let (left, right) = root.split_horizontally(SIZE.0 / 2);
    let losses: Vec<f64> = epochs.iter().map(|epoch| epoch.loss).collect();
    let highest = losses.iter().copied().fold(0.0, f64::max).max(1e-3);
    panel(&left, "training loss", &losses, (0.0, highest * 1.05), LOSS)?;
    let accuracies: Vec<f64> = epochs.iter().map(|epoch| epoch.accuracy * 100.0).collect();
    let lowest = accuracies.iter().copied().fold(100.0, f64::min);
    let title = format!("training accuracy, % (test: {:.2})", test_accuracy * 100.0);
    panel(
        &right,
        &title,
        &accuracies,
        ((lowest - 2.0).max(0.0), 100.5),
        ACCURACY,
    )?;
    root.present().map_err(text)
}

fn panel(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    title: &str,
    values: &[f64],
    (low, high): (f64, f64),
    colour: RGBColor,
) -> Result<(), Box<dyn StdError>> {
    let last = values.len().max(2) as f64;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 17))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(48)
        .build_cartesian_2d(1.0..last, low..high)
        .map_err(text)?;
    chart
        .configure_mesh()
        .x_desc("epoch")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .light_line_style(WHITE.mix(0.0))
        .draw()
        .map_err(text)?;
    let points: Vec<(f64, f64)> = values
        .iter()
        .enumerate()
        .map(|(nth, value)| (nth as f64 + 1.0, *value))
        .collect();
    chart
        .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))
        .map_err(text)?;
    chart
        .draw_series(points.iter().map(|point| Circle::new(*point, 2, colour.filled())))
        .map_err(text)?;
    Ok(())
}

/// Errors of plotters borrow the drawing area.
fn text(error: impl StdError) -> Box<dyn StdError> {
    error.to_string().into()
}

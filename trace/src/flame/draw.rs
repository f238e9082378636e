//! Profiles as flame graphs in SVG.

mod palette;

use std::io;

use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
use inferno::flamegraph::{Options, TextTruncateDirection, from_lines};

pub use self::palette::{PalettePart, legend};
use super::fold;
use super::profile::StackProfile;
use super::result::FlameSelection;
use crate::TraceError;

// Functions narrower than this percentage of the width are left out, so that files stay small.
const NARROWEST: f64 = 0.1;

// User-space functions drawn per stack, because recursion would make the picture very high.
pub(super) const USER: usize = 16;

// Width in a page, and of a file before its script runs.
const WIDTH: usize = 1200;

/// Height of the legend below the graph, in pixels.
const LEGEND: usize = 28;

#[derive(Debug, Clone, Default)]
pub struct DrawOptions {
    pub title: String,
    pub subtitle: Option<String>,
    pub shown: FlameSelection,
    /// Whether it is a file of its own, with a script that zooms and searches. Otherwise an element
    /// for a page, without script and file header.
    pub interactive: bool,
}

/// The flame graph of a profile: width is time, colours are [parts](legend) of the packet path.
/// Deterministic. `None` if the selection has no samples.
pub fn svg(profile: &StackProfile, drawing: &DrawOptions) -> Result<Option<String>, TraceError> {
    let lines: Vec<String> = fold::lines(profile, drawing.shown, USER)
        .into_iter()
        .map(|(stack, samples)| format!("{stack} {samples}"))
        .collect();
    if lines.is_empty() {
        return Ok(None);
    }
    let mut colours = colours(profile, drawing.shown);
    let mut options = options(drawing);
    options.palette_map = Some(&mut colours);
    let graph = draw(&mut options, &lines)?;
    Ok(Some(finish(&graph, drawing, legend().map(|part| (part.name, part.colour)))))
}

pub(super) fn options(drawing: &DrawOptions) -> Options<'static> {
    let mut options = Options::default();
    options.title.clone_from(&drawing.title);
    options.subtitle.clone_from(&drawing.subtitle);
    options.deterministic = true;
    options.bgcolors = Some(BackgroundColor::Flat(Color { r: 255, g: 255, b: 255 }));
    options.min_width = NARROWEST;
    options.text_truncate_direction = TextTruncateDirection::Right;
    options.no_javascript = !drawing.interactive;
    options.image_width = (!drawing.interactive).then_some(WIDTH);
    options
}

pub(super) fn draw(options: &mut Options<'_>, lines: &[String]) -> Result<String, TraceError> {
    let failed = |source| TraceError::Kernel { what: "drawing a flame graph", source };
    let mut svg = Vec::new();
    from_lines(options, lines.iter().map(String::as_str), &mut svg).map_err(failed)?;
    String::from_utf8(svg).map_err(|error| failed(io::Error::other(error)))
}

/// The colour of each name in the graph. Roots are threads, contexts or CPUs, and are not
/// functions.
fn colours(profile: &StackProfile, shown: FlameSelection) -> PaletteMap {
    let mut colours = PaletteMap::default();
    let grey = Color { r: 200, g: 200, b: 204 };
    for (stack, _) in fold::lines(profile, shown, USER) {
        for root in stack.split(';').take(1 + usize::from(shown.per_cpu)) {
            colours.insert(root, grey);
        }
    }
    colours.insert("", grey);
    colours.insert(fold::LEFT_OUT, grey);
    for frame in &profile.frames {
        colours.insert(fold::label(frame), palette::colour(frame));
    }
    colours
}

/// Adds the legend; for a page, removes the file header.
pub(super) fn finish<'n>(
    svg: &str,
    drawing: &DrawOptions,
    entries: impl Iterator<Item = (&'n str, (u8, u8, u8))>,
) -> String {
    let svg = with_legend(svg, entries);
    if drawing.interactive {
        return svg;
    }
    let svg = svg.find("<svg").map_or(svg.as_str(), |begin| &svg[begin..]);
    let svg = remove_part(svg, "<script", "</script>");
    let svg = remove_part(&svg, "<text id=\"search\"", "</text>");
    svg.replacen(" onload=\"init(evt)\"", "", 1)
}

fn remove_part(text: &str, begin: &str, end: &str) -> String {
    let range = text.find(begin).and_then(|from| Some((from, from + text[from..].find(end)? + end.len())));
    range.map_or_else(|| text.to_owned(), |(from, to)| format!("{}{}", &text[..from], &text[to..]))
}

fn with_legend<'n>(svg: &str, entries: impl Iterator<Item = (&'n str, (u8, u8, u8))>) -> String {
    let parts = svg.split_once("xmlns=").and_then(|(head, body)| {
        Some((head, body.trim_end().strip_suffix("</svg>")?, attribute(head, "height")?))
    });
    let Some((head, body, height)) = parts else { return svg.to_owned() };
    let total_height = height + LEGEND;
    let head = head
        .replacen(&format!("height=\"{height}\""), &format!("height=\"{total_height}\""), 1)
        .replacen(&format!(" {height}\""), &format!(" {total_height}\""), 1);
    let mut text = format!(
        "{head}xmlns={body}<g id=\"legend\">\
         <rect x=\"0\" y=\"{height}\" width=\"100%\" height=\"{LEGEND}\" fill=\"rgb(255,255,255)\"/>"
    );
    let (mut x, y) = (10, height + 4);
    for (name, (r, g, b)) in entries {
        text.push_str(&format!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\" fill=\"rgb({r},{g},{b})\" stroke=\"rgb(150,150,150)\"/>\
             <text x=\"{}\" y=\"{}\" style=\"font-size:10px\" fill=\"rgb(0,0,0)\">{name}</text>",
            x + 16,
            y + 10
        ));
        // A letter of the graph's font is six pixels wide at this size.
        x += 16 + name.len() * 6 + 14;
    }
    text.push_str("</g></svg>");
    text
}

fn attribute(element: &str, name: &str) -> Option<usize> {
    let (_, after) = element.split_once(&format!(" {name}=\""))?;
    after.split_once('"')?.0.parse().ok()
}

#[cfg(test)]
pub(super) mod tests;

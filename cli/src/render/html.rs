//! Documents as HTML: one self-contained page without a script, or a part of a page of several results.

mod graph;

use anyhow::{Context, Result};
use askama::Template;

use super::page::{ResultPosition, single_result_page, unbroken};
use crate::document::{
    Align, Audience, Block, Cell, Document, LineChart, MarkShape, Picture, RangeLayout, Section, SegmentFill,
    StackedBar, Table, Tone,
};

/// Tables with more columns are printed in landscape.
const MOST_COLUMNS_UPRIGHT: usize = 8;

#[derive(Template)]
#[template(path = "document.html")]
struct DocumentBody<'a> {
    place: &'a ResultPosition,
    document: &'a Document,
    /// Sections next to each other.
    groups: Vec<Vec<Card<'a>>>,
}

/// A section.
struct Card<'a> {
    heading: &'a str,
    id: Option<String>,
    /// The colour of its border, and the words.
    mark: Option<(&'static str, &'a str)>,
    identifier: Option<&'a str>,
    is_wide: bool,
    blocks: Vec<&'a Block>,
}

#[derive(Template)]
#[template(path = "block.html")]
struct BlockBody<'a> {
    block: &'a Block,
    place: &'a ResultPosition,
    heading: &'a str,
}

pub(crate) fn page(document: &Document) -> Result<String> {
    single_result_page(document, &part(document, &ResultPosition::standalone())?)
}

/// The result as a part of a page of several results.
pub(crate) fn part(document: &Document, position: &ResultPosition) -> Result<String> {
    let mut groups: Vec<Vec<Card<'_>>> = Vec::new();
    let mut is_row_open = false;
    for section in &document.sections {
        let Some(card) = card(section, position) else { continue };
        match groups.last_mut().filter(|_| is_row_open && section.half_width) {
            Some(group) => group.push(card),
            None => groups.push(vec![card]),
        }
        is_row_open = section.half_width;
    }
    DocumentBody { place: position, document, groups }.render().context("the page cannot be formatted")
}

fn card<'a>(section: &'a Section, position: &ResultPosition) -> Option<Card<'a>> {
    let blocks: Vec<&Block> = section.blocks_for(Audience::Page).collect();
    let is_wide = blocks.iter().any(|block| match block {
        Block::Table(table) => columns(table).len() > MOST_COLUMNS_UPRIGHT,
        _ => false,
    });
    (!blocks.is_empty()).then(|| Card {
        heading: &section.heading,
        id: section.anchor.as_ref().map(|anchor| position.id(anchor)),
        mark: section.mark.as_ref().map(|mark| (tone_class(&mark.tone), mark.words.as_str())),
        identifier: section.identifier.as_deref(),
        is_wide,
        blocks,
    })
}

fn block(block: &Block, position: &ResultPosition, heading: &str) -> askama::Result<String> {
    BlockBody { block, place: position, heading }.render()
}

// Askama calls functions of the template's module with `self::`.
use super::chart::draw as drawn_ranges;
use super::curve::draw as drawn_lines;
use block as nested;

/// Class of page.css.
fn tone_class(tone: &Tone) -> &'static str {
    match tone {
        Tone::Plain => "",
        Tone::Strong => "strong",
        Tone::Good => "good",
        Tone::Bad => "bad",
        Tone::Warn => "warn",
        Tone::Faint => "muted",
    }
}

/// Class of figures.css.
fn fill_class(fill: &SegmentFill) -> &'static str {
    match fill {
        SegmentFill::Receive => "rx",
        SegmentFill::Transmit => "tx",
        SegmentFill::Interrupt => "irq",
        SegmentFill::Other => "other",
        SegmentFill::Tasks => "tasks",
        SegmentFill::Idle => "idle",
        SegmentFill::Passed => "passed",
        SegmentFill::Lost => "lost",
        SegmentFill::Waiting => "waits",
    }
}

fn badge_class(tone: &Tone) -> &'static str {
    match tone {
        Tone::Good => "better",
        Tone::Bad => "worse",
        _ => "same",
    }
}

/// Class of figures.css.
fn shape_class(shape: &MarkShape) -> &'static str {
    match shape {
        MarkShape::Dot => "dot",
        MarkShape::Ring => "ring",
        MarkShape::Bar => "bar",
    }
}

fn layout_class(layout: &RangeLayout) -> &'static str {
    match layout {
        RangeLayout::Comparison => "climb",
        RangeLayout::Figures => "figures",
        RangeLayout::Published => "published",
    }
}

/// A column of a page's table.
struct PageColumn<'a> {
    index: usize,
    heading: &'a str,
    /// Whether its cells are words, which are set to the left.
    is_words: bool,
    /// Whether its cells name their rows.
    names_row: bool,
}

fn columns(table: &Table) -> Vec<PageColumn<'_>> {
    let columns = table.columns.iter().enumerate().filter(|(index, _)| table.shows(*index, Audience::Page));
    columns
        .map(|(index, column)| {
            let names_row = index == 0 && !table.listing;
            let is_words = column.align == Align::Left && !names_row;
            PageColumn { index, heading: column.heading, is_words, names_row }
        })
        .collect()
}

fn cells<'a>(table: &'a Table, row: &'a [Cell]) -> Vec<(PageColumn<'a>, &'a Cell)> {
    let cells = columns(table).into_iter().map(|column| (row.get(column.index), column));
    cells.filter_map(|(cell, column)| Some((column, cell?))).collect()
}

/// Class, left end and width of each segment; the whole bar is 1000 wide.
fn rectangles(bar: &StackedBar) -> Vec<(&'static str, String, String)> {
    let mut x = 0.0;
    let segments = bar.segments.iter().map(|segment| {
        let rectangle =
            (fill_class(&segment.fill), format!("{:.1}", x * 1e3), format!("{:.1}", segment.share * 1e3));
        x += segment.share;
        rectangle
    });
    segments.collect()
}

fn tick(bar: &StackedBar) -> Option<String> {
    bar.tick.map(|share| format!("{:.1}", share.clamp(0.0, 1.0) * 1e3))
}

// The drawing. Ids and style rules of a flame graph get a prefix, because a page can have several
// graphs.
fn placed(picture: &Picture, position: &ResultPosition) -> String {
    if picture.class == "graph" { graph::rename_ids(&picture.svg, position) } else { picture.svg.clone() }
}

// The accessible name of a chart, for screen readers.
fn lines_name<'a>(chart: &'a LineChart, heading: &'a str) -> &'a str {
    if chart.title.is_empty() { heading } else { &chart.title }
}

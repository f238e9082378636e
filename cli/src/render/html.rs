//! Documents as HTML: one self-contained page without a script, or a part of a page of several results.

mod graph;

use anyhow::Result;
use askama::Template;

use super::chart::{self, RangeChart as DrawnRanges};
use super::curve::{self, CurveChart};
use super::page::{PageHead, PageResult, ResultPosition, single_result_page, time, unbroken};
use super::{format, page};
use crate::document::{
    Align, Audience, Block, Cell, Document, LineChart, MarkShape, Picture, RangeChart, RangeLayout, Section,
    SegmentFill, StackedBar, Table, Tone,
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
    /// The colour of its border, if it has a mark.
    tone: Option<&'static str>,
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
    single_result_page(|position| part(document, position))
}

/// The result as a part of a page of several results.
pub(crate) fn part(document: &Document, position: &ResultPosition) -> Result<PageResult> {
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
    page::part(head(document), &DocumentBody { place: position, document, groups })
}

fn head(document: &Document) -> PageHead {
    let origin = &document.origin;
    PageHead {
        schema: origin.schema.clone(),
        version: origin.version.clone(),
        title: document.title,
        verdict: document.verdict.clone(),
        mark: document.mark.clone(),
        host: page::host(&origin.host),
        time: time(origin.started_unix_seconds),
        unix_seconds: origin.started_unix_seconds,
        about: document.about.clone(),
        command: match origin.argv.as_slice() {
            [] => page::NOT_RECORDED.to_owned(),
            argv => format::command_line(argv),
        },
    }
}

fn card<'a>(section: &'a Section, position: &ResultPosition) -> Option<Card<'a>> {
    let blocks: Vec<&Block> = section.blocks_for(Audience::Page).collect();
    let is_wide = blocks.iter().any(|block| match block {
        Block::Table(table) => columns(table).len() > MOST_COLUMNS_UPRIGHT,
        _ => false,
    });
    let tone = section.mark.as_ref().map(|mark| tone_class(&mark.tone));
    (!blocks.is_empty()).then(|| Card {
        heading: &section.heading,
        id: section.anchor.as_ref().map(|anchor| position.id(anchor)),
        tone,
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

fn shape_class(shape: &MarkShape) -> &'static str {
    chart::shape_class(*shape)
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

fn drawn_ranges(chart: &RangeChart) -> DrawnRanges<'_> {
    chart::draw(chart)
}

fn drawn_lines(chart: &LineChart) -> CurveChart {
    curve::draw(chart)
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

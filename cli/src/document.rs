//! A result as people read it, independent of the output. `render::text` and `render::html` print
//! any document.

mod chart;
mod table;

pub(crate) use chart::{
    Badge, BarChart, BarSegment, ChartScale, LineAxis, LineChart, LineSeries, LineStyle, MarkShape,
    RangeChart, RangeLayout, RangeMark, RangeRow, SegmentFill, StackedBar,
};
pub(crate) use table::{Align, Cell, Table};

use crate::origin::{Origin, Warning};

/// The meaning of a piece of text, which determines its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Tone {
    #[default]
    Plain,
    // A heading, or the figure that matters most.
    Strong,
    Good,
    /// A deterioration, an error or a finding of high severity.
    Bad,
    Warn,
    /// Context that may be skipped.
    Faint,
}

/// The outputs that print a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Audience {
    #[default]
    Both,
    /// The terminal, which has less room.
    Text,
    /// The terminal without `--full`.
    ShortText,
    /// The terminal with `--full`.
    FullText,
    /// The HTML page.
    Page,
    /// The HTML page, and the terminal with `--full`.
    Full,
}

/// A result: a verdict, then sections.
#[derive(Debug, Clone, Default)]
pub(crate) struct Document {
    /// The kind of result: `Cost of packets`.
    pub(crate) title: &'static str,
    /// The result in one or two sentences.
    pub(crate) verdict: String,
    // The verdict in a word or two; `None` if a result is neither good nor bad. Text prints the verdict in its colour.
    pub(crate) mark: Option<Mark>,
    pub(crate) origin: Origin,
    /// The subject and the duration of the measurement; may be empty. HTML only.
    pub(crate) about: String,
    // The most important figures. HTML only: the text has them in its verdict and tables.
    pub(crate) tiles: Vec<Tile>,
    /// HTML prints notes above the sections; text prints alarms there and other notes last, after
    /// `note:`.
    pub(crate) notes: Vec<Note>,
    /// Whether text has all rows of tables and all lines of facts (`--full`).
    pub(crate) full: bool,
    pub(crate) sections: Vec<Section>,
}

/// A word or two with a colour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) tone: Tone,
    pub(crate) words: String,
}

/// A figure in large print.
#[derive(Debug, Clone)]
pub(crate) struct Tile {
    pub(crate) figure: String,
    pub(crate) unit: &'static str,
    pub(crate) label: String,
    pub(crate) tone: Tone,
}

// A note that a reader needs to judge the figures.
#[derive(Debug, Clone)]
pub(crate) struct Note {
    /// Bold words before the text; may be empty.
    pub(crate) lead: &'static str,
    pub(crate) text: String,
    /// `Bad` is an alarm.
    pub(crate) tone: Tone,
}

/// Blocks below a heading. A section without blocks for an audience is left out there.
#[derive(Debug, Clone, Default)]
pub(crate) struct Section {
    /// May be empty: its blocks then follow the section before.
    pub(crate) heading: String,
    // Part of its anchor in a page (`finding-1`); `None` for none.
    pub(crate) anchor: Option<String>,
    /// Before the heading: the severity of a finding, with its colour.
    pub(crate) mark: Option<Mark>,
    /// An identifier next to the mark: `rss.queues`.
    pub(crate) identifier: Option<String>,
    pub(crate) audience: Audience,
    /// Whether a wide page puts the section next to another one of half width.
    pub(crate) half_width: bool,
    pub(crate) blocks: Vec<(Audience, Block)>,
}

/// A piece of a section.
#[derive(Debug, Clone)]
pub(crate) enum Block {
    Paragraph(Tone, String),
    /// A heading below that of the section.
    Heading(String),
    List(Vec<String>),
    Table(Table),
    Facts(Vec<Fact>),
    Bars(BarChart),
    Ranges(RangeChart),
    Lines(LineChart),
    /// Commands to copy, one per line.
    Commands(Vec<String>),
    /// Blocks that a page hides until a reader opens them.
    Details {
        summary: String,
        anchor: Option<String>,
        blocks: Vec<Block>,
    },
    Picture(Picture),
    /// Paths of several stations each. Text only: pages have a picture.
    Flows(Vec<FlowGroup>),
}

/// Paths in one place.
#[derive(Debug, Clone, Default)]
pub(crate) struct FlowGroup {
    pub(crate) heading: String,
    /// The stations of each path in order.
    pub(crate) rows: Vec<Vec<String>>,
    /// Text for a group without rows; may be empty.
    pub(crate) empty: &'static str,
}

/// A name and its value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fact {
    pub(crate) name: String,
    pub(crate) value: String,
    /// Context after the value; may be empty.
    pub(crate) detail: String,
    /// Commands below the value.
    pub(crate) commands: Vec<String>,
    /// Text prints as many sentences as fit into this number of lines.
    pub(crate) text_lines: Option<usize>,
}

/// A drawing, for pages only.
#[derive(Debug, Clone)]
pub(crate) struct Picture {
    /// An `svg` element. It is not escaped: its author escapes texts in it.
    pub(crate) svg: String,
    /// Text alternative for readers who cannot see the drawing.
    pub(crate) alternative: String,
    /// Class of the element around it: `graph` for a light ground; may be empty.
    pub(crate) class: &'static str,
}

impl Document {
    /// A document with a verdict; the warnings of the result are its notes.
    pub(crate) fn new(
        title: &'static str,
        verdict: impl Into<String>,
        origin: Origin,
        warnings: &[Warning],
    ) -> Self {
        let notes = warnings.iter().map(|warning| Note::new(&warning.detail)).collect();
        Self { title, verdict: verdict.into(), origin, notes, ..Self::default() }
    }
}

impl Document {
    /// Whether a section draws the packet path.
    pub(crate) fn has_path(&self) -> bool {
        self.sections.iter().any(Section::has_path)
    }

    /// The sections that draw the packet path.
    pub(crate) fn path_only(&self) -> Self {
        let sections = self.sections.iter().filter(|section| section.has_path()).cloned().collect();
        Self { sections, origin: self.origin.clone(), ..Self::default() }
    }

    /// The document without the sections that [`Document::path_only`] has.
    pub(crate) fn without_path(&self) -> Self {
        let sections = self.sections.iter().filter(|section| !section.has_path()).cloned().collect();
        Self { sections, ..self.clone() }
    }
}

impl Mark {
    pub(crate) fn new(tone: Tone, words: impl Into<String>) -> Self {
        Self { tone, words: words.into() }
    }
}

impl Tile {
    pub(crate) fn new(figure: impl Into<String>, unit: &'static str, label: impl Into<String>) -> Self {
        Self { figure: figure.into(), unit, label: label.into(), tone: Tone::Plain }
    }

    pub(crate) fn with_tone(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }
}

impl Note {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { lead: "", text: text.into(), tone: Tone::Plain }
    }

    pub(crate) fn alarm(lead: &'static str, text: impl Into<String>) -> Self {
        Self { lead, text: text.into(), tone: Tone::Bad }
    }
}

impl Section {
    pub(crate) fn new(heading: impl Into<String>) -> Self {
        Self { heading: heading.into(), ..Self::default() }
    }

    /// A section for one audience only.
    pub(crate) fn only_for(self, audience: Audience) -> Self {
        Self { audience, ..self }
    }

    pub(crate) fn with(self, block: impl Into<Block>) -> Self {
        self.with_for(Audience::Both, block)
    }

    /// Adds a block for one audience only.
    pub(crate) fn with_for(mut self, audience: Audience, block: impl Into<Block>) -> Self {
        self.blocks.push((audience, block.into()));
        self
    }

    /// Whether the section draws the packet path. Flame graphs differ by their class.
    fn has_path(&self) -> bool {
        self.blocks
            .iter()
            .any(|(_, block)| matches!(block, Block::Picture(picture) if picture.class.is_empty()))
    }

    pub(crate) fn blocks_for(&self, audience: Audience) -> impl Iterator<Item = &Block> {
        let is_visible = self.audience.includes(audience);
        let blocks = self
            .blocks
            .iter()
            .filter(move |(block_audience, _)| is_visible && block_audience.includes(audience));
        blocks.map(|(_, block)| block).filter(|block| !block.is_empty())
    }
}

impl Audience {
    fn includes(self, audience: Self) -> bool {
        match self {
            Self::Both => true,
            Self::Text => matches!(audience, Self::Text | Self::ShortText | Self::FullText),
            Self::Full => matches!(audience, Self::Page | Self::FullText),
            Self::ShortText | Self::FullText | Self::Page => self == audience,
        }
    }
}

impl Block {
    pub(crate) fn faint(text: impl Into<String>) -> Self {
        Self::Paragraph(Tone::Faint, text.into())
    }

    /// Whether there is nothing to print.
    fn is_empty(&self) -> bool {
        match self {
            Self::Paragraph(_, text) | Self::Heading(text) => text.is_empty(),
            Self::List(items) => items.is_empty(),
            Self::Table(table) => table.rows.is_empty(),
            Self::Facts(facts) => facts.is_empty(),
            Self::Bars(chart) => chart.bars.is_empty(),
            Self::Ranges(chart) => chart.rows.is_empty(),
            Self::Lines(chart) => chart.series.is_empty(),
            Self::Commands(commands) => commands.is_empty(),
            Self::Details { blocks, .. } => blocks.iter().all(Self::is_empty),
            Self::Picture(_) => false,
            Self::Flows(groups) => groups.is_empty(),
        }
    }
}

impl Fact {
    pub(crate) fn new(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), value: value.into(), ..Self::default() }
    }
}

impl From<String> for Block {
    fn from(text: String) -> Self {
        Self::Paragraph(Tone::Plain, text)
    }
}

impl From<&str> for Block {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// `From` for the blocks that are a type of their own.
macro_rules! into_block {
    ($($type:ty => $variant:ident),+ $(,)?) => {
        $(impl From<$type> for Block {
            fn from(content: $type) -> Self {
                Self::$variant(content)
            }
        })+
    };
}

into_block!(
    Table => Table,
    Vec<Fact> => Facts,
    BarChart => Bars,
    RangeChart => Ranges,
    LineChart => Lines,
    Picture => Picture,
);

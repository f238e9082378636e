//! Tables of a document.

use super::{Audience, Tone};

// Rows of cells below headings. The first cell of a row names it, unless the table is a listing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<Cell>>,
    /// Text prints this many rows, then "and N" and these words; pages print all rows.
    pub(crate) text_limit: Option<(usize, &'static str)>,
    /// Below the table; may be empty.
    pub(crate) caption: String,
    /// Whether no column names the row, and cells are texts.
    pub(crate) listing: bool,
    // Whether text breaks a long last cell into lines instead of cutting it.
    pub(crate) wraps: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) heading: &'static str,
    pub(crate) align: Align,
    pub(crate) audience: Audience,
    /// Text cuts longer cells after this number of characters.
    pub(crate) text_width: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Align {
    #[default]
    Left,
    /// Numbers.
    Right,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) tone: Tone,
}

impl Table {
    /// A table with columns such as `name | >packets`, separated by ` | `. The heading of a column
    /// of numbers begins with `>`.
    pub(crate) fn new(headings: &'static str) -> Self {
        Self::with_columns(headings.split(" | "))
    }

    /// A table with one column per heading; `>` has the same meaning as in [`Table::new`].
    pub(crate) fn with_columns(headings: impl IntoIterator<Item = &'static str>) -> Self {
        Self { columns: headings.into_iter().map(Column::new).collect(), ..Self::default() }
    }

    pub(crate) fn row<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) {
        let row: Vec<Cell> = cells.into_iter().map(Into::into).collect();
        debug_assert!(row.len() <= self.columns.len(), "more cells than columns: {row:?}");
        self.rows.push(row);
    }

    pub(crate) fn with_rows<C: Into<Cell>, R: IntoIterator<Item = C>>(
        mut self,
        rows: impl IntoIterator<Item = R>,
    ) -> Self {
        rows.into_iter().for_each(|row| self.row(row));
        self
    }

    // Text prints at most `rows` rows, then "and N" and `words`.
    pub(crate) fn with_text_limit(self, rows: usize, words: &'static str) -> Self {
        Self { text_limit: Some((rows, words)), ..self }
    }

    pub(crate) fn with_caption(self, caption: impl Into<String>) -> Self {
        Self { caption: caption.into(), ..self }
    }

    /// Whether `audience` sees the column with this index.
    pub(crate) fn shows(&self, column: usize, audience: Audience) -> bool {
        self.columns.get(column).is_none_or(|column| column.audience.includes(audience))
    }

    // Text breaks a long last cell into lines instead of cutting it.
    pub(crate) fn wrapping(self) -> Self {
        Self { wraps: true, ..self }
    }

    pub(crate) fn has_headings(&self) -> bool {
        self.columns.iter().any(|column| !column.heading.is_empty())
    }

    /// A table whose rows no column names.
    pub(crate) fn into_listing(self) -> Self {
        Self { listing: true, ..self }
    }

    /// Restricts the columns with these headings to one audience.
    pub(crate) fn only_for(mut self, audience: Audience, headings: &[&str]) -> Self {
        for column in self.columns.iter_mut().filter(|column| headings.contains(&column.heading)) {
            column.audience = audience;
        }
        self
    }

    /// Text cuts cells of this column after `characters`.
    pub(crate) fn with_text_width(mut self, heading: &str, characters: usize) -> Self {
        for column in self.columns.iter_mut().filter(|column| column.heading == heading) {
            column.text_width = Some(characters);
        }
        self
    }
}

impl Column {
    fn new(heading: &'static str) -> Self {
        let (heading, align) = match heading.strip_prefix('>') {
            Some(heading) => (heading, Align::Right),
            None => (heading, Align::Left),
        };
        Self { heading, align, audience: Audience::Both, text_width: None }
    }
}

impl Cell {
    pub(crate) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, tone: Tone::Plain }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

//! Cells in aligned columns.

use super::column::cut;
use super::style::{TextStyle, TextTone};

// Rows of cells. Each column is as wide as its widest cell. The last cell of a line that is too
// long is cut.
pub(crate) struct TextTable {
    heads: Vec<&'static str>,
    /// Columns of numbers, which are aligned to the right.
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// A table with these heads. A column of numbers has a head that begins with `>`.
    pub(crate) fn new(headings: &[&'static str]) -> Self {
        let without_marker = |heading: &&'static str| heading.strip_prefix('>').unwrap_or(heading);
        Self {
            heads: headings.iter().map(without_marker).collect(),
            right: headings.iter().map(|heading| heading.starts_with('>')).collect(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    // The first `max_rows` rows as lines, indented by `indent` blanks.
    pub(crate) fn lines(&self, indent: usize, max_rows: usize, style: TextStyle) -> Vec<String> {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            let heading = self.heads.get(column).map_or(0, |header_line| header_line.chars().count());
            cells.max().unwrap_or(0).max(heading)
        };
        let widths: Vec<usize> = (0..self.heads.len()).map(width).collect();
        let heads: Vec<String> = self.heads.iter().map(ToString::to_string).collect();
        let head = style.paint(TextTone::Faint, &self.line(&heads, &widths, indent, style));
        let rows = self.rows.iter().take(max_rows).map(|row| self.line(row, &widths, indent, style));
        std::iter::once(head).chain(rows).collect()
    }

    fn line(&self, cells: &[String], widths: &[usize], indent: usize, style: TextStyle) -> String {
        let mut line = " ".repeat(indent);
        for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
            if column > 0 {
                line.push_str("  ");
            }
            if self.right.get(column) == Some(&true) {
                line.push_str(&format!("{cell:>width$}"));
            } else if column + 1 == widths.len() {
                let cell_width = style.width.saturating_sub(line.chars().count()).max(12);
                line.push_str(&cut(cell, cell_width));
            } else {
                line.push_str(&format!("{cell:<width$}"));
            }
        }
        line.trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fit_their_content_and_long_lines_are_cut() {
        let mut table = TextTable::new(&[">#", "name", "what"]);
        table.row(vec!["1".into(), "nsd".into(), "reads".into()]);
        table.row(vec!["10".into(), "n".into(), "a text that is too long for the line".into()]);
        let style = TextStyle { width: 30, colour: false };
        let expected = ["    #  name  what", "    1  nsd   reads", "   10  n     a text that is t…"];
        assert_eq!(table.lines(3, 9, style), expected);
        assert_eq!(table.lines(3, 1, style).len(), 2);
    }
}

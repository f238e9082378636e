//! Curves in letters.

const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The last figures as a line of this many columns, the latest at the right. The greatest of them
/// has full height, zeros are at the bottom, and an unknown value is a gap.
pub(crate) fn spark(figures: &[Option<f64>], width: usize) -> String {
    multi_line_spark(figures, width, 1).pop().unwrap_or_default()
}

/// The same curve over several lines, the upper line first.
pub(crate) fn multi_line_spark(figures: &[Option<f64>], width: usize, lines: usize) -> Vec<String> {
    let visible = figures.get(figures.len().saturating_sub(width)..).unwrap_or_default();
    let maximum = visible.iter().flatten().copied().filter(|figure| figure.is_finite()).fold(0.0, f64::max);
    let eighths: Vec<Option<usize>> = visible.iter().map(|figure| height(*figure, maximum, lines)).collect();
    let blanks = " ".repeat(width.saturating_sub(visible.len()));
    let line = |line: usize| {
        let covered = (lines - 1 - line) * HEIGHTS.len();
        let character = |height: &Option<usize>| match height.map(|height| height.saturating_sub(covered)) {
            None | Some(0) => ' ',
            Some(height) => HEIGHTS.get(height.min(HEIGHTS.len()) - 1).copied().unwrap_or(' '),
        };
        format!("{blanks}{}", eighths.iter().map(character).collect::<String>())
    };
    (0..lines).map(line).collect()
}

// In eighths of a line. Known values get at least one, so that they differ from a gap.
fn height(figure: Option<f64>, maximum: f64, lines: usize) -> Option<usize> {
    let figure = figure.filter(|figure| figure.is_finite())?;
    if maximum <= 0.0 {
        return Some(1);
    }
    let max_eighths = lines * HEIGHTS.len();
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a few lines"
    )]
    let eighths = (figure.max(0.0) / maximum * max_eighths as f64).ceil() as usize;
    Some(eighths.clamp(1, max_eighths))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparklines_end_with_the_latest_value_and_leave_gaps_blank() {
        let figures = [Some(9.0), Some(0.0), Some(4.0), None, Some(8.0)];
        assert_eq!(spark(&figures, 4), "▁▄ █");
        assert_eq!(spark(&figures, 6), " █▁▄ █");
        assert_eq!(spark(&[Some(0.0), Some(0.0)], 3), " ▁▁");
        assert_eq!(spark(&[], 3), "   ");
        assert_eq!(multi_line_spark(&[Some(1.0), Some(2.0)], 2, 2), [" █", "██"]);
    }
}

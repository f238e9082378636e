//! Splits a block into commands that run one after the other.

/// A command of a block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ShellCommand {
    /// The text for a shell.
    pub text: String,
    /// Whether it runs in the background, next to later commands.
    pub background: bool,
}

/// The commands of a block. A backslash at the end of a line continues it, and a here-document
/// belongs to its command.
pub(crate) fn lines(block: &str) -> Vec<ShellCommand> {
    let mut commands = Vec::new();
    let mut rest = block.lines();
    while let Some(line) = rest.next() {
        let mut text = line.strip_prefix("$ ").unwrap_or(line).to_owned();
        while text.ends_with('\\') {
            let Some(next) = rest.next() else { break };
            text.push('\n');
            text.push_str(next);
        }
        if let Some((_, word)) = text.split_once("<<") {
            let end: String = word.trim_matches(['-', '\'', '"', ' ']).to_owned();
            for next in rest.by_ref() {
                text.push('\n');
                text.push_str(next);
                if next.trim() == end {
                    break;
                }
            }
            text.push('\n');
        }
        if text.trim().is_empty() || text.trim_start().starts_with('#') {
            continue;
        }
        let command = text.trim_end();
        let foreground = command.strip_suffix('&').filter(|rest| !rest.ends_with('&'));
        commands.push(match foreground {
            Some(foreground) => ShellCommand { text: foreground.trim_end().to_owned(), background: true },
            None => ShellCommand { text, background: false },
        });
    }
    commands
}

#[test]
fn lines_joins_continuations_and_marks_background_commands() {
    let block = "# what\n$ one \\\n  more   # why\n\ntwo &\nthree && four\ncat > a <<'END'\nx\nEND\nfive\n";
    let line = |text: &str, background| ShellCommand { text: text.to_owned(), background };
    assert_eq!(
        lines(block),
        [
            line("one \\\n  more   # why", false),
            line("two", true),
            line("three && four", false),
            line("cat > a <<'END'\nx\nEND\n", false),
            line("five", false),
        ]
    );
}

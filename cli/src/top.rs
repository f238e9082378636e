//! The display of `linerate top`: panels from a snapshot, fitted into a width, drawn on a screen or printed as text.

mod fit;
pub(crate) mod panel;
mod rows;
#[cfg(test)]
mod sample;
pub(crate) mod screen;
mod spark;
pub(crate) mod state;
pub(crate) mod text;

use linerate_host::live::Snapshot;
use linerate_host::live::snapshot::ServiceSnapshot;

/// The service that has the socket with this inode.
pub(crate) fn service_of_socket(snapshot: &Snapshot, inode: u64) -> Option<&ServiceSnapshot> {
    let mut services = snapshot.services.value().into_iter().flatten();
    services.find(|service| service.sockets.iter().any(|socket| socket.inode == inode))
}

/// Whether the locale or the terminal supports only ASCII.
pub(crate) fn is_ascii_only() -> bool {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(variable);
    matches!(locale.as_deref(), Some("C" | "POSIX")) || variable("TERM").as_deref() == Some("dumb")
}

/// The text with the nearest ASCII characters.
pub(crate) fn to_ascii(text: &str) -> String {
    text.chars().map(ascii).collect()
}

fn ascii(letter: char) -> char {
    match letter {
        '▲' => '!',
        '◆' | '●' => '*',
        '•' | '·' | '…' => '.',
        '–' | '━' | '─' => '-',
        '→' | '▶' | '»' => '>',
        '←' => '<',
        '↑' => '^',
        '↓' => 'v',
        '╭' | '╮' | '╰' | '╯' => '+',
        '↵' => 'E',
        '×' => 'x',
        '‖' | '│' => '|',
        '▁' | '▂' => '_',
        '▃' | '▄' | '▌' | '▍' | '▎' | '▏' => '-',
        '▅' | '▆' => '=',
        '▇' | '█' | '▉' | '▊' | '▋' => '#',
        letter if letter.is_ascii() => letter,
        _ => '?',
    }
}

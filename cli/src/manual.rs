//! The manual: a page a command, made of the one tree of commands and of what [`entries`] adds, which no `--help` has: exit
//! statuses, files, examples.

mod entries;
mod page;
#[cfg(test)]
mod tests;

use clap::Command;

/// A manual page.
pub(crate) struct ManualPage {
    /// Its file's name, such as `linerate-tune-apply.1`.
    pub(crate) file: String,
    /// Its source, for man(7).
    pub(crate) text: String,
}

/// A command that is not hidden, below the whole tree.
struct ManualSubcommand<'a> {
    /// The words by which it is called after `linerate`; none for the program itself.
    words: String,
    command: &'a Command,
}

/// All pages, the program's own first.
pub(crate) fn pages(tree: &Command) -> Vec<ManualPage> {
    let tree = build_tree(tree);
    let places = subcommands(&tree);
    let page =
        |place| ManualPage { file: format!("{}.1", page_name(place)), text: page::text(place, &places) };
    places.iter().map(page).collect()
}

/// The exit statuses of all commands, as a document in Markdown.
pub(crate) fn exit_status(tree: &Command) -> String {
    let tree = build_tree(tree);
    let mut text = String::from(entries::ABOUT_EXIT_STATUS);
    for place in subcommands(&tree).iter().filter(|place| place.does_something()) {
        let entry = entries::find_entry(&place.words);
        let bar = |text: &str| text.replace('|', "\\|");
        text.push_str(&format!(
            "| `{}` | {} | {} | {} |\n",
            place.command_line(),
            bar(entry.fine),
            bar(entry.found),
            bar(entry.failed)
        ));
    }
    text
}

fn build_tree(tree: &Command) -> Command {
    let mut tree = tree.clone().disable_help_subcommand(true);
    tree.build();
    tree
}

fn subcommands(tree: &Command) -> Vec<ManualSubcommand<'_>> {
    let mut found = vec![ManualSubcommand { words: String::new(), command: tree }];
    let mut next = 0;
    while next < found.len() {
        let (words, command) = (found[next].words.clone(), found[next].command);
        let below = command.get_subcommands().filter(|below| !below.is_hide_set());
        found.extend(below.map(|below| ManualSubcommand {
            words: format!("{words} {}", below.get_name()).trim_start().to_owned(),
            command: below,
        }));
        next += 1;
    }
    found
}

impl ManualSubcommand<'_> {
    /// What is typed.
    fn command_line(&self) -> String {
        format!("linerate {}", self.words).trim_end().to_owned()
    }

    /// Whether it runs without a command below it.
    fn does_something(&self) -> bool {
        !self.command.is_subcommand_required_set() && !self.command.is_arg_required_else_help_set()
    }

    fn is_right_below(&self, other: &Self) -> bool {
        let above = self.words.rsplit_once(' ').map_or("", |(above, _)| above);
        !self.words.is_empty() && above == other.words
    }
}

/// The page's name, which has dashes where what is typed has blanks.
fn page_name(place: &ManualSubcommand<'_>) -> String {
    place.command_line().replace(' ', "-")
}

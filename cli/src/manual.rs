//! Manual pages: clap's help, then the exit status from docs/exit-status.md, then files, examples
//! and related commands from `manual/sections.txt`.

#[cfg(test)]
mod tests;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};

pub(crate) struct ManualPage {
    /// File name such as `linerate-tune-apply.1`.
    pub(crate) file: String,
    // Source for man(7).
    pub(crate) text: String,
}

/// The pages of all commands that are not hidden.
pub(crate) fn pages(tree: &Command) -> Vec<ManualPage> {
    let tree = build_tree(tree);
    let commands = visible_commands(&tree);
    let page = |command: &ManualCommand<'_>| ManualPage {
        file: format!("{}.1", command.page_name()),
        text: command.page(&commands),
    };
    commands.iter().map(page).collect()
}

const EXIT_STATUS: &str = include_str!("../../docs/exit-status.md");
const SECTIONS: &str = include_str!("manual/sections.txt");

/// A command that is not hidden, or the program itself.
struct ManualCommand<'a> {
    /// Command line such as `linerate tune apply`.
    line: String,
    command: &'a Command,
}

fn build_tree(tree: &Command) -> Command {
    let mut tree = tree.clone().disable_help_subcommand(true);
    tree.build();
    tree
}

fn visible_commands(tree: &Command) -> Vec<ManualCommand<'_>> {
    let mut commands = vec![ManualCommand { line: "linerate".to_owned(), command: tree }];
    let mut next = 0;
    while let Some(ManualCommand { line, command }) = commands.get(next) {
        let below = command.get_subcommands().filter(|below| !below.is_hide_set());
        let below: Vec<_> = below
            .map(|command| ManualCommand { line: format!("{line} {}", command.get_name()), command })
            .collect();
        commands.extend(below);
        next += 1;
    }
    commands
}

impl ManualCommand<'_> {
    fn page_name(&self) -> String {
        self.line.replace(' ', "-")
    }

    fn is_child_of(&self, other: &Self) -> bool {
        self.line.rsplit_once(' ').is_some_and(|(parent, _)| parent == other.line)
    }

    fn page(&self, all: &[Self]) -> String {
        let mut page = Vec::new();
        self.render_help(&mut page).expect("writing to memory does not fail");
        String::from_utf8(page).expect("clap has text") + &self.extra_sections(all).to_roff()
    }

    fn render_help(&self, page: &mut Vec<u8>) -> std::io::Result<()> {
        // Without the commit, so that a package's pages depend on its version only.
        let man = Man::new(self.command.clone().version(env!("CARGO_PKG_VERSION")))
            .title(self.page_name().to_uppercase())
            .source(concat!("linerate ", env!("CARGO_PKG_VERSION")))
            .manual("linerate's manual");
        man.render_title(page)?;
        man.render_name_section(page)?;
        man.render_synopsis_section(page)?;
        man.render_description_section(page)?;
        man.render_options_section(page)?;
        if self.command.get_subcommands().any(|below| !below.is_hide_set()) {
            man.render_subcommands_section(page)?;
        }
        Ok(())
    }

    fn extra_sections(&self, all: &[Self]) -> Roff {
        let mut roff = Roff::new();
        section(&mut roff, "EXIT STATUS", &exit_status(&self.line));
        section(&mut roff, "FILES", &entries(&self.line, "file: "));
        section(&mut roff, "EXAMPLES", &entries(&self.line, "example: "));
        roff.control("SH", ["SEE ALSO"]);
        roff.text(self.related(all));
        roff
    }

    /// The parent, the subcommands, and the commands that `sections.txt` names.
    fn related(&self, all: &[Self]) -> Vec<Inline> {
        let near = all.iter().filter(|other| self.is_child_of(other) || other.is_child_of(self));
        let mut names: Vec<String> = near.map(Self::page_name).collect();
        for name in related_commands(&self.line).map(|line| line.replace(' ', "-")) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let names = names.into_iter().flat_map(|name| [bold(name), roman("(1), ")]);
        names.chain([roman("/usr/share/doc/linerate")]).collect()
    }
}

fn section(roff: &mut Roff, heading: &str, items: &[(&str, String)]) {
    if !items.is_empty() {
        roff.control("SH", [heading]);
    }
    for (head, body) in items {
        roff.control("TP", []);
        roff.text([bold(*head)]);
        roff.text([roman(body)]);
    }
}

/// The statuses in the row of a command and their meanings.
fn exit_status(line: &str) -> Vec<(&'static str, String)> {
    let head = format!("| `{line}` | ");
    let row = EXIT_STATUS.lines().find_map(|row| row.strip_prefix(&head)?.strip_suffix(" |"));
    let meanings = row.into_iter().flat_map(|row| row.split(" | "));
    ["0", "1", "2"]
        .into_iter()
        .zip(meanings.map(|meaning| meaning.trim().replace('`', "")))
        .filter(|(_, meaning)| !meaning.is_empty())
        .collect()
}

/// The lines of `sections.txt` about a command.
fn section_lines(line: &str) -> impl Iterator<Item = &'static str> {
    let is_about = |block: &&str| {
        block.lines().next().and_then(|head| head.strip_prefix("# ")).is_some_and(|head| head == line)
    };
    SECTIONS.split("\n\n").find(is_about).into_iter().flat_map(str::lines)
}

/// Entries of a kind and the explanations below them.
fn entries(line: &str, kind: &str) -> Vec<(&'static str, String)> {
    let mut lines = section_lines(line).peekable();
    let mut entries = Vec::new();
    while let Some(entry) = lines.next() {
        if let Some(head) = entry.strip_prefix(kind) {
            entries.push((head, lines.peek().copied().unwrap_or_default().trim().to_owned()));
        }
    }
    entries
}

fn related_commands(line: &str) -> impl Iterator<Item = String> {
    let related = section_lines(line).filter_map(|line| line.strip_prefix("see: "));
    related.flat_map(|names| names.split(", ")).map(|name| format!("linerate {name}"))
}

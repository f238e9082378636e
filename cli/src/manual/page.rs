//! One page: what clap knows by clap_mangen, and the sections it does not know.

use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};

use super::{ManualSubcommand, entries, page_name};

/// The page of a command.
pub(super) fn text(place: &ManualSubcommand<'_>, all: &[ManualSubcommand<'_>]) -> String {
    let mut page = Vec::new();
    render_clap_sections(place, &mut page).expect("writing to memory does not fail");
    let mut text = String::from_utf8(page).expect("clap has text");
    text.push_str(&render_extra_sections(place, all).to_roff());
    text
}

fn render_clap_sections(place: &ManualSubcommand<'_>, page: &mut Vec<u8>) -> std::io::Result<()> {
    // The commit is not in it: pages are committed themselves.
    let man = Man::new(place.command.clone().version(env!("CARGO_PKG_VERSION")))
        .title(page_name(place).to_uppercase())
        .source(concat!("linerate ", env!("CARGO_PKG_VERSION")))
        .manual("linerate's manual");
    man.render_title(page)?;
    man.render_name_section(page)?;
    man.render_synopsis_section(page)?;
    man.render_description_section(page)?;
    man.render_options_section(page)?;
    if place.command.get_subcommands().any(|below| !below.is_hide_set()) {
        man.render_subcommands_section(page)?;
    }
    Ok(())
}

fn render_extra_sections(place: &ManualSubcommand<'_>, all: &[ManualSubcommand<'_>]) -> Roff {
    let entry = entries::find_entry(&place.words);
    let mut roff = Roff::new();
    if place.does_something() {
        roff.control("SH", ["EXIT STATUS"]);
        let statuses = [("0", entry.fine), ("1", entry.found), ("2", entry.failed)];
        for (status, meaning) in statuses.into_iter().filter(|(_, meaning)| !meaning.is_empty()) {
            item(&mut roff, status, &plain(meaning));
        }
    }
    if !entry.files.is_empty() {
        roff.control("SH", ["FILES"]);
        for (file, what) in entry.files {
            item(&mut roff, file, what);
        }
    }
    if !entry.examples.is_empty() {
        roff.control("SH", ["EXAMPLES"]);
        for (example, what) in entry.examples {
            item(&mut roff, example, what);
        }
    }
    roff.control("SH", ["SEE ALSO"]);
    roff.text(see_also(place, all));
    roff
}

fn item(roff: &mut Roff, head: &str, body: &str) {
    roff.control("TP", []);
    roff.text([bold(head)]);
    roff.text([roman(body)]);
}

/// Markdown's quotes are of no use on a page.
fn plain(text: &str) -> String {
    text.replace('`', "")
}

/// The page above, those below, those that the entry names, and where the rest is.
fn see_also(place: &ManualSubcommand<'_>, all: &[ManualSubcommand<'_>]) -> Vec<Inline> {
    let near = all.iter().filter(|other| place.is_right_below(other) || other.is_right_below(place));
    let mut names: Vec<String> = near.map(page_name).collect();
    for named in entries::find_entry(&place.words).see {
        let name = format!("linerate-{}", named.replace(' ', "-"));
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut line = Vec::new();
    for name in names {
        line.extend([bold(name), roman("(1), ")]);
    }
    line.push(roman("/usr/share/doc/linerate"));
    line
}

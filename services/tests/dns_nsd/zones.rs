//! Zones with records of many types, in a syntax that linerate, NSD and Knot DNS read.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const EXAMPLE: &str = include_str!("zones/example.test.zone");
const CHILD: &str = include_str!("zones/child.example.test.zone");
const OTHER: &str = include_str!("zones/other.test.zone");
const REVERSE: &str = include_str!("zones/2.0.192.in-addr.arpa.zone");

/// A zone like those of operators: `@` in data, times with units, entries over several lines, many
/// record types, and glue deep below zone cuts, also for zones that are served here.
const DEEP: &str = include_str!("zones/deep.test.zone");

/// A child zone of `deep.test`. Of the names in its parent's glue, it contains only `other`.
const SUB: &str = include_str!("zones/sub.deep.test.zone");

/// Names that exist only in the parent's glue, and their ancestors. The zone that answers for them
/// does not contain them.
pub(crate) const GLUE_ONLY: [&str; 5] = ["ns.x.sub", "x.y.z.sub", "below.z.sub", "y.z.sub", "z.sub"];

/// `DEEP`, with delegations whose glue does not fit into small answers.
fn wide() -> String {
    let mut text = DEEP.to_owned();
    for number in 0..13 {
        let _ = writeln!(text, "wide NS n{number}.with.a.long.name.inside.wide");
        let _ = writeln!(text, "n{number}.with.a.long.name.inside.wide A 198.51.100.{number}");
        let _ = writeln!(text, "n{number}.with.a.long.name.inside.wide AAAA 2001:db8:1::{number}");
    }
    for number in 0..4 {
        let _ = writeln!(text, "some NS n{number}.some");
        let _ = writeln!(text, "some NS n{number}.with.a.long.name.inside.wide");
        let _ = writeln!(text, "n{number}.some A 198.51.100.{number}");
        let _ = writeln!(text, "n{number}.some AAAA 2001:db8:2::{number}");
    }
    text
}

/// Records that do not fit into small answers.
fn large() -> String {
    let mut text = String::new();
    for number in 0..60 {
        let _ = writeln!(text, "many IN A 198.51.100.{number}");
        let _ = writeln!(text, "manycname{number} IN CNAME many");
    }
    for (name, strings) in [("text400", 2), ("text700", 4), ("text1100", 6), ("text3000", 15)] {
        for number in 0..strings {
            let _ = writeln!(text, "{name} IN TXT \"{number} {}\"", "x".repeat(180));
        }
    }
    for number in 0..13 {
        let _ = writeln!(text, "wide IN NS server-{number}.of-a-wide-delegation.wide");
        let _ = writeln!(text, "server-{number}.of-a-wide-delegation.wide IN A 198.51.100.{number}");
        let _ = writeln!(text, "server-{number}.of-a-wide-delegation.wide IN AAAA 2001:db8:1::{number}");
        let _ = writeln!(text, "hosts IN MX {number} host-{number}.of.many.others");
        let _ = writeln!(text, "host-{number}.of.many.others IN A 198.51.100.{number}");
        let _ = writeln!(text, "host-{number}.of.many.others IN AAAA 2001:db8:2::{number}");
        let _ = writeln!(text, "services IN SRV 1 1 {number} host-{number}.of.many.others");
    }
    let label = "a".repeat(63);
    let _ = writeln!(text, "{label}.{label}.{label}.long IN A 192.0.2.130");
    let _ = writeln!(text, "*.{label}.wild2 IN TXT \"below a long name\"");
    text
}

/// The name and the text of each zone. The last two are those of `deep_names`.
fn zones() -> [(&'static str, String); 6] {
    [
        ("example.test", format!("{EXAMPLE}{}", large())),
        ("child.example.test", CHILD.to_owned()),
        ("other.test", OTHER.to_owned()),
        ("2.0.192.in-addr.arpa", REVERSE.to_owned()),
        ("deep.test", wide()),
        ("sub.deep.test", SUB.to_owned()),
    ]
}

/// Writes the zone files. Returns the name and the file of each zone.
pub(crate) fn write(directory: &Path) -> Vec<(&'static str, PathBuf)> {
    zones()
        .into_iter()
        .map(|(name, text)| {
            let file = directory.join(format!("{name}.zone"));
            std::fs::write(&file, text).expect("a zone's file");
            (name, file)
        })
        .collect()
}

/// Names to query: the owners in the zones, the parents of the zones, and a name outside the zones.
pub(crate) fn names() -> Vec<String> {
    let more = ["", "test", "elsewhere.test", "arpa"];
    names_of(&zones()[..4]).into_iter().chain(more.map(str::to_owned)).collect()
}

/// Names to query in `deep.test` and `sub.deep.test`.
pub(crate) fn deep_names() -> Vec<String> {
    names_of(&zones()[4..])
}

fn names_of(zones: &[(&str, String)]) -> Vec<String> {
    let mut names = Vec::new();
    for (origin, text) in zones {
        names.push((*origin).to_owned());
        for line in text.lines() {
            let owner = line.split(' ').next().unwrap_or_default();
            // Names with escapes are skipped, because random labels cover them.
            if !owner.is_empty() && !owner.starts_with(['$', '@', '\\']) {
                names.push(format!("{owner}.{origin}"));
            }
        }
    }
    names.sort();
    names.dedup();
    names
}

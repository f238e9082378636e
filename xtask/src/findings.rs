//! `cargo xtask findings`: a page for each of doctor's rules, written from the rules themselves.

mod example;
mod page;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use linerate_host::diagnosis::rules;
use linerate_tune::TuneProfile;

/// What a page that nobody wrote begins with.
const GENERATED: &str =
    "<!-- Written by `cargo xtask findings` from the rules in host/src/stage. Change those. -->\n";

/// Write docs/findings, a page for each of doctor's rules, or check that it is what the rules say.
#[derive(Debug, Args)]
pub(crate) struct FindingsCommand {
    /// Compare, and change nothing
    #[arg(long)]
    check: bool,
}

/// The pages by their file names.
type Pages = BTreeMap<String, String>;

impl FindingsCommand {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let folder = folder();
        let pages = pages()?;
        if self.check {
            let wrong = differences(&folder, &pages)?;
            for line in &wrong {
                println!("{line}");
            }
            return Ok(ExitCode::from(u8::from(!wrong.is_empty())));
        }
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        for name in there(&folder)?.into_keys().filter(|name| !pages.contains_key(name)) {
            fs::remove_file(folder.join(&name)).with_context(|| format!("cannot remove {name}"))?;
        }
        for (name, text) in &pages {
            fs::write(folder.join(name), text).with_context(|| format!("cannot write {name}"))?;
        }
        println!("{} pages written to {}", pages.len(), folder.display());
        Ok(ExitCode::SUCCESS)
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/findings")
}

/// All pages as the rules make them.
fn pages() -> Result<Pages> {
    let profiles =
        TuneProfile::builtin().map(|(name, _)| TuneProfile::named(name)).collect::<Result<Vec<_>, _>>()?;
    let examples = example::of_all_rules()?;
    let mut pages: Pages = rules()
        .map(|rule| (page::name(rule.id), page::of_rule(rule, examples.get(rule.id), &profiles)))
        .collect();
    pages.insert("README.md".to_owned(), page::index());
    for text in pages.values_mut() {
        text.insert_str(0, GENERATED);
    }
    Ok(pages)
}

/// The files of the directory by name; none where it is not there.
fn there(folder: &Path) -> Result<Pages> {
    let mut found = Pages::new();
    if !folder.exists() {
        return Ok(found);
    }
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let entry = entry?;
        let text = fs::read_to_string(entry.path())
            .with_context(|| format!("cannot read {}", entry.path().display()))?;
        found.insert(entry.file_name().to_string_lossy().into_owned(), text);
    }
    Ok(found)
}

/// What in the directory is not as the rules make it, a line each.
fn differences(folder: &Path, pages: &Pages) -> Result<Vec<String>> {
    let there = there(folder)?;
    let wrong = pages.iter().filter_map(|(name, text)| match there.get(name) {
        None => Some(format!("docs/findings/{name} is missing")),
        Some(found) if found != text => Some(format!("docs/findings/{name} is not what the rule says")),
        Some(_) => None,
    });
    let strange = there.keys().filter(|name| !pages.contains_key(*name));
    Ok(wrong.chain(strange.map(|name| format!("docs/findings/{name} belongs to no rule"))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_in_docs_are_what_the_rules_say() {
        let wrong = differences(&folder(), &pages().expect("pages")).expect("read");
        assert!(wrong.is_empty(), "run `cargo xtask findings`:\n{}", wrong.join("\n"));
    }

    #[test]
    fn each_difference_is_told() {
        let folder = tempfile::tempdir().expect("a directory");
        for (name, text) in [("as-it-is.md", "one"), ("changed.md", "other"), ("strange.md", "")] {
            fs::write(folder.path().join(name), text).expect("written");
        }
        let pages =
            ["as-it-is.md", "changed.md", "missing.md"].map(|name| (name.to_owned(), "one".to_owned()));
        let wrong = differences(folder.path(), &Pages::from(pages)).expect("read");
        assert_eq!(
            wrong,
            [
                "docs/findings/changed.md is not what the rule says",
                "docs/findings/missing.md is missing",
                "docs/findings/strange.md belongs to no rule",
            ]
        );
    }
}

//! `cargo xtask findings`: docs/findings.md, generated from doctor's rules.

mod example;
mod page;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use linerate_tune::TuneProfile;

pub(crate) fn run() -> Result<ExitCode> {
    let file = file();
    fs::write(&file, text()?).with_context(|| format!("cannot write {}", file.display()))?;
    println!("{} written", file.display());
    Ok(ExitCode::SUCCESS)
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/findings.md")
}

fn text() -> Result<String> {
    let profiles =
        TuneProfile::builtin().map(|(name, _)| TuneProfile::named(name)).collect::<Result<Vec<_>, _>>()?;
    Ok(page::render(&example::examples_by_rule()?, &profiles))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_page_in_docs_is_up_to_date() {
        let page = fs::read_to_string(file()).expect("docs/findings.md");
        assert!(page == text().expect("the page"), "run `cargo xtask findings` and commit docs/findings.md");
    }
}

//! The commands of docs/install.md, so that the trial can run them.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

/// The comment above a block that the trial runs.
const MARK: &str = "<!-- not run: by cargo xtask deb --test -->";

/// The commands of the page, for a throw-away system.
#[derive(Debug, PartialEq)]
pub(super) struct InstallPage {
    /// Installs the package. Root needs no sudo.
    pub package: String,
    /// Builds and installs the program without a package; requires a toolchain.
    pub cargo: String,
    /// Installs the remaining files after `cargo`.
    pub rest: String,
}

impl InstallPage {
    /// Reads the page.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let path = root.join("docs/install.md");
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("{}: the blocks after '{MARK}'", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let blocks: Vec<&str> = text.split(MARK).skip(1).filter_map(block).collect();
        let [package_block, other_block] = blocks.as_slice() else {
            bail!("there are {}: one is to be for the package, one for elsewhere", blocks.len());
        };
        // The first block builds the package, which is already built.
        let (build, install) = package_block.split_once('\n').context("the first has one line")?;
        ensure!(build == "cargo xtask deb", "the first begins with '{build}'");
        let (cargo, usage_lines) = other_block.split_once('\n').context("the second has one line")?;
        ensure!(cargo.starts_with("cargo install "), "the second begins with '{cargo}'");
        let without_sudo = install.lines().map(|line| line.strip_prefix("sudo ").unwrap_or(line));
        Ok(Self {
            package: without_sudo.collect::<Vec<_>>().join("\n"),
            cargo: cargo.to_owned(),
            rest: usage_lines.to_owned(),
        })
    }
}

/// The lines of the next code block.
fn block(text: &str) -> Option<&str> {
    let (_, block_text) = text.trim_start().strip_prefix("```")?.split_once('\n')?;
    block_text.split_once("\n```").map(|(content, _)| content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deb::PACKAGE_VERSION;

    #[test]
    fn install_page_names_the_current_package_version() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let InstallPage { package, rest, .. } = InstallPage::read(&root).expect("the page");
        assert_eq!(package, format!("apt install ./target/debian/linerate_{PACKAGE_VERSION}.deb"));
        assert!(rest.lines().count() > 1, "{rest}");
    }

    #[test]
    fn unexpected_commands_in_the_install_page_are_an_error() {
        let page =
            |first: &str, second: &str| format!("{MARK}\n```sh\n{first}\n```\n{MARK}\n```\n{second}\n```\n");
        let (first, second) = ("cargo xtask deb\nsudo apt install ./a.deb", "cargo install --path cli\nls");
        let InstallPage { package, cargo, rest } = InstallPage::parse(&page(first, second)).expect("a page");
        assert_eq!((&*package, &*cargo, &*rest), ("apt install ./a.deb", "cargo install --path cli", "ls"));
        for (first, second) in [("make\nls", second), (first, "make\nls"), ("cargo xtask deb", second)] {
            assert!(InstallPage::parse(&page(first, second)).is_err(), "{first} {second}");
        }
        assert!(InstallPage::parse(MARK).is_err());
    }
}

//! `cargo xtask man`: the manual pages and the table of exit statuses, which are committed, as the command has them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::programs::{self, BuildProfile};

/// Where pages are, below the workspace.
const PAGES: &str = "share/man/man1";
/// Where the table of exit statuses is.
const EXIT_STATUS: &str = "docs/exit-status.md";

/// Write the manual pages and docs/exit-status.md, or check that they fit the command.
#[derive(Debug, Args)]
pub(crate) struct ManCommand {
    /// Compare, and change nothing.
    #[arg(long)]
    check: bool,
    /// Ask the release build of the command, where there is one anyway.
    #[arg(long)]
    release: bool,
}

impl ManCommand {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
        let (wanted, present) = (wanted(self.release)?, present(&root)?);
        if self.check {
            for (file, text) in &wanted {
                let there = present.get(file).with_context(|| format!("no {file}: run cargo xtask man"))?;
                ensure!(there == text, "{file} does not fit the command: run cargo xtask man and commit it");
            }
            if let Some(file) = present.keys().find(|file| !wanted.contains_key(*file)) {
                bail!("{file} is of no command: run cargo xtask man");
            }
            println!("{} manual pages fit the command", wanted.len() - 1);
            return Ok(ExitCode::SUCCESS);
        }
        for file in present.keys().filter(|file| !wanted.contains_key(*file)) {
            fs::remove_file(root.join(file)).with_context(|| format!("remove {file}"))?;
        }
        fs::create_dir_all(root.join(PAGES)).with_context(|| format!("make {PAGES}"))?;
        for (file, text) in &wanted {
            fs::write(root.join(file), text).with_context(|| format!("write {file}"))?;
        }
        println!("{} files written", wanted.len());
        Ok(ExitCode::SUCCESS)
    }
}

/// The files as the command has them, by their path below the workspace.
fn wanted(release: bool) -> Result<BTreeMap<String, String>> {
    let scratch = tempfile::tempdir()?;
    linerate(release, &[OsStr::new("man"), scratch.path().as_os_str()])?;
    let mut files = texts(scratch.path(), Path::new(PAGES))?;
    let table = linerate(release, &[OsStr::new("man"), OsStr::new("--exit-status")])?;
    files.insert(EXIT_STATUS.to_owned(), table);
    Ok(files)
}

/// The files as they are committed.
fn present(root: &Path) -> Result<BTreeMap<String, String>> {
    let mut files = match root.join(PAGES) {
        pages if pages.is_dir() => texts(&pages, Path::new(PAGES))?,
        _ => BTreeMap::new(),
    };
    if let Ok(table) = fs::read_to_string(root.join(EXIT_STATUS)) {
        files.insert(EXIT_STATUS.to_owned(), table);
    }
    Ok(files)
}

/// The files of a directory, named as if they were in another.
fn texts(directory: &Path, named: &Path) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory).with_context(|| format!("read {}", directory.display()))? {
        let path: PathBuf = entry?.path();
        let name = named.join(path.file_name().context("a file has a name")?);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        files.insert(name.display().to_string(), text);
    }
    Ok(files)
}

/// Runs the command as cargo builds it, and returns what it printed.
fn linerate(release: bool, arguments: &[&OsStr]) -> Result<String> {
    let profile = if release { BuildProfile::Release } else { BuildProfile::Development };
    let program = programs::build(profile, "linerate")?;
    let output = Command::new(&program)
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("starting {}", program.display()))?;
    ensure!(output.status.success(), "linerate {arguments:?}: {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

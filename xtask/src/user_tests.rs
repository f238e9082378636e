//! The workspace's tests as an ordinary user.
//!
//! Developers run `cargo test` as such a user. CI runs as root, so the test programs are built as
//! root and run as the user nobody, from a directory that this user can read.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::Value;

use crate::programs::cargo;

/// User and group of nobody on Debian, and in every user namespace (`overflowuid`).
const NOBODY: &str = "65534";

/// Run the workspace's tests as nobody. Requires root and setpriv (util-linux).
#[derive(Debug, Args)]
pub(crate) struct UserTests {
    /// Run only the test programs whose name or package contains this
    filter: Option<String>,
}

#[derive(Default)]
struct Built {
    tests: Vec<Program>,
    /// The command `linerate`, which tests run.
    command: Option<PathBuf>,
}

struct Program {
    package: String,
    name: String,
    file: PathBuf,
    directory: PathBuf,
}

impl UserTests {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let Built { tests: mut programs, command } = build()?;
        let stage = tempfile::tempdir().context("cannot make a directory")?;
        open_to_all(stage.path())?;
        for program in &programs {
            program.stage_package(stage.path())?;
        }
        if let Some(filter) = &self.filter {
            programs.retain(|program| program.name.contains(filter) || program.package.contains(filter));
        }
        ensure!(!programs.is_empty(), "no test program to run");
        let staged_command = stage.path().join("linerate");
        let command = command.context("cargo built no command 'linerate'")?;
        fs::copy(&command, &staged_command).with_context(|| format!("cannot copy {}", command.display()))?;
        let mut failed = Vec::new();
        for program in &programs {
            println!("\n     Running {} {} as nobody", program.package, program.name);
            if !program.run(stage.path(), &staged_command)? {
                failed.push(format!("{} {}", program.package, program.name));
            }
        }
        if failed.is_empty() {
            println!("\n{} test programs passed as nobody", programs.len());
            return Ok(ExitCode::SUCCESS);
        }
        println!("\nfailed as nobody: {}", failed.join(", "));
        Ok(ExitCode::from(1))
    }
}

impl Program {
    fn staged(&self, stage: &Path) -> PathBuf {
        stage.join(&self.package)
    }

    /// Copies the sources that tests of the package read.
    fn stage_package(&self, stage: &Path) -> Result<()> {
        let directory = self.staged(stage);
        if directory.exists() {
            return Ok(());
        }
        fs::create_dir(&directory).context("cannot make a directory")?;
        open_to_all(&directory)?;
        for part in ["src", "tests"].map(Path::new) {
            if self.directory.join(part).is_dir() {
                copy(&self.directory.join(part), &directory.join(part))?;
            }
        }
        Ok(())
    }

    /// Runs the program next to the copy of its package and returns whether it passed.
    fn run(&self, stage: &Path, command: &Path) -> Result<bool> {
        let directory = self.staged(stage);
        let program = directory.join(format!("{}.test", self.name));
        fs::copy(&self.file, &program).with_context(|| format!("cannot copy {}", self.file.display()))?;
        let status = Command::new("setpriv")
            .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"])
            .arg(&program)
            .current_dir(&directory)
            .env("CARGO_BIN_EXE_linerate", command)
            .env("HOME", &directory)
            .env("INSTA_UPDATE", "no")
            .env("INSTA_WORKSPACE_ROOT", stage)
            .env("TMPDIR", &directory)
            .env_remove("XDG_RUNTIME_DIR")
            .status()
            .context("cannot run setpriv (package util-linux)")?;
        Ok(status.success())
    }
}

/// Builds all tests.
fn build() -> Result<Built> {
    let output = cargo()
        .args(["test", "--workspace", "--no-run", "--message-format=json"])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!("the tests do not build");
    }
    let mut built = Built::default();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        built.take(line)?;
    }
    Ok(built)
}

impl Built {
    fn take(&mut self, line: &str) -> Result<()> {
        let message: Value = serde_json::from_str(line).with_context(|| format!("cargo said '{line}'"))?;
        let Some(file) = message["executable"].as_str().map(PathBuf::from) else {
            return Ok(());
        };
        let name = message["target"]["name"].as_str().unwrap_or_default();
        if message["profile"]["test"] == true {
            let manifest = message["manifest_path"].as_str().context("cargo names no manifest")?;
            let directory = Path::new(manifest).parent().context("a manifest is in a directory")?;
            self.tests.push(Program {
                package: directory.file_name().unwrap_or_default().to_string_lossy().into_owned(),
                name: name.to_owned(),
                file,
                directory: directory.to_owned(),
            });
        } else if name == "linerate" {
            self.command = Some(file);
        }
        Ok(())
    }
}

fn open_to_all(path: &Path) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777))
        .with_context(|| format!("cannot open {} to all", path.display()))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to).with_context(|| format!("cannot make {}", to.display()))?;
    open_to_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)
                .with_context(|| format!("cannot copy {}", entry.path().display()))?;
        }
    }
    Ok(())
}

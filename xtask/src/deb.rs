//! `cargo xtask deb`: builds the Debian package with cargo-deb and the metadata of
//! `cli/Cargo.toml`, and tries it in a temporary installation.

mod page;
mod trial;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::programs::{self, BuildProfile, cargo};
use page::InstallPage;

// The pinned version of cargo-deb: another one may build another package.
const CARGO_DEB: &str = "3.8.0";

/// The Debian version of the package.
const PACKAGE_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-1");

/// Shells, and the files in which they look for completions of `linerate`.
const COMPLETIONS: [(&str, &str); 3] =
    [("bash", "linerate.bash"), ("zsh", "_linerate"), ("fish", "linerate.fish")];

/// Build the Debian package, and try it in a throw-away installation.
#[derive(Debug, Args)]
pub(crate) struct DebCommand {
    /// Test the package: lintian, then install to purge in a new Debian (mmdebstrap); requires root
    #[arg(long)]
    test: bool,
}

struct PackagePaths {
    root: PathBuf,
    /// Cargo's target directory, which may be anywhere.
    target: PathBuf,
}

impl DebCommand {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let paths = PackagePaths::find()?;
        check_changelog(&paths.root)?;
        programs::build(BuildProfile::Release, "linerate")?;
        paths.write_completions()?;
        paths.write_manual()?;
        let package = paths.package()?;
        println!("{} ({} bytes)", package.display(), fs::metadata(&package)?.len());
        if self.test {
            trial::lintian(&package)?;
            let page = InstallPage::read(&paths.root)?;
            trial::try_installation(&package, &paths, &page)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl PackagePaths {
    fn find() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
        let output =
            read(cargo().args(["metadata", "--no-deps", "--format-version", "1"]).current_dir(&root))?;
        let metadata: Value = serde_json::from_str(&output).context("cargo metadata")?;
        let target =
            metadata["target_directory"].as_str().context("cargo metadata names no target directory")?;
        Ok(Self { root, target: PathBuf::from(target) })
    }

    fn write_completions(&self) -> Result<()> {
        let directory = self.target.join("release/completions");
        fs::create_dir_all(&directory).with_context(|| format!("make {}", directory.display()))?;
        for (shell, file) in COMPLETIONS {
            let script =
                read(Command::new(self.target.join("release/linerate")).args(["completions", shell]))?;
            fs::write(directory.join(file), script).with_context(|| format!("write {file}"))?;
        }
        Ok(())
    }

    fn write_manual(&self) -> Result<()> {
        // Removes the pages of commands that no longer exist.
        let directory = self.target.join("release/man");
        if directory.exists() {
            fs::remove_dir_all(&directory).with_context(|| format!("remove {}", directory.display()))?;
        }
        run(Command::new(self.target.join("release/linerate"))
            .arg("man")
            .arg(&directory)
            .stdout(Stdio::null()))?;
        // cargo-deb compresses only manual pages that are not below the target directory.
        run(Command::new("gzip").args(["--best", "--no-name", "--recursive"]).arg(directory))
    }

    fn package(&self) -> Result<PathBuf> {
        let program = self.cargo_deb()?;
        let package = self.target.join(format!("debian/linerate_{PACKAGE_VERSION}.deb"));
        // The time of the commit, so that the same sources make the same package.
        let time = read(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(&self.root));
        let mut command = Command::new(program);
        command
            .current_dir(&self.root)
            .args(["--no-build", "--locked", "--strip", "--no-separate-debug-symbols"])
            .args(["--package", "linerate", "--output"])
            .arg(&package);
        if let Ok(time) = time {
            command.env("SOURCE_DATE_EPOCH", time.trim());
        }
        run(&mut command)?;
        Ok(package)
    }

    /// The path of cargo-deb in the pinned version. Installs it below the target directory if it is
    /// missing.
    fn cargo_deb(&self) -> Result<PathBuf> {
        let tools = self.target.join("tools");
        let program = tools.join("bin/cargo-deb");
        if read(Command::new(&program).arg("--version"))
            .is_ok_and(|version_text| version_text.split_whitespace().any(|word| word == CARGO_DEB))
        {
            return Ok(program);
        }
        // A debug build, because packing takes only a second. cargo-deb builds its own xz, because
        // version 3.8.0 hung with the system's.
        let mut install = cargo();
        install.args(["install", "cargo-deb", "--version", CARGO_DEB, "--locked", "--debug", "--force"]);
        run(install.arg("--root").arg(tools).env_remove("CARGO_TARGET_DIR").current_dir(&self.target))?;
        Ok(program)
    }
}

/// Checks that Debian's changelog has the version.
fn check_changelog(root: &Path) -> Result<()> {
    let path = root.join("share/debian/changelog");
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    ensure!(
        text.starts_with(&format!("linerate ({PACKAGE_VERSION}) ")),
        "{} begins with another version than {PACKAGE_VERSION}: add an entry",
        path.display()
    );
    Ok(())
}

// Runs a command with visible output.
fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("run {}", command_text(command)))?;
    ensure!(status.success(), "{}: {status}", command_text(command));
    Ok(())
}

fn read(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("run {}", command_text(command)))?;
    ensure!(output.status.success(), "{}: {}", command_text(command), output.status);
    Ok(String::from_utf8(output.stdout)?)
}

fn command_text(command: &Command) -> String {
    let arguments: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsStr::to_string_lossy)
        .collect();
    arguments.join(" ")
}

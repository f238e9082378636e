//! `cargo xtask deb`: builds the Debian package with the tools of dpkg-dev and the metadata of
//! `share/debian`, and tries it in a temporary installation.

mod page;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::programs::{self, BuildProfile, cargo, command_output};
use page::InstallPage;

/// The Debian version of the package.
const PACKAGE_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-1");

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
        let output = command_output(
            cargo().args(["metadata", "--no-deps", "--format-version", "1"]).current_dir(&root),
        )?;
        let metadata: Value = serde_json::from_str(&output).context("cargo metadata")?;
        let target =
            metadata["target_directory"].as_str().context("cargo metadata names no target directory")?;
        Ok(Self { root, target: PathBuf::from(target) })
    }

    fn package(&self) -> Result<PathBuf> {
        let package = self.target.join(format!("debian/linerate_{PACKAGE_VERSION}.deb"));
        // The time of the commit, so that the same sources make the same package.
        let time =
            command_output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(&self.root));
        let mut pack = Command::new("sh");
        pack.arg(self.root.join("xtask/src/deb/pack.sh")).arg(self.target.join("release")).arg(&package);
        if let Ok(time) = time {
            pack.env("SOURCE_DATE_EPOCH", time.trim());
        }
        run(pack.current_dir(&self.root)).context("packing (packages dpkg-dev and binutils)")?;
        Ok(package)
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
    let status = command.status().with_context(|| format!("run {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

//! Tests the package like a user: lintian checks it, and it is installed into a throw-away Debian.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{InstallPage, PACKAGE_VERSION, PackagePaths, run};
use crate::programs::command_output;

/// The script that runs in the installation.
const STEPS: &str = include_str!("in_root.sh");

/// Makes the installation in memory, within namespaces that end with the script, so that nothing is
/// left after any end.
const MAKE_ROOT: &str = include_str!("make_root.sh");

// Errors of lintian that stay, because the project has no mail address yet.
const KNOWN: &str = "bogus-mail-host,bogus-mail-host-in-debian-changelog";

/// Checks a package with lintian. Its errors are errors of this chore.
pub(super) fn lintian(package: &Path) -> Result<()> {
    let options = ["--fail-on", "error", "--allow-root", "--suppress-tags", KNOWN];
    run(Command::new("lintian").args(options).arg(package))
        .context("lintian (package lintian) has something against it")
}

/// Installs, uses and removes a package.
pub(super) fn try_installation(package: &Path, paths: &PackagePaths, page: &InstallPage) -> Result<()> {
    let target = paths.target.as_path();
    let debian = debian(target)?;
    let root = tempfile::tempdir_in(target)?;
    let trial = tempfile::tempdir_in(target)?;
    fs::write(trial.path().join("in_root.sh"), STEPS)?;
    fs::write(trial.path().join("plan.json"), include_str!("../trial_plan.json"))?;
    fs::copy(package, trial.path().join("linerate.deb")).context("copy the package")?;
    prepare_page_steps(package, paths, page, trial.path())?;
    build_later_version(package, trial.path()).context("make a later version of the package")?;
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", MAKE_ROOT, "sh"]);
    run(unshare.args([root.path(), &debian, trial.path()]).arg(PACKAGE_VERSION)).context("the trial")
}

// Prepares the files that the commands of docs/install.md expect: the package below the same path
// as here, and the program that `cargo install` makes.
fn prepare_page_steps(package: &Path, paths: &PackagePaths, page: &InstallPage, trial: &Path) -> Result<()> {
    let debian = trial.join("target/debian");
    fs::create_dir_all(&debian)?;
    fs::copy(package, debian.join(package.file_name().context("a package without a name")?))?;
    // On this machine, because it has a toolchain.
    let mut install = Command::new("sh");
    install.args(["-c", &page.cargo]).current_dir(&paths.root);
    install.env("CARGO_TARGET_DIR", &paths.target).env("CARGO_INSTALL_ROOT", trial.join("cargo"));
    run(&mut install).context("docs/install.md")?;
    fs::write(trial.join("elsewhere.sh"), &page.rest)?;
    fs::write(trial.join("package.sh"), &page.package)?;
    Ok(())
}

/// A Debian of this host's release as an archive, made once.
fn debian(target: &Path) -> Result<PathBuf> {
    let release = fs::read_to_string("/etc/os-release").context("read /etc/os-release")?;
    let suite = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .context("/etc/os-release names no release of Debian")?;
    let archive = target.join(format!("deb-root-{suite}.tar"));
    if !archive.exists() {
        // With another name until the archive is complete.
        let partial_archive = target.join(format!("deb-root-{suite}.part.tar"));
        run(Command::new("mmdebstrap").args(["--quiet", "--variant=minbase", suite]).arg(&partial_archive))
            .context("mmdebstrap (package mmdebstrap) cannot make a Debian")?;
        fs::rename(&partial_archive, &archive)?;
    }
    Ok(archive)
}

/// The same package with a later version, to test an upgrade.
fn build_later_version(package: &Path, trial: &Path) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let unpacked = scratch.path().join("package");
    let deb = |arguments: [&OsStr; 3]| run(Command::new("dpkg-deb").args(arguments));
    deb(["-R".as_ref(), package.as_os_str(), unpacked.as_os_str()])?;
    let control = unpacked.join("DEBIAN/control");
    let text = fs::read_to_string(&control)?;
    let later_text = text
        .replace(&format!("Version: {PACKAGE_VERSION}\n"), &format!("Version: {PACKAGE_VERSION}+later\n"));
    ensure!(later_text != text, "{} has no version {PACKAGE_VERSION}", control.display());
    fs::write(&control, later_text)?;
    let mut build = Command::new("dpkg-deb");
    command_output(build.args(["--build", "-Znone"]).arg(&unpacked).arg(trial.join("later.deb"))).map(drop)
}

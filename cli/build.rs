//! Passes the commit of the source to the program, for `--version`.
//!
//! An archive made by `git archive` carries the commit in the file `commit`; a checkout is queried
//! with git. Without either (a copy of the source, or a copy in another repository) the program
//! prints its version only.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=commit");
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let version = std::env::var("CARGO_PKG_VERSION").expect("cargo sets it");
    let version = match archived(&package).or_else(|| checked_out(&package)) {
        Some(commit) => format!("{version} ({commit})"),
        None => version,
    };
    println!("cargo::rustc-env=LINERATE_VERSION={version}");
}

// The text that `git archive` wrote in place of the placeholders (gitattributes(5), export-subst).
fn archived(package: &Path) -> Option<String> {
    let text = std::fs::read_to_string(package.join("commit")).ok()?;
    Some(text.trim().to_owned()).filter(|commit| !commit.is_empty() && !commit.contains("Format:"))
}

// The commit of the checkout. A later commit runs this script again; nothing else in the repository
// does.
fn checked_out(package: &Path) -> Option<String> {
    let top = PathBuf::from(git(package, &["rev-parse", "--show-toplevel"])?);
    if top.canonicalize().ok()? != package.join("..").canonicalize().ok()? {
        return None;
    }
    // A branch's commit is in a file of its own, or with others in one; those that are not there are not watched, since cargo
    // would take a missing file for a changed one.
    let branch = git(package, &["symbolic-ref", "--quiet", "HEAD"]);
    for name in ["HEAD", "packed-refs"].into_iter().chain(branch.as_deref()) {
        let path = package.join(git(package, &["rev-parse", "--git-path", name])?);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    git(package, &["log", "-1", "--abbrev=7", "--format=%h %cs"])
}

// Git's output. `None` without git, or if it fails: a source archive must build as well.
fn git(directory: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").current_dir(directory).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| output.status.success() && !text.is_empty())
}

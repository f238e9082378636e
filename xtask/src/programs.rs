//! The workspace's programs, built by cargo.
//!
//! All programs are always built together, because cargo chooses the features of dependencies by
//! the packages of a build, and would rebuild most dependencies for a single package.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BuildProfile {
    Development,
    Release,
}

/// Builds all programs and returns the path of one.
pub(crate) fn build(profile: BuildProfile, name: &str) -> Result<PathBuf> {
    let mut cargo = cargo();
    cargo.args(["build", "--quiet", "--workspace", "--bins", "--message-format=json-render-diagnostics"]);
    if profile == BuildProfile::Release {
        cargo.arg("--release");
    }
    let output = cargo.stderr(Stdio::inherit()).output().context("starting cargo")?;
    ensure!(output.status.success(), "the workspace's programs do not build");
    find(&String::from_utf8_lossy(&output.stdout), name)
        .with_context(|| format!("cargo built no program '{name}'"))
}

/// The given program, or a release build of `linerate`.
pub(crate) fn given_or_release(program: Option<&Path>) -> Result<PathBuf> {
    match program {
        Some(program) => program.canonicalize().with_context(|| program.display().to_string()),
        None => build(BuildProfile::Release, "linerate"),
    }
}

/// Cargo, in the workspace's own directory.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

/// Finds the path of a program in the JSON messages of cargo.
pub(crate) fn find(cargo_output: &str, name: &str) -> Option<PathBuf> {
    cargo_output
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_path_is_found_despite_a_library_with_the_same_name() {
        let messages = r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"linerate"},"executable":null}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"xtask"},"executable":"/target/debug/xtask"}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"linerate"},"executable":"/target/debug/linerate"}
{"reason":"build-finished","success":true}
"#;
        assert_eq!(find(messages, "linerate"), Some(PathBuf::from("/target/debug/linerate")));
        assert_eq!(find(messages, "reflector"), None);
    }
}

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
    cargo.args(["build", "--quiet", "--workspace", "--bins"]);
    if profile == BuildProfile::Release {
        cargo.arg("--release");
    }
    find(&build_messages(&mut cargo)?, name)
}

/// Runs `cargo build` and returns its JSON messages.
pub(crate) fn build_messages(cargo: &mut Command) -> Result<String> {
    cargo.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let output = cargo.output().context("starting cargo")?;
    ensure!(output.status.success(), "cargo build failed");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The output of a program. If it fails, the error contains its messages.
pub(crate) fn command_output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.env("LC_ALL", "C").output().with_context(|| format!("run {name}"))?;
    ensure!(output.status.success(), "{name} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
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
pub(crate) fn find(cargo_output: &str, name: &str) -> Result<PathBuf> {
    cargo_output
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .with_context(|| format!("cargo built no program '{name}'"))
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
        assert_eq!(find(messages, "linerate").ok(), Some(PathBuf::from("/target/debug/linerate")));
        assert!(find(messages, "reflector").is_err());
    }
}

//! `cargo xtask fuzz`: libFuzzer on the stable toolchain.
//!
//! `cargo fuzz` enables coverage with `-Z` options of the compiler, which require nightly. Stable
//! `-C` options run the same LLVM pass, and libFuzzer works the same without the address sanitizer.
//!
//! `cargo xtask fuzz TARGET -- -set_cover_merge=1 DIRECTORY` fills an empty directory with a
//! small part of the seeds and found inputs that has the same coverage, to replace `fuzz/seeds`. Keep
//! the oldest 100 files: libFuzzer writes the inputs that add most first.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::programs;

#[derive(Debug, Args)]
pub(crate) struct Fuzz {
    /// A file of `fuzz/targets`, without its extension.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    target: Option<String>,
    /// Run all targets, one after the other.
    #[arg(long)]
    all: bool,
    /// Seconds to run each target
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Further arguments for libFuzzer, after `--`.
    #[arg(last = true)]
    more: Vec<String>,
}

/// The flags of cargo-fuzz, without those that require nightly.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Cdebug-assertions";

impl Fuzz {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let root =
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace has no directory")?;
        let directory = root.join("fuzz");
        let all_targets = targets(&directory)?;
        let selected_targets = match &self.target {
            Some(target) => vec![target.clone()],
            None => all_targets.clone(),
        };
        for target in &selected_targets {
            ensure!(
                all_targets.contains(target),
                "no fuzz target '{target}'; there are {}",
                all_targets.join(", ")
            );
        }
        let mut code = ExitCode::SUCCESS;
        for (target, program) in build(&directory, selected_targets)? {
            let directory_of = |kind: &str| directory.join(kind).join(&target);
            for kind in ["corpus", "artifacts", "seeds"] {
                fs::create_dir_all(directory_of(kind))
                    .with_context(|| format!("making {kind} of {target}"))?;
            }
            // libFuzzer writes new inputs to the first directory.
            let status = Command::new(&program)
                .arg(format!("-artifact_prefix={}/", directory_of("artifacts").display()))
                .args(&self.more)
                .arg(format!("-max_total_time={}", self.seconds))
                .args([directory_of("corpus"), directory_of("seeds")])
                .status()
                .with_context(|| format!("starting {}", program.display()))?;
            if !status.success() {
                eprintln!(
                    "fuzz target {target} failed: what did it is in {}",
                    directory_of("artifacts").display()
                );
                code = ExitCode::FAILURE;
            }
        }
        Ok(code)
    }
}

/// The names of all targets.
fn targets(directory: &Path) -> Result<Vec<String>> {
    let directory = directory.join("targets");
    let mut targets = Vec::new();
    for entry in fs::read_dir(&directory).with_context(|| format!("reading {}", directory.display()))? {
        let path = entry?.path();
        let is_source = path.extension().is_some_and(|extension| extension == "rs");
        targets
            .extend(path.file_stem().filter(|_| is_source).map(|name| name.to_string_lossy().into_owned()));
    }
    targets.sort();
    Ok(targets)
}

/// Builds targets. Returns the path of each target's program.
fn build(directory: &Path, targets: Vec<String>) -> Result<Vec<(String, PathBuf)>> {
    let mut cargo = programs::cargo();
    // With `--target`, build scripts and macros are built without the flags below.
    cargo.args(["build", "--release", "--target", &host()?]);
    cargo.arg("--manifest-path").arg(directory.join("Cargo.toml"));
    cargo.args(targets.iter().flat_map(|target| ["--bin", target])).env("RUSTFLAGS", FLAGS);
    let messages = programs::build_messages(&mut cargo).context("the fuzz targets")?;
    let built_program = |target: String| Ok((target.clone(), programs::find(&messages, &target)?));
    targets.into_iter().map(built_program).collect()
}

/// The triple of this machine.
fn host() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = programs::command_output(Command::new(rustc).arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc -vV names no host")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fuzz_target_is_a_binary_in_the_manifest() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").join("fuzz");
        let manifest = fs::read_to_string(directory.join("Cargo.toml")).expect("a manifest");
        let targets = targets(&directory).expect("targets");
        assert!(targets.iter().all(|target| manifest.contains(&format!("path = \"targets/{target}.rs\""))));
        assert_eq!(manifest.matches("[[bin]]").count(), targets.len());
    }
}

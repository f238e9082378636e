//! `cargo xtask fuzz`: libFuzzer on the stable toolchain.
//!
//! `cargo fuzz` enables coverage with `-Z` options of the compiler, which require nightly. Stable
//! `-C` options run the same LLVM pass, and libFuzzer works the same without the address sanitizer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

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
    /// Replace `fuzz/seeds` by the smallest set of seeds and found inputs with the same coverage
    #[arg(long, conflicts_with = "seconds")]
    minimise: bool,
    /// Further arguments for libFuzzer, after `--`.
    #[arg(last = true)]
    more: Vec<String>,
}

/// The flags of cargo-fuzz, without those that require nightly.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Ccodegen-units=1 -Cdebug-assertions";
/// The limit of seeds per target in the repository.
const MOST_SEEDS: usize = 100;
const MOST_SEED_BYTES: u64 = 100_000;

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
            let job = Job { directory: &directory, target: &target, program: &program };
            let is_success = if self.minimise {
                job.minimise(&self.more)?
            } else {
                job.run_target(self.seconds, &self.more)?
            };
            if !is_success {
                eprintln!(
                    "fuzz target {target} failed: what did it is in {}",
                    job.directory_of("artifacts").display()
                );
                code = ExitCode::FAILURE;
            }
        }
        Ok(code)
    }
}

struct Job<'a> {
    directory: &'a Path,
    target: &'a str,
    program: &'a Path,
}

impl Job<'_> {
    fn directory_of(&self, kind: &str) -> PathBuf {
        self.directory.join(kind).join(self.target)
    }

    fn command(&self, arguments: &[String]) -> Result<Command> {
        for kind in ["corpus", "artifacts", "seeds"] {
            let directory = self.directory_of(kind);
            fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
        }
        let mut command = Command::new(self.program);
        command
            .arg(format!("-artifact_prefix={}/", self.directory_of("artifacts").display()))
            .args(arguments);
        Ok(command)
    }

    /// Runs the target and returns whether it found no failure. libFuzzer writes new inputs to the
    /// first directory.
    fn run_target(&self, seconds: u32, arguments: &[String]) -> Result<bool> {
        let mut command = self.command(arguments)?;
        command
            .arg(format!("-max_total_time={seconds}"))
            .args([self.directory_of("corpus"), self.directory_of("seeds")]);
        Ok(command.status().with_context(|| format!("starting {}", self.program.display()))?.success())
    }

    /// Replaces `seeds` by inputs that have the coverage of `seeds` and `corpus`, up to the limit.
    fn minimise(&self, arguments: &[String]) -> Result<bool> {
        let (seeds, new_seeds) = (self.directory_of("seeds"), self.directory_of("seeds.new"));
        let mut command = self.command(arguments)?;
        if new_seeds.exists() {
            fs::remove_dir_all(&new_seeds).with_context(|| format!("removing {}", new_seeds.display()))?;
        }
        fs::create_dir_all(&new_seeds).with_context(|| format!("making {}", new_seeds.display()))?;
        command.arg("-set_cover_merge=1").args([&new_seeds, &seeds, &self.directory_of("corpus")]);
        if !command.status().with_context(|| format!("starting {}", self.program.display()))?.success() {
            return Ok(false);
        }
        let removed_count = trim(&new_seeds)?;
        fs::remove_dir_all(&seeds).with_context(|| format!("removing {}", seeds.display()))?;
        fs::rename(&new_seeds, &seeds).with_context(|| format!("renaming {}", new_seeds.display()))?;
        println!("{}: replaced; {removed_count} seeds that add least are left out", seeds.display());
        Ok(true)
    }
}

/// Removes the last files of a directory until the rest is within the limits. libFuzzer writes the
/// inputs that add most first. Returns the number of removed files.
fn trim(directory: &Path) -> Result<usize> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        files.push((metadata.modified()?, metadata.len(), entry.path()));
    }
    files.sort();
    let (mut kept_count, mut bytes, mut removed_count) = (0, 0, 0);
    for (_, length, path) in &files {
        if kept_count < MOST_SEEDS && bytes + length <= MOST_SEED_BYTES {
            kept_count += 1;
            bytes += length;
        } else {
            fs::remove_file(path).with_context(|| format!("removing {}", path.display()))?;
            removed_count += 1;
        }
    }
    Ok(removed_count)
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
    cargo.args(["build", "--release", "--message-format=json-render-diagnostics"]);
    // With `--target`, build scripts and macros are built without the flags below.
    cargo.args(["--target", &host()?]).arg("--manifest-path").arg(directory.join("Cargo.toml"));
    cargo.args(targets.iter().flat_map(|target| ["--bin", target]));
    let output = cargo.env("RUSTFLAGS", FLAGS).stderr(Stdio::inherit()).output().context("starting cargo")?;
    ensure!(output.status.success(), "the fuzz targets do not build");
    let cargo_output = String::from_utf8_lossy(&output.stdout);
    let built_program = |target: String| {
        let program = programs::find(&cargo_output, &target);
        let program = program.with_context(|| format!("cargo built no fuzz target '{target}'"))?;
        Ok((target, program))
    };
    targets.into_iter().map(built_program).collect()
}

/// The triple of this machine.
fn host() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().context("asking rustc for its host")?;
    let rustc_output = String::from_utf8_lossy(&output.stdout);
    let host = rustc_output.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc -vV names no host")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn trim_removes_late_files_beyond_the_size_and_count_limits() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str, length: usize, second: u64| {
            let path = directory.path().join(name);
            fs::write(&path, vec![0; length]).expect("written");
            let at = UNIX_EPOCH + Duration::from_secs(second);
            fs::File::options()
                .append(true)
                .open(path)
                .and_then(|file| file.set_modified(at))
                .expect("a time");
        };
        (1..MOST_SEEDS as u64).for_each(|number| write(&number.to_string(), 10, number));
        write("long", MOST_SEED_BYTES as usize, 5000);
        write("last", 1, 9000);
        assert_eq!(trim(directory.path()).expect("trimmed"), 1);
        assert!(!directory.path().join("long").exists() && directory.path().join("last").exists());
        write("later", 1, 10_000);
        assert_eq!(trim(directory.path()).expect("trimmed"), 1);
        assert!(!directory.path().join("later").exists());
    }

    #[test]
    fn every_fuzz_target_is_a_binary_in_the_manifest() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").join("fuzz");
        let manifest = fs::read_to_string(directory.join("Cargo.toml")).expect("a manifest");
        let targets = targets(&directory).expect("targets");
        assert!(targets.iter().all(|target| manifest.contains(&format!("path = \"targets/{target}.rs\""))));
        assert_eq!(manifest.matches("[[bin]]").count(), targets.len());
    }
}

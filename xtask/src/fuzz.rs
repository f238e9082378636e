//! `cargo xtask fuzz`: libFuzzer on the stable toolchain.
//!
//! `cargo fuzz` asks the compiler for coverage with `-Z` options, which need nightly. The LLVM pass behind them can be
//! had with stable `-C` options, and libFuzzer with the address sanitizer left out works the same.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, ensure};
use clap::Args;

use crate::programs::cargo;

#[derive(Debug, Args)]
pub(crate) struct Fuzz {
    /// A file of `fuzz/targets`, without its ending.
    target: String,
    /// How long to look for trouble.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Further arguments for libFuzzer, after `--`.
    #[arg(last = true)]
    more: Vec<String>,
}

/// What cargo-fuzz passes, without what only nightly takes.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Ccodegen-units=1 -Cdebug-assertions";

impl Fuzz {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let root =
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace has no directory")?;
        let directory = root.join("fuzz");
        let source = directory.join("targets").join(&self.target).with_extension("rs");
        ensure!(source.is_file(), "no such fuzz target: {} does not exist", source.display());
        let corpus = directory.join("corpus").join(&self.target);
        let artifacts = directory.join("artifacts").join(&self.target);
        for made in [&corpus, &artifacts] {
            std::fs::create_dir_all(made).with_context(|| format!("making {}", made.display()))?;
        }
        let status = cargo()
            .args(["run", "--release", "--bin", &self.target])
            // With a target named, build scripts and macros are built without the flags below.
            .args(["--target", &host()?])
            .arg("--manifest-path")
            .arg(directory.join("Cargo.toml"))
            .arg("--")
            .arg(&corpus)
            .arg(format!("-artifact_prefix={}/", artifacts.display()))
            .arg(format!("-max_total_time={}", self.seconds))
            .args(&self.more)
            .env("RUSTFLAGS", FLAGS)
            .status()
            .context("starting cargo")?;
        Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// The triple of the machine this runs on.
fn host() -> anyhow::Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().context("asking rustc for its host")?;
    let told = String::from_utf8_lossy(&output.stdout);
    let host = told.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc -vV names no host")
}

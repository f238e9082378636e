//! `cargo xtask bpf`: builds the BPF objects that are committed next to their sources.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, ensure};
use clap::Args;

use crate::image::digest;
use crate::programs::command_output;

/// The compiler for the objects. Another version produces other bytes.
const CLANG: &str = "clang-19";

/// Removes DWARF from an object and keeps BTF.
const STRIP: &str = "llvm-strip-19";

// The hashes of each source and object, one line each.
const MANIFEST: &str = "MANIFEST";

/// Build the BPF objects, or check that they match their sources.
#[derive(Debug, Args)]
pub(crate) struct BpfCommand {
    /// Build in a temporary directory, compare the bytes, and change nothing.
    #[arg(long)]
    check: bool,
}

struct BuiltObject {
    /// The source's file name.
    source: String,
    /// Hash of the source and of our headers that it includes.
    source_hash: String,
    object: Vec<u8>,
}

impl BpfCommand {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bpf").canonicalize()?;
        let objects = sources(&folder)?
            .iter()
            .map(|source| build(&folder, source))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let manifest = manifest(&objects)?;
        if self.check {
            return check(&folder, &objects, &manifest);
        }
        for program in &objects {
            fs::write(folder.join(program.object_name()), &program.object)?;
        }
        fs::write(folder.join(MANIFEST), manifest)?;
        println!("{} objects written to {}", objects.len(), folder.display());
        Ok(ExitCode::SUCCESS)
    }
}

impl BuiltObject {
    fn object_name(&self) -> String {
        self.source.replace(".bpf.c", ".bpf.o")
    }
}

/// The names of all programs, sorted.
fn sources(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".bpf.c") {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn build(folder: &Path, source: &str) -> anyhow::Result<BuiltObject> {
    let scratch = tempfile::tempdir()?;
    let object = scratch.path().join("object.o");
    run(compiler(folder).args(["-c", source, "-o"]).arg(&object))?;
    run(Command::new(STRIP).arg("-g").arg(&object))?;
    let mut sources = Vec::new();
    for file in included_files(folder, source)? {
        sources.extend(fs::read(&file).with_context(|| format!("read {}", file.display()))?);
    }
    Ok(BuiltObject { source: source.to_owned(), source_hash: digest(&sources), object: fs::read(&object)? })
}

/// The compiler, with options that keep the path of the directory out of the object.
fn compiler(folder: &Path) -> Command {
    let mut command = Command::new(CLANG);
    command
        .current_dir(folder)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror"]);
    command.arg(format!("-ffile-prefix-map={}=.", folder.display())).arg("-fdebug-compilation-dir=.");
    // Debian keeps asm/types.h apart for each architecture.
    command.arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH));
    command
}

/// The source and our headers that it includes, sorted by name.
fn included_files(folder: &Path, source: &str) -> anyhow::Result<Vec<PathBuf>> {
    let make_rule = run(compiler(folder).args(["-MM", source]))?;
    let mut files: Vec<PathBuf> = make_rule
        .split_whitespace()
        .skip(1)
        .filter(|word| *word != "\\" && !word.starts_with('/'))
        .map(|name| folder.join(name))
        .collect();
    files.sort();
    Ok(files)
}

fn manifest(objects: &[BuiltObject]) -> anyhow::Result<String> {
    let version = run(Command::new(CLANG).arg("--version"))?;
    let version = version.lines().next().unwrap_or_default();
    let mut text = format!(
        "# Written by `cargo xtask bpf`. {version}\n# source, sha256 of source and headers, sha256 of object\n"
    );
    for program in objects {
        let object_hash = digest(&program.object);
        writeln!(text, "{} {} {object_hash}", program.source, program.source_hash)?;
    }
    Ok(text)
}

fn check(folder: &Path, objects: &[BuiltObject], manifest: &str) -> anyhow::Result<ExitCode> {
    for program in objects {
        let path = folder.join(program.object_name());
        let committed_content =
            fs::read(&path).with_context(|| format!("read {}: run cargo xtask bpf", path.display()))?;
        ensure!(
            committed_content == program.object,
            "{} is not what {} makes: run cargo xtask bpf and commit both",
            path.display(),
            program.source
        );
    }
    let path = folder.join(MANIFEST);
    let committed_content = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    ensure!(committed_content == manifest, "{} is out of date: run cargo xtask bpf", path.display());
    println!("{} objects are what their sources make", objects.len());
    Ok(ExitCode::SUCCESS)
}

fn run(command: &mut Command) -> anyhow::Result<String> {
    command_output(command)
        .context("building BPF objects (packages clang-19, llvm-19, libbpf-dev, linux-libc-dev)")
}

//! `cargo xtask image`: an OCI image with nothing but a static program, as an archive that
//! container tools load.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::programs::{build_messages, cargo, command_output, find};

/// The largest size of the archive.
const LARGEST_BYTES: u64 = 40_000_000;
const TARGET: &str = target();
/// Commands, and the capabilities that docs/containers.md names for them.
const TRIALS: [(&str, &str); 7] = [
    ("doctor --host-root /host --json -", ",+sys_chroot,+sys_ptrace,+dac_read_search"),
    ("export --host-root /host --once", ",+sys_chroot,+sys_ptrace,+dac_read_search"),
    (
        "export --host-root /host --once --with drops,cost",
        ",+sys_chroot,+sys_ptrace,+dac_read_search,+bpf,+perfmon",
    ),
    ("drops --port 9 --duration 0.5", ",+bpf,+perfmon"),
    ("cost --duration 0.5", ",+bpf,+perfmon"),
    ("load 127.0.0.1:9 --rate 10 --duration 0.2 --no-reply --quiet", ""),
    ("tune apply --plan /var/lib/plan.json --yes", ",+net_admin"),
];
const IMAGE_ROOT: &str = include_str!("image_root.sh");
/// A change that is visible only in the network namespace of the trials.
const PLAN: &str = include_str!("trial_plan.json");

/// Build the OCI image, and try it.
#[derive(Debug, Args)]
pub(crate) struct ImageCommand {
    /// The image's program; by default, a static one is built.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Run commands from the image with only the capabilities that they require; requires root
    #[arg(long)]
    test: bool,
}

const fn target() -> &'static str {
    if cfg!(target_arch = "aarch64") { "aarch64-unknown-linux-gnu" } else { "x86_64-unknown-linux-gnu" }
}

impl ImageCommand {
    pub(crate) fn run(&self) -> Result<ExitCode> {
        let program = match &self.program {
            Some(program) => program.clone(),
            None => build()?,
        };
        ensure!(is_static(&program)?, "{} is not a static program", program.display());
        let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/linerate-oci.tar");
        let layer = layer(&fs::read(&program).with_context(|| format!("read {}", program.display()))?)?;
        write_archive(&layer, &archive)?;
        let bytes = fs::metadata(&archive)?.len();
        println!("{} ({bytes} bytes)", archive.display());
        ensure!(bytes <= LARGEST_BYTES, "the image is larger than {LARGEST_BYTES} bytes");
        if self.test {
            try_image(&layer)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Builds with a target, so that the flags do not apply to build scripts and macros, which are
/// loaded dynamically.
fn build() -> Result<PathBuf> {
    let mut cargo = cargo();
    cargo
        .args(["build", "--quiet", "--locked", "--release", "--package", "linerate", "--target", TARGET])
        .args(["--config", "profile.release.strip=\"symbols\""])
        .env("RUSTFLAGS", "-C target-feature=+crt-static");
    find(&build_messages(&mut cargo)?, "linerate")
}

fn is_static(program: &Path) -> Result<bool> {
    let headers = command_output(Command::new("readelf").arg("-lW").arg(program))
        .context("readelf (package binutils)")?;
    Ok(!headers.contains("INTERP"))
}

/// A tar archive of the root: the program, and directories to mount or write to.
fn layer(program: &[u8]) -> Result<Vec<u8>> {
    let mut layer = tar::Builder::new(Vec::new());
    for directory in ["usr/", "usr/bin/", "host/", "tmp/", "var/", "var/lib/", "var/lib/linerate/"] {
        append(
            &mut layer,
            directory,
            tar::EntryType::Directory,
            if directory == "tmp/" { 0o1777 } else { 0o755 },
            &[],
        )?;
    }
    append(&mut layer, "usr/bin/linerate", tar::EntryType::Regular, 0o755, program)?;
    Ok(layer.into_inner()?)
}

fn append(
    tar: &mut tar::Builder<Vec<u8>>,
    path: &str,
    kind: tar::EntryType,
    mode: u32,
    data: &[u8],
) -> Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(data.len() as u64);
    // Times and owners are zero, so that the same program makes the same image.
    header.set_mtime(0);
    Ok(tar.append_data(&mut header, path, data)?)
}

/// SHA-256 in hexadecimal.
pub(crate) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes an archive in the layout of the OCI image specification 1.0.
fn write_archive(layer: &[u8], archive: &Path) -> Result<()> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(layer)?;
    let compressed = gzip.finish()?;
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let config = json!({
        "architecture": architecture,
        "os": "linux",
        "config": { "Entrypoint": ["/usr/bin/linerate"], "Cmd": ["--help"] },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", digest(layer))] },
        "history": [{ "created_by": "cargo xtask image" }],
    });
    let config = serde_json::to_vec(&config)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar+gzip", &compressed)],
    });
    let manifest = serde_json::to_vec(&manifest)?;
    let mut manifest_descriptor = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
    let name = concat!("localhost/linerate:", env!("CARGO_PKG_VERSION"));
    manifest_descriptor["annotations"] = json!({ "org.opencontainers.image.ref.name": name });
    let index = serde_json::to_vec(&json!({ "schemaVersion": 2, "manifests": [manifest_descriptor] }))?;
    let mut tar = tar::Builder::new(Vec::new());
    let blobs = [&config, &manifest, &compressed]
        .map(|blob| (format!("blobs/sha256/{}", digest(blob)), blob.as_slice()));
    let layout: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;
    let names = [("oci-layout".to_owned(), layout), ("index.json".to_owned(), index.as_slice())];
    for (path, data) in names.into_iter().chain(blobs) {
        append(&mut tar, &path, tar::EntryType::Regular, 0o644, data)?;
    }
    File::create(archive)
        .and_then(|mut file| file.write_all(&tar.into_inner()?))
        .with_context(|| format!("write {}", archive.display()))
}

fn descriptor(media_type: &str, data: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": format!("sha256:{}", digest(data)), "size": data.len() })
}

/// Runs the image's program with only the named capabilities. Commands that read the host run in
/// the image's root, with the host's root at /host.
fn try_image(layer: &[u8]) -> Result<()> {
    let root = tempfile::tempdir_in("/var/tmp")?;
    tar::Archive::new(layer).unpack(root.path())?;
    fs::write(root.path().join("tmp/plan.json"), PLAN)?;
    for (command, capabilities) in TRIALS {
        let network = if capabilities.contains("sys_chroot") { "--mount" } else { "--net" };
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", network, "sh", "-c", IMAGE_ROOT, "sh"]).arg(root.path()).arg(capabilities);
        let output = unshare.args(command.split(' ')).output().context("run unshare (util-linux)")?;
        let error_output = String::from_utf8_lossy(&output.stderr);
        let is_success = output.status.code().is_some_and(|code| code < 2)
            && !output.stdout.is_empty()
            && !error_output.contains(" is off: ");
        ensure!(is_success, "linerate {command} with {capabilities}: {}: {error_output}", output.status);
        println!("linerate {command}: works with the capabilities '{capabilities}' and no others");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read;

    use super::*;

    #[test]
    fn image_archive_digests_match_and_lead_to_the_program() {
        let directory = tempfile::tempdir().expect("a directory");
        let archive = directory.path().join("image.tar");
        write_archive(&layer(b"a program").expect("a layer"), &archive).expect("written");
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(File::open(archive).expect("opened")).entries().expect("entries") {
            let mut entry = entry.expect("an entry");
            let (path, mut data) = (entry.path().expect("a path").display().to_string(), Vec::new());
            entry.read_to_end(&mut data).expect("read");
            files.insert(path, data);
        }
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"]
                .as_str()
                .and_then(|digest| digest.strip_prefix("sha256:"))
                .expect("a digest");
            let data = &files[&format!("blobs/sha256/{digest}")];
            assert_eq!(
                (self::digest(data).as_str(), descriptor["size"].as_u64()),
                (digest, Some(data.len() as u64))
            );
            data.clone()
        };
        let json = |data: &[u8]| serde_json::from_slice::<Value>(data).expect("JSON");
        let manifest = json(&blob(&json(&files["index.json"])["manifests"][0]));
        let mut layer = Vec::new();
        flate2::read::GzDecoder::new(blob(&manifest["layers"][0]).as_slice())
            .read_to_end(&mut layer)
            .expect("gzip");
        assert_eq!(
            json(&blob(&manifest["config"]))["rootfs"]["diff_ids"][0],
            format!("sha256:{}", digest(&layer))
        );
        let mut layer = tar::Archive::new(layer.as_slice());
        let last = layer.entries().expect("entries").last().expect("a file").expect("an entry");
        assert_eq!(last.path().expect("a path"), Path::new("usr/bin/linerate"));
    }
}

//! The initramfs of the guest.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use linerate_testkit::reflector::installed::find;
use tempfile::TempDir;

use super::GuestUnavailable;
use super::kernel::UnpackedKernel;
use crate::programs::command_output;

// Modules that can be loaded in the guest; their dependencies are added.
const MODULES: [&str; 21] = [
    "igb",
    "igbvf",
    "e1000e",
    "vmxnet3",
    "virtio_net",
    "veth",
    "ipvlan",
    "openvswitch",
    "dummy",
    "8021q",
    "sch_fq",
    "sch_ingress",
    "cls_bpf",
    "nf_conntrack",
    "nf_tables",
    "nft_ct",
    "nft_fib_inet",
    "iptable_filter",
    "xt_conntrack",
    "crc32c_generic",
    "xt_tcpudp",
];

// Programs of the host in the guest: the program, its name there, and its Debian package. The shell
// is dash, because that of busybox would run its own `ip` instead of the one in PATH.
const PROGRAMS: [(&str, &str, &str); 8] = [
    ("dash", "sh", "dash"),
    ("ethtool", "ethtool", "ethtool"),
    ("ip", "ip", "iproute2"),
    ("tc", "tc", "iproute2"),
    ("ss", "ss", "iproute2"),
    ("nft", "nft", "nftables"),
    ("irqbalance", "irqbalance", "irqbalance"),
    ("ovs-dpctl", "ovs-dpctl", "openvswitch-switch"),
];

const BUSYBOX: &str = "/bin/busybox";

/// The path of the command under test in the guest, in a directory of PATH.
const COMMAND: &str = "usr/local/bin/linerate";

/// Packs the file system: the init program, the command, programs and modules.
pub(super) fn pack(kernel: &UnpackedKernel, command: &Path) -> anyhow::Result<fs::File> {
    let image = GuestImage { root: tempfile::tempdir().context("make a directory")? };
    let init = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest/init");
    image.copy(&init, "init")?;
    image.busybox()?;
    let mut libraries = libraries(command)?;
    image.add(COMMAND, 0o755, &strip_program(command)?)?;
    for (name, known_as, package) in PROGRAMS {
        let program = find(name)
            .ok_or_else(|| GuestUnavailable(format!("{name} is not installed: apt install {package}")))?;
        libraries.extend(self::libraries(&program)?);
        image.copy(&program, &format!("usr/bin/{known_as}"))?;
    }
    for library in libraries {
        image.copy(&library, library.to_string_lossy().trim_start_matches('/'))?;
    }
    image.modules(kernel)?;
    image.packed()
}

/// The files of the guest in a directory.
struct GuestImage {
    root: TempDir,
}

impl GuestImage {
    fn add(&self, name: &str, rights: u32, content: &[u8]) -> anyhow::Result<()> {
        let path = self.root.path().join(name);
        let write = || {
            fs::create_dir_all(path.parent().unwrap_or(&path))?;
            fs::write(&path, content)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(rights))
        };
        write().with_context(|| format!("write {}", path.display()))
    }

    // The archive from which the kernel unpacks its first file system: cpio, format "newc"
    // (Documentation/driver-api/early-userspace/buffer-format.rst, Linux 6.12).
    fn packed(&self) -> anyhow::Result<fs::File> {
        let file = tempfile::tempfile().context("make a file")?;
        let status = Command::new("sh")
            .args(["-c", "find . -mindepth 1 | busybox cpio -o -H newc -R 0:0 2>/dev/null"])
            .current_dir(&self.root)
            .stdout(file.try_clone()?)
            .status()
            .context("run busybox cpio")?;
        ensure!(status.success(), "busybox cpio ended with {status}");
        Ok(file)
    }

    fn copy(&self, source: &Path, name: &str) -> anyhow::Result<()> {
        let read_error = || format!("read {}", source.display());
        let content = fs::read(source).with_context(read_error)?;
        let rights = fs::metadata(source).with_context(read_error)?.permissions().mode() & 0o777;
        self.add(name, rights, &content)
    }

    /// The static shell that runs the init program.
    fn busybox(&self) -> anyhow::Result<()> {
        let busybox = Path::new(BUSYBOX);
        if !busybox.is_file() || !libraries(busybox)?.is_empty() {
            return Err(
                GuestUnavailable("there is no static busybox: apt install busybox-static".into()).into()
            );
        }
        self.copy(busybox, BUSYBOX.trim_start_matches('/'))
    }

    fn modules(&self, kernel: &UnpackedKernel) -> anyhow::Result<()> {
        let picked_modules = kernel.pick_modules(&MODULES)?;
        let folder = format!("lib/modules/{}", kernel.release);
        for file in &picked_modules.files {
            let path = kernel.modules.join(file);
            match file.strip_suffix(".xz") {
                // Unpacked on the host, because the guest is slow.
                Some(unpacked_name) => {
                    let output = Command::new("xz").arg("-dc").arg(&path).output().context("run xz")?;
                    if !output.status.success() {
                        bail!("xz cannot unpack {}", path.display());
                    }
                    self.add(&format!("{folder}/{unpacked_name}"), 0o644, &output.stdout)?;
                }
                None => self.copy(&path, &format!("{folder}/{file}"))?,
            }
        }
        self.copy(&kernel.built_in(), &format!("{folder}/modules.builtin"))?;
        self.add(&format!("{folder}/modules.dep"), 0o644, picked_modules.dependencies.as_bytes())?;
        self.add(&format!("{folder}/modules.alias"), 0o644, picked_modules.aliases.as_bytes())
    }
}

// The shared libraries of a program; empty for a static one.
fn libraries(program: &Path) -> anyhow::Result<BTreeSet<PathBuf>> {
    let output =
        Command::new("ldd").arg(program).env("LC_ALL", "C").output().context("run ldd (package libc-bin)")?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        if error.contains("not a dynamic executable") {
            return Ok(BTreeSet::new());
        }
        bail!("ldd cannot read {}: {}", program.display(), error.trim());
    }
    parse_libraries(&String::from_utf8_lossy(&output.stdout))
        .with_context(|| format!("find the libraries of {}", program.display()))
}

fn parse_libraries(ldd_output: &str) -> anyhow::Result<BTreeSet<PathBuf>> {
    let mut files = BTreeSet::new();
    for line in ldd_output.lines().map(str::trim) {
        let file = line.split_once(" => ").map_or(line, |(_, file)| file);
        if file.starts_with("not found") {
            bail!("{line}");
        }
        // The last word is the address. Entries without a path (vdso, "statically linked") are no
        // files.
        if file.starts_with('/') {
            files.insert(PathBuf::from(file.rsplit_once(" (").map_or(file, |(file, _)| file)));
        }
    }
    Ok(files)
}

// A program without debug information, because the memory of the guest is small.
fn strip_program(program: &Path) -> anyhow::Result<Vec<u8>> {
    let stripped_file = tempfile::NamedTempFile::new().context("make a file")?;
    command_output(Command::new("strip").arg("-o").args([stripped_file.path(), program]))
        .context("strip the command (package binutils)")?;
    fs::read(stripped_file.path()).with_context(|| format!("read {}", stripped_file.path().display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_parsed_from_ldd_output() {
        let output = "\tlinux-vdso.so.1 (0x00007fff1d9f2000)\n\
                    \tlibmnl.so.0 => /lib/x86_64-linux-gnu/libmnl.so.0 (0x00007f5c3b6c9000)\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f5c3b4e8000)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f5c3b779000)\n";
        let files = parse_libraries(output).expect("all libraries");
        let names: Vec<_> = files.iter().map(|file| file.to_string_lossy()).collect();
        let libraries = "/lib/x86_64-linux-gnu";
        assert_eq!(
            names,
            [
                format!("{libraries}/libc.so.6"),
                format!("{libraries}/libmnl.so.0"),
                "/lib64/ld-linux-x86-64.so.2".into()
            ]
        );
        assert!(parse_libraries("\tstatically linked\n").expect("no libraries").is_empty());
        let error = parse_libraries("\tlibgone.so => not found\n").expect_err("a missing library");
        assert_eq!(error.to_string(), "libgone.so => not found");
    }
}

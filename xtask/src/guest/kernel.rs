//! Debian's kernel for the guest: a package that is unpacked under the target directory and not
//! installed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use super::GuestUnavailable;
use crate::programs::command_output;

// Packages that depend on the newest kernel, the preferred ones first: a recent one of Debian 12
// (from its security archive), then each release's own.
const LATEST: [&str; 2] = ["linux-image-6.12-amd64", "linux-image-amd64"];

// An unpacked kernel.
pub(super) struct UnpackedKernel {
    /// A release such as `6.12.57+deb12-amd64`.
    pub(super) release: String,
    pub(super) image: PathBuf,
    /// `lib/modules/RELEASE`.
    pub(super) modules: PathBuf,
}

impl UnpackedKernel {
    // Downloads and unpacks the newest kernel or that of `package`, unless it is cached.
    pub(super) fn fetch_or_reuse(cache: &Path, package: Option<&str>) -> anyhow::Result<Self> {
        let fetch_error = match fetch(cache, package) {
            Ok(kernel) => return Ok(kernel),
            Err(error) => error,
        };
        // A kernel that an earlier run has unpacked is sufficient, too.
        if package.is_none()
            && let Some(kernel) = newest(cache)
        {
            eprintln!("guest: {} from an earlier run, since {fetch_error:#}", kernel.release);
            return Ok(kernel);
        }
        Err(GuestUnavailable(format!("no kernel package: {fetch_error:#}")).into())
    }

    fn open(folder: &Path) -> anyhow::Result<Self> {
        let modules = folder.join("lib/modules");
        let release = only_entry(&modules)?;
        let image = folder.join("boot").join(format!("vmlinuz-{release}"));
        if !image.is_file() {
            bail!("{} does not exist", image.display());
        }
        Ok(Self { modules: modules.join(&release), release, image })
    }

    // The files of the named modules and their dependencies, relative to
    // [`modules`](Self::modules), and their lines of `modules.alias`.
    pub(super) fn pick_modules(&self, module_names: &[&str]) -> anyhow::Result<PickedModules> {
        let read_file = |name: &str| {
            let path = self.modules.join(name);
            fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
        };
        pick_modules(&read_file("modules.dep")?, &read_file("modules.alias")?, module_names)
    }

    /// Features that other kernels have as modules, one path per line.
    pub(super) fn built_in(&self) -> PathBuf {
        self.modules.join("modules.builtin")
    }
}

// Modules for the guest, with the index files that its `modprobe` reads.
#[derive(Debug, PartialEq)]
pub(super) struct PickedModules {
    /// As packed by Debian: `.ko` or `.ko.xz`.
    pub(super) files: BTreeSet<String>,
    /// `modules.dep` for the same files, none compressed.
    pub(super) dependencies: String,
    /// `modules.alias`.
    pub(super) aliases: String,
}

fn fetch(cache: &Path, package: Option<&str>) -> anyhow::Result<UnpackedKernel> {
    let (package, version) = match package {
        Some(package) => resolve_package(package)?,
        None => resolve_package(LATEST[0]).or_else(|_| resolve_package(LATEST[1]))?,
    };
    let folder = cache.join(format!("{package}_{version}"));
    if !folder.is_dir() {
        eprintln!("guest: downloading {package} {version}");
        fs::create_dir_all(cache).with_context(|| format!("make {}", cache.display()))?;
        // The directory is renamed when it is complete.
        let scratch = tempfile::tempdir_in(cache).context("make a directory")?;
        unpack(&package, &version, scratch.path())?;
        let unpacked = scratch.path().join("kernel");
        if let Err(error) = fs::rename(&unpacked, &folder)
            && !folder.is_dir()
        {
            return Err(error).with_context(|| format!("make {}", folder.display()));
        }
    }
    UnpackedKernel::open(&folder)
}

// The name and version of the kernel package: `package` itself or a dependency.
fn resolve_package(package: &str) -> anyhow::Result<(String, String)> {
    let package_record =
        command_output(Command::new("apt-cache").args(["show", "--no-all-versions", package]))?;
    let target = depends_on_kernel(&package_record).unwrap_or(package);
    let package_record =
        command_output(Command::new("apt-cache").args(["show", "--no-all-versions", target]))?;
    let version = package_record
        .lines()
        .find_map(|line| line.strip_prefix("Version: "))
        .with_context(|| format!("apt knows no version of {target}"))?;
    Ok((target.to_owned(), version.to_owned()))
}

// The name of the kernel package, from the `apt-cache show` output of a metapackage.
fn depends_on_kernel(package_record: &str) -> Option<&str> {
    let dependency_list = package_record.lines().find_map(|line| line.strip_prefix("Depends: "))?;
    dependency_list
        .split(", ")
        .filter_map(|dependency| dependency.split_whitespace().next())
        .find(|name| name.starts_with("linux-image-"))
}

fn unpack(package: &str, version: &str, scratch: &Path) -> anyhow::Result<()> {
    command_output(
        Command::new("apt-get")
            // The sandbox user of apt may not write to this directory.
            .args(["-q", "-o", "APT::Sandbox::User=root", "download"])
            .arg(format!("{package}={version}"))
            .current_dir(scratch),
    )?;
    let archive = scratch.join(only_entry(scratch)?);
    let folder = scratch.join("kernel");
    command_output(Command::new("dpkg-deb").arg("-x").args([&archive, &folder]))?;
    // Debian lists the modules when the package is installed.
    let release = only_entry(&folder.join("lib/modules"))?;
    command_output(Command::new("depmod").arg("-b").arg(&folder).arg(release))?;
    Ok(())
}

// The kernel that was unpacked last.
fn newest(cache: &Path) -> Option<UnpackedKernel> {
    let unpacked = fs::read_dir(cache).ok()?.filter_map(Result::ok).filter_map(|entry| {
        let kernel = UnpackedKernel::open(&entry.path()).ok()?;
        Some((entry.metadata().ok()?.modified().ok()?, kernel))
    });
    unpacked.max_by_key(|(modified, _)| *modified).map(|(_, kernel)| kernel)
}

fn pick_modules(dependencies: &str, aliases: &str, module_names: &[&str]) -> anyhow::Result<PickedModules> {
    let modules_by_name: BTreeMap<String, (&str, &str)> = dependencies
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(file, dependency_names)| (module_name(file), (file, dependency_names)))
        .collect();
    let mut files = BTreeSet::new();
    let mut lines = BTreeSet::new();
    for name in module_names {
        let (file, dependency_names) =
            modules_by_name.get(*name).with_context(|| format!("this kernel has no module {name}"))?;
        for file in std::iter::once(*file).chain(dependency_names.split_whitespace()) {
            files.insert(file.to_owned());
            if let Some((_, further_dependencies)) = modules_by_name.get(&module_name(file)) {
                lines.insert(format!("{file}:{further_dependencies}\n").replace(".ko.xz", ".ko"));
            }
        }
    }
    let names: BTreeSet<String> = files.iter().map(|file| module_name(file)).collect();
    let is_alias_of_picked =
        |line: &&str| line.split_whitespace().last().is_some_and(|name| names.contains(name));
    let aliases = aliases.lines().filter(is_alias_of_picked).flat_map(|line| [line, "\n"]).collect();
    Ok(PickedModules { dependencies: lines.into_iter().collect(), aliases, files })
}

// The kernel's name of a module: `i2c_algo_bit` for `kernel/drivers/i2c/algos/i2c-algo-bit.ko.xz`.
fn module_name(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.split_once(".ko").map_or(name, |(name, _)| name).replace('-', "_")
}

fn only_entry(folder: &Path) -> anyhow::Result<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    match <[String; 1]>::try_from(names) {
        Ok([name]) => Ok(name),
        Err(names) => bail!("{} holds {names:?}, not one thing", folder.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_package_is_read_from_depends() {
        let output = "Package: linux-image-6.12-amd64\nSource: linux-6.12\nVersion: 6.12.117-1~deb12u1\n\
                     Depends: linux-image-6.12.117+deb12-amd64 (= 6.12.117-1~deb12u1)\n";
        assert_eq!(depends_on_kernel(output), Some("linux-image-6.12.117+deb12-amd64"));
        assert_eq!(depends_on_kernel("Depends: kmod, linux-base (>= 4.3~)\n"), None);
    }

    #[test]
    fn picked_modules_include_their_dependencies() {
        let dependencies = "kernel/i2c/i2c-algo-bit.ko.xz:\n\
                            kernel/dca/dca.ko.xz:\n\
                            kernel/igb/igb.ko.xz: kernel/i2c/i2c-algo-bit.ko.xz kernel/dca/dca.ko.xz\n\
                            kernel/other.ko:\n";
        let aliases = "# comment\nalias pci:v00008086d000010C9sv*sd*bc*sc*i* igb\nalias pci:v1 other\n";
        let modules = pick_modules(dependencies, aliases, &["igb"]).expect("igb is known");
        assert_eq!(modules.files.len(), 3);
        assert_eq!(
            modules.dependencies,
            "kernel/dca/dca.ko:\nkernel/i2c/i2c-algo-bit.ko:\n\
             kernel/igb/igb.ko: kernel/i2c/i2c-algo-bit.ko kernel/dca/dca.ko\n"
        );
        assert_eq!(modules.aliases, "alias pci:v00008086d000010C9sv*sd*bc*sc*i* igb\n");
        let error = pick_modules(dependencies, aliases, &["ice"]).expect_err("ice is not known");
        assert_eq!(error.to_string(), "this kernel has no module ice");
    }
}

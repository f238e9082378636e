//! Writing a host with known faults into a directory, for `linerate doctor --root`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use linerate_testkit::specimen::{names, specimen};

/// Arguments of `cargo xtask specimen`.
#[derive(Debug, clap::Args)]
pub(crate) struct Specimen {
    /// Its name; none lists them
    name: Option<String>,
    /// A directory that is not there yet or empty; a second reading goes below `later` in it
    #[arg(requires = "name")]
    directory: Option<PathBuf>,
}

impl Specimen {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let Some(name) = &self.name else {
            for specimen in names().filter_map(specimen) {
                println!("{:<20} {}", specimen.name, specimen.about);
            }
            return Ok(ExitCode::SUCCESS);
        };
        let known = || names().collect::<Vec<_>>().join(", ");
        let specimen = specimen(name).ok_or_else(|| anyhow!("no specimen {name}; there are {}", known()))?;
        let Some(directory) = &self.directory else { bail!("a directory to write {name} into is missing") };
        if std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some()) {
            bail!("{} is not empty", directory.display());
        }
        specimen.write(directory).with_context(|| format!("writing {name} into {}", directory.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}

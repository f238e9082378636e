//! Writing a host with known faults into a directory, for `linerate doctor --root`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use linerate_testkit::fixture::{fixture, names};

/// Arguments of `cargo xtask fixture`.
#[derive(Debug, clap::Args)]
pub(crate) struct Fixture {
    /// Name of the host; without a name, all hosts are listed
    name: Option<String>,
    /// A new or empty directory; the second reading is written to `later` in it
    #[arg(requires = "name")]
    directory: Option<PathBuf>,
}

impl Fixture {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let Some(name) = &self.name else {
            for fixture in names().filter_map(fixture) {
                println!("{:<20} {}", fixture.name, fixture.about);
            }
            return Ok(ExitCode::SUCCESS);
        };
        let fixture_names = || names().collect::<Vec<_>>().join(", ");
        let fixture =
            fixture(name).ok_or_else(|| anyhow!("no fixture {name}; there are {}", fixture_names()))?;
        let Some(directory) = &self.directory else { bail!("a directory to write {name} into is missing") };
        if std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some()) {
            bail!("{} is not empty", directory.display());
        }
        fixture.write(directory).with_context(|| format!("writing {name} into {}", directory.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}

//! `cargo xtask guest`: a machine of many CPUs, two NUMA nodes and NICs with many queues, emulated
//! by QEMU.
//!
//! It boots Debian's kernel with an initramfs of the host's own programs. Nothing is installed, and
//! its wires end in a network namespace. See guest/README.md.

mod balance;
mod checks;
mod image;
mod kernel;
mod machine;
mod plans;
mod session;
mod traffic;
mod tuning;

use std::fs::File;
use std::io::{stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand, ValueEnum as _};
use linerate_lab::userns::{self, LabPrivilege};

use crate::programs::{self, BuildProfile};
use kernel::UnpackedKernel;
use machine::{GuestVariant, TO_VIRTIO};
use session::{GuestSession, GuestUnresponsive, OutputSinks};
use traffic::{FlowCount, GuestTraffic};

// Exit status if the guest failed instead of its command (the same as in env and timeout).
const GUEST_FAILED: u8 = 125;

// Maximum number of boots until all CPUs of a machine run.
const BOOTS: u32 = 4;

/// Runs a program on each CPU.
const ON_EACH_CPU: &str = "
for cpu in $(seq 0 $(($(nproc) - 1))); do taskset -c $cpu true & done
wait
";

/// Several times the duration of a normal boot; a boot that takes longer is repeated.
const BOOTED_WITHIN: Duration = Duration::from_secs(120);

const ALL_CPUS_RUN_WITHIN: Duration = Duration::from_secs(60);

/// A machine of many CPUs in QEMU. Requires root or user namespaces.
#[derive(Debug, Subcommand)]
pub(crate) enum GuestChore {
    /// Boot, run a command as root, return its exit status (125 if the guest failed), and power off
    Run {
        #[command(flatten)]
        with: GuestParts,
        /// The machine to emulate
        #[arg(long, value_enum, default_value_t)]
        variant: GuestVariant,
        /// Meanwhile, send datagrams from the host to UDP port 4000 of vnet0
        #[arg(long, value_enum, value_name = "FLOWS")]
        traffic: Option<FlowCount>,
        /// The command and its arguments; linerate is in its PATH
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Boot each variant, and check doctor and tune in it; prints SKIP without QEMU or a kernel
    Test {
        #[command(flatten)]
        with: GuestParts,
        /// Only this variant
        #[arg(long, value_enum)]
        variant: Option<GuestVariant>,
        /// Skip the plans for each interface, and irqbalance
        #[arg(long)]
        short: bool,
    },
    /// Boot, and open a shell on the console
    Shell {
        #[command(flatten)]
        with: GuestParts,
        /// The machine to emulate
        #[arg(long, value_enum, default_value_t)]
        variant: GuestVariant,
    },
}

#[derive(Debug, Args)]
pub(crate) struct GuestParts {
    /// Use a development build of linerate, which is quick to build and slow to run
    #[arg(long)]
    development: bool,
    /// A Debian kernel package, or one that depends on it, instead of the newest kernel
    #[arg(long)]
    kernel: Option<String>,
    /// Seconds for the boot (at most 120 if it would be repeated), and then for the command
    #[arg(long, default_value_t = 300)]
    deadline: u64,
}

/// A missing requirement of the guest. Other errors are failures.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct GuestUnavailable(String);

struct PreparedGuest {
    kernel: UnpackedKernel,
    /// A file without a name, which is removed when this process ends.
    image: File,
}

impl GuestChore {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let status = match &self {
            Self::Run { with: options, variant, traffic, command } => {
                options.run(*variant, *traffic, command)
            }
            Self::Test { with: options, variant, short } => options.test(*variant, *short),
            Self::Shell { with: options, variant } => options.shell(*variant),
        };
        status.map(ExitCode::from).or_else(|error| {
            eprintln!("guest: {error:#}");
            Ok(ExitCode::from(GUEST_FAILED))
        })
    }
}

impl GuestParts {
    fn run(
        &self,
        variant: GuestVariant,
        traffic: Option<FlowCount>,
        command: &[String],
    ) -> anyhow::Result<u8> {
        let command_line = shlex::try_join(command.iter().map(String::as_str))?;
        let prepared_guest = self.prepare()?;
        let deadline = Duration::from_secs(self.deadline);
        let mut guest = GuestSession::boot(&prepared_guest, variant, deadline)?;
        let traffic =
            traffic.map(|flows| GuestTraffic::start(&guest, &TO_VIRTIO, flows, traffic::FEW)).transpose()?;
        let mut sinks = OutputSinks { output: &mut stdout(), errors: &mut stderr() };
        let status = guest.run(&command_line, deadline, &mut sinks)?;
        if let Some(traffic) = traffic {
            eprintln!("guest: {} datagrams sent meanwhile", traffic.stop()?);
        }
        Ok(status)
    }

    fn test(&self, variant: Option<GuestVariant>, short: bool) -> anyhow::Result<u8> {
        let prepared_guest = match self.prepare() {
            Err(error) if error.is::<GuestUnavailable>() => {
                eprintln!("SKIP guest: {error:#}");
                return Ok(0);
            }
            prepare_result => prepare_result?,
        };
        let variants = variant.as_ref().map_or(GuestVariant::value_variants(), std::slice::from_ref);
        let mut all_failures = Vec::new();
        for variant in variants {
            println!("{variant}, Linux {}", prepared_guest.kernel.release);
            // Each check boots a new guest, with the defaults of its drivers.
            let mut failures =
                self.check_with_retry(&prepared_guest, *variant, |guest| checks::run(guest, *variant))?;
            if !short {
                failures.extend(
                    self.check_with_retry(&prepared_guest, *variant, |guest| plans::run(guest, *variant))?,
                );
            }
            if *variant == GuestVariant::TwoNodes {
                failures.extend(self.check_with_retry(&prepared_guest, *variant, tuning::run)?);
                if !short {
                    failures.extend(self.check_with_retry(&prepared_guest, *variant, balance::run)?);
                }
            }
            all_failures.extend(failures.into_iter().map(|failure| format!("{variant}, {failure}")));
        }
        for failure in &all_failures {
            println!("FAILED {failure}");
        }
        Ok(u8::from(!all_failures.is_empty()))
    }

    /// Runs checks, and repeats them once if the guest stops answering.
    fn check_with_retry(
        &self,
        prepared_guest: &PreparedGuest,
        variant: GuestVariant,
        check: impl Fn(&mut GuestSession) -> anyhow::Result<Vec<String>>,
    ) -> anyhow::Result<Vec<String>> {
        match check(&mut self.boot(prepared_guest, variant)?) {
            Err(error) if error.is::<GuestUnresponsive>() => {
                eprintln!("guest: {error:#}; these checks once more after another boot");
                check(&mut self.boot(prepared_guest, variant)?)
            }
            result => result,
        }
    }

    // Boots until all CPUs run. On a host with 2 CPUs, one of the 20 sometimes stops during the
    // boot (QEMU 10.0 under TCG). A driver that waits for it later, for example for a grace period
    // of RCU, waits forever. Sometimes QEMU itself fails (an assertion in its memory map, while
    // several CPUs change it).
    fn boot(&self, prepared_guest: &PreparedGuest, variant: GuestVariant) -> anyhow::Result<GuestSession> {
        let deadline = Duration::from_secs(self.deadline);
        for _ in 1..BOOTS {
            let session = GuestSession::boot(prepared_guest, variant, deadline.min(BOOTED_WITHIN));
            let checked_session = session.and_then(|mut guest| {
                guest.run_script_within(ON_EACH_CPU, ALL_CPUS_RUN_WITHIN)?;
                Ok(guest)
            });
            match checked_session {
                Err(error) if error.is::<GuestUnresponsive>() => {
                    eprintln!("guest: not all of its CPUs run; booted again. {error:#}");
                }
                result => return result,
            }
        }
        GuestSession::boot(prepared_guest, variant, deadline)
    }

    fn shell(&self, variant: GuestVariant) -> anyhow::Result<u8> {
        let prepared_guest = self.prepare()?;
        let host = session::make_host(variant)?;
        let mut command = session::qemu(&prepared_guest, variant, "guest.shell quiet")?;
        // Ctrl-A x ends QEMU.
        command.args(["-display", "none", "-serial", "mon:stdio"]);
        let status = host.receiver().spawn(command)?.wait()?;
        Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(GUEST_FAILED))
    }

    /// Builds and fetches everything, then enters a user namespace if necessary.
    fn prepare(&self) -> anyhow::Result<PreparedGuest> {
        if std::env::consts::ARCH != "x86_64" {
            return Err(
                GuestUnavailable("the guest runs this machine's programs, and is x86-64".into()).into()
            );
        }
        session::check_qemu()?;
        let profile = if self.development { BuildProfile::Development } else { BuildProfile::Release };
        let command = programs::build(profile, "linerate")?;
        let kernel = UnpackedKernel::fetch_or_reuse(&cache(&command)?, self.kernel.as_deref())?;
        let image = image::pack(&kernel, &command)?;
        if let LabPrivilege::Forbidden { why, how_to_allow } = userns::enter_if_needed() {
            bail!(GuestUnavailable(format!("requires root or a user namespace, and {why}; {how_to_allow}")));
        }
        Ok(PreparedGuest { kernel, image })
    }
}

/// The directory `guest` in the target directory in which `command` was built.
fn cache(command: &Path) -> anyhow::Result<PathBuf> {
    let target = command.ancestors().nth(2).context("the command is in no target directory")?;
    Ok(target.join("guest"))
}

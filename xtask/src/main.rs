//! Build chores: benches and fuzzing. `cargo xtask --help` lists them.

mod bench;
mod bpf;
mod deb;
mod findings;
mod fuzz;
mod guest;
mod machine;
mod man;
mod programs;
#[cfg(test)]
#[path = "../../cli/tests/command/schema.rs"]
mod schema;
mod soak;
mod specimen;
mod sys;
mod user_tests;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Chores of linerate's developers.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Measure, and fail where a promise is not kept.
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Build the BPF objects, or check that they are what their sources make.
    Bpf(bpf::Bpf),
    /// Build the Debian package, and try it in a throw-away installation.
    Deb(deb::Deb),
    /// Write docs/findings, a page for each of doctor's rules, or check that it is what the rules say.
    Findings(findings::Findings),
    /// Run a fuzz target for a while, on the stable toolchain.
    Fuzz(fuzz::Fuzz),
    /// Boot a machine of many CPUs and NUMA nodes, and run something there.
    #[command(subcommand)]
    Guest(guest::GuestChore),
    /// Write the manual pages and docs/exit-status.md, or check that they fit the command.
    Man(man::Man),
    /// Keep a server loaded while its host changes under it and its workers panic; takes root.
    Soak(soak::Soak),
    /// Write a host with known faults into a directory, for `linerate doctor --root`.
    Specimen(specimen::Specimen),
    /// Run the workspace's tests as nobody; takes root.
    UserTests(user_tests::UserTests),
}

fn main() -> anyhow::Result<ExitCode> {
    match Arguments::parse().chore {
        Chore::Bench(bench) => bench.run(),
        Chore::Bpf(bpf) => bpf.run(),
        Chore::Deb(deb) => deb.run(),
        Chore::Findings(findings) => findings.run(),
        Chore::Fuzz(fuzz) => fuzz.run(),
        Chore::Guest(guest) => guest.run(),
        Chore::Man(man) => man.run(),
        Chore::Soak(soak) => soak.run(),
        Chore::Specimen(specimen) => specimen.run(),
        Chore::UserTests(tests) => tests.run(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_subject_is_started_as_it_was_described() {
        for side in [bench::Side::Engine, bench::Side::C] {
            for wildcard in [false, true] {
                let subject = bench::Subject { side, requests: 256, batch: 64, payload: 100, wildcard };
                let arguments = std::iter::once("xtask".to_owned()).chain(subject.arguments());
                match Arguments::parse_from(arguments).chore {
                    Chore::Bench(bench::Bench::Subject(parsed)) => assert_eq!(parsed, subject),
                    other => panic!("parsed as {other:?}"),
                }
            }
        }
    }
}

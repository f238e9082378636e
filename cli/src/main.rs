//! The `linerate` command.

mod command;
mod interrupt;
mod output;
mod progress;
mod render;

use std::process::ExitCode;

use clap::Parser;

use command::Command;

/// Finds out why a UDP service on Linux does not reach line rate, fixes it while it runs, and
/// proves it with numbers.
#[derive(Debug, Parser)]
#[command(name = "linerate", version, propagate_version = true, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.command.run() {
        Ok(code) => code,
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("linerate: {}", output::one_line(&error));
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Arguments::command().debug_assert();
    }
}

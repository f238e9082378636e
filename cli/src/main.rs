//! The `linerate` command.

// Both panic if the terminal has disappeared; see the module `output`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

#[macro_use]
mod output;

mod command;
mod document;
mod envelope;
#[cfg(test)]
mod fixture_hosts;
mod interrupt;
mod manual;
mod metrics;
mod named_values;
mod origin;
mod progress;
mod quantity;
mod render;
mod suggestion;
mod top;
mod view;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use command::Command;

/// The version, and the commit if it was known at build time. Documents contain only the version.
const VERSION: &str = env!("LINERATE_VERSION");

/// Finds out why a UDP service on Linux does not reach line rate, fixes it while it runs, and
/// proves it with numbers.
#[derive(Debug, Parser)]
#[command(name = "linerate", version = VERSION, propagate_version = true, max_term_width = 100)]
struct CliArgs {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    command::completions::complete_for_shell();
    let arguments = match CliArgs::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error),
    };
    match arguments.command.run() {
        Ok(code) => code,
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            status_line!("linerate: {}", output::one_line(&error));
            ExitCode::from(2)
        }
    }
}

/// The whole tree of commands.
fn tree() -> clap::Command {
    CliArgs::command()
}

/// Prints help and version as clap does, and a mistake in one line like all other errors. Without a
/// command the help lists the commands.
fn usage(error: &clap::Error) -> ExitCode {
    let lacks_command = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if lacks_command || !error.use_stderr() {
        // If the output cannot be written, nobody reads it, so the error is ignored.
        let _ = error.print();
        return ExitCode::from(if lacks_command { 2 } else { 0 });
    }
    let text = error.to_string();
    // The words before the usage. clap lists missing arguments on separate lines.
    let words: Vec<&str> = text
        .lines()
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let line = words.join(" ");
    status_line!("linerate: {} (see --help)", line.strip_prefix("error: ").unwrap_or(&line));
    ExitCode::from(2)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_passes_the_assertions_of_clap() {
        super::tree().debug_assert();
    }

    // clap waives a required option that conflicts with a given one. The option that requires it would
    // then be ignored, so it has to conflict with the given one, too.
    #[test]
    fn a_required_option_is_never_waived() {
        let (mut tree, mut waived, mut count) = (super::tree(), Vec::new(), 0);
        tree.build();
        let mut commands = vec![tree];
        while let Some(command) = commands.pop() {
            let conflicts = |one: &clap::Arg, other: &clap::Arg| {
                let in_one_group = command.get_groups().any(|group| {
                    let has = |option: &clap::Arg| group.get_args().any(|id| id == option.get_id());
                    !group.clone().is_multiple() && has(one) && has(other)
                });
                let [of_one, of_other] = [one, other].map(|option| command.get_arg_conflicts_with(option));
                in_one_group || of_one.contains(&other) || of_other.contains(&one)
            };
            for option in command.get_arguments().filter(|option| !option.is_hide_set()) {
                // No method returns what an argument requires.
                let text = format!("{option:?}");
                let required = text.split_once("requires: [").and_then(|(_, rest)| rest.split_once(']'));
                let required: Vec<&str> = required.map_or("", |(ids, _)| ids).split('"').collect();
                let is_required = |other: &&clap::Arg| required.contains(&other.get_id().as_str());
                for required in command.get_arguments().filter(is_required) {
                    count += 1;
                    let given = command.get_arguments().filter(|given| {
                        ![option, required].contains(given)
                            && conflicts(given, required)
                            && !conflicts(given, option)
                    });
                    waived.extend(given.map(|given| {
                        format!("{}: {} with {}", command.get_name(), option.get_id(), given.get_id())
                    }));
                }
            }
            commands.extend(command.get_subcommands().cloned());
        }
        assert!(waived.is_empty() && count > 20, "{count}, {waived:#?}");
    }

    #[test]
    fn frequent_options_have_the_same_letter_in_every_command() {
        const LETTERS: [(&str, char); 4] = [("json", 'j'), ("interface", 'i'), ("port", 'p'), ("yes", 'y')];
        let mut commands = vec![super::tree()];
        let mut found = std::collections::BTreeSet::new();
        while let Some(command) = commands.pop() {
            for option in command.get_arguments() {
                let letter = LETTERS.iter().find(|(long, _)| option.get_long() == Some(long));
                if let Some((long, letter)) = letter {
                    assert_eq!(option.get_short(), Some(*letter), "{}: --{long}", command.get_name());
                    found.insert(long);
                }
            }
            commands.extend(command.get_subcommands().cloned());
        }
        assert_eq!(found.len(), LETTERS.len());
    }
}

//! The comment before a block, which determines how the test handles it. CONTRIBUTING.md describes
//! it for authors.

use std::time::Duration;

use crate::broken_off::RefusalState;
use crate::markdown::FencedBlock;

/// The action of the test for a block.
#[derive(Debug, PartialEq)]
pub(crate) enum BlockAction {
    /// Runs its commands.
    Run(ExampleSettings),
    /// Runs its commands, which have to fix this finding on this fixture.
    Remedy { finding: String, host: String },
    /// Does not run its commands: this program runs them.
    RunBy(String),
    /// Does not run its commands, for this reason.
    NotRun(String),
    /// Compares it with the output of the block before it, or only of that block's commands that
    /// contain this text.
    Output(Option<String>),
    /// Writes it to a file of this name, for later commands.
    File(String),
    /// Nothing: it has no commands that the test knows.
    Nothing,
}

/// Settings for the commands of a block.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ExampleSettings {
    pub place: ExampleHost,
    /// Whether commands run on a terminal, where questions are answered with yes.
    pub terminal: bool,
    /// When a command gets Ctrl-C. The first entry for a command counts.
    pub interrupts: Vec<ExampleInterrupt>,
    /// Whether load generators can be reached over ssh, and the commands are runs that get
    /// interrupted.
    pub generators: bool,
    /// A third-party program that the commands require.
    pub program: Option<String>,
    /// The fixture that is written into the working directory, under its name.
    pub fixture: Option<String>,
    /// Whether a tune breaks off before each command.
    pub broken_off: Option<RefusalState>,
    /// Commands that run first, on the machine itself.
    pub before: Vec<String>,
}

/// When a running command gets Ctrl-C.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ExampleInterrupt {
    pub when: InterruptTrigger,
    /// Only commands that contain this text.
    pub only: Option<String>,
}

/// The event that triggers Ctrl-C.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum InterruptTrigger {
    After(Duration),
    /// The terminal shows this text.
    Shown(String),
}

/// The host on which commands run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ExampleHost {
    #[default]
    Here,
    /// A lab's receiver, where a name server on port 53 answers queries.
    Server,
    /// The sender of that lab.
    Sender,
}

impl BlockAction {
    /// The action of the test for a block. Fails if the comment does not name one.
    pub(crate) fn of(block: &FencedBlock, subcommands: &[String]) -> Result<Self, String> {
        let comment = block.comment.as_deref().unwrap_or_default();
        if let Some(by) = comment.strip_prefix("not run: by ") {
            return Ok(Self::RunBy(by.to_owned()));
        }
        if let Some(reason) = comment.strip_prefix("not run:").map(str::trim) {
            return match reason {
                "" => Err("'not run:' takes a reason".to_owned()),
                _ => Ok(Self::NotRun(reason.to_owned())),
            };
        }
        if let Some(of) = comment.strip_prefix("output") {
            return match of.strip_prefix(": of ") {
                Some(part) => Ok(Self::Output(Some(part.to_owned()))),
                None if of.is_empty() => Ok(Self::Output(None)),
                None => Err(format!("'output{of}' is neither 'output' nor 'output: of PART OF A COMMAND'")),
            };
        }
        if let Some((finding, host)) =
            comment.strip_prefix("run: fix of ").and_then(|rest| rest.split_once(" on "))
        {
            return Ok(Self::Remedy { finding: finding.to_owned(), host: host.to_owned() });
        }
        if let Some(name) = comment.strip_prefix("file: ") {
            return match name.is_empty() || name.contains(['/', ' ']) {
                true => Err(format!("'file: {name}' takes a plain name")),
                false => Ok(Self::File(name.to_owned())),
            };
        }
        if let Some(setting) = comment.strip_prefix("run") {
            return ExampleSettings::parse(setting.trim_start_matches(':')).map(Self::Run);
        }
        if !comment.is_empty() && holds_commands(block, subcommands) {
            return Err(format!("'<!-- {comment} -->' says nothing about the commands below it"));
        }
        if holds_commands(block, subcommands) {
            return Err(
                "commands that nobody runs: write '<!-- run -->' or '<!-- not run: WHY -->' above the block \
                        (CONTRIBUTING.md says how), or ```text if they are none"
                    .to_owned(),
            );
        }
        Ok(Self::Nothing)
    }
}

impl ExampleSettings {
    fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        let before = lines.map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect();
        let mut setting = Self { before, ..Self::default() };
        for word in first.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word {
                "here" => setting.place = ExampleHost::Here,
                "on the server" => setting.place = ExampleHost::Server,
                "on the sender" => setting.place = ExampleHost::Sender,
                "at a terminal" => setting.terminal = true,
                "with generators" => setting.generators = true,
                "after a tune that broke off" => setting.broken_off = Some(RefusalState::Over),
                "after a tune that breaks off again" => setting.broken_off = Some(RefusalState::Stays),
                _ => match (word.strip_prefix("with fixture "), word.strip_prefix("takes ")) {
                    (Some(name), _) => setting.fixture = Some(name.to_owned()),
                    (_, Some(program)) => setting.program = Some(program.to_owned()),
                    (None, None) => setting.interrupts.push(ExampleInterrupt::parse(word)?),
                },
            }
        }
        Ok(setting)
    }
}

impl ExampleInterrupt {
    fn parse(words: &str) -> Result<Self, String> {
        Self::of_words(words).ok_or_else(|| {
            format!(
                "'{words}' is none of 'here', 'on the server', 'on the sender', 'at a terminal', 'takes PROGRAM', \
                 'with fixture NAME', 'after a tune that broke off', 'after a tune that breaks off again', 'with generators', 'Ctrl-C after 1 s', 'Ctrl-C after 1 s to --watch', \
                 'Ctrl-C at \"2/3\"'"
            )
        })
    }

    fn of_words(words: &str) -> Option<Self> {
        let words = words.strip_prefix("Ctrl-C ")?;
        let (when, only) = match words.strip_prefix("at \"") {
            Some(shown) => {
                let (shown, only) = shown.split_once('"')?;
                (InterruptTrigger::Shown(shown.to_owned()), only)
            }
            None => {
                let (seconds, only) = words.strip_prefix("after ")?.split_once(" s")?;
                (InterruptTrigger::After(Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?), only)
            }
        };
        let only = match only {
            "" => None,
            _ => Some(only.strip_prefix(" to ")?.to_owned()),
        };
        Some(Self { when, only })
    }
}

impl ExampleSettings {
    /// When this command gets Ctrl-C.
    pub(crate) fn interrupt_of(&self, command: &str) -> Option<&InterruptTrigger> {
        let concerns =
            |interrupt: &&ExampleInterrupt| interrupt.only.as_ref().is_none_or(|only| command.contains(only));
        self.interrupts.iter().find(concerns).map(|interrupt| &interrupt.when)
    }
}

/// Whether a block holds commands: its language is a shell, or it has no language or `text` and one
/// of its lines is a command.
fn holds_commands(block: &FencedBlock, subcommands: &[String]) -> bool {
    match block.language.as_str() {
        "sh" | "bash" | "shell" | "console" => true,
        "" | "text" => block.text.lines().any(|line| is_command(line, subcommands)),
        _ => false,
    }
}

/// Whether a line is a command of linerate or cargo, with or without a prompt.
fn is_command(line: &str, subcommands: &[String]) -> bool {
    let line = line.split_once("$ ").map_or(line, |(_, rest)| rest);
    let mut words = line.split_whitespace().skip_while(|word| *word == "sudo");
    match (words.next(), words.next()) {
        (Some("linerate"), Some(word)) => {
            word.starts_with('-') || subcommands.iter().any(|known| known == word)
        }
        (Some("cargo"), Some(_)) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(language: &str, text: &str, comment: Option<&str>) -> Result<BlockAction, String> {
        let (language, text) = (language.to_owned(), text.to_owned());
        let block = FencedBlock { line: 1, language, text, comment: comment.map(str::to_owned) };
        BlockAction::of(&block, &["doctor".to_owned()])
    }

    #[test]
    fn command_blocks_require_a_run_or_not_run_comment() {
        for (language, text) in [
            ("sh", "ls"),
            ("", "host$ linerate doctor"),
            ("", "a\nsudo linerate doctor"),
            ("text", "cargo test"),
        ] {
            assert!(mark(language, text, None).is_err(), "{text}");
            assert!(mark(language, text, Some("look here")).is_err(), "{text}");
            assert!(matches!(mark(language, text, Some("not run: a NIC")), Ok(BlockAction::NotRun(_))));
            assert!(matches!(mark(language, text, Some("run")), Ok(BlockAction::Run(_))));
        }
        for (language, text) in
            [("", "linerate 0.1.0 · doctor"), ("rust", "linerate doctor"), ("toml", "a = 1")]
        {
            assert_eq!(mark(language, text, None), Ok(BlockAction::Nothing), "{text}");
        }
        assert!(mark("sh", "ls", Some("not run:")).is_err());
    }

    #[test]
    fn run_comments_parse_to_settings() {
        let run = "run: on the server, at a terminal, Ctrl-C after 1.5 s to --watch, Ctrl-C at \"2/3\"\n  touch a\n\n  touch b";
        assert_eq!(
            mark("sh", "ls", Some(run)),
            Ok(BlockAction::Run(ExampleSettings {
                place: ExampleHost::Server,
                terminal: true,
                interrupts: vec![
                    ExampleInterrupt {
                        when: InterruptTrigger::After(Duration::from_millis(1500)),
                        only: Some("--watch".to_owned())
                    },
                    ExampleInterrupt { when: InterruptTrigger::Shown("2/3".to_owned()), only: None },
                ],
                before: vec!["touch a".to_owned(), "touch b".to_owned()],
                ..ExampleSettings::default()
            }))
        );
        assert_eq!(
            mark("sh", "ls", Some("run: here, takes promtool, with fixture makita-2016")),
            Ok(BlockAction::Run(ExampleSettings {
                program: Some("promtool".to_owned()),
                fixture: Some("makita-2016".to_owned()),
                ..ExampleSettings::default()
            }))
        );
        assert!(mark("sh", "ls", Some("run: on the roof")).unwrap_err().contains("on the roof"));
        assert!(mark("sh", "ls", Some("run: Ctrl-C after -1 s")).is_err());
    }

    #[test]
    fn output_and_file_comments_parse_to_their_actions() {
        let output = |of: Option<&str>| Ok(BlockAction::Output(of.map(str::to_owned)));
        assert_eq!(mark("text", "a", Some("output")), output(None));
        assert_eq!(mark("text", "a", Some("output: of boost status")), output(Some("boost status")));
        assert!(mark("text", "a", Some("output of doctor")).is_err());
        assert_eq!(
            mark("toml", "a = 1", Some("file: users.toml")),
            Ok(BlockAction::File("users.toml".to_owned()))
        );
        assert!(mark("toml", "a = 1", Some("file: ../etc")).is_err());
    }
}

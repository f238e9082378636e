//! Runs every example in README and docs as it is written. CONTRIBUTING.md says how authors mark
//! examples.

mod broken_off;
mod copy;
mod generators;
mod mark;
mod markdown;
mod person;
mod remedy;
mod shape;
mod shell;
mod stage;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, ensure};
use linerate_testkit::reflector::installed::find;
use linerate_testkit::skip;

use broken_off::RefusalState;
use mark::{BlockAction, ExampleSettings};
use markdown::{FencedBlock, MarkdownDocument};
use stage::ExampleTestbed;

/// The command under test. The variable CARGO_BIN_EXE_linerate overrides its path at build time, so
/// that you can run the test program elsewhere.
fn program() -> PathBuf {
    std::env::var_os("CARGO_BIN_EXE_linerate")
        .map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_linerate")), PathBuf::from)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All documents by their paths from the root.
fn documents() -> BTreeMap<String, MarkdownDocument> {
    let mut documents = BTreeMap::new();
    let mut folders = vec![PathBuf::from("docs")];
    let mut files = vec![PathBuf::from("README.md"), "CONTRIBUTING.md".into(), "ARCHITECTURE.md".into()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("a directory") {
            let entry = entry.expect("an entry");
            let path = folder.join(entry.file_name());
            match entry.file_type().expect("a type").is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|extension| extension == "md") => files.push(path),
                false => {}
            }
        }
    }
    for file in files {
        let text = fs::read_to_string(root().join(&file)).expect("a text");
        documents.insert(file.display().to_string(), MarkdownDocument::parse(&text));
    }
    documents
}

/// The subcommands of `linerate`.
fn subcommands() -> Vec<String> {
    let help = help(&[]).expect("help");
    let lines =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names: Vec<String> = lines
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect();
    assert!(names.len() > 8, "{help}");
    names
}

/// The output of `linerate WORDS --help`, or `None` if there is no such command.
fn help(words: &[&str]) -> Option<String> {
    let output = Command::new(program()).args(words).arg("--help").output().expect("the command starts");
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn every_command_block_is_run_or_has_a_reason() {
    let subcommands = subcommands();
    let mut wrong = String::new();
    for (file, document) in documents() {
        for block in &document.blocks {
            if let Err(why) = BlockAction::of(block, &subcommands) {
                let _ = writeln!(wrong, "{file}:{}: {why}", block.line);
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// Documents of the blocks in README and docs that no test runs: two hosts with multi-queue NICs,
/// two commands at the same time, a systemd service, flow rules, which a veth does not support, and a
/// measurement of a minute. Each block has its reason.
const NOT_RUN_BLOCKS: [&str; 6] = [
    "docs/million-packets.md",
    "docs/overload.md",
    "docs/replicas.md",
    "docs/replicas.md",
    "docs/tune.md",
    "docs/virtual-machines.md",
];

#[test]
fn only_listed_examples_are_not_run() {
    let subcommands = subcommands();
    let documents = documents();
    let of_users = documents.iter().filter(|(file, _)| *file == "README.md" || file.starts_with("docs/"));
    let marks = of_users.flat_map(|(file, document)| {
        document.blocks.iter().map(|block| (file.as_str(), BlockAction::of(block, &subcommands)))
    });
    let marks: Vec<_> = marks.filter(|(_, mark)| !matches!(mark, Ok(BlockAction::Nothing))).collect();
    let not_run: Vec<&str> = marks
        .iter()
        .filter(|(_, mark)| matches!(mark, Ok(BlockAction::NotRun(_))))
        .map(|(file, _)| *file)
        .collect();
    let run = marks.iter().filter(|(_, mark)| {
        matches!(mark, Ok(BlockAction::Run(_) | BlockAction::Remedy { .. } | BlockAction::RunBy(_)))
    });
    println!("{} blocks of commands are run, and {} not: {not_run:?}", run.count(), not_run.len());
    assert_eq!(not_run, NOT_RUN_BLOCKS);
}

#[test]
fn ci_runs_every_example_marked_as_run_by_ci() {
    let subcommands = subcommands();
    let ci = fs::read_to_string(root().join(".ci/run")).expect("the CI script");
    let mut wrong = String::new();
    for (file, document) in documents() {
        for block in &document.blocks {
            let Ok(BlockAction::RunBy(by)) = BlockAction::of(block, &subcommands) else { continue };
            // CI runs this chore, which takes its commands from the document.
            let commands = match by.as_str() {
                ".ci/run" => shell::lines(&block.text).into_iter().map(|line| line.text).collect(),
                "cargo xtask deb --test" => vec!["\"$xtask\" deb --test".to_owned()],
                _ => vec![format!("an unknown program: {by}")],
            };
            for command in commands.iter().map(|command| command.trim()) {
                // CI may add arguments.
                let is_run = |line: &str| {
                    let line = line.trim_start_matches(['!', ' ']).trim_start_matches("if ! ");
                    line.strip_prefix(command).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
                };
                if !ci.lines().any(is_run) {
                    let _ = writeln!(wrong, "{file}:{}: .ci/run does not run {command}", block.line);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn document_links_and_anchors_exist() {
    let documents = documents();
    let mut wrong = String::new();
    for (file, document) in &documents {
        let folder = Path::new(file).parent().unwrap_or(Path::new(""));
        for (line, link) in document.links.iter().filter(|(_, link)| !link.contains("://")) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { PathBuf::from(file) } else { plain(&folder.join(path)) };
            let exists = root().join(&target).exists();
            let linked = documents.get(&target.display().to_string());
            let has_anchor = anchor.is_empty()
                || linked.is_none_or(|linked| linked.anchors.iter().any(|known| known == anchor));
            if !exists || !has_anchor {
                let _ = writeln!(wrong, "{file}:{line}: {link} leads nowhere");
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// A path with `..` resolved.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

#[test]
fn commands_and_options_named_in_documents_exist() {
    let subcommands = subcommands();
    let mut helps: BTreeMap<Vec<String>, Option<String>> = BTreeMap::new();
    let mut wrong = String::new();
    for (file, document) in documents() {
        for (line, code) in &document.code {
            let words: Vec<&str> = code.split_whitespace().collect();
            let ["linerate", first, ..] = words.as_slice() else { continue };
            if !subcommands.iter().any(|known| known == first) {
                if first.starts_with(|letter: char| letter.is_ascii_lowercase()) {
                    let _ = writeln!(wrong, "{file}:{line}: there is no `linerate {first}`");
                }
                continue;
            }
            // Options before `--` belong to the command. The second word is part of the command if
            // --help lists it.
            let own = words.iter().take_while(|word| **word != "--").skip(1);
            let mut path = vec![(*first).to_owned()];
            if let Some(second) =
                words.get(2).filter(|word| word.chars().all(|letter| letter.is_ascii_lowercase()))
            {
                let parent_help = helps.entry(path.clone()).or_insert_with(|| help(&[first]));
                if parent_help.as_ref().is_some_and(|help| help.contains(&format!("\n  {second} "))) {
                    path.push((*second).to_owned());
                }
            }
            let command: Vec<&str> = path.iter().map(String::as_str).collect();
            let text =
                helps.entry(path.clone()).or_insert_with(|| help(&command)).clone().unwrap_or_default();
            for option in own.filter(|word| word.starts_with("--")) {
                let option = option.split(['=', ',']).next().unwrap_or(option);
                if !text.contains(option) {
                    let _ = writeln!(wrong, "{file}:{line}: `linerate {}` has no {option}", path.join(" "));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn examples_run_and_print_the_documented_output() {
    let test = "examples_run_and_print_the_documented_output";
    if !rustix::process::geteuid().is_root() {
        return skip(test, "requires root");
    }
    if let Err(why) = ExampleTestbed::new() {
        return skip(test, format!("{why:#}"));
    }
    let subcommands = subcommands();
    // Authors can select documents by name.
    let only = std::env::var("LINERATE_TEST_EXAMPLES").ok();
    let documents = documents();
    let selection = documents.iter().filter(|(file, _)| only.as_ref().is_none_or(|only| file.contains(only)));
    // Runs use all CPUs and would distort what other examples measure, so their documents run
    // alone.
    let runs = |document: &MarkdownDocument| {
        let marks = document.blocks.iter().map(|block| BlockAction::of(block, &subcommands));
        marks.into_iter().any(|mark| matches!(mark, Ok(BlockAction::Run(setting)) if setting.generators))
    };
    let (mut alone, together): (Vec<_>, Vec<_>) = selection.partition(|(_, document)| runs(document));
    let queue = Mutex::new(together.into_iter());
    let again = Mutex::new(Vec::new());
    let next = || queue.lock().expect("the queue").next();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((file, document)) = next() {
                    let errors = run_document(file, document, &subcommands);
                    if !errors.is_empty() {
                        println!("again alone because of:{errors}");
                        again.lock().expect("the list").push((file, document));
                    }
                }
            });
        }
    });
    // doctor's findings depend on other programs that use the CPUs. A real error occurs again when
    // the document runs alone.
    alone.extend(again.into_inner().expect("the list"));
    let wrong: String =
        alone.into_iter().map(|(file, document)| run_document(file, document, &subcommands)).collect();
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// A command of an example, and its standard output.
struct PrintedOutput {
    command: String,
    stdout: String,
}

/// Runs the examples of a document and returns the errors.
fn run_document(file: &str, document: &MarkdownDocument, subcommands: &[String]) -> String {
    let mut wrong = String::new();
    let mut stage = None;
    let mut outputs = Vec::new();
    let start = Instant::now();
    for block in &document.blocks {
        let outcome = match BlockAction::of(block, subcommands) {
            Ok(BlockAction::Run(setting))
                if setting.program.as_ref().is_some_and(|name| find(name).is_none()) =>
            {
                let name = setting.program.unwrap_or_default();
                skip(&format!("{file}:{}", block.line), format!("{name} is not installed"));
                outputs.clear();
                Ok(())
            }
            Ok(BlockAction::Run(setting)) => {
                let stage = stage.get_or_insert_with(|| ExampleTestbed::new().expect("a stage, as before"));
                let outcome = run(stage, block, &setting);
                stage.clear();
                outcome.map(|new_outputs| outputs = new_outputs)
            }
            Ok(BlockAction::Remedy { finding, host }) => {
                let stage = stage.get_or_insert_with(|| ExampleTestbed::new().expect("a stage, as before"));
                remedy::carry_out(stage, &finding, block, &host)
            }
            Ok(BlockAction::File(name)) => {
                let stage = stage.get_or_insert_with(|| ExampleTestbed::new().expect("a stage, as before"));
                stage.write(&name, &block.text).with_context(|| format!("{name} cannot be written"))
            }
            Ok(BlockAction::Output(of)) => check_output(&block.text, of.as_deref(), &outputs),
            _ => Ok(()),
        };
        if let Err(why) = outcome {
            let _ = writeln!(wrong, "{file}:{}: {why:#}\n", block.line);
        }
    }
    if stage.is_some() {
        println!("{file}: {:.1} s", start.elapsed().as_secs_f64());
    }
    wrong
}

/// Whether the output of all commands that contain `of` has the shape of the shown output.
fn check_output(documented: &str, of: Option<&str>, outputs: &[PrintedOutput]) -> Result<()> {
    let of = of.unwrap_or_default();
    let stdout: Vec<&str> = outputs
        .iter()
        .filter(|output| output.command.contains(of))
        .map(|output| output.stdout.as_str())
        .collect();
    ensure!(!stdout.is_empty(), "output of nothing that was run: {of}");
    shape::difference(documented, &stdout.concat()).map_or(Ok(()), |difference| Err(anyhow!(difference)))
}

/// Runs the commands of a block and returns their output.
fn run(
    stage: &mut ExampleTestbed,
    block: &FencedBlock,
    setting: &ExampleSettings,
) -> Result<Vec<PrintedOutput>> {
    let mut outputs = Vec::new();
    if let Some(name) = &setting.fixture {
        stage.put_fixture(name)?;
    }
    for line in shell::lines(&setting.before.join("\n")) {
        stage.prepare(&line, setting).with_context(|| format!("before it, {}", line.text))?;
    }
    if setting.generators {
        generators::raise(stage).context("no generators")?;
    }
    for line in shell::lines(&block.text) {
        if let Some(refusal) = setting.broken_off {
            broken_off::make(stage, refusal).context("no tune that broke off")?;
        }
        let start = Instant::now();
        let result = stage.run(&line, setting).with_context(|| line.text.clone())?;
        let Some(result) = result else { continue };
        println!("  {:6.2} s  {}  {}", start.elapsed().as_secs_f64(), result.status, line.text.trim());
        let is_well = match setting.broken_off {
            _ if setting.generators => generators::is_interrupted_run(stage, &line.text, &result)?,
            Some(RefusalState::Stays) => result.status.code() == Some(2),
            _ => result.is_well(!setting.interrupts.is_empty()),
        };
        ensure!(is_well, "{}\nended with {}\n{}{}", line.text, result.status, result.stdout, result.stderr);
        outputs.push(PrintedOutput { command: line.text, stdout: result.stdout });
    }
    Ok(outputs)
}

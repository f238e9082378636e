//! The page of all findings, by stage.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use linerate_host::diagnosis::rules;
use linerate_host::finding::{Evidence, Rule};
use linerate_host::stage::{STAGES, StageName};
use linerate_tune::TuneProfile;
use linerate_tune::profile::FindingPolicy;

use super::example::RuleExample;

// The most values or commands of an example.
const SHOWN: usize = 4;

/// Longer values are cut.
const WIDEST: usize = 70;

const HEAD: &str = "\
<!-- Written by `cargo xtask findings` from the rules in host/src/stage. Change those. -->
# Findings

All findings of [`linerate doctor`](doctor.md): the cause, the gain, the fix, and when you should leave it.
`linerate doctor --explain ID` prints the same in a terminal. The stages are in the order in which a packet
passes them.
";

/// The page: a section per stage with a list of its findings, and a section per finding.
pub(super) fn render(examples: &BTreeMap<&str, RuleExample>, profiles: &[TuneProfile]) -> String {
    let mut page = HEAD.to_owned();
    for stage in &STAGES {
        let stage_rules = || rules().filter(|rule| rule.stage() == Some(stage.name));
        let _ = writeln!(page, "\n## {}\n{}\n", stage.name, escape_markdown(stage.explain));
        let _ = writeln!(page, "| finding | meaning |\n|---|---|");
        for rule in stage_rules() {
            let anchor = rule.id.replace('.', "");
            let _ = writeln!(page, "| [{}](#{anchor}) | {} |", rule.id, escape_markdown(rule.title));
        }
        let links: Vec<String> =
            related(stage.name).iter().map(|name| format!("[{name}]({name}.md)")).collect();
        let _ = writeln!(page, "\nSee also: {}.", links.join(", "));
        for rule in stage_rules() {
            add_rule(&mut page, rule, examples.get(rule.id), profiles);
        }
    }
    wrap_lines(&page)
}

// The page with paragraphs broken into lines of at most 100 columns. Tables, headings and code stay
// as they are.
fn wrap_lines(page: &str) -> String {
    let (mut text, mut is_in_code) = (String::new(), false);
    for line in page.lines() {
        is_in_code ^= line.starts_with("```");
        let mut column = 0;
        for (index, word) in line.split(' ').enumerate() {
            let is_breakable = !is_in_code && !line.starts_with(['|', '#', '<', '`']);
            if index > 0 && is_breakable && column + 1 + word.chars().count() > 100 {
                text.push('\n');
                column = 0;
            } else if index > 0 {
                text.push(' ');
                column += 1;
            }
            text.push_str(word);
            column += word.chars().count();
        }
        text.push('\n');
    }
    text
}

fn add_rule(page: &mut String, rule: &Rule, example: Option<&RuleExample>, profiles: &[TuneProfile]) {
    let (title, reason, kernels) =
        (escape_markdown(rule.title), escape_markdown(rule.why), escape_markdown(rule.kernels));
    let _ = writeln!(page, "\n### {}\n**{title}.** {reason} (Kernels: {kernels}.)\n", rule.id);
    let _ = write!(page, "**Effect.** {}", escape_markdown(rule.effect));
    if let Some(ratio) = rule.published_ratio {
        let _ = write!(page, " Published: {ratio:.2} times the throughput.");
    }
    let _ = writeln!(page, " Source: {}.\n", escape_markdown(rule.source.trim_end_matches('.')));
    if let Some(example) = example {
        add_evidence(page, example);
    }
    let _ = writeln!(page, "**Fix.** {}\n", escape_markdown(rule.remedy));
    if let Some(example) = example {
        add_commands(page, rule.id, example);
    }
    let _ = writeln!(page, "[`linerate tune`](tune.md): {}.\n", policies(rule.id, profiles));
    let _ = writeln!(page, "**Leave it if:** {}", escape_markdown(rule.caveats));
}

/// The finding on a fixture host.
fn add_evidence(page: &mut String, example: &RuleExample) {
    let RuleExample { host, about, finding } = example;
    let _ = writeln!(
        page,
        "**Example** with severity {} on the fixture host `{host}` ({}): {}.\n",
        finding.severity,
        escape_markdown(about),
        escape_markdown(&finding.title)
    );
    if finding.evidence.is_empty() {
        return;
    }
    let _ = writeln!(page, "| value | reads | read from |\n|---|---|---|");
    for Evidence { what, value, read_from } in finding.evidence.iter().take(SHOWN) {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let _ = writeln!(page, "| {} | {} | {} |", escape_markdown(what), code(&value), code(read_from));
    }
    add_omitted(page, finding.evidence.len(), "values");
    page.push('\n');
}

/// The commands of the fix on that host.
fn add_commands(page: &mut String, id: &str, example: &RuleExample) {
    let (host, commands) = (example.host, &example.finding.commands);
    if commands.is_empty() {
        return;
    }
    let _ = writeln!(page, "On `{host}`:\n\n<!-- run: fix of {id} on {host} -->\n```sh");
    for command in commands.iter().take(SHOWN) {
        let _ = writeln!(page, "{}", command.replace('\n', " "));
    }
    let _ = writeln!(page, "```");
    add_omitted(page, commands.len(), "commands");
    page.push('\n');
}

/// The policies of the profiles of `tune`; profiles with the same policy are in one line.
fn policies(id: &str, profiles: &[TuneProfile]) -> String {
    let mut policies: Vec<(String, Vec<String>)> = Vec::new();
    for profile in profiles {
        let policy = match profile.verdict(id) {
            FindingPolicy::Fix(severity) => format!("fixed from severity {severity} on"),
            FindingPolicy::Ask(reason) => {
                format!("left to you, with the commands ({})", escape_markdown(reason).trim_end_matches('.'))
            }
            FindingPolicy::Leave(reason) => {
                format!("left ({})", escape_markdown(reason).trim_end_matches('.'))
            }
            FindingPolicy::Unnamed => "left".to_owned(),
        };
        let name = format!("`{}`", profile.name);
        match policies.iter_mut().find(|(listed_policy, _)| *listed_policy == policy) {
            Some((_, names)) => names.push(name),
            None => policies.push((policy, vec![name])),
        }
    }
    match policies.as_slice() {
        [(policy, names)] if names.len() > 1 => format!("{policy} by every profile"),
        _ => {
            let parts = policies.iter().map(|(policy, names)| format!("{policy} by {}", names.join(", ")));
            parts.collect::<Vec<_>>().join("; ")
        }
    }
}

fn add_omitted(page: &mut String, total: usize, noun: &str) {
    if let Some(omitted) = total.checked_sub(SHOWN).filter(|omitted| *omitted > 0) {
        let _ = writeln!(page, "\nand {omitted} more {noun}.");
    }
}

/// Pages of docs about tools that show or fix problems of a stage, besides doctor and tune.
fn related(stage: StageName) -> &'static [&'static str] {
    match stage {
        StageName::Machine => &["cost"],
        StageName::Link | StageName::Filter | StageName::Route => &["drops", "flame", "ladder"],
        StageName::Rss | StageName::Irq => &["cost", "drops", "ladder"],
        StageName::Softirq => &["cost", "drops", "ladder", "overload"],
        StageName::Socket => &["boost", "drops", "flame"],
        StageName::Thread => &["boost", "cost", "flame"],
        StageName::Transmit => &["flame", "drops", "ladder"],
    }
}

// Escapes all markup but backquotes, because rules use those for code.
fn escape_markdown(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut is_in_code = false;
    for character in text.chars() {
        is_in_code ^= character == '`';
        if character == '|' || !is_in_code && matches!(character, '*' | '<' | '[' | ']' | '\\') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

/// A value as code, in a table's cell.
fn code(text: &str) -> String {
    let text = cut(text).replace('|', "\\|");
    if text.is_empty() { "nothing".to_owned() } else { format!("`` {text} ``") }
}

// The beginning of a text that is too long for a line.
fn cut(text: &str) -> String {
    let line = text.replace('\n', " ");
    match line.char_indices().nth(WIDEST) {
        Some((end, _)) => format!("{} …", line[..end].trim_end()),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_cut_at_character_boundaries() {
        assert_eq!(code("a|b"), "`` a\\|b ``");
        assert_eq!(code(""), "nothing");
        let long = "ä".repeat(WIDEST + 1);
        assert_eq!(cut(&long), format!("{} …", "ä".repeat(WIDEST)));
        assert_eq!(cut("two\nlines"), "two lines");
    }
}

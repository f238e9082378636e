//! A rule as a page, and the list of all pages.

use std::fmt::Write as _;

use linerate_host::diagnosis::rules;
use linerate_host::finding::{Evidence, Rule};
use linerate_host::stage::{STAGES, StageName};
use linerate_tune::TuneProfile;
use linerate_tune::profile::FindingPolicy;

use super::example::RuleExample;

/// More values or commands than this say no more.
const SHOWN: usize = 6;

/// Longer values are cut, since those of 20 queues are no easier to grasp than those of three.
const WIDEST: usize = 90;

/// The file of a rule's page.
pub(super) fn name(id: &str) -> String {
    format!("{id}.md")
}

/// A rule's page.
pub(super) fn of_rule(rule: &Rule, example: Option<&RuleExample>, profiles: &[TuneProfile]) -> String {
    let stage = rule.id.split('.').next().unwrap_or_default();
    let mut page = format!("# {}\n\n", plain(rule.title));
    let _ = writeln!(
        page,
        "`{}` · stage [{stage}](README.md#{stage}) · kernels: {}\n\n{}\n",
        rule.id,
        plain(rule.kernels),
        plain(rule.why)
    );
    let _ = writeln!(page, "## What fixing it gives\n{}", plain(rule.effect));
    if let Some(ratio) = rule.published_ratio {
        let _ = writeln!(page, "Published: {ratio} times the throughput.");
    }
    let _ = writeln!(page, "\nSource: {}.\n", plain(rule.source.trim_end_matches('.')));
    if let Some(example) = example {
        seen(&mut page, example);
    }
    let _ = writeln!(page, "## How to fix it\n{}\n", plain(rule.remedy));
    if let Some(example) = example {
        commands(&mut page, example);
    }
    tuned(&mut page, rule.id, profiles);
    let _ = writeln!(page, "## When not to fix it\n{}\n", plain(rule.caveats));
    let _ = writeln!(page, "## More\n- `linerate doctor --explain {}` says this in a terminal.", rule.id);
    for (file, what) in of_rule_alone(rule.id).iter().chain(rule.stage().map(related).unwrap_or_default()) {
        let _ = writeln!(page, "- [{file}](../{file}.md): {what}");
    }
    page
}

/// The list of all pages, by stage, in the order a packet meets them.
pub(super) fn index() -> String {
    let mut page = "# What doctor finds\n\n".to_owned();
    page.push_str(
        "A page for each finding of [`linerate doctor`](../doctor.md): how it comes about, what it costs, how to fix it, \
         and when not to. Stages are in the order in which a packet meets them.\n",
    );
    for stage in &STAGES {
        let _ =
            writeln!(page, "\n## {}\n{}\n\n| finding | is |\n|---|---|", stage.name, plain(stage.explain));
        for rule in rules().filter(|rule| rule.stage() == Some(stage.name)) {
            let _ = writeln!(page, "| [{}]({}) | {} |", rule.id, name(rule.id), plain(rule.title));
        }
    }
    page
}

/// What is seen of it on a specimen.
fn seen(page: &mut String, example: &RuleExample) {
    let RuleExample { host, about, finding } = example;
    let _ = writeln!(page, "## As doctor shows it");
    let _ = writeln!(
        page,
        "On `{host}` ({}; `cargo xtask specimen {host} DIR` writes it), with severity {}:\n\n> {}\n",
        plain(about),
        finding.severity,
        plain(&finding.title)
    );
    if finding.evidence.is_empty() {
        return;
    }
    let _ = writeln!(page, "| value | is | read from |\n|---|---|---|");
    for Evidence { what, value, read_from } in finding.evidence.iter().take(SHOWN) {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let _ = writeln!(page, "| {} | {} | {} |", plain(what), code(&value), code(read_from));
    }
    more(page, finding.evidence.len(), "values");
    page.push('\n');
}

/// What would be typed there.
fn commands(page: &mut String, example: &RuleExample) {
    let commands = &example.finding.commands;
    if commands.is_empty() {
        return;
    }
    let _ = writeln!(page, "On `{host}` that is:\n\n<!-- remedy: on {host} -->\n```sh", host = example.host);
    for command in commands.iter().take(SHOWN) {
        let _ = writeln!(page, "{}", command.replace('\n', " "));
    }
    let _ = writeln!(page, "```");
    more(page, commands.len(), "commands");
    page.push('\n');
}

/// What each profile of `tune` does about it.
fn tuned(page: &mut String, id: &str, profiles: &[TuneProfile]) {
    let _ = writeln!(page, "| [`linerate tune`](../tune.md) | |\n|---|---|");
    for profile in profiles {
        let does = match profile.verdict(id) {
            FindingPolicy::Fix(severity) => format!("fixes it, from severity {severity} on"),
            FindingPolicy::Ask(why) => format!("leaves it to a person, with the commands. {}", plain(why)),
            FindingPolicy::Leave(why) => format!("leaves it. {}", plain(why)),
            FindingPolicy::Unnamed => "leaves it".to_owned(),
        };
        let _ = writeln!(page, "| `--for {}` | {does} |", profile.name);
    }
    page.push('\n');
}

/// How many were left out.
fn more(page: &mut String, all: usize, what: &str) {
    if let Some(left) = all.checked_sub(SHOWN).filter(|left| *left > 0) {
        let _ = writeln!(page, "\nand {left} more {what}.");
    }
}

/// The same for one rule.
fn of_rule_alone(id: &str) -> &'static [(&'static str, &'static str)] {
    match id {
        "softirq.livelock-risk" => {
            &[("overload", "what a server does above its capacity, and what the host does")]
        }
        _ => &[],
    }
}

/// What shows or fixes things of a stage, beside doctor and tune: pages of docs and what they are for.
fn related(stage: StageName) -> &'static [(&'static str, &'static str)] {
    const COST: (&str, &str) = ("cost", "what packets take of each CPU, and from whom");
    const DROPS: (&str, &str) = ("drops", "where packets of a port are lost, by name and number");
    const FLAME: (&str, &str) = ("flame", "what burns on the way, and where CPUs wait for each other");
    const BOOST: (&str, &str) = ("boost", "steers and pins a server that runs, unmodified");
    const LADDER: (&str, &str) = ("ladder", "measures what fixing it gives on this host");
    match stage {
        StageName::Machine => &[COST],
        StageName::Link | StageName::Filter | StageName::Route => &[DROPS, FLAME, LADDER],
        StageName::Rss | StageName::Irq | StageName::Softirq => &[COST, DROPS, LADDER],
        StageName::Socket => &[BOOST, DROPS, FLAME],
        StageName::Thread => &[BOOST, COST, FLAME],
        StageName::Transmit => &[FLAME, DROPS, LADDER],
    }
}

/// Text in which nothing is taken for markup but backquotes, which rules use for code themselves.
fn plain(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut in_code = false;
    for letter in text.chars() {
        in_code ^= letter == '`';
        if letter == '|' || !in_code && matches!(letter, '*' | '<' | '[' | ']' | '\\') {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

/// A value as code, in a table's cell.
fn code(text: &str) -> String {
    let text = cut(text).replace('|', "\\|");
    if text.is_empty() { "nothing".to_owned() } else { format!("`` {text} ``") }
}

/// The beginning of what is too long for a line.
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
    fn text_is_no_markup_unless_it_says_so() {
        assert_eq!(plain("/proc/irq/*/a_b <n> `x*|` [1]"), "/proc/irq/\\*/a_b \\<n> `x*\\|` \\[1\\]");
    }

    #[test]
    fn long_values_are_cut_between_letters() {
        assert_eq!(code("a|b"), "`` a\\|b ``");
        assert_eq!(code(""), "nothing");
        let long = "ä".repeat(WIDEST + 1);
        assert_eq!(cut(&long), format!("{} …", "ä".repeat(WIDEST)));
        assert_eq!(cut("two\nlines"), "two lines");
    }

    #[test]
    fn a_page_says_all_that_its_rule_does() {
        for rule in rules() {
            let page = of_rule(rule, None, &[]);
            for text in [rule.title, rule.why, rule.effect, rule.remedy, rule.caveats] {
                assert!(page.contains(&plain(text)), "{}: {text}", rule.id);
            }
        }
    }
}

//! `--explain`: the texts of rules and stages, without a host.

use anyhow::{Result, bail};
use linerate_host::StageName;
use linerate_host::diagnosis::{rule, rules};
use linerate_host::finding::Rule;
use linerate_host::stage::{STAGES, StageInfo};

use crate::document::{Document, Fact, Section, Table};
use crate::output;
use crate::render::style::TextStyle;
use crate::render::text;

/// Prints everything about a rule, a stage, or all stages.
pub(crate) fn explain(name: &str) -> Result<()> {
    let document = if name == "all" {
        Document {
            sections: STAGES
                .iter()
                .map(|stage| Section::new(stage.name.name()).with(rule_table(stage)))
                .collect(),
            ..Document::default()
        }
    } else if let Some(rule) = rule(name) {
        rule_document(rule)
    } else if let Some(stage) = stage(name) {
        Document {
            verdict: stage.name.name().to_owned(),
            sections: vec![
                Section::default().with(stage.explain),
                Section::new("Findings").with(rule_table(&stage)),
            ],
            ..Document::default()
        }
    } else {
        let names = rules().map(|rule| rule.id).chain(STAGES.iter().map(|stage| stage.name.name()));
        match nearest(name, names) {
            Some(suggestion) => bail!(
                "no finding and no stage is called '{name}'; the nearest is {suggestion} (--explain all lists them)"
            ),
            None => bail!("no finding and no stage is called '{name}' (--explain all lists them)"),
        }
    };
    output::print(&text::text(&document, TextStyle::stdout()))
}

fn rule_document(rule: &Rule) -> Document {
    let facts = [
        ("effect", rule.effect),
        ("source", rule.source),
        ("kernels", rule.kernels),
        ("remedy", rule.remedy),
        ("not if", rule.caveats),
    ];
    Document {
        verdict: format!("{}: {}", rule.id, rule.title),
        sections: vec![
            Section::default().with(rule.why),
            Section::default().with(facts.map(|(name, text)| Fact::new(name, text)).to_vec()),
        ],
        ..Document::default()
    }
}

fn rule_table(stage: &StageInfo) -> Table {
    let rules = rules().filter(|rule| rule.stage() == Some(stage.name));
    Table::with_columns(["", ""]).with_rows(rules.map(|rule| [rule.id, rule.title])).wrapping()
}

fn stage(name: &str) -> Option<StageInfo> {
    let name = name.parse::<StageName>().ok()?;
    STAGES.into_iter().find(|stage| stage.name == name)
}

// The name with the smallest edit distance; `None` if none is similar.
fn nearest<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, name) = names.map(|name| (strsim::levenshtein(typed, name), name)).min()?;
    // With more than half of the letters wrong it is no typing error.
    (distance * 2 <= name.len().max(typed.len())).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_finds_names_with_a_typo() {
        let names = || ["rss.table-uneven", "rss.single-flow", "link", "irq"].into_iter();
        assert_eq!(nearest("rss.table-unevn", names()), Some("rss.table-uneven"));
        assert_eq!(nearest("lnik", names()), Some("link"));
        assert_eq!(nearest("something else altogether", names()), None);
    }
}

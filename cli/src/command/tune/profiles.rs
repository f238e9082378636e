//! Profiles: the options that choose one, and `linerate tune profiles`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use linerate_host::diagnosis::rules;
use linerate_tune::TuneProfile;
use linerate_tune::profile::FindingPolicy;

use crate::document::{Block, Document, Fact, Section};
use crate::output;
use crate::render::style::TextStyle;
use crate::render::text;
use crate::suggestion::SuggestedValues;

#[derive(Debug, Clone, Default, Args)]
pub(super) struct ProfileArgs {
    /// Profile: a name (`tune profiles` lists them) or a file such as ./mine.toml
    #[arg(long = "for", value_name = "NAME|FILE.toml", default_value = "udp-server", value_parser = SuggestedValues::profiles(), hide_possible_values = true)]
    goal: String,
    /// Fix only these findings: comma-separated ids or stages
    #[arg(long, value_name = "FINDING,..", value_delimiter = ',', value_parser = SuggestedValues::findings(), hide_possible_values = true)]
    only: Vec<String>,
    /// Do not fix these findings: comma-separated ids or stages
    #[arg(long, value_name = "FINDING,..", value_delimiter = ',', value_parser = SuggestedValues::findings(), hide_possible_values = true)]
    except: Vec<String>,
    /// Include changes that are held back until another finding is fixed
    #[arg(long)]
    anyway: bool,
}

impl ProfileArgs {
    /// The profile, restricted by --only and --except.
    pub(super) fn profile(&self) -> Result<TuneProfile> {
        let mut profile = load_profile(&self.goal)?;
        profile.anyway = self.anyway;
        self.only.iter().chain(&self.except).try_for_each(|name| check_known(name))?;
        for rule in rules() {
            let is_covered = |names: &[String]| names.iter().any(|name| covers(name, rule.id));
            let reason = if is_covered(&self.except) {
                "--except names it."
            } else if !self.only.is_empty() && !is_covered(&self.only) {
                "--only does not name it."
            } else {
                continue;
            };
            profile.findings.insert(rule.id.to_owned(), FindingPolicy::Leave(reason.to_owned()));
        }
        let is_excepted = |id: &String| self.except.iter().any(|name| covers(name, id));
        profile.values.retain(|value| self.only.is_empty() && !value.finding.iter().any(is_excepted));
        Ok(profile)
    }
}

/// A built-in profile, or the profile in a file.
pub(crate) fn load_profile(goal: &str) -> Result<TuneProfile> {
    let is_file =
        goal.contains('/') || Path::new(goal).extension().is_some_and(|extension| extension == "toml");
    if !is_file {
        return Ok(TuneProfile::named(goal)?);
    }
    let text = std::fs::read_to_string(goal).with_context(|| format!("cannot read the profile {goal}"))?;
    Ok(TuneProfile::parse(&text, goal)?)
}

/// Whether `name` is the finding's id or stage.
fn covers(name: &str, id: &str) -> bool {
    let stage = name.strip_suffix(".*").unwrap_or(name);
    id == name || id.split_once('.').is_some_and(|(stage_name, _)| stage_name == stage)
}

fn check_known(name: &str) -> Result<()> {
    if rules().any(|rule| covers(name, rule.id)) {
        return Ok(());
    }
    bail!("no finding and no stage is called '{name}' (linerate doctor --explain all lists them)")
}

#[derive(Debug, Args)]
pub(super) struct TuneProfilesArgs {
    /// Print this one, to be copied and changed [default: list them]
    #[arg(value_name = "NAME", value_parser = SuggestedValues::profiles(), hide_possible_values = true)]
    name: Option<String>,
}

impl TuneProfilesArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        match &self.name {
            Some(name) => output::print(&load_profile(name)?.text)?,
            None => output::print(&text::text(&list()?, TextStyle::stdout()))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn list() -> Result<Document> {
    let mut document = Document::default();
    for (name, _) in TuneProfile::builtin() {
        let profile = TuneProfile::named(name)?;
        let facts = vec![Fact::new("for", &profile.purpose), Fact::new("not for", &profile.not_for)];
        document.sections.push(Section::new(format!("{name}: {}", profile.title)).with(facts));
    }
    let hint = Block::faint("To make one of your own: linerate tune profiles NAME > mine.toml");
    document.sections.push(Section::default().with(hint));
    Ok(document)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excepted_finding_removes_the_value_that_fixes_it() {
        let has_gro = |except: &[&str]| {
            let except = except.iter().map(|id| (*id).to_owned()).collect();
            let profile = ProfileArgs { goal: "udp-server".to_owned(), except, ..ProfileArgs::default() };
            let values = profile.profile().expect("a profile").values;
            values.iter().any(|value| value.finding.as_deref() == Some("link.gro-for-udp"))
        };
        assert!(has_gro(&[]) && has_gro(&["link.ring-small"]));
        assert!(!has_gro(&["link.gro-for-udp"]) && !has_gro(&["link"]));
    }
}

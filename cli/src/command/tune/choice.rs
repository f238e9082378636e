//! What a host is tuned for, and which of the findings are fixed.

use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::Args;
use linerate_host::diagnosis::rules;
use linerate_tune::TuneProfile;

/// What to tune for.
#[derive(Debug, Clone, Args)]
pub(super) struct ProfileArgs {
    /// Profile: a name (`tune profiles` lists them) or a file such as ./mine.toml
    #[arg(long = "for", value_name = "NAME|FILE.toml", default_value = "udp-server")]
    goal: String,
    /// Fix only these findings: comma-separated ids or stages
    #[arg(long, value_name = "FINDING,..", value_delimiter = ',')]
    only: Vec<String>,
    /// Do not fix these findings: comma-separated ids or stages
    #[arg(long, value_name = "FINDING,..", value_delimiter = ',')]
    except: Vec<String>,
    /// Include changes that are held back until another finding is fixed
    #[arg(long)]
    anyway: bool,
}

impl ProfileArgs {
    /// The profile, without what was not chosen.
    pub(super) fn profile(&self) -> Result<TuneProfile> {
        let mut profile = named(&self.goal)?;
        profile.anyway = self.anyway;
        self.only.iter().chain(&self.except).try_for_each(|name| must_be_known(name))?;
        for rule in rules() {
            let named = |names: &[String]| names.iter().any(|name| covers(name, rule.id));
            if named(&self.except) {
                leave(&mut profile, rule.id, "--except names it.");
            } else if !self.only.is_empty() && !named(&self.only) {
                leave(&mut profile, rule.id, "--only does not name it.");
            }
        }
        if !self.only.is_empty() {
            profile.values.clear();
        }
        Ok(profile)
    }
}

/// The profile of a name that comes with the program, or in a file.
pub(crate) fn named(goal: &str) -> Result<TuneProfile> {
    let is_file = goal.contains('/') || Path::new(goal).extension().is_some_and(|end| end == "toml");
    if !is_file {
        return Ok(TuneProfile::named(goal)?);
    }
    let text = std::fs::read_to_string(goal).with_context(|| format!("cannot read the profile {goal}"))?;
    Ok(TuneProfile::parse(&text, goal)?)
}

fn leave(profile: &mut TuneProfile, id: &str, why: &str) {
    profile.fix.remove(id);
    profile.ask.remove(id);
    profile.leave.insert(id.to_owned(), why.to_owned());
}

/// Whether a finding is meant by its id, or by its stage.
fn covers(name: &str, id: &str) -> bool {
    let stage = name.strip_suffix(".*").unwrap_or(name);
    id == name || id.split_once('.').is_some_and(|(of, _)| of == stage)
}

fn must_be_known(name: &str) -> Result<()> {
    if rules().any(|rule| covers(name, rule.id)) {
        return Ok(());
    }
    bail!("no finding and no stage is called '{name}' (linerate doctor --explain all lists them)")
}

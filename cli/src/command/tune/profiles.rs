//! `linerate tune profiles`: what there is to tune for.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use linerate_tune::Profile;

use super::choice::named;
use crate::output;
use crate::render::column::Column;
use crate::render::style::{Style, Tone};

/// Arguments of `tune profiles`.
#[derive(Debug, Args)]
pub(super) struct Profiles {
    /// Print this one, to be copied and changed [default: list them]
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

impl Profiles {
    pub(super) fn run(self) -> Result<ExitCode> {
        match &self.name {
            Some(name) => output::print(&named(name)?.text)?,
            None => output::print(&list(Style::stdout())?)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn list(style: Style) -> Result<String> {
    let column = Column { style, before: 2, label: 9 };
    let mut lines = Vec::new();
    for (name, _) in Profile::builtin() {
        let profile = Profile::named(name)?;
        lines.push(style.paint(Tone::Strong, &format!("{name}: {}", profile.title)));
        lines.extend(column.labelled("for", &profile.purpose));
        lines.extend(column.labelled("not for", &profile.not_for));
        lines.push(String::new());
    }
    lines.push(style.paint(Tone::Faint, "To make one of your own: linerate tune profiles NAME > mine.toml"));
    lines.push(String::new());
    Ok(lines.join("\n"))
}

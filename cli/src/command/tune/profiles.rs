//! `linerate tune profiles`: what there is to tune for.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use linerate_tune::TuneProfile;

use super::choice::named;
use crate::output;
use crate::render::column::TextColumn;
use crate::render::style::{TextStyle, TextTone};

/// Arguments of `tune profiles`.
#[derive(Debug, Args)]
pub(super) struct TuneProfilesArgs {
    /// Print this one, to be copied and changed [default: list them]
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

impl TuneProfilesArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        match &self.name {
            Some(name) => output::print(&named(name)?.text)?,
            None => output::print(&list(TextStyle::stdout())?)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn list(style: TextStyle) -> Result<String> {
    let column = TextColumn { style, before: 2, label: 9 };
    let mut lines = Vec::new();
    for (name, _) in TuneProfile::builtin() {
        let profile = TuneProfile::named(name)?;
        lines.push(style.paint(TextTone::Strong, &format!("{name}: {}", profile.title)));
        lines.extend(column.labelled("for", &profile.purpose));
        lines.extend(column.labelled("not for", &profile.not_for));
        lines.push(String::new());
    }
    lines.push(
        style.paint(TextTone::Faint, "To make one of your own: linerate tune profiles NAME > mine.toml"),
    );
    lines.push(String::new());
    Ok(lines.join("\n"))
}

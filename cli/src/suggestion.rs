//! Values that shells complete but the parser does not require: `--for` also accepts a file.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command, Error};
use linerate_host::diagnosis;
use linerate_host::stage::STAGES;
use linerate_lab::ladder::step::STEPS;
use linerate_lab::paths::PATHS;
use linerate_lab::program::ServerRecipe;
use linerate_tune::TuneProfile;

/// Any text, with the values that a shell suggests.
#[derive(Debug, Clone)]
pub(crate) struct SuggestedValues(Vec<&'static str>);

impl SuggestedValues {
    pub(crate) fn findings() -> Self {
        Self(
            diagnosis::rules()
                .map(|rule| rule.id)
                .chain(STAGES.iter().map(|stage| stage.name.name()))
                .collect(),
        )
    }

    pub(crate) fn steps() -> Self {
        Self(STEPS.iter().map(|step| step.id).collect())
    }

    pub(crate) fn paths() -> Self {
        Self(PATHS.iter().map(|path| path.name).collect())
    }

    pub(crate) fn profiles() -> Self {
        Self(TuneProfile::builtin().map(|(name, _)| name).collect())
    }

    pub(crate) fn recipes() -> Self {
        Self(ServerRecipe::built_in_names().collect())
    }
}

impl TypedValueParser for SuggestedValues {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(|value| PossibleValue::new(*value))))
    }
}

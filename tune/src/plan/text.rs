//! Plans as documents that people save and edit.

use super::{PlanError, SCHEMA, SCHEMA_OF_0_1, TunePlan};

impl TunePlan {
    /// Reads a plan, also one of version 0.1; `origin` names it in errors.
    ///
    /// # Errors
    /// Names line and column, another schema, or a value that its setting does not accept.
    pub fn parse(text: &str, origin: &str) -> Result<Self, PlanError> {
        let wrong = |what: String| PlanError(format!("{origin} is no plan: {}", what.replace('\n', " ")));
        let json: serde_json::Value = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        // A document of another kind is recognized by its schema, rather than by a missing field.
        let schema = json.get("schema").and_then(serde_json::Value::as_str).unwrap_or_default();
        if ![SCHEMA, SCHEMA_OF_0_1].contains(&schema) {
            return Err(wrong(format!("its schema is '{schema}', not '{SCHEMA}'")));
        }
        let mut plan: TunePlan = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        SCHEMA.clone_into(&mut plan.schema);
        for change in plan.exclusions.iter().chain(&plan.changes) {
            for value in [&change.from, &change.to] {
                let checked = change.setting.check(value);
                checked.map_err(|error| PlanError(format!("{origin}: {error}")))?;
            }
        }
        if let Some(duplicate) = plan.duplicate_setting() {
            return Err(PlanError(format!("{origin}: {duplicate} is there twice")));
        }
        Ok(plan)
    }

    /// The plan as it is saved: JSON, in the order of the fields.
    pub fn to_json(&self) -> String {
        // Serialization cannot fail: all keys of maps are text, and all numbers are finite.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    fn duplicate_setting(&self) -> Option<String> {
        let mut unique_settings = std::collections::BTreeSet::new();
        let changes = self.exclusions.iter().chain(&self.changes);
        changes
            .map(|change| &change.setting)
            .find(|setting| !unique_settings.insert(*setting))
            .map(ToString::to_string)
    }
}

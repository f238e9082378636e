//! Results from files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use linerate_host::stats::RunComparison;
use linerate_lab::ladder::predict::LadderPrediction;
use linerate_lab::ladder::report::LadderReport;
use linerate_lab::paths::report::PathsReport;
use linerate_lab::placement::PlacementComparison;
use linerate_load::report::{LoadReport, OverloadReport, RampReport, SearchReport};
use linerate_load::wire::LinkCapacity;
use linerate_trace::cost::{CostComparison, CostResult};
use linerate_trace::delay::DelayReport;
use linerate_trace::drops::DropsResult;
use linerate_trace::flame::comparison::FlameComparison;
use linerate_trace::flame::result::FlameResult;
use linerate_trace::headroom::HeadroomReport;
use linerate_tune::TunePlan;
use linerate_tune::boost::report::{BoostApplyReport, BoostPlanReport};
use linerate_tune::report::TuneApplyReport;
use linerate_tune::transaction::UndoReport;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fleet_report::FleetReport;
use crate::document::Document;
use crate::envelope::{CommandResult, Envelope};
use crate::view::doctor::DoctorResult;
use crate::view::tune_plan::{self, PlannedTune};

// The schema of this command's own output. In a directory of results it is skipped.
pub(crate) const OWN_SCHEMA: &str = "linerate.report/2";

#[derive(Debug)]
pub(crate) struct ResultFile {
    pub(crate) file: String,
    /// Results of lower rank come first in a report.
    pub(crate) rank: u8,
    pub(crate) document: Document,
}

/// A file without a result that can be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct UnreadFile {
    pub(crate) file: String,
    // Schema named in the file; `None` without one.
    pub(crate) schema: Option<String>,
    pub(crate) why: String,
}

/// All files of a report.
#[derive(Debug, Default)]
pub(crate) struct ResultFiles {
    pub(crate) sources: Vec<ResultFile>,
    pub(crate) unread: Vec<UnreadFile>,
}

impl ResultFiles {
    /// Whether no file is a result, of this or another version.
    pub(super) fn is_empty(&self) -> bool {
        let has_own_schema =
            |file: &UnreadFile| file.schema.as_ref().is_some_and(|schema| schema.starts_with("linerate."));
        self.sources.is_empty() && !self.unread.iter().any(has_own_schema)
    }
}

/// Reads these files, and the `.json` files of these directories. Lists files that cannot be shown
/// with the reason.
///
/// # Errors
///
/// A named file or directory that cannot be read.
pub(crate) fn read(paths: &[PathBuf]) -> Result<ResultFiles> {
    let mut files_read = ResultFiles::default();
    for path in paths {
        let is_directory =
            fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?.is_dir();
        let mut files = if is_directory { entries(path)? } else { vec![path.clone()] };
        if is_directory {
            files.retain(|file| {
                file.extension().is_some_and(|extension| extension == "json") && file.is_file()
            });
        }
        for file in files {
            let name = file.display().to_string();
            let text = match fs::read_to_string(&file) {
                Ok(text) => text,
                Err(error) if is_directory => {
                    let why = format!("cannot be read: {error}");
                    files_read.unread.push(UnreadFile { file: name, schema: None, why });
                    continue;
                }
                Err(error) => return Err(error).with_context(|| format!("cannot read {name}")),
            };
            match parse(&name, &text) {
                Ok(None) => {}
                Ok(Some(result)) => files_read.sources.push(result),
                Err(unread) => files_read.unread.push(unread),
            }
        }
    }
    Ok(files_read)
}

/// The entries of a directory, by name.
pub(super) fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let read_error = || format!("cannot read {}", directory.display());
    let entries = fs::read_dir(directory).with_context(read_error)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths: Vec<PathBuf> = paths.collect::<Result<_, _>>().with_context(read_error)?;
    paths.sort();
    Ok(paths)
}

// The first keys of every document.
#[derive(Debug, Deserialize)]
pub(super) struct DocumentOrigin {
    pub(super) schema: String,
    #[serde(default)]
    pub(super) version: Option<String>,
}

/// The reader of a schema.
struct SchemaReader {
    schema: &'static str,
    /// The place of its results in a report: the path, changes, capacity, the load, the use of time
    /// and the loss of packets.
    rank: u8,
    read: fn(&str) -> Result<Document>,
}

impl SchemaReader {
    const fn new<T: CommandResult>(rank: u8) -> Self {
        Self { schema: T::SCHEMA, rank, read: enveloped::<T> }
    }

    fn find(schema: &str) -> Option<&'static Self> {
        READERS.iter().find(|reader| reader.schema == schema)
    }
}

/// The supported schemas.
static READERS: [SchemaReader; 24] = [
    SchemaReader::new::<FleetReport>(0),
    SchemaReader { schema: linerate_tune::plan::SCHEMA, rank: 1, read: plan },
    SchemaReader::new::<TuneApplyReport>(1),
    SchemaReader::new::<UndoReport>(1),
    SchemaReader::new::<BoostPlanReport>(1),
    SchemaReader::new::<BoostApplyReport>(1),
    SchemaReader::new::<LadderReport>(2),
    SchemaReader::new::<SearchReport>(3),
    SchemaReader::new::<RampReport>(4),
    SchemaReader::new::<LoadReport>(5),
    SchemaReader::new::<OverloadReport>(6),
    SchemaReader::new::<DoctorResult>(7),
    SchemaReader::new::<LadderPrediction>(7),
    SchemaReader::new::<PathsReport>(7),
    SchemaReader::new::<PlacementComparison>(7),
    SchemaReader::new::<CostResult>(7),
    SchemaReader::new::<CostComparison>(7),
    SchemaReader::new::<RunComparison>(7),
    SchemaReader::new::<LinkCapacity>(7),
    SchemaReader::new::<DelayReport>(7),
    SchemaReader::new::<HeadroomReport>(7),
    SchemaReader::new::<DropsResult>(8),
    SchemaReader::new::<FlameResult>(9),
    SchemaReader::new::<FlameComparison>(10),
];

// A plan is a file of its own, which `tune apply --plan` reads, too.
fn plan(text: &str) -> Result<Document> {
    let plan: TunePlan = serde_json::from_str(text)?;
    Ok(tune_plan::document(&PlannedTune::of_plan(plan, "the host"), true))
}

fn enveloped<T: CommandResult>(text: &str) -> Result<Document> {
    Ok(Envelope::<T>::parse(text)?.document())
}

// The result in a text. `None` for a result of this command itself, so that a report never contains
// a report.
fn parse(file: &str, text: &str) -> Result<Option<ResultFile>, UnreadFile> {
    let unread = |schema, why| UnreadFile { file: file.to_owned(), schema, why };
    let without_schema = |why: String| unread(None, why);
    let value: Value =
        serde_json::from_str(text).map_err(|error| without_schema(format!("no JSON document: {error}")))?;
    let origin = DocumentOrigin::deserialize(&value)
        .map_err(|_| without_schema("no result of linerate: it does not name its schema".to_owned()))?;
    drop(value);
    if origin.schema == OWN_SCHEMA {
        return Ok(None);
    }
    let unusable = |why: String| unread(Some(origin.schema.clone()), why);
    let reader = SchemaReader::find(&origin.schema).ok_or_else(|| unusable(unsupported_reason(&origin)))?;
    let document = (reader.read)(text).map_err(|error| {
        unusable(format!("not a whole {} document: {}", origin.schema, crate::output::one_line(&error)))
    })?;
    let rank = if document.has_path() { 0 } else { reader.rank };
    Ok(Some(ResultFile { file: file.to_owned(), rank, document }))
}

/// The supported version of a schema.
fn supported_version(schema: &str) -> Option<&'static str> {
    let name = |schema: &str| schema.rsplit_once('/').map_or(schema, |(name, _)| name).to_owned();
    READERS.iter().map(|reader| reader.schema).find(|supported| name(supported) == name(schema))
}

/// Whether it is a result of linerate, and in the supported version if there is one.
pub(super) fn is_valid(schema: &str) -> bool {
    supported_version(schema).map_or(schema.starts_with("linerate."), |supported| supported == schema)
}

/// Reason why a schema is not supported.
pub(super) fn unsupported_reason(origin: &DocumentOrigin) -> String {
    let DocumentOrigin { schema, version } = origin;
    let version_text = version.as_ref().map(|version| format!(" of version {version}")).unwrap_or_default();
    match supported_version(schema) {
        Some(supported) => {
            format!(
                "{schema}, from a linerate{version_text}; this one, {}, reads {supported}",
                env!("CARGO_PKG_VERSION")
            )
        }
        None if schema.starts_with("linerate.") => {
            format!("{schema}{version_text} has no page in this linerate, {}", env!("CARGO_PKG_VERSION"))
        }
        None => format!("{schema} is no schema of linerate"),
    }
}

#[cfg(test)]
mod tests;

//! Writing the files and removing them, so that what is there is known whenever the program ends.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::file::{self, OpenedDirectory, PathOccupant};
use super::{PersistError, PersistFile, PersistFiles, PlaceError};
use crate::journal::record::WrittenFile;
use crate::journal::{JournalError, JournalRecord, JournalWriter};

/// The files that stand, as the journal knows them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StandingFiles {
    /// Number of the tune that they make last; none where there are none.
    pub tune: Option<u64>,
    /// Whether all of them were written; if not, the program was ended while it wrote them.
    pub whole: bool,
    /// Each path, and what may be there: after an end midway, what was and what was to be.
    files: BTreeMap<String, Vec<WrittenFile>>,
    /// Directories that were made for them.
    directories: BTreeSet<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct WrittenFiles {
    /// Files that were written, in this order.
    pub written: Vec<String>,
    /// Files that were so already.
    pub already: Vec<String>,
    /// Files of an earlier time that are not needed any more, and were removed.
    pub removed: Vec<String>,
    /// Such files that were left, because somebody changed them since.
    pub left: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RemovedFiles {
    /// Files and directories that were removed.
    pub removed: Vec<String>,
    /// Files that were left, because somebody changed them since.
    pub left: Vec<String>,
}

impl StandingFiles {
    /// What the records say.
    pub fn of<'a>(records: impl IntoIterator<Item = &'a JournalRecord>) -> Self {
        let mut standing = Self::default();
        for record in records {
            standing.take(record);
        }
        standing
    }

    /// The paths of the files, sorted.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    fn take(&mut self, record: &JournalRecord) {
        match record {
            JournalRecord::Persisting { tune, files, directories } => {
                self.tune = Some(*tune);
                self.whole = false;
                for file in files {
                    self.files.entry(file.path.clone()).or_default().push(file.clone());
                }
                self.directories.extend(directories.iter().cloned());
            }
            JournalRecord::Persisted { tune, files } => {
                self.tune = Some(*tune);
                self.whole = true;
                self.files = files.iter().map(|file| (file.path.clone(), vec![file.clone()])).collect();
            }
            JournalRecord::Unpersisted { .. } => *self = Self::default(),
            _ => {}
        }
    }

    fn wrote(&self, path: &str, occupant: &PathOccupant) -> bool {
        self.files.get(path).is_some_and(|versions| versions.iter().any(|version| occupant.is(version)))
    }
}

/// A file that is to be written, and what is in its place.
struct PendingFile<'a> {
    file: &'a PersistFile,
    path: PathBuf,
    recorded: WrittenFile,
    occupant: PathOccupant,
}

impl PersistFiles {
    /// Writes the files below `root`, which is `/` but for an image of another host, after the journal has them. Those of an
    /// earlier tune are replaced, or removed where they are not needed any more.
    ///
    /// # Errors
    /// [`PersistError::Foreign`] where something else is in their place, before any is written; [`PersistError::Place`]
    /// where one could not be written: [`unpersist`] removes the others.
    pub fn write(&self, writer: &mut JournalWriter, root: &Path) -> Result<WrittenFiles, PersistError> {
        let root = root.canonicalize().map_err(|source| PlaceError::System {
            what: "find",
            path: root.display().to_string(),
            source,
        })?;
        let standing = standing(writer)?;
        let pending = self.files.iter().map(|file| pending(file, &root)).collect::<Result<Vec<_>, _>>()?;
        let is_foreign = |one: &&PendingFile<'_>| {
            one.occupant != PathOccupant::Nothing && !standing.wrote(&one.recorded.path, &one.occupant)
        };
        let foreign: Vec<_> =
            pending.iter().filter(is_foreign).map(|one| one.recorded.path.clone()).collect();
        if !foreign.is_empty() {
            return Err(PersistError::Foreign { paths: foreign });
        }
        let directories = missing_directories(&pending)?;
        let files: Vec<_> = pending.iter().map(|one| one.recorded.clone()).collect();
        let announced = directories.iter().map(|path| path.display().to_string()).collect();
        writer.append(JournalRecord::Persisting {
            tune: self.tune,
            files: files.clone(),
            directories: announced,
        })?;
        for directory in &directories {
            file::make_directory(directory)?;
        }
        let mut wrote = WrittenFiles::default();
        for one in &pending {
            let list = if one.write()? { &mut wrote.written } else { &mut wrote.already };
            list.push(one.recorded.path.clone());
        }
        let needed: BTreeSet<_> = files.iter().map(|file| file.path.as_str()).collect();
        for path in standing.paths().filter(|path| !needed.contains(path)) {
            standing.remove(path, &mut wrote.removed, &mut wrote.left)?;
        }
        remove_directories(&standing, &mut wrote.removed)?;
        writer.append(JournalRecord::Persisted { tune: self.tune, files })?;
        Ok(wrote)
    }
}

impl PendingFile<'_> {
    /// Writes it, if it is not so already.
    fn write(&self) -> Result<bool, PlaceError> {
        if self.occupant.is(&self.recorded) {
            return Ok(false);
        }
        OpenedDirectory::of(&self.path)?.write(&self.file.content, self.occupant != PathOccupant::Nothing)?;
        Ok(true)
    }
}

/// Removes the files that the journal knows of, and the directories that were made for them if nothing else is in them.
///
/// # Errors
/// [`PersistError::Place`] where one could not be removed; asked again, it goes on with the others. None where there are
/// none: then nothing is done.
pub fn unpersist(writer: &mut JournalWriter) -> Result<Option<RemovedFiles>, PersistError> {
    let standing = standing(writer)?;
    let Some(tune) = standing.tune else { return Ok(None) };
    let mut result = RemovedFiles::default();
    // What enables the units last written goes first.
    for path in standing
        .paths()
        .filter(|path| path.contains(".wants/"))
        .chain(standing.paths().filter(|path| !path.contains(".wants/")))
    {
        standing.remove(path, &mut result.removed, &mut result.left)?;
    }
    remove_directories(&standing, &mut result.removed)?;
    let (removed, left) = (result.removed.clone(), result.left.clone());
    writer.append(JournalRecord::Unpersisted { tune, removed, left })?;
    Ok(Some(result))
}

impl StandingFiles {
    fn remove(
        &self,
        path: &str,
        removed: &mut Vec<String>,
        left: &mut Vec<String>,
    ) -> Result<(), PlaceError> {
        let Some(spot) = OpenedDirectory::find(Path::new(path))? else { return Ok(()) };
        spot.remove_unfinished()?;
        match spot.occupant()? {
            PathOccupant::Nothing => {}
            occupant if self.wrote(path, &occupant) => {
                spot.remove()?;
                removed.push(path.to_owned());
            }
            _ => left.push(path.to_owned()),
        }
        Ok(())
    }
}

/// The inner ones first.
fn remove_directories(standing: &StandingFiles, removed: &mut Vec<String>) -> Result<(), PlaceError> {
    for directory in standing.directories.iter().rev() {
        if file::remove_empty_directory(Path::new(directory))? {
            removed.push(directory.clone());
        }
    }
    Ok(())
}

fn standing(writer: &JournalWriter) -> Result<StandingFiles, JournalError> {
    Ok(StandingFiles::of(writer.store().read()?.entries.iter().map(|entry| &entry.record)))
}

fn pending<'a>(file: &'a PersistFile, root: &Path) -> Result<PendingFile<'a>, PersistError> {
    let path = root.join(file.path.trim_start_matches('/'));
    let recorded = file.content.recorded(path.display().to_string());
    // Also where a directory is not there yet, one above may be a link.
    file::missing_directories(&path)?;
    let occupant = match OpenedDirectory::find(&path)? {
        Some(spot) => spot.occupant()?,
        None => PathOccupant::Nothing,
    };
    Ok(PendingFile { file, path, recorded, occupant })
}

fn missing_directories(pending: &[PendingFile<'_>]) -> Result<Vec<PathBuf>, PlaceError> {
    let mut missing = Vec::new();
    for one in pending {
        for directory in file::missing_directories(&one.path)? {
            if !missing.contains(&directory) {
                missing.push(directory);
            }
        }
    }
    Ok(missing)
}

//! Writes and removes the files, so that the journal lists them whenever the program ends.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::file::{self, OpenedDirectory, PathOccupant};
use super::{PersistError, PersistFile, PersistFiles, PlaceError};
use crate::journal::record::WrittenFile;
use crate::journal::{JournalError, JournalRecord, JournalWriter};

/// The written files according to the journal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StandingFiles {
    /// Number of their tune.
    pub tune: Option<u64>,
    /// Whether all files were written; false if the program was killed.
    pub whole: bool,
    /// Possible contents by path: after a kill, the old and the new one.
    files: BTreeMap<String, Vec<WrittenFile>>,
    /// Directories that were made for the files.
    directories: BTreeSet<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenFiles {
    /// In the order of writing.
    pub written: Vec<String>,
    /// Unchanged files.
    pub already: Vec<String>,
    /// Removed files of an earlier tune.
    pub removed: Vec<String>,
    /// Such files that stay because they were changed since.
    pub kept: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedFiles {
    /// Files and directories.
    pub removed: Vec<String>,
    /// Files that stay because they were changed since.
    pub kept: Vec<String>,
}

impl StandingFiles {
    pub fn of<'a>(records: impl IntoIterator<Item = &'a JournalRecord>) -> Self {
        let mut standing = Self::default();
        for record in records {
            standing.take(record);
        }
        standing
    }

    /// Sorted paths.
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

/// A file to write, and the current occupant of its path.
struct PendingFile<'a> {
    file: &'a PersistFile,
    path: PathBuf,
    recorded: WrittenFile,
    occupant: PathOccupant,
}

impl PersistFiles {
    /// Journals the files and writes them below `root` (`/`, or the image of another host). Files of an
    /// earlier tune are replaced, or removed if they are not needed any more.
    ///
    /// # Errors
    /// [`PersistError::Foreign`] if other files have these paths: then no file is written.
    /// [`PersistError::Place`] if a file could not be written: [`unpersist`] removes the other
    /// files.
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
            standing.remove(path, &mut wrote.removed, &mut wrote.kept)?;
        }
        remove_directories(&standing, &mut wrote.removed)?;
        writer.append(JournalRecord::Persisted { tune: self.tune, files })?;
        Ok(wrote)
    }
}

impl PendingFile<'_> {
    // Writes the file unless it is unchanged.
    fn write(&self) -> Result<bool, PlaceError> {
        if self.occupant.is(&self.recorded) {
            return Ok(false);
        }
        OpenedDirectory::of(&self.path)?.write(&self.file.content, self.occupant != PathOccupant::Nothing)?;
        Ok(true)
    }
}

/// Removes the files in the journal, and their directories if these are empty and were made for them.
///
/// # Errors
/// [`PersistError::Place`] if a file could not be removed. A repeated call continues with the other
/// files.
pub fn unpersist(writer: &mut JournalWriter) -> Result<Option<RemovedFiles>, PersistError> {
    let standing = standing(writer)?;
    let Some(tune) = standing.tune else { return Ok(None) };
    let mut result = RemovedFiles::default();
    // The links that enable units go first.
    for path in standing
        .paths()
        .filter(|path| path.contains(".wants/"))
        .chain(standing.paths().filter(|path| !path.contains(".wants/")))
    {
        standing.remove(path, &mut result.removed, &mut result.kept)?;
    }
    remove_directories(&standing, &mut result.removed)?;
    let (removed, left) = (result.removed.clone(), result.kept.clone());
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

/// Removes the directories that are empty, inner directories first.
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
    // A parent directory may be a link even if the directory is missing.
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

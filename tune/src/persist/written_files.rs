//! Writes and removes the files, so that the journal lists them whenever the program ends.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::file::{self, OpenedDirectory, PathOccupant};
use super::{DOCUMENT_FILE, FileContent, PersistError, PersistFile, PersistFiles, SYSCTL_FILE, unit};
use crate::journal::record::WrittenFile;
use crate::journal::{Journal, JournalError, JournalRecord, JournalWriter};

/// The written files according to the journal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StandingFiles {
    /// Number of their tune.
    pub tune: Option<u64>,
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
    pub fn of(journal: &Journal) -> Self {
        let mut standing = Self::default();
        for entry in &journal.entries {
            match &entry.record {
                JournalRecord::Persisting { tune, files, directories } => {
                    standing.tune = Some(*tune);
                    standing.add(files);
                    standing.directories.extend(directories.iter().cloned());
                }
                JournalRecord::Persisted { tune, files } => {
                    standing.tune = Some(*tune);
                    standing.files.clear();
                    standing.add(files);
                }
                JournalRecord::Unpersisted { .. } => standing = Self::default(),
                _ => {}
            }
        }
        standing
    }

    /// Sorted paths.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    fn add(&mut self, files: &[WrittenFile]) {
        for file in files {
            self.files.entry(file.path.clone()).or_default().push(file.clone());
        }
    }

    fn has_written(&self, path: &str, occupant: &PathOccupant) -> bool {
        self.files.get(path).is_some_and(|versions| versions.iter().any(|version| occupant.is(version)))
    }
}

/// A file to write, and the current occupant of its path.
struct PendingFile<'a> {
    content: &'a FileContent,
    recorded: WrittenFile,
    occupant: PathOccupant,
}

impl PersistFiles {
    /// Journals the files and writes them below `root` (`/`, or the image of another host). Files of an
    /// earlier tune are replaced, or removed if they are not needed any more. Files below other roots
    /// stay.
    ///
    /// # Errors
    /// [`PersistError::Refused`] if other files have these paths: then no file is written. Likewise if a
    /// file could not be written: then [`unpersist`] removes the other files.
    pub fn write(&self, writer: &mut JournalWriter, root: &Path) -> Result<WrittenFiles, PersistError> {
        let root = root.canonicalize().map_err(|error| file::failed("find", root, &error))?;
        let standing_files = read_standing_files(writer)?;
        let pending_files =
            self.files.iter().map(|file| pending_file(file, &root)).collect::<Result<Vec<_>, _>>()?;
        let is_foreign = |pending_file: &&PendingFile<'_>| {
            pending_file.occupant != PathOccupant::Nothing
                && !standing_files.has_written(&pending_file.recorded.path, &pending_file.occupant)
        };
        let foreign = pending_files.iter().filter(is_foreign);
        let foreign: Vec<_> = foreign.map(|pending_file| pending_file.recorded.path.clone()).collect();
        if !foreign.is_empty() {
            return Err(PersistError::Refused(format!(
                "{}: not written by linerate as it is, and so not replaced; move it away",
                foreign.join(", ")
            )));
        }
        let files: Vec<_> = pending_files.iter().map(|pending_file| pending_file.recorded.clone()).collect();
        let directories = missing_directories(&files)?;
        writer.append(JournalRecord::Persisting {
            tune: self.tune,
            files: files.clone(),
            directories: directories.clone(),
        })?;
        for directory in &directories {
            file::make_directory(Path::new(directory))?;
        }
        let mut result = WrittenFiles::default();
        for pending_file in &pending_files {
            let list = if pending_file.write()? { &mut result.written } else { &mut result.already };
            list.push(pending_file.recorded.path.clone());
        }
        let needed: BTreeSet<_> = files.iter().map(|file| file.path.as_str()).collect();
        let is_superseded = |path: &&str| is_below(&root, path) && !needed.contains(path);
        for path in standing_files.paths().filter(is_superseded) {
            standing_files.remove(path, &mut result.removed, &mut result.kept)?;
        }
        remove_directories(&standing_files, &mut result.removed)?;
        let of_other_roots = standing_files.files.iter().filter(|(path, _)| !is_below(&root, path));
        let other_files = of_other_roots.flat_map(|(_, versions)| versions).cloned();
        let files = files.iter().cloned().chain(other_files).collect();
        writer.append(JournalRecord::Persisted { tune: self.tune, files })?;
        Ok(result)
    }
}

impl PendingFile<'_> {
    // Writes the file unless it is unchanged.
    fn write(&self) -> Result<bool, PersistError> {
        if self.occupant.is(&self.recorded) {
            return Ok(false);
        }
        let location = OpenedDirectory::of(Path::new(&self.recorded.path))?;
        location.write(self.content, self.occupant != PathOccupant::Nothing)?;
        Ok(true)
    }
}

/// Removes the files in the journal, and their directories if these are empty and were made for them.
///
/// # Errors
/// [`PersistError::Refused`] if a file could not be removed. A repeated call continues with the other
/// files.
pub fn unpersist(writer: &mut JournalWriter) -> Result<Option<RemovedFiles>, PersistError> {
    let standing_files = read_standing_files(writer)?;
    let Some(tune) = standing_files.tune else { return Ok(None) };
    let mut result = RemovedFiles::default();
    // The links that enable units go first.
    for path in standing_files
        .paths()
        .filter(|path| path.contains(".wants/"))
        .chain(standing_files.paths().filter(|path| !path.contains(".wants/")))
    {
        standing_files.remove(path, &mut result.removed, &mut result.kept)?;
    }
    remove_directories(&standing_files, &mut result.removed)?;
    let (removed, left) = (result.removed.clone(), result.kept.clone());
    writer.append(JournalRecord::Unpersisted { tune, removed, left })?;
    Ok(Some(result))
}

impl StandingFiles {
    fn remove(
        &self,
        path: &str,
        removed: &mut Vec<String>,
        kept: &mut Vec<String>,
    ) -> Result<(), PersistError> {
        let Some(location) = OpenedDirectory::find(Path::new(path))? else { return Ok(()) };
        location.remove_unfinished()?;
        match location.occupant()? {
            PathOccupant::Nothing => {}
            occupant if self.has_written(path, &occupant) => {
                location.remove()?;
                removed.push(path.to_owned());
            }
            _ => kept.push(path.to_owned()),
        }
        Ok(())
    }
}

/// Removes the directories that are empty, inner directories first.
fn remove_directories(standing_files: &StandingFiles, removed: &mut Vec<String>) -> Result<(), PersistError> {
    for directory in standing_files.directories.iter().rev() {
        if file::remove_empty_directory(Path::new(directory))? {
            removed.push(directory.clone());
        }
    }
    Ok(())
}

/// Whether a file was written below this root, and not below another root inside or outside it.
fn is_below(root: &Path, path: &str) -> bool {
    let Ok(relative) = Path::new(path).strip_prefix(root) else { return false };
    let path = Path::new("/").join(relative);
    path == Path::new(SYSCTL_FILE) || path == Path::new(DOCUMENT_FILE) || path.starts_with(unit::DIRECTORY)
}

fn read_standing_files(writer: &JournalWriter) -> Result<StandingFiles, JournalError> {
    Ok(StandingFiles::of(&writer.store().read()?))
}

fn pending_file<'a>(file: &'a PersistFile, root: &Path) -> Result<PendingFile<'a>, PersistError> {
    let path = root.join(file.path.trim_start_matches('/'));
    let occupant = match OpenedDirectory::find(&path)? {
        Some(location) => location.occupant()?,
        None => PathOccupant::Nothing,
    };
    let recorded = file.content.recorded(path.display().to_string());
    Ok(PendingFile { content: &file.content, recorded, occupant })
}

fn missing_directories(files: &[WrittenFile]) -> Result<Vec<String>, PersistError> {
    let mut missing = Vec::new();
    for file in files {
        for directory in file::missing_directories(Path::new(&file.path))? {
            let directory = directory.display().to_string();
            if !missing.contains(&directory) {
                missing.push(directory);
            }
        }
    }
    Ok(missing)
}

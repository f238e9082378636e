//! Files with sections and keys, as in TuneD, NetworkManager and systemd.

use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IniEntry<'a> {
    /// Counted from 1.
    pub line: usize,
    /// Empty before the first section.
    pub section: &'a str,
    pub key: &'a str,
    pub value: &'a str,
}

/// Entries in file order. A value ends with its line.
pub fn entries(text: &str) -> impl Iterator<Item = IniEntry<'_>> {
    let mut section = "";
    (1..).zip(text.lines()).filter_map(move |(number, line)| {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.trim();
            return None;
        }
        if line.starts_with(['#', ';']) {
            return None;
        }
        let (key, value) = line.split_once('=')?;
        Some(IniEntry { line: number, section, key: key.trim(), value: value.trim() })
    })
}

/// An entry of a file that others may override.
#[derive(Debug, Clone)]
pub struct FileEntry {
    pub path: String,
    /// Counted from 1.
    pub line: usize,
    pub section: String,
    pub key: String,
    pub value: String,
}

impl FileEntry {
    /// `path:line`.
    pub fn location(&self) -> String {
        format!("{}:{}", self.path, self.line)
    }

    /// Adds the entry in place of one with the same section and key.
    pub fn replace_in(self, entries: &mut Vec<Self>) {
        entries.retain(|earlier| (&earlier.section, &earlier.key) != (&self.section, &self.key));
        entries.push(self);
    }
}

pub fn file_entries(text: &str, path: &str) -> Vec<FileEntry> {
    let entry = |IniEntry { line, section, key, value }: IniEntry<'_>| FileEntry {
        path: path.to_owned(),
        line,
        section: section.to_owned(),
        key: key.to_owned(),
        value: value.to_owned(),
    };
    entries(text).map(entry).collect()
}

/// Paths of files with this suffix, sorted by name. A file hides those with its name in later
/// directories. Each directory comes with the names in it.
pub fn layered(directories: impl Iterator<Item = (String, Vec<String>)>, suffix: &str) -> Vec<String> {
    let mut files = BTreeMap::new();
    for (directory, names) in directories {
        for name in names.into_iter().filter(|name| name.ends_with(suffix)) {
            let path = format!("{directory}/{name}");
            files.entry(name).or_insert(path);
        }
    }
    files.into_values().collect()
}

/// `on` for `yes`, `true`, `on` and `1`; `off` for the opposite values (systemd.syntax(7)).
pub fn switch(value: &str) -> Option<&'static str> {
    match value.to_ascii_lowercase().as_str() {
        "yes" | "true" | "on" | "1" | "y" | "t" => Some("on"),
        "no" | "false" | "off" | "0" | "n" | "f" => Some("off"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ini_entries_have_their_line_and_section() {
        let text = "a=1\n# b=2\n[ Link ]\n\nRxBufferSize = 4096\n;c=3\nno value\n";
        let found: Vec<_> = entries(text).collect();
        assert_eq!(
            found,
            [
                IniEntry { line: 1, section: "", key: "a", value: "1" },
                IniEntry { line: 5, section: "Link", key: "RxBufferSize", value: "4096" },
            ]
        );
    }
}

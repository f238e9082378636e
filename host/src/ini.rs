//! Files with sections and keys, as in TuneD, NetworkManager and systemd.

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

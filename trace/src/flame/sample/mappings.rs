//! Memory mappings of a process: they give the file of a function without symbol, and exclude
//! addresses that are not code.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CodeMapping {
    begin: u64,
    end: u64,
    // The file, or the kernel's name without brackets: `vdso`. `None` for anonymous memory, such
    // as code generated at run time.
    name: Option<String>,
}

/// Executable mappings in /proc/PID/maps: `55e0c6a6e000-55e0c6a70000 r-xp 00002000 fd:01 1234
/// /usr/bin/openssl (deleted)`. Other lines are left out.
pub(super) fn parse(text: &str) -> Vec<CodeMapping> {
    text.lines().filter_map(mapping).collect()
}

fn mapping(line: &str) -> Option<CodeMapping> {
    let (range, fields) = line.split_once(' ')?;
    let (begin, end) = range.split_once('-')?;
    let mut fields = fields.splitn(5, ' ');
    let executable = fields.next()?.contains('x');
    let name = fields.nth(3).unwrap_or_default().trim_start();
    let name = name.strip_suffix(" (deleted)").unwrap_or(name).trim_matches(['[', ']']);
    let mapping = CodeMapping {
        begin: u64::from_str_radix(begin, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        name: (!name.is_empty()).then(|| name.to_owned()),
    };
    executable.then_some(mapping)
}

// The mapping of an address; `None` if it is not code.
pub(super) fn find_mapping(mappings: &[CodeMapping], address: u64) -> Option<Option<&str>> {
    // The kernel lists them in order.
    let index = mappings.partition_point(|mapping| mapping.begin <= address);
    let candidate = mappings.get(index.checked_sub(1)?)?;
    (address < candidate.end).then_some(candidate.name.as_deref())
}

pub(crate) fn any_mappings(text: &str) {
    _ = find_mapping(&parse(text), 0x1000);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_map_to_files_vdso_or_anonymous_memory() {
        let mappings = parse(
            "55e0c6a6e000-55e0c6a70000 r-xp 00002000 fd:01 1234                       /usr/my bin/openssl (deleted)\n\
             55e0c6a70000-55e0c6a71000 rw-p 00004000 fd:01 1234                       /usr/my bin/openssl\n\
             7f1000000000-7f1000021000 rwxp 00000000 00:00 0 \n\
             7ffe1a9f0000-7ffe1a9f2000 r-xp 00000000 00:00 0                          [vdso]\n\
             nonsense\n",
        );
        assert_eq!(mappings.len(), 3);
        assert_eq!(find_mapping(&mappings, 0x55e0_c6a6_e000), Some(Some("/usr/my bin/openssl")));
        assert_eq!(find_mapping(&mappings, 0x55e0_c6a7_0000), None, "data");
        assert_eq!(find_mapping(&mappings, 0x7ffe_1a9f_0010), Some(Some("vdso")));
        assert_eq!(find_mapping(&mappings, 0x7f10_0000_0010), Some(None));
    }
}

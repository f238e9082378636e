//! Sysctls in the format of sysctl.d(5).

use std::fmt::Write as _;

use linerate_host::SettingValue;
use linerate_host::setting::sysctl_path;

/// Whether a file of sysctl.d can express this sysctl unambiguously: names end at the first `=`, and may
/// be patterns.
pub(super) fn is_expressible(name: &str, value: &SettingValue) -> bool {
    let first_separator = name.find(['.', '/']).and_then(|at| name.as_bytes().get(at));
    let name_is_plain = first_separator == Some(&b'.')
        && name.split(['.', '/']).all(|part| !part.is_empty())
        && !name.starts_with(['-', '#', ';'])
        && !name.contains(|letter: char| {
            letter.is_whitespace() || letter.is_control() || "=*?[]\\".contains(letter)
        });
    let text = value.as_str();
    name_is_plain && !text.is_empty() && !text.contains(|letter: char| letter.is_control() && letter != '\t')
}

// The lines for these sysctls, by dotted name. A component with a dot, such as `eth0.5`, is written as a
// path, which both sysctl.d(5) and sysctl(8) accept.
pub(super) fn lines(settings: &[(&str, &SettingValue)]) -> String {
    settings.iter().fold(String::new(), |mut text, (name, value)| {
        let name = if name.contains('/') { sysctl_path(name) } else { (*name).to_owned() };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name} = {value}");
        text
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_assignments_and_line_breaks_are_not_expressible() {
        let value = SettingValue::new("1");
        for name in ["net.ipv4.conf.a*.rp_filter", "net.ipv4.conf.a=b.x", "-net.x", "net..x", "", "net.a b"] {
            assert!(!is_expressible(name, &value), "{name}");
        }
        assert!(!is_expressible("net.x", &SettingValue::new("1\nnet.y = 2")));
        assert!(!is_expressible("net.x", &SettingValue::new("")));
        assert!(is_expressible("net.ipv4.conf.eth0/5.rp_filter", &value));
    }

    proptest! {
        #[test]
        fn expressible_settings_parse_to_the_same_name_and_value(
            settings in prop::collection::vec(("[!-~]{1,12}([./][!-~]{1,8}){0,4}", "[ -~\t\n]{0,20}"), 0..6)
        ) {
            let settings: Vec<_> = settings.into_iter().map(|(name, value)| (name, SettingValue::new(value))).collect();
            let expressible: Vec<_> = settings
                .iter()
                .filter(|(name, value)| is_expressible(name, value))
                .map(|(name, value)| (name.as_str(), value))
                .collect();
            let text = lines(&expressible);
            prop_assert_eq!(text.lines().count(), expressible.len());
            for (line, (name, value)) in text.lines().zip(&expressible) {
                // As systemd 257 src/sysctl/sysctl.c (`parse_line`) and sysctl(8) of procps read it.
                let (line_name, line_value) = line.split_once('=').expect("an assignment");
                prop_assert!(!line.starts_with(['#', ';', '-', ' ', '\t']));
                prop_assert_eq!(sysctl_path(line_name.trim()), sysctl_path(name));
                prop_assert_eq!(line_value.trim(), value.as_str());
            }
        }
    }
}

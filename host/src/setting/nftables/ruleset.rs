//! Rulesets as text: whether two are equivalent, and whether one contains only the expected rules.
//!
//! nft prints rulesets in its own layout: newlines instead of semicolons, sorted sets, single
//! elements without braces, priorities by name, default policies. Counters keep counting.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr};

// Limit of nesting.
const DEEPEST: usize = 32;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[derive(Display, EnumString, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum NftFamily {
    #[default]
    Inet,
    Ip,
    Ip6,
    Arp,
    Bridge,
    Netdev,
}

impl NftFamily {
    pub fn name(self) -> &'static str {
        self.into()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum RulesetPart {
    /// A word, a quoted text, a comma or a semicolon.
    Word(String),
    Braces(Vec<RulesetPart>),
}

/// Whether two rulesets are equivalent.
pub(super) fn is_equivalent(left: &str, right: &str) -> bool {
    left == right
        || match (parse(left), parse(right)) {
            (Some(left), Some(right)) => normalize(left) == normalize(right),
            _ => false,
        }
}

// Whether the text is this table and nothing else.
pub(super) fn is_single_table(text: &str, family: NftFamily, table: &str) -> bool {
    let Some(parts) = parse(text).filter(|parts| !has_include(parts)) else { return false };
    let parts: Vec<&RulesetPart> = parts.iter().filter(|part| !is_word(part, ";")).collect();
    let (keyword, table_family, name) = match parts.as_slice() {
        [keyword, RulesetPart::Word(family), RulesetPart::Word(name), RulesetPart::Braces(_)] => {
            (keyword, family.parse().ok(), name)
        }
        [keyword, RulesetPart::Word(name), RulesetPart::Braces(_)] => (keyword, Some(NftFamily::Ip), name),
        _ => return false,
    };
    is_word(keyword, "table") && table_family == Some(family) && name == table
}

/// Fuzzer entry.
pub(crate) fn any_ruleset(text: &str) {
    let _ = (is_equivalent(text, "table inet x {}"), is_single_table(text, NftFamily::Ip, "x"));
}

// Whether the text would include another file.
fn has_include(parts: &[RulesetPart]) -> bool {
    parts.iter().any(|part| match part {
        RulesetPart::Word(word) => word == "include",
        RulesetPart::Braces(parts) => has_include(parts),
    })
}

// `None` if braces or quotes do not match.
fn parse(text: &str) -> Option<Vec<RulesetPart>> {
    let mut open: Vec<Vec<RulesetPart>> = vec![Vec::new()];
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let mut length = letter.len_utf8();
        match letter {
            '{' => {
                if open.len() > DEEPEST {
                    return None;
                }
                open.push(Vec::new());
            }
            '}' => {
                let content = open.pop()?;
                open.last_mut()?.push(RulesetPart::Braces(content));
            }
            '#' => length = rest.find('\n').unwrap_or(rest.len()),
            '\n' | ';' => open.last_mut()?.push(RulesetPart::Word(";".to_owned())),
            ',' => open.last_mut()?.push(RulesetPart::Word(",".to_owned())),
            '"' => {
                length = rest.get(1..)?.find('"')? + 2;
                open.last_mut()?.push(RulesetPart::Word(rest.get(..length)?.to_owned()));
            }
            letter if letter.is_whitespace() => {}
            _ => {
                let is_end = |letter: char| letter.is_whitespace() || "{};,#\"".contains(letter);
                length = rest.find(is_end).unwrap_or(rest.len());
                open.last_mut()?.push(RulesetPart::Word(rest.get(..length)?.to_owned()));
            }
        }
        rest = rest.get(length..)?;
    }
    let parts = open.pop()?;
    open.is_empty().then_some(parts)
}

/// The normal form for comparison.
fn normalize(parts: Vec<RulesetPart>) -> Vec<RulesetPart> {
    let mut normalized: Vec<Vec<RulesetPart>> = Vec::new();
    for statement in statements(parts) {
        let statement = normalize_statement(statement);
        let is_default = matches!(statement.as_slice(), [key, value] if is_word(key, "policy") && is_word(value, "accept"));
        if !statement.is_empty() && !is_default {
            normalized.push(statement);
        }
    }
    let semicolon = RulesetPart::Word(";".to_owned());
    normalized.join(&semicolon)
}

/// Splits at semicolons. A line with a comma at its end continues, and braces end a statement.
fn statements(parts: Vec<RulesetPart>) -> Vec<Vec<RulesetPart>> {
    let mut statements: Vec<Vec<RulesetPart>> = vec![Vec::new()];
    for part in parts {
        let Some(last) = statements.last_mut() else { break };
        if !is_word(&part, ";") {
            last.push(part);
        } else if !last.last().is_none_or(|part| is_word(part, ",")) {
            statements.push(Vec::new());
        }
    }
    statements
}

fn normalize_statement(statement: Vec<RulesetPart>) -> Vec<RulesetPart> {
    let mut normalized = Vec::new();
    let mut parts = statement.into_iter().peekable();
    while let Some(part) = parts.next() {
        match part {
            RulesetPart::Braces(content) => match set_elements(&content) {
                Some(elements) if elements.len() == 1 => normalized.extend(elements.into_iter().flatten()),
                Some(elements) => {
                    normalized.push(RulesetPart::Braces(elements.join(&RulesetPart::Word(",".to_owned()))));
                }
                None => normalized.push(RulesetPart::Braces(normalize(content))),
            },
            RulesetPart::Word(word) if word == "counter" => {
                normalized.push(RulesetPart::Word(word));
                for name in ["packets", "bytes"] {
                    if parts.next_if(|part| is_word(part, name)).is_some() {
                        parts.next();
                    }
                }
            }
            RulesetPart::Word(word) if word == "priority" => {
                normalized.push(RulesetPart::Word(word));
                let is_operand = |part: &RulesetPart| matches!(part, RulesetPart::Word(word) if word != ",");
                let mut words = Vec::new();
                while let Some(RulesetPart::Word(word)) = parts.next_if(is_operand) {
                    words.push(word);
                }
                match priority(&words) {
                    Some(number) => normalized.push(RulesetPart::Word(number.to_string())),
                    None => normalized.extend(words.into_iter().map(RulesetPart::Word)),
                }
            }
            word @ RulesetPart::Word(_) => normalized.push(word),
        }
    }
    normalized
}

// The sorted elements of a set; `None` for statements.
fn set_elements(content: &[RulesetPart]) -> Option<Vec<Vec<RulesetPart>>> {
    let all_statements = statements(content.to_vec());
    let [elements] = all_statements.iter().filter(|statement| !statement.is_empty()).collect::<Vec<_>>()[..]
    else {
        return None;
    };
    if elements.iter().any(|part| matches!(part, RulesetPart::Braces(_))) {
        return None;
    }
    let split = elements.split(|part| is_word(part, ","));
    let mut split: Vec<Vec<RulesetPart>> =
        split.filter(|element| !element.is_empty()).map(<[RulesetPart]>::to_vec).collect();
    split.sort();
    Some(split)
}

// A priority as a number (nft(8); not for family bridge, whose priorities nft prints as written).
fn priority(words: &[String]) -> Option<i32> {
    let base = |word: &str| match word {
        "raw" => Some(-300),
        "mangle" => Some(-150),
        "dstnat" => Some(-100),
        "filter" => Some(0),
        "security" => Some(50),
        "srcnat" => Some(100),
        number => number.parse().ok(),
    };
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [word] => base(word),
        [word, "+", more] => base(word)?.checked_add(more.parse().ok()?),
        [word, "-", less] => base(word)?.checked_sub(less.parse().ok()?),
        _ => None,
    }
}

fn is_word(part: &RulesetPart, word: &str) -> bool {
    matches!(part, RulesetPart::Word(text) if text == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As written, and as nft 1.0.6 then printed it.
    const WRITTEN: &str = "table inet ours {\n\tchain prerouting {\n\t\ttype filter hook prerouting priority -300;\n\
                           \t\tudp dport { 123, 53 } notrack\n\t}\n\tchain output {\n\
                           \t\ttype filter hook output priority raw; policy accept;\n\
                           \t\tudp sport { 53 } counter notrack comment \"a b; c\"\n\t}\n}\n";
    const PRINTED: &str = "table inet ours {\n\tchain prerouting {\n\
                           \t\ttype filter hook prerouting priority raw; policy accept;\n\
                           \t\tudp dport { 53, 123 } notrack\n\t}\n\n\tchain output {\n\
                           \t\ttype filter hook output priority raw; policy accept;\n\
                           \t\tudp sport 53 counter packets 7 bytes 500 notrack comment \"a b; c\"\n\t}\n}\n";

    #[test]
    fn written_and_printed_rulesets_compare_equal() {
        assert!(is_equivalent(WRITTEN, PRINTED) && is_equivalent(PRINTED, PRINTED));
        assert!(
            is_single_table(WRITTEN, NftFamily::Inet, "ours")
                && is_single_table(PRINTED, NftFamily::Inet, "ours")
        );
    }

    #[test]
    fn changed_rulesets_compare_different() {
        for (from, to) in [
            ("53, 123", "53, 124"),
            ("notrack\n\t}\n\n", "notrack\n\t\taccept\n\t}\n\n"),
            ("hook output", "hook input"),
            ("policy accept;\n\t\tudp sport", "policy drop;\n\t\tudp sport"),
            ("priority raw; policy accept;\n\t\tudp sport", "priority filter; policy accept;\n\t\tudp sport"),
            ("a b; c", "a b"),
        ] {
            let changed_ruleset = PRINTED.replacen(from, to, 1);
            assert_ne!(changed_ruleset, PRINTED, "{from}");
            assert!(!is_equivalent(WRITTEN, &changed_ruleset), "{to}");
        }
        assert!(!is_equivalent(WRITTEN, "") && is_equivalent("", ""));
    }

    #[test]
    fn multi_line_sets_and_relative_priorities_are_compared() {
        let one = "table ip x { set s { type inet_service; elements = { 1-3,\n 9 } }\n chain y { type filter hook input \
                   priority filter - 5; policy drop; tcp dport @s accept } }";
        let other = "table ip x {\n\tset s {\n\t\ttype inet_service\n\t\telements = { 1-3, 9 }\n\t}\n\n\tchain y {\n\
                     \t\ttype filter hook input priority -5; policy drop;\n\t\ttcp dport @s accept\n\t}\n}\n";
        assert!(is_equivalent(other, other));
        assert!([one, other].iter().all(|text| is_single_table(text, NftFamily::Ip, "x")));
        assert!(is_equivalent(&one.replace("}\n chain", "}\n\n chain"), other));
        assert!(!is_single_table("table x { } reset", NftFamily::Ip, "x"));
    }
}

//! Parameters of classless qdiscs as text, so that the original qdisc can be restored.
//!
//! Names are those of tc(8). Times are in microseconds. Values that are not single numbers are
//! hexadecimal.

use std::collections::BTreeSet;

use crate::netlink::attribute::{RequestAttributes, attribute, attributes};

enum ParameterForm {
    None,
    /// A structure with one number of this name.
    Number(&'static str),
    Attributes(&'static [QdiscParameter]),
}

struct QdiscParameter {
    attribute: u16,
    name: &'static str,
    bytes: usize,
    unit: ParameterUnit,
}

#[derive(PartialEq, Eq)]
enum ParameterUnit {
    Plain,
    // The kernel keeps units of 1024 ns and reports microseconds, rounded down both ways
    // (net/codel.h).
    Codel,
}

const fn plain(attribute: u16, name: &'static str, bytes: usize) -> QdiscParameter {
    QdiscParameter { attribute, name, bytes, unit: ParameterUnit::Plain }
}

const fn codel(attribute: u16, name: &'static str) -> QdiscParameter {
    QdiscParameter { attribute, name, bytes: 4, unit: ParameterUnit::Codel }
}

// `TCA_FQ_...` (linux/pkt_sched.h, Linux 6.18).
const FQ: &[QdiscParameter] = &[
    plain(1, "limit", 4),
    plain(2, "flow_limit", 4),
    plain(3, "quantum", 4),
    plain(4, "initial_quantum", 4),
    plain(5, "pacing", 4),
    plain(7, "maxrate", 4),
    plain(8, "buckets_log", 4),
    plain(9, "refill_delay", 4),
    plain(10, "orphan_mask", 4),
    plain(11, "low_rate_threshold", 4),
    plain(12, "ce_threshold", 4),
    plain(13, "timer_slack", 4),
    plain(14, "horizon", 4),
    plain(15, "horizon_drop", 1),
    plain(16, "priomap", 20),
    plain(17, "weights", 12),
    plain(18, "offload_horizon", 4),
];

/// `TCA_FQ_CODEL_...`.
const FQ_CODEL: &[QdiscParameter] = &[
    codel(1, "target"),
    plain(2, "limit", 4),
    codel(3, "interval"),
    plain(4, "ecn", 4),
    plain(5, "flows", 4),
    plain(6, "quantum", 4),
    codel(7, "ce_threshold"),
    plain(8, "drop_batch", 4),
    plain(9, "memory_limit", 4),
    plain(10, "ce_threshold_selector", 1),
    plain(11, "ce_threshold_mask", 1),
];

// Classless kinds without filters. `pfifo_fast` reports bands, but has no parameters
// (net/sched/sch_generic.c).
fn form(kind: &str) -> Option<ParameterForm> {
    Some(match kind {
        "mq" | "noqueue" | "pfifo_fast" => ParameterForm::None,
        "pfifo" | "bfifo" => ParameterForm::Number("limit"),
        "fq" => ParameterForm::Attributes(FQ),
        "fq_codel" => ParameterForm::Attributes(FQ_CODEL),
        _ => return None,
    })
}

// `None` if a parameter is unknown, because it could not be restored.
pub(super) fn read(kind: &str, options: &[u8]) -> Option<String> {
    let parameters = match form(kind)? {
        ParameterForm::None => return Some(String::new()),
        ParameterForm::Number(name) => {
            let number = u32::from_ne_bytes(*options.first_chunk()?);
            return Some(format!("{name} {number}"));
        }
        ParameterForm::Attributes(parameters) => parameters,
    };
    let mut pairs = Vec::new();
    for (attribute_kind, value) in attributes(options) {
        let parameter = parameters.iter().find(|parameter| parameter.attribute == attribute_kind)?;
        if value.len() != parameter.bytes {
            return None;
        }
        pairs.push(format!("{} {}", parameter.name, format_value(value)));
    }
    Some(pairs.join(" "))
}

// Options for these parameters; `None` if the kind or a parameter is unknown.
pub(crate) fn options(kind: &str, text: &str) -> Option<Vec<u8>> {
    let words: Vec<&str> = text.split_whitespace().collect();
    if !words.len().is_multiple_of(2) {
        return None;
    }
    let parameters = match form(kind)? {
        ParameterForm::None => return words.is_empty().then(Vec::new),
        ParameterForm::Number(name) => {
            return match words.as_slice() {
                [] => Some(Vec::new()),
                [word, number] if *word == name => Some(number.parse::<u32>().ok()?.to_ne_bytes().to_vec()),
                _ => None,
            };
        }
        ParameterForm::Attributes(parameters) => parameters,
    };
    let mut options = RequestAttributes::default();
    let mut seen_names = BTreeSet::new();
    for pair in words.chunks_exact(2) {
        let [name, word] = pair else { return None };
        let parameter = parameters.iter().find(|parameter| parameter.name == *name)?;
        if !seen_names.insert(*name) {
            return None;
        }
        options = options.bytes(parameter.attribute, &parameter.value(word)?);
    }
    Some(options.as_bytes().to_vec())
}

impl QdiscParameter {
    fn value(&self, word: &str) -> Option<Vec<u8>> {
        match self.bytes {
            4 => {
                let number: u32 = word.parse().ok()?;
                let number = if self.unit == ParameterUnit::Codel { codel_time(number) } else { number };
                Some(number.to_ne_bytes().to_vec())
            }
            1 => Some(vec![word.parse().ok()?]),
            bytes => parse_hexadecimal(word).filter(|value| value.len() == bytes),
        }
    }
}

// The microseconds to write, so that the kernel then reports `microseconds`.
fn codel_time(microseconds: u32) -> u32 {
    let units = (u64::from(microseconds) * 1000).div_ceil(1024);
    u32::try_from((units * 1024).div_ceil(1000)).unwrap_or(microseconds)
}

fn format_value(value: &[u8]) -> String {
    match *value {
        [byte] => byte.to_string(),
        [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]).to_string(),
        _ => value.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

fn parse_hexadecimal(word: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = word.chars().map(|digit| digit.to_digit(16)).collect::<Option<_>>()?;
    let pairs = digits.chunks(2);
    pairs.map(|pair| u8::try_from(pair.first()? * 16 + pair.get(1)?).ok()).collect()
}

/// From the options in an answer's attributes.
pub(super) fn from_answer(kind: &str, answer: &[u8]) -> Option<String> {
    // `TCA_OPTIONS` and `TCA_STAB`; the kernel does not report the size table completely.
    const OPTIONS: u16 = 2;
    const SIZES: u16 = 8;
    if attribute(answer, SIZES).is_some() {
        return None;
    }
    read(kind, attribute(answer, OPTIONS).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn qdisc_parameters_round_trip_through_netlink() {
        for (kind, text) in [
            ("pfifo_fast", ""),
            ("pfifo", "limit 1000"),
            ("fq_codel", "limit 10240 flows 1024 quantum 1514 memory_limit 33554432 ecn 1 drop_batch 64"),
            ("fq", "limit 10000 horizon_drop 1 weights 000004000000010000000200 maxrate 4294967295"),
        ] {
            let options = options(kind, text).expect(kind);
            assert_eq!(read(kind, &options).as_deref(), Some(text));
        }
    }

    #[test]
    fn codel_times_survive_the_rounding_by_the_kernel() {
        for microseconds in [4999, 5000, 99_999, 1, 0, 4_000_000] {
            let option = u64::from(codel_time(microseconds));
            let ticks = (option * 1000) >> 10;
            assert_eq!((ticks << 10) / 1000, u64::from(microseconds));
        }
    }

    #[test]
    fn unknown_qdiscs_and_parameters_are_none() {
        let unknown = RequestAttributes::default().u32(99, 1);
        assert_eq!(read("fq", unknown.as_bytes()), None);
        assert_eq!(read("htb", &[]), None);
        for (kind, text) in
            [("htb", ""), ("fq", "limit"), ("fq", "limit 1 limit 2"), ("fq", "weights 00"), ("mq", "x 1")]
        {
            assert_eq!(options(kind, text), None, "{kind} {text}");
        }
    }

    proptest! {
        #[test]
        fn parsing_arbitrary_qdisc_parameters_never_panics(
            bytes in proptest::collection::vec(any::<u8>(), 0..60), text in "([a-z_]{0,8} ?[0-9a-f]{0,9} ?){0,3}",
            pairs in proptest::collection::vec((1..20_u16, any::<u32>()), 0..4),
        ) {
            let attributes = pairs
                .iter()
                .fold(RequestAttributes::default(), |all, (parameter, value)| all.u32(*parameter, *value));
            for kind in ["fq", "fq_codel", "pfifo", "mq"] {
                for text in [&bytes[..], attributes.as_bytes()].into_iter().filter_map(|bytes| read(kind, bytes)) {
                    let names: Vec<&str> = text.split(' ').step_by(2).collect();
                    let is_repeated = names.iter().collect::<BTreeSet<_>>().len() < names.len();
                    prop_assert_eq!(options(kind, &text).is_none(), is_repeated, "{}", text);
                }
                let _ = options(kind, &text);
            }
        }
    }
}

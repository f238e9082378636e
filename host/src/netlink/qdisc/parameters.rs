//! Parameters of classless qdiscs as text.
//!
//! Names are those of tc(8). Times are in microseconds. Values that are not single numbers are
//! hexadecimal.

use crate::netlink::attribute::{attribute, attributes};

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
}

const fn parameter(attribute: u16, name: &'static str, bytes: usize) -> QdiscParameter {
    QdiscParameter { attribute, name, bytes }
}

// `TCA_FQ_...` (linux/pkt_sched.h, Linux 6.18).
const FQ: &[QdiscParameter] = &[
    parameter(1, "limit", 4),
    parameter(2, "flow_limit", 4),
    parameter(3, "quantum", 4),
    parameter(4, "initial_quantum", 4),
    parameter(5, "pacing", 4),
    parameter(7, "maxrate", 4),
    parameter(8, "buckets_log", 4),
    parameter(9, "refill_delay", 4),
    parameter(10, "orphan_mask", 4),
    parameter(11, "low_rate_threshold", 4),
    parameter(12, "ce_threshold", 4),
    parameter(13, "timer_slack", 4),
    parameter(14, "horizon", 4),
    parameter(15, "horizon_drop", 1),
    parameter(16, "priomap", 20),
    parameter(17, "weights", 12),
    parameter(18, "offload_horizon", 4),
];

/// `TCA_FQ_CODEL_...`.
const FQ_CODEL: &[QdiscParameter] = &[
    parameter(1, "target", 4),
    parameter(2, "limit", 4),
    parameter(3, "interval", 4),
    parameter(4, "ecn", 4),
    parameter(5, "flows", 4),
    parameter(6, "quantum", 4),
    parameter(7, "ce_threshold", 4),
    parameter(8, "drop_batch", 4),
    parameter(9, "memory_limit", 4),
    parameter(10, "ce_threshold_selector", 1),
    parameter(11, "ce_threshold_mask", 1),
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

// `None` if a parameter is unknown.
fn read(kind: &str, options: &[u8]) -> Option<String> {
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

fn format_value(value: &[u8]) -> String {
    match *value {
        [byte] => byte.to_string(),
        [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]).to_string(),
        _ => value.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
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
    use crate::netlink::attribute::RequestAttributes;

    #[test]
    fn qdisc_parameters_are_named_as_in_tc() {
        let fq = RequestAttributes::default().u32(1, 10_000).bytes(15, &[1]).bytes(17, &[0xa; 12]);
        let fq_codel = RequestAttributes::default().u32(1, 4999).u32(2, 10_240);
        for (kind, options, expected) in [
            ("pfifo_fast", &[][..], ""),
            ("pfifo", &1000_u32.to_ne_bytes(), "limit 1000"),
            ("fq", fq.as_bytes(), "limit 10000 horizon_drop 1 weights 0a0a0a0a0a0a0a0a0a0a0a0a"),
            ("fq_codel", fq_codel.as_bytes(), "target 4999 limit 10240"),
        ] {
            assert_eq!(read(kind, options).as_deref(), Some(expected));
        }
    }

    #[test]
    fn unknown_qdiscs_and_parameters_are_none() {
        let unknown = RequestAttributes::default().u32(99, 1);
        assert_eq!(read("fq", unknown.as_bytes()), None);
        assert_eq!(read("htb", &[]), None);
    }

    proptest! {
        #[test]
        fn parsing_arbitrary_qdisc_parameters_never_panics(
            bytes in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            for kind in ["fq", "fq_codel", "pfifo", "mq"] {
                let _ = read(kind, &bytes);
            }
        }
    }
}

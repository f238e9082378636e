//! The differences between two correct answers, each with the RFC that allows it.

use super::meaning::MessageContent;
use super::zones::GLUE_ONLY;

pub(crate) const SAME: &str = "the same";

const AA: u8 = 4;
const TC: u8 = 2;
const NXDOMAIN: u8 = 3;
const ANY: u16 = 255;

/// Compares two answers. Returns the RFC that allows their difference, or an error if no RFC does.
/// `full` returns linerate's answer over TCP.
pub(crate) fn difference(
    query: &[u8],
    our: &MessageContent,
    their: &MessageContent,
    full: impl FnOnce() -> MessageContent,
) -> Result<&'static str, &'static str> {
    if our == their {
        return Ok(SAME);
    }
    if our.question != their.question {
        return Err("the question differs");
    }
    let (code, their_code) = (our.header[3] & 15, their.header[3] & 15);
    let cut = [our, their].map(|answer| answer.header[2] & TC != 0);
    if (code, their_code) == (NXDOMAIN, 0) && our.sections[0] == their.sections[0] && is_glue_only(query, our)
    {
        return Ok(
            "RFC 1034, section 4.3.2, and RFC 2181, section 6: glue of the parent makes no name in the child",
        );
    }
    if code != their_code {
        return Err("the response codes differ");
    }
    if our.header[2] & AA != their.header[2] & AA {
        return Err("the authority differs");
    }
    let qtype = our
        .question
        .len()
        .checked_sub(4)
        .map_or(0, |at| u16::from_be_bytes([our.question[at], our.question[at + 1]]));
    if qtype == ANY && !our.sections[0].is_empty() && !their.sections[0].is_empty() {
        return Ok("RFC 8482, section 4.1: any of the sets answers ANY");
    }
    let full = full();
    let referral =
        full.sections[0].is_empty() && full.header[2] & AA == 0 && has_type(&full.sections[1], "ns");
    match cut {
        [true, true] => return Ok("RFC 2181, section 9: a truncated answer is not used"),
        [true, false] if referral && lacks(their, &in_domain(&full)) => {
            return Ok("RFC 9471, section 3.1: an answer without all in-domain glue is truncated");
        }
        // linerate's answer has room for all glue, because it compresses more names.
        [false, true] if referral && lacks(their, &in_domain(&full)) && !lacks(our, &in_domain(&full)) => {
            return Ok("RFC 1035, section 4.1.4: how far names are compressed is each server's own");
        }
        [true, false] | [false, true] => return Err("one is truncated"),
        [false, false] => {}
    }
    if our.edns != their.edns {
        return Err("EDNS differs");
    }
    if our.sections[0] != their.sections[0] && leaves_zone(&our.sections[0], &their.sections[0]) {
        return Ok("RFC 1034, section 4.3.2, step 3a: we follow an alias into another zone that is served");
    }
    if our.sections[0] != their.sections[0] {
        return Err("the answer differs");
    }
    let within = |part: &[String], whole: &[String]| part.iter().all(|record| whole.contains(record));
    let optional = !our.sections[0].is_empty();
    if our.sections[1] != their.sections[1] && !(optional && within(&their.sections[1], &full.sections[1])) {
        return Err("the authority section differs");
    }
    let glue = if referral { in_domain(&full) } else { Vec::new() };
    if lacks(our, &glue) {
        return Err("in-domain glue is missing");
    }
    if lacks(their, &glue) {
        return Ok("RFC 9471, section 3.1: in-domain glue goes before other addresses, and is complete");
    }
    if !within(&our.sections[2], &full.sections[2]) || !within(&their.sections[2], &full.sections[2]) {
        return Err("the additional section has something else");
    }
    if our.sections[1] != their.sections[1] {
        return Ok("RFC 1034, section 3.7: the zone's servers beside an answer are optional");
    }
    Ok(
        "RFC 1034, section 4.3.2, step 6, and RFC 2181, section 9: addresses that are no in-domain glue are optional",
    )
}

/// Whether the other server's answer is one alias, and linerate's answer continues with names
/// outside the alias's parent domain.
fn leaves_zone(our: &[String], their: &[String]) -> bool {
    let [alias] = their else { return false };
    let (owner, parent_domain) =
        (owner(alias), owner(alias).split_once('.').map_or("", |(_, parent)| parent));
    let elsewhere = |record: &&String| !self::owner(record).ends_with(&format!(".{parent_domain}"));
    let more: Vec<&String> = our.iter().filter(|record| self::owner(record) != owner).collect();
    our.contains(alias) && more.len() + 1 == our.len() && more.iter().all(elsewhere)
}

fn has_type(section: &[String], rtype: &str) -> bool {
    section.iter().any(|record| record.split(' ').nth(3) == Some(rtype))
}

fn owner(record: &str) -> &str {
    record.split(' ').next().unwrap_or_default()
}

/// In-domain glue: addresses of name servers whose names are in the delegated zone.
fn in_domain(referral: &MessageContent) -> Vec<String> {
    let Some(cut) = referral.sections[1].iter().map(|record| owner(record)).next() else { return Vec::new() };
    let below = |name: &str| name == cut || name.ends_with(&format!(".{cut}"));
    referral.sections[2].iter().filter(|record| below(owner(record))).cloned().collect()
}

fn lacks(answer: &MessageContent, records: &[String]) -> bool {
    records.iter().any(|record| !answer.sections[2].contains(record))
}

/// Whether the missing name exists only as glue. The name is the question, or the target of its
/// alias.
fn is_glue_only(query: &[u8], our: &MessageContent) -> bool {
    let mut name = String::new();
    let mut at = 12;
    while query[at] != 0 {
        let end = at + 1 + usize::from(query[at]);
        name.push_str(&String::from_utf8_lossy(&query[at + 1..end]).to_ascii_lowercase());
        name.push('.');
        at = end;
    }
    let target = our.sections[0].iter().find_map(|record| record.split(" cname ").nth(1)).unwrap_or(&name);
    let target = target.trim_end_matches('.');
    GLUE_ONLY.iter().any(|glue| target == format!("{glue}.deep.test")) || target == "cut.child.example.test"
}

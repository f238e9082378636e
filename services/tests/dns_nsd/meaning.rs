//! The content of a message: its header and its records, whatever their order, letter case and
//! compression.

use domain::base::iana::Rtype;
use domain::base::{Message, ParsedRecord};
use domain::rdata::AllRecordData;

/// A message without the properties that a server may choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MessageContent {
    /// Message id and flags.
    pub(crate) header: [u8; 4],
    /// The question in wire format, unchanged.
    pub(crate) question: Vec<u8>,
    /// Sorted records of the answer, authority and additional sections.
    pub(crate) sections: [Vec<String>; 3],
    /// Upper bits of the response code, version, flags and options of EDNS. The UDP size is left
    /// out, because each server chooses its own.
    pub(crate) edns: Vec<String>,
}

/// Parses an answer. An answer that cannot be parsed is a fault of its server.
pub(crate) fn read(bytes: &[u8]) -> Result<MessageContent, String> {
    let message = Message::from_octets(bytes).map_err(|error| error.to_string())?;
    let fail = |error: domain::base::wire::ParseError| error.to_string();
    let mut sections: [Vec<String>; 3] = Default::default();
    let mut edns = Vec::new();
    let (_, answer, authority, additional) = message.sections().map_err(fail)?;
    let question_end = answer.pos();
    for (number, section) in [answer, authority, additional].into_iter().enumerate() {
        for record in section {
            let record = record.map_err(fail)?;
            if record.rtype() == Rtype::OPT {
                edns.push(options(&record)?);
            } else {
                sections[number].push(text(&record)?);
            }
        }
        sections[number].sort();
    }
    Ok(MessageContent {
        header: bytes[..4].try_into().map_err(|_| "a short header")?,
        question: bytes[12..question_end].to_vec(),
        sections,
        edns,
    })
}

fn text(record: &ParsedRecord<'_, &[u8]>) -> Result<String, String> {
    let (ttl, class) = (record.ttl(), record.class());
    let record = record
        .to_record::<AllRecordData<_, _>>()
        .map_err(|error| error.to_string())?
        .ok_or("a record without data")?;
    let line = format!("{} {} {class} {} {}", record.owner(), ttl.as_secs(), record.rtype(), record.data());
    // Letter case matters in TXT records, but no two texts in the zones differ only in it.
    Ok(line.to_ascii_lowercase())
}

/// TTL and options of an OPT record.
fn options(record: &ParsedRecord<'_, &[u8]>) -> Result<String, String> {
    let opt = record
        .to_record::<domain::base::opt::Opt<_>>()
        .map_err(|error| error.to_string())?
        .ok_or("an OPT that is none")?;
    let options: Vec<String> = opt
        .data()
        .iter::<domain::base::opt::AllOptData<_, _>>()
        .map(|option| option.map_or_else(|error| error.to_string(), |option| format!("{option:?}")))
        .collect();
    Ok(format!("{:08x} {options:?}", record.ttl().as_secs()))
}

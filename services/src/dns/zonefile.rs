//! Parsing of zone files into records.

mod lexer;
mod rdata;
mod value;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use domain::base::iana::Rtype;

use lexer::{LexError, ZoneEntry, ZoneLexer, ZoneWord};
pub(crate) use value::display_name;

use super::rtype;

/// Characters of an item in an error message.
const LONGEST_ITEM: usize = 60;
const DEEPEST_INCLUDE: usize = 16;
// Records of one `$GENERATE`: the addresses of an IPv4 /8.
const MOST_GENERATED: u64 = 1 << 24;
// RFC 2181, section 8.
const LONGEST_TTL: u32 = i32::MAX as u32;
/// Bytes per read call.
const BUFFER: usize = 1 << 16;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ZoneError {
    #[error("{name:?} is not a domain name: {why}; it should look like example.com")]
    Name { name: String, why: String },
    #[error("zone {zone} is given twice: one file a zone")]
    Twice { zone: String },
    #[error("{}: cannot be read: {source}", file.display())]
    Read { file: PathBuf, source: std::io::Error },
    /// A syntax error, or a record that cannot be served.
    #[error("{}:{line}: {item}: {why}", file.display())]
    Record {
        file: PathBuf,
        /// The last line of the record, from 1.
        line: usize,
        /// Owner and type of the record, or the start of the line.
        item: String,
        /// The problem, and a correct example.
        why: String,
    },
    #[error("{}: zone {zone}: {why}", file.display())]
    Zone { file: PathBuf, zone: String, why: &'static str },
}

/// A record with names in wire form. The owner and the names in the data that are compressed or looked up are in lower case.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ZoneRecord<'a> {
    pub(crate) owner: &'a [u8],
    pub(crate) rtype: u16,
    pub(crate) ttl: u32,
    pub(crate) data: &'a [u8],
    /// Index of its file, and its last line, from 1.
    pub(crate) file: u16,
    pub(crate) line: u32,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum ZoneText<'a> {
    File(&'a Path),
    Here(&'a str),
}

#[derive(Debug)]
pub(crate) struct ZoneFiles {
    pub(crate) apex: Vec<u8>,
    pub(crate) files: Vec<PathBuf>,
}

impl ZoneFiles {
    pub(crate) fn record_error(&self, record: &ZoneRecord<'_>, why: &str) -> ZoneError {
        ZoneError::Record {
            file: self.files[usize::from(record.file)].clone(),
            line: record.line as usize,
            item: record_label(record.owner, record.rtype),
            why: why.to_owned(),
        }
    }
}

fn record_label(owner: &[u8], rtype: u16) -> String {
    format!("{} {}", display_name(owner), Rtype::from_int(rtype))
}

/// A zone's name in wire form and lower case.
pub(crate) fn apex(name: &str) -> Result<Vec<u8>, ZoneError> {
    let mut apex = Vec::new();
    value::name(name.as_bytes(), true, &[0], &mut apex)
        .map_err(|why| ZoneError::Name { name: name.to_owned(), why: why.to_owned() })?;
    apex.make_ascii_lowercase();
    Ok(apex)
}

/// Reads a zone and passes each record to `take_record`.
pub(crate) fn read(
    name: &str,
    text: ZoneText<'_>,
    take_record: &mut dyn FnMut(&ZoneRecord<'_>),
) -> Result<ZoneFiles, ZoneError> {
    let apex = apex(name)?;
    let mut reader = ZoneReader {
        apex: &apex,
        files: Vec::new(),
        depth: 0,
        ttl: None,
        last_ttl: None,
        soa: false,
        take: take_record,
    };
    match text {
        ZoneText::File(file) => reader.file(file, &apex)?,
        ZoneText::Here(text) => reader.text(text.as_bytes(), Path::new("text"), &apex)?,
    }
    if !reader.soa {
        let why = "it has no SOA record at its name; add one like \
                   \"@ 3600 IN SOA ns1.example.com. hostmaster.example.com. 1 2h 30m 2w 5m\"";
        return Err(ZoneError::Zone { file: reader.files[0].clone(), zone: display_name(&apex), why });
    }
    let files = reader.files;
    Ok(ZoneFiles { apex, files })
}

struct ZoneReader<'a> {
    apex: &'a [u8],
    files: Vec<PathBuf>,
    /// Nesting of the current file.
    depth: usize,
    /// From `$TTL`.
    ttl: Option<u32>,
    // From the last record with a TTL (RFC 1035, section 5.1).
    last_ttl: Option<u32>,
    soa: bool,
    take: &'a mut dyn FnMut(&ZoneRecord<'_>),
}

/// The state that later entries of a file depend on.
struct ZonePosition {
    file: u16,
    origin: Vec<u8>,
    /// The owner of the last record.
    owner: Vec<u8>,
    data: Vec<u8>,
}

/// An error in an entry; `item`: in this part of it.
struct EntryError {
    item: Option<String>,
    why: String,
}

fn entry_error(why: impl Into<String>) -> EntryError {
    EntryError { item: None, why: why.into() }
}

impl ZoneReader<'_> {
    fn file(&mut self, file: &Path, origin: &[u8]) -> Result<(), ZoneError> {
        let fail = |source| ZoneError::Read { file: file.to_owned(), source };
        let zone_file = File::open(file).map_err(fail)?;
        self.text(BufReader::with_capacity(BUFFER, zone_file), file, origin)
    }

    fn text(&mut self, text: impl BufRead, file: &Path, origin: &[u8]) -> Result<(), ZoneError> {
        let number = self.files.len() as u16;
        self.files.push(file.to_owned());
        self.depth += 1;
        let mut position =
            ZonePosition { file: number, origin: origin.to_vec(), owner: Vec::new(), data: Vec::new() };
        let mut lexer = ZoneLexer::new(text);
        let mut entry = ZoneEntry::default();
        loop {
            match lexer.next(&mut entry) {
                Ok(true) => {}
                Ok(false) => break,
                Err(LexError::Read(source)) => return Err(ZoneError::Read { file: file.to_owned(), source }),
                Err(LexError::Syntax { line, text, why }) => {
                    return Err(position_error(file, line, &text, why.to_owned()));
                }
            }
            let located_error = |error: EntryError, entry: &ZoneEntry| {
                let item = error.item.unwrap_or_else(|| entry.display_text());
                position_error(file, entry.line(), &item, error.why)
            };
            let directive =
                entry.words().next().filter(|word| !entry.blank && !word.quoted).map(|word| word.raw);
            match directive {
                Some(raw) if raw.eq_ignore_ascii_case(b"$INCLUDE") => {
                    let (included, origin) =
                        self.include(&entry, &position, file).map_err(|why| located_error(why, &entry))?;
                    self.file(&included, &origin)?;
                }
                Some(raw) if raw.eq_ignore_ascii_case(b"$GENERATE") => {
                    self.generate(&entry, &mut position).map_err(|why| located_error(why, &entry))?;
                }
                Some(raw) if raw.starts_with(b"$") => {
                    self.directive(&entry, &mut position).map_err(|why| located_error(why, &entry))?;
                }
                _ => self.record(&entry, &mut position).map_err(|why| located_error(why, &entry))?,
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn include(
        &self,
        entry: &ZoneEntry,
        position: &ZonePosition,
        file: &Path,
    ) -> Result<(PathBuf, Vec<u8>), EntryError> {
        let mut words = entry.words().skip(1);
        let syntax_hint = "it should look like \"$INCLUDE file\" or \"$INCLUDE file origin.example.com.\"";
        let path =
            words.next().ok_or_else(|| entry_error(format!("the file's name is missing; {syntax_hint}")))?;
        let mut origin = Vec::new();
        match words.next() {
            Some(word) => value::name(word.raw, word.quoted, &position.origin, &mut origin)
                .map_err(|why| entry_error(format!("{why}; {syntax_hint}")))?,
            None => origin.extend_from_slice(&position.origin),
        }
        if words.next().is_some() {
            return Err(entry_error(format!("there are too many words; {syntax_hint}")));
        }
        if self.depth >= DEEPEST_INCLUDE {
            return Err(entry_error(
                "files include one another more than 16 deep; write the records into fewer files",
            ));
        }
        if self.files.len() > usize::from(u16::MAX - 1) {
            return Err(entry_error("too many files are included: at most 65,534"));
        }
        let mut name = Vec::new();
        value::bytes(path.raw, &mut name).map_err(|why| entry_error(format!("{why}; {syntax_hint}")))?;
        let name = String::from_utf8(name).map_err(|_| entry_error("the file's name is not UTF-8"))?;
        Ok((file.parent().unwrap_or(Path::new("")).join(name), origin))
    }

    fn directive(&mut self, entry: &ZoneEntry, position: &mut ZonePosition) -> Result<(), EntryError> {
        let words: Vec<ZoneWord<'_>> = entry.words().collect();
        let is_directive = |name: &[u8]| words[0].raw.eq_ignore_ascii_case(name);
        match &words[1..] {
            [word] if is_directive(b"$ORIGIN") => {
                let mut origin = Vec::new();
                value::name(word.raw, word.quoted, &position.origin, &mut origin).map_err(|why| {
                    entry_error(format!("{why}; it should look like \"$ORIGIN example.com.\""))
                })?;
                position.origin = origin;
                Ok(())
            }
            [word] if is_directive(b"$TTL") => {
                self.ttl = Some(parse_ttl(word.raw).ok_or_else(|| {
                    entry_error(
                        "it should look like \"$TTL 3600\" or \"$TTL 1h\", up to 2147483647 s (RFC 2181)",
                    )
                })?);
                Ok(())
            }
            _ => Err(entry_error(
                "no directive that is known; there are \"$ORIGIN example.com.\", \"$TTL 1h\", \
                 \"$INCLUDE file [origin]\" and \"$GENERATE 1-254 host-$ A 192.0.2.$\"",
            )),
        }
    }

    /// Makes records from a pattern, as in BIND.
    fn generate(&mut self, entry: &ZoneEntry, position: &mut ZonePosition) -> Result<(), EntryError> {
        let syntax_hint = "it should look like \"$GENERATE 1-254 host-$ A 192.0.2.$\" or \"$GENERATE 0-255/2 $ PTR h${0,3,d}\"";
        let words: Vec<ZoneWord<'_>> = entry.words().collect();
        let range = words.get(1).and_then(|word| parse_range(word.raw)).filter(|_| words.len() >= 5);
        let (first, last, step) =
            range.ok_or_else(|| entry_error(format!("the range is missing or wrong; {syntax_hint}")))?;
        if (last - first) / step >= MOST_GENERATED {
            return Err(entry_error("it makes more than 16,777,216 records; write several of fewer"));
        }
        let mut generated = ZoneEntry::default();
        let mut text = Vec::new();
        for number in (first..=last).step_by(step as usize) {
            generated.clear();
            for word in &words[2..] {
                text.clear();
                substitute(word.raw, number, &mut text).ok_or_else(|| {
                    let word = String::from_utf8_lossy(word.raw);
                    entry_error(format!("\"{word}\" has a wrong ${{offset,width,base}}; {syntax_hint}"))
                })?;
                generated.push(&text, word.quoted, word.line);
            }
            self.record(&generated, position)?;
        }
        Ok(())
    }

    fn record(&mut self, entry: &ZoneEntry, position: &mut ZonePosition) -> Result<(), EntryError> {
        let mut words = entry.words();
        if !entry.blank {
            let word = words.next().ok_or_else(|| entry_error("nothing"))?;
            position.owner.clear();
            let parse_result = value::name(word.raw, word.quoted, &position.origin, &mut position.owner);
            parse_result.map_err(|why| {
                entry_error(format!("{why}; a record should look like \"www 3600 IN A 192.0.2.1\""))
            })?;
            position.owner.make_ascii_lowercase();
        } else if position.owner.is_empty() {
            return Err(entry_error(
                "it has no owner, since no record is before it; it should look like \"www 3600 IN A 192.0.2.1\"",
            ));
        }
        let (given_ttl, rtype) = self.parse_head(&mut words)?;
        let owner = &position.owner;
        let named_error = |why: String| EntryError { item: Some(record_label(owner, rtype)), why };
        let ttl = given_ttl.or(self.ttl).or(self.last_ttl).ok_or_else(|| {
            entry_error(
                "it has no TTL; give it one, as in \"www 3600 IN A 192.0.2.1\", or write \"$TTL 1h\" above",
            )
        })?;
        self.last_ttl = given_ttl.or(self.last_ttl);
        let why = if !is_below(owner, self.apex) {
            Some(format!(
                "it is not in the zone; a name that does not end with a dot is below {}",
                display_name(&position.origin)
            ))
        } else if rtype == rtype::SOA && owner != self.apex {
            Some("a SOA belongs at the zone's own name; serve this zone with a file of its own".into())
        } else if rtype == rtype::DNAME {
            Some("DNAME is not supported: remove it, or serve the zone with a server that has it".into())
        } else if matches!(rtype, 0 | rtype::OPT | 249..=255) {
            Some("a type for queries only; remove the record".into())
        } else {
            None
        };
        if let Some(why) = why {
            return Err(named_error(why));
        }
        position.data.clear();
        rdata::write(Rtype::from_int(rtype), words, &position.origin, &mut position.data)
            .map_err(entry_error)?;
        for range in rtype::names(rtype, &position.data).into_iter().flatten() {
            position.data[range].make_ascii_lowercase();
        }
        self.soa |= rtype == rtype::SOA;
        let line = entry.line();
        (self.take)(&ZoneRecord { owner, rtype, ttl, data: &position.data, file: position.file, line });
        Ok(())
    }

    /// TTL, class and type, the first two in any order.
    fn parse_head<'a>(
        &self,
        words: &mut impl Iterator<Item = ZoneWord<'a>>,
    ) -> Result<(Option<u32>, u16), EntryError> {
        let (mut given_ttl, mut class) = (None, false);
        loop {
            let word = words.next().ok_or_else(|| {
                entry_error("its type is missing; it should look like \"www 3600 IN A 192.0.2.1\"")
            })?;
            let raw = word.raw;
            if given_ttl.is_none() && raw.first().is_some_and(u8::is_ascii_digit) {
                let seconds = parse_ttl(raw).ok_or_else(|| {
                    let word = String::from_utf8_lossy(raw);
                    entry_error(format!(
                        "\"{word}\" is no TTL; it should be 3600 or 1h, up to 2147483647 s (RFC 2181)"
                    ))
                })?;
                given_ttl = Some(seconds);
            } else if !class && (raw.eq_ignore_ascii_case(b"IN") || raw.eq_ignore_ascii_case(b"CLASS1")) {
                class = true;
            } else if [&b"CH"[..], b"HS", b"CS", b"NONE"].iter().any(|class| raw.eq_ignore_ascii_case(class))
                || raw.len() > 5 && raw[..5].eq_ignore_ascii_case(b"CLASS")
            {
                return Err(entry_error(
                    "only class IN is served; it should look like \"www 3600 IN A 192.0.2.1\"",
                ));
            } else {
                let rtype = Rtype::from_bytes(raw).ok_or_else(|| {
                    entry_error(format!(
                        "\"{}\" is no type that is known here; of another type it should look like \
                         \"www 3600 IN TYPE4711 \\# 4 01020304\" (RFC 3597)",
                        String::from_utf8_lossy(raw)
                    ))
                })?;
                return Ok((given_ttl, rtype.to_int()));
            }
        }
    }
}

fn position_error(file: &Path, line: u32, item: &str, why: String) -> ZoneError {
    let item = item.chars().take(LONGEST_ITEM).collect();
    ZoneError::Record { file: file.to_owned(), line: line as usize, item, why }
}

fn parse_ttl(raw: &[u8]) -> Option<u32> {
    value::period(raw).filter(|seconds| *seconds <= LONGEST_TTL)
}

/// First, last and step of `1-254` or `0-255/2`.
fn parse_range(raw: &[u8]) -> Option<(u64, u64, u64)> {
    let text = std::str::from_utf8(raw).ok()?;
    let (ends, step) = text.split_once('/').unwrap_or((text, "1"));
    let (first, last) = ends.split_once('-')?;
    let number = |text: &str| {
        let digits = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        digits?.parse::<u32>().ok().map(u64::from)
    };
    let (first, last, step) = (number(first)?, number(last)?, number(step)?);
    (first <= last && step > 0).then_some((first, last, step))
}

/// Replaces `$` and `${offset,width,base}` by the number; `\$` and `$$` stay a dollar sign.
fn substitute(raw: &[u8], number: u64, out: &mut Vec<u8>) -> Option<()> {
    let mut position = 0;
    while let Some(byte) = raw.get(position) {
        match (byte, raw.get(position + 1)) {
            (b'\\', Some(next)) => {
                out.extend_from_slice(if *next == b'$' { b"$" } else { &raw[position..position + 2] });
                position += 2;
            }
            (b'$', Some(b'$')) => {
                out.push(b'$');
                position += 2;
            }
            (b'$', Some(b'{')) => {
                let end = position + raw[position..].iter().position(|byte| *byte == b'}')?;
                let mut parts = std::str::from_utf8(&raw[position + 2..end]).ok()?.split(',');
                let offset: i64 = parts.next()?.parse().ok()?;
                let width: usize =
                    parts.next().map_or(Some(0), |text| text.parse().ok()).filter(|width| *width < 256)?;
                let value = u64::try_from(i64::try_from(number).ok()?.checked_add(offset)?).ok()?;
                let formatted = match parts.next().unwrap_or("d") {
                    "d" => format!("{value:0width$}"),
                    "o" => format!("{value:0width$o}"),
                    "x" => format!("{value:0width$x}"),
                    "X" => format!("{value:0width$X}"),
                    base @ ("n" | "N") => nibbles(value, width, base == "N"),
                    _ => return None,
                };
                parts.next().is_none().then(|| out.extend_from_slice(formatted.as_bytes()))?;
                position = end + 1;
            }
            (b'$', _) => {
                out.extend_from_slice(number.to_string().as_bytes());
                position += 1;
            }
            (byte, _) => {
                out.push(*byte);
                position += 1;
            }
        }
    }
    Some(())
}

// Hexadecimal digits from the last to the first with dots between, as reverse zones of IPv6 have them. The width counts
// dots, too.
fn nibbles(mut value: u64, width: usize, upper: bool) -> String {
    let mut text = String::new();
    loop {
        let digit = char::from_digit((value & 15) as u32, 16).unwrap_or('0');
        text.push(if upper { digit.to_ascii_uppercase() } else { digit });
        value >>= 4;
        if value == 0 && text.len() >= width {
            return text;
        }
        text.push('.');
        if value == 0 && text.len() >= width {
            return text;
        }
    }
}

/// Whether a name in wire form is `apex` or below it.
pub(crate) fn is_below(name: &[u8], apex: &[u8]) -> bool {
    let mut suffix = name;
    while suffix.len() > apex.len() {
        let length = usize::from(suffix[0]) + 1;
        suffix = suffix.get(length..).unwrap_or_default();
    }
    suffix == apex
}

#[cfg(test)]
mod tests;

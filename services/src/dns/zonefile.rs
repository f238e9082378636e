//! A zone file as records: read by the crate `domain`, checked here.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use domain::base::iana::{Class, Rtype};
use domain::base::name::{Name, ParsedName, ToName};
use domain::base::rdata::{ComposeRecordData, ParseRecordData};
use domain::dep::octseq::Parser;
use domain::rdata::ZoneRecordData;
use domain::zonefile::inplace::{Entry, ScannedRecord, Zonefile};

use super::rtype;

/// Letters of a line that are shown where it is wrong.
const LONGEST_ITEM: usize = 60;
/// Files that include one another.
const DEEPEST_INCLUDE: usize = 16;

/// Why a zone cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ZoneError {
    /// The zone's name is not a domain name.
    #[error("{name:?} is not a domain name: {why}")]
    Name {
        /// What was given.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// A zone was given twice.
    #[error("zone {zone} is given twice: one file a zone")]
    Twice {
        /// The zone's name.
        zone: String,
    },
    /// A file cannot be read.
    #[error("{}: cannot be read: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line that is none of a zone file, or a record that cannot be served.
    #[error("{}:{line}: {item}: {why}", file.display())]
    Record {
        /// The file.
        file: PathBuf,
        /// The line on which the record ends, counted from 1.
        line: usize,
        /// Owner and type of the record, or what the line begins with.
        item: String,
        /// What is wrong with it.
        why: String,
    },
    /// The file as a whole is not a zone.
    #[error("{}: zone {zone}: {why}", file.display())]
    Zone {
        /// The file.
        file: PathBuf,
        /// The zone's name.
        zone: String,
        /// What is wrong.
        why: &'static str,
    },
}

/// A record of a zone. Names are in wire form and lower case, also those in the data of types that have been known since RFC 1035.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) owner: Vec<u8>,
    pub(crate) rtype: u16,
    pub(crate) ttl: u32,
    pub(crate) data: Vec<u8>,
    /// Which of the zone's files it is from.
    pub(crate) file: usize,
    /// The line on which it ends, counted from 1.
    pub(crate) line: usize,
}

/// A zone's records, checked one by one.
#[derive(Debug)]
pub(crate) struct ZoneRecords {
    pub(crate) name: String,
    pub(crate) apex: Vec<u8>,
    pub(crate) records: Vec<Parsed>,
    /// The zone's file, and those included.
    pub(crate) files: Vec<PathBuf>,
}

impl ZoneRecords {
    /// What is wrong with one of the records.
    pub(crate) fn complaint(&self, record: &Parsed, why: &str) -> ZoneError {
        let owner = Name::from_octets(&record.owner).map(|name| name.fmt_with_dot().to_string());
        ZoneError::Record {
            file: self.files[record.file].clone(),
            line: record.line,
            item: format!("{} {}", owner.unwrap_or_default(), Rtype::from_int(record.rtype)),
            why: why.to_owned(),
        }
    }
}

/// A zone's name in wire form and lower case.
pub(crate) fn apex(name: &str) -> Result<Name<bytes::Bytes>, ZoneError> {
    let rooted = if name.ends_with('.') { name.to_owned() } else { format!("{name}.") };
    rooted.to_ascii_lowercase().parse().map_err(|why: domain::base::name::FromStrError| ZoneError::Name {
        name: name.to_owned(),
        why: why.to_string(),
    })
}

/// Reads the zone `name` from `file`.
pub(crate) fn read(name: &str, file: &Path) -> Result<ZoneRecords, ZoneError> {
    Reading::of(name)?.zone(|reading, origin| reading.file(file, origin))
}

/// The same from text, as if it were the content of `file`.
pub(crate) fn parse(name: &str, text: &str, file: &Path) -> Result<ZoneRecords, ZoneError> {
    Reading::of(name)?.zone(|reading, origin| reading.text(text.as_bytes(), file, origin))
}

struct Reading {
    apex: Name<bytes::Bytes>,
    records: Vec<Parsed>,
    files: Vec<PathBuf>,
    /// How many files are being read, each included by the one before.
    depth: usize,
}

impl Reading {
    fn of(name: &str) -> Result<Self, ZoneError> {
        Ok(Self { apex: apex(name)?, records: Vec::new(), files: Vec::new(), depth: 0 })
    }

    fn zone(
        mut self,
        read: impl FnOnce(&mut Self, &Name<bytes::Bytes>) -> Result<(), ZoneError>,
    ) -> Result<ZoneRecords, ZoneError> {
        let origin = self.apex.clone();
        read(&mut self, &origin)?;
        let zone = ZoneRecords {
            name: self.apex.fmt_with_dot().to_string(),
            apex: self.apex.as_slice().to_vec(),
            records: self.records,
            files: self.files,
        };
        if zone.records.iter().all(|record| record.rtype != rtype::SOA) {
            let why = "it has no SOA record at its name";
            return Err(ZoneError::Zone { file: zone.files[0].clone(), zone: zone.name, why });
        }
        Ok(zone)
    }

    fn file(&mut self, file: &Path, origin: &Name<bytes::Bytes>) -> Result<(), ZoneError> {
        let text = std::fs::read(file).map_err(|source| ZoneError::Read { file: file.to_owned(), source })?;
        self.text(&text, file, origin)
    }

    fn text(&mut self, text: &[u8], file: &Path, origin: &Name<bytes::Bytes>) -> Result<(), ZoneError> {
        let number = self.files.len();
        self.files.push(file.to_owned());
        self.depth += 1;
        let mut source = Zonefile::with_capacity(text.len() + 1);
        source.extend_from_slice(text);
        // The last line may have been left open.
        source.extend_from_slice(b"\n");
        source.set_origin(origin.clone());
        source.set_default_class(Class::IN);
        let mut lines = Lines { text, offset: 0, line: 1 };
        loop {
            let entry = source.next_entry().map_err(|error| syntax(file, text, &error.to_string()))?;
            let line = lines.at(source.current_offset());
            match entry {
                None => break,
                Some(Entry::Record(record)) => {
                    let parsed = self.record(&record).map_err(|(item, why)| ZoneError::Record {
                        file: file.to_owned(),
                        line,
                        item,
                        why,
                    })?;
                    self.records.push(Parsed { file: number, line, ..parsed });
                }
                Some(Entry::Include { path, origin: given }) => {
                    if self.depth >= DEEPEST_INCLUDE {
                        let why = "files include one another more than 16 deep".to_owned();
                        return Err(ZoneError::Record {
                            file: file.to_owned(),
                            line,
                            item: "$INCLUDE".into(),
                            why,
                        });
                    }
                    let path = file.parent().unwrap_or(Path::new("")).join(&*path);
                    self.file(&path, given.as_ref().unwrap_or(origin))?;
                }
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn record(&self, record: &ScannedRecord) -> Result<Parsed, (String, String)> {
        let mut owner = record.owner().to_vec().as_slice().to_vec();
        owner.make_ascii_lowercase();
        let mut item = String::new();
        let _ = write!(item, "{} {}", record.owner().fmt_with_dot(), record.rtype());
        let mut data = Vec::new();
        if record.data().compose_rdata(&mut data).is_err() || data.len() > usize::from(u16::MAX) {
            return Err((item, "its data is longer than 65,535 bytes".into()));
        }
        let rtype = record.rtype().to_int();
        let wrong = if record.class() != Class::IN {
            Some("only class IN is served")
        } else if !is_below(&owner, self.apex.as_slice()) {
            Some("it is not in the zone")
        } else if rtype == rtype::SOA && owner != self.apex.as_slice() {
            Some("a SOA belongs at the zone's own name")
        } else if rtype == rtype::DNAME {
            Some("DNAME is not supported: take it out, or serve the zone with a server that has it")
        } else if matches!(rtype, rtype::OPT | 249..=255) {
            Some("a type for queries only")
        } else if !is_of_type(record.rtype(), &data) {
            Some(
                "its data cannot be that of the type: it is too short, too long, or has no name where one belongs",
            )
        } else {
            None
        };
        if let Some(why) = wrong {
            return Err((item, why.into()));
        }
        for at in rtype::names(rtype, &data).into_iter().flatten() {
            data[at].make_ascii_lowercase();
        }
        Ok(Parsed { owner, rtype, ttl: record.ttl().as_secs(), data, file: 0, line: 0 })
    }
}

/// Whether data can be of the type, if that is known. The parser takes what is given as bytes (RFC 3597, section 5) for data of
/// any type, where a name may be missing, cut short, or a pointer into a message that there is none of.
fn is_of_type(rtype: Rtype, data: &[u8]) -> bool {
    let mut parser = Parser::from_ref(data);
    let parsed = ZoneRecordData::<_, ParsedName<_>>::parse_rdata(rtype, &mut parser);
    let mut again = Vec::new();
    let same = parsed
        .ok()
        .flatten()
        .is_some_and(|parsed| parsed.compose_rdata(&mut again).is_ok() && again.len() == data.len());
    same && parser.remaining() == 0 && rtype::has_its_names(rtype.to_int(), data)
}

/// Whether a name in wire form is `apex` or below it.
pub(crate) fn is_below(name: &[u8], apex: &[u8]) -> bool {
    let mut rest = name;
    while rest.len() > apex.len() {
        let length = usize::from(rest[0]) + 1;
        rest = rest.get(length..).unwrap_or_default();
    }
    rest == apex
}

/// The parser says `line:column: why`, and is in the next line already where the last word of one was wrong.
fn syntax(file: &Path, text: &[u8], said: &str) -> ZoneError {
    let mut parts = said.splitn(3, ':');
    let mut number = || parts.next().and_then(|number| number.parse::<usize>().ok());
    let (line, column) = (number().unwrap_or(1), number().unwrap_or(1));
    let line = if column <= 1 { line.saturating_sub(1) } else { line }.max(1);
    let item = text.split(|byte| *byte == b'\n').nth(line - 1).unwrap_or_default();
    ZoneError::Record {
        file: file.to_owned(),
        line,
        item: String::from_utf8_lossy(item).trim().chars().take(LONGEST_ITEM).collect(),
        why: parts.next().unwrap_or(said).trim().to_owned(),
    }
}

/// Which line an offset is on.
struct Lines<'a> {
    text: &'a [u8],
    offset: usize,
    line: usize,
}

impl Lines<'_> {
    /// The line of the last byte before `offset`, which never falls.
    fn at(&mut self, offset: usize) -> usize {
        let end = offset.saturating_sub(1).clamp(self.offset, self.text.len());
        self.line += self.text[self.offset..end].iter().filter(|byte| **byte == b'\n').count();
        self.offset = end;
        self.line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "$TTL 60\n@ IN SOA ns hostmaster 1 2 3 4 5\n";

    fn refused(rest: &str) -> String {
        let zone = parse("example.test", &format!("{HEAD}{rest}"), Path::new("file"));
        match zone.and_then(|zone| super::super::store::Zones::build(&[zone])) {
            Ok(_) => panic!("{rest:?} was taken"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_file_line_and_item() {
        assert_eq!(refused("www IN A 192.0.2.300\n"), "file:3: www IN A 192.0.2.300: expected IPv4 address");
        assert!(refused("a IN A 192.0.2.1\nwww IN NOTYPE x\n").starts_with("file:4: www IN NOTYPE x: "));
        assert_eq!(refused("www.example. IN A 192.0.2.1"), "file:3: www.example. A: it is not in the zone");
        assert_eq!(
            refused("a IN SOA ns hostmaster 1 2 3 4 5"),
            "file:3: a.example.test. SOA: a SOA belongs at the zone's own name"
        );
        assert!(
            refused("d IN DNAME example.com.")
                .starts_with("file:3: d.example.test. DNAME: DNAME is not supported")
        );
        let alias = "a CNAME has no other records beside it";
        assert_eq!(
            refused("a IN CNAME b\n\na IN A 192.0.2.1"),
            format!("file:5: a.example.test. A: {alias}")
        );
        assert_eq!(
            refused("a IN A 192.0.2.1\na IN CNAME b"),
            format!("file:4: a.example.test. CNAME: {alias}")
        );
        let one = "there is another record of this type, and may be one only";
        assert_eq!(refused("a IN CNAME b\na IN CNAME c"), format!("file:4: a.example.test. CNAME: {one}"));
    }

    #[test]
    fn data_given_as_bytes_is_that_of_its_type() {
        let why = "its data cannot be that of the type";
        // Nothing at all, a name that goes on, a pointer, one byte more than the name, and a SOA without its numbers.
        for data in [
            "CNAME \\# 0",
            "NS \\# 0",
            "KX \\# 0",
            "MX \\# 2 0001",
            "NS \\# 2 0161",
            "NS \\# 2 c00c",
            "KX \\# 4 0001c00c",
            "PTR \\# 2 0000",
            "A \\# 3 c00002",
        ] {
            assert!(refused(&format!("a IN {data}")).contains(why), "{data}");
        }
        let soa = parse("example.test", "@ 60 IN SOA \\# 2 0000", Path::new("file")).expect_err("no numbers");
        assert!(soa.to_string().contains(why), "{soa}");
        let good =
            "a IN A \\# 4 c0000201\nb IN NS \\# 3 016100\nc IN KX \\# 5 0001016100\nd IN TYPE999 \\# 0\n";
        assert_eq!(
            parse("example.test", &format!("{HEAD}{good}"), Path::new("file"))
                .map(|zone| zone.records.len())
                .ok(),
            Some(5)
        );
    }

    #[test]
    fn a_zone_needs_a_soa() {
        let error = parse("example.test", "a 60 IN A 192.0.2.1", Path::new("file")).expect_err("no SOA");
        assert_eq!(error.to_string(), "file: zone example.test.: it has no SOA record at its name");
    }

    #[test]
    fn names_are_below_themselves_and_their_parents() {
        assert!(
            is_below(b"\x01a\x01b\0", b"\x01b\0")
                && is_below(b"\x01b\0", b"\x01b\0")
                && is_below(b"\x01b\0", b"\0")
        );
        assert!(!is_below(b"\x02ab\0", b"\x01b\0") && !is_below(b"\x01b\0", b"\x01a\x01b\0"));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(\\PC|\n){0,200}") {
            let _ = parse("example.test", &text, Path::new("file"));
            let _ = parse("example.test", &format!("{HEAD}{text}"), Path::new("file"));
        }
    }
}

//! Zone files and the records or errors that they result in.

use std::path::Path;

use super::super::store::Zones;
use super::*;

const HEAD: &str = "$TTL 60\n@ IN SOA ns hostmaster 1 2 3 4 5\n";

fn zone(text: &str) -> Result<Zones, ZoneError> {
    Zones::read(&[("example.test", ZoneText::Here(text))])
}

fn zone_error(rest: &str) -> String {
    match zone(&format!("{HEAD}{rest}")) {
        Ok(_) => panic!("{rest:?} was accepted"),
        Err(error) => error.to_string(),
    }
}

/// Records as `owner type ttl data`, with the data in hexadecimal, without the SOA of the head.
fn records(rest: &str) -> Vec<String> {
    let (text, mut all) = (format!("{HEAD}{rest}"), Vec::new());
    let result = read("example.test", ZoneText::Here(&text), &mut |record| {
        let digits: String = record.data.iter().map(|byte| format!("{byte:02x}")).collect();
        all.push(format!("{} {} {}", record_label(record.owner, record.rtype), record.ttl, digits));
    });
    result.unwrap_or_else(|error| panic!("{rest:?}: {error}"));
    all.split_off(1)
}

#[test]
fn errors_name_file_line_item_and_the_expected_form() {
    let all = [
        ("www IN A 192.0.2.300\n", 3, "www IN A 192.0.2.300", "A 192.0.2.1"),
        ("a IN A 192.0.2.1\nwww IN NOTYPE x\n", 4, "www IN NOTYPE x", "RFC 3597"),
        ("a IN A 192.0.2.1\nwww IN TYPE300 x\n", 4, "www IN TYPE300 x", "\\# 4 01020304 (RFC 3597)"),
        ("www.example. IN A 192.0.2.1", 3, "www.example. A", "it is not in the zone"),
        ("a IN SOA ns hostmaster 1 2 3 4 5", 3, "a.example.test. SOA", "at the zone's own name"),
        ("d IN DNAME example.com.", 3, "d.example.test. DNAME", "DNAME is not supported"),
        (
            "a IN CNAME b\n\na IN A 192.0.2.1",
            5,
            "a.example.test. A",
            "a CNAME cannot have other records next to it",
        ),
        (
            "a IN A 192.0.2.1\na IN CNAME b",
            4,
            "a.example.test. CNAME",
            "a CNAME cannot have other records next to it",
        ),
        ("a IN CNAME b\na IN CNAME c", 4, "a.example.test. CNAME", "one only"),
        ("a..b IN A 192.0.2.1", 3, "a..b IN A 192.0.2.1", "two dots"),
        ("a IN MX 10 b..c", 3, "a IN MX 10 b..c", "10 mail.example.com."),
        ("a IN MX mail", 3, "a IN MX mail", "10 mail.example.com."),
        ("a IN SRV 1 2 3", 3, "a IN SRV 1 2 3", "10 20 5060 sip.example.com."),
        ("a CH A 192.0.2.1", 3, "a CH A 192.0.2.1", "only class IN"),
        ("a 1y IN A 192.0.2.1", 3, "a 1y IN A 192.0.2.1", "1h"),
        ("$TTL soon", 3, "$TTL soon", "$TTL 1h"),
        ("$ORIGIN", 3, "$ORIGIN", "$ORIGIN example.com."),
        ("$GENERATE 5-1 a$ A 192.0.2.$", 3, "$GENERATE 5-1 a$ A 192.0.2.$", "1-254"),
        ("$NONE x", 3, "$NONE x", "$GENERATE"),
        ("a IN TXT ( \"x\"\n", 3, "(", "not closed"),
        ("a IN TXT \"x\n", 3, "a IN TXT \"x", "quoted text ends"),
        ("a IN TXT x )\n", 3, "a IN TXT x )", "without"),
        ("a", 3, "a", "its type is missing"),
    ];
    for (rest, line, item, part) in all {
        let error = zone_error(rest);
        assert!(error.starts_with(&format!("text:{line}: {item}: ")), "{error}");
        assert!(error.contains(part), "{error}");
    }
    let error = zone("@ IN SOA ns hostmaster 1 2 3 4 5").expect_err("no TTL").to_string();
    assert!(error.starts_with("text:1: ") && error.contains("$TTL 1h"), "{error}");
}

#[test]
fn at_sign_in_data_is_the_origin_unless_escaped() {
    assert_eq!(records("a IN CNAME @"), records("a IN CNAME example.test."));
    assert_eq!(records("a IN MX 1 @"), records("a MX 1 example.test."));
    assert_eq!(records("a IN CNAME \\@"), records("a IN CNAME \\064.example.test."));
    assert_eq!(records("$ORIGIN b\n@ IN CNAME @"), records("b IN CNAME b"));
    // In a TXT record, `@` is text, not a name.
    assert_eq!(records("a IN TXT @"), ["a.example.test. TXT 60 0140"]);
}

#[test]
fn ttl_and_soa_times_accept_units() {
    assert_eq!(records("$TTL 1h\na IN A 192.0.2.1"), ["a.example.test. A 3600 c0000201"]);
    for head in ["1h", "1h IN", "IN 1h", "60m", "3600 IN"] {
        assert_eq!(records(&format!("a {head} A 192.0.2.1")), ["a.example.test. A 3600 c0000201"], "{head}");
    }
    let soa = |times: &str| format!("$TTL 60\n@ SOA ns a 1 {times}\n");
    let data = |times: &str| {
        let mut all = Vec::new();
        read("t", ZoneText::Here(&soa(times)), &mut |record| all.push(record.data.to_vec())).map(|_| all)
    };
    assert_eq!(data("2h 30M 2w 1d").ok(), data("7200 1800 1209600 86400").ok());
}

#[test]
fn generate_directive_expands_to_records() {
    let hosts = records("$GENERATE 1-5/2 host-$ 1h IN A 192.0.2.$");
    assert_eq!(hosts, records("host-1 1h A 192.0.2.1\nhost-3 1h A 192.0.2.3\nhost-5 1h A 192.0.2.5"));
    assert_eq!(
        records("$GENERATE 10-11 ${-10,3,d} PTR \\$${0,2,x}.\n"),
        records("000 PTR \\$0a.\n001 PTR \\$0b.")
    );
    assert_eq!(records("$GENERATE 18-18 ${0,4,n}a A 192.0.2.1"), records("2.1.a A 192.0.2.1"));
    assert!(zone_error("$GENERATE +1-2 h$ A 192.0.2.1").contains("the range"));
    assert!(zone_error("$GENERATE 1-2 h$ A 192.0.2.${x}").contains("offset"));
    assert!(zone_error("$GENERATE 0-4294967295 h$ A 192.0.2.1").contains("16,777,216"));
}

#[test]
fn entries_continue_in_parentheses_and_inherit_the_owner() {
    let entries = records("a 60 IN TXT ( \"x\" ; first\n y )\n  A 192.0.2.1\n\n ; nothing\n\tA 192.0.2.2");
    assert_eq!(entries, records("a TXT x y\na A 192.0.2.1\na A 192.0.2.2"));
    assert_eq!(records("a IN HTTPS 1 . alpn=\"h2,h3\""), records("a IN HTTPS 1 . alpn=h2,h3"));
    assert_eq!(records("a TXT \"a;b\" \"\" \"q\\\"\\032\""), ["a.example.test. TXT 60 03613b620003712220"]);
}

#[test]
fn generic_rdata_must_be_valid_for_its_type() {
    let why = "its data cannot be that of the type";
    // Empty data, a missing or unterminated name, a compression pointer, a byte after the name, and
    // data of a wrong length. Below: a SOA without its numbers.
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
        "LOC \\# 1 00",
    ] {
        assert!(zone_error(&format!("a IN {data}")).contains(why), "{data}");
    }
    for data in ["TXT \\# 0", "CAA \\# 2 0000"] {
        assert!(zone_error(&format!("a IN {data}")).contains("no text"), "{data}");
    }
    assert!(zone("@ 60 IN SOA \\# 2 0000").expect_err("no numbers").to_string().contains(why));
    let good = "a IN A \\# 4 c0000201\nb IN NS \\# 3 016100\nc IN KX \\# 5 0001016100\nd IN TYPE999 \\# 0\n";
    assert_eq!(records(good).len(), 4);
    assert!(zone_error("a IN TYPE999 \\# 2 00").contains("not the number of bytes"));
}

#[test]
fn a_zone_without_a_soa_is_refused() {
    let error = zone("a 60 IN A 192.0.2.1").expect_err("no SOA").to_string();
    assert!(error.starts_with("text: zone example.test.: it has no SOA record at its name"), "{error}");
}

#[test]
fn include_reads_files_with_their_own_origin() {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).expect("written");
    write("zone", &format!("{HEAD}$INCLUDE \"in cluded\" sub\na A 192.0.2.1\n"));
    write("in cluded", "b A 192.0.2.2\n$ORIGIN other\nc A 192.0.2.x\n");
    let file = directory.path().join("zone");
    let error = Zones::load(&[("example.test", &file)]).expect_err("a wrong address").to_string();
    assert!(error.contains("in cluded:3: c A 192.0.2.x: "), "{error}");
    write("in cluded", "b A 192.0.2.2\n");
    assert_eq!(Zones::load(&[("example.test", &file)]).expect("a zone").record_count(), 3);
    write("in cluded", "$INCLUDE zone\n");
    assert!(Zones::load(&[("example.test", &file)]).is_err(), "without end");
    assert!(matches!(Zones::load(&[("t", Path::new("/nowhere"))]), Err(ZoneError::Read { .. })));
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

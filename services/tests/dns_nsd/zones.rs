//! Zones with records of many types, in a syntax that linerate, NSD and Knot DNS read.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const EXAMPLE: &str = r#"
$ORIGIN example.test.
$TTL 3600
@       IN SOA ns1 hostmaster.example.test. 2026112201 7200 3600 1209600 300
        IN NS ns1
        IN NS ns2
        IN NS ns.elsewhere.test.
        IN MX 10 mail
        IN MX 20 mail.elsewhere.test.
        IN TXT "v=spf1 -all" "two strings"
        IN A 192.0.2.1
        IN AAAA 2001:db8::1
        IN CAA 0 issue "ca.example.net"
        IN DNSKEY 256 3 13 oJMRESz5E4gYzS/q6XDrvU1qMPYIjCWzJaOau8XNEZeqCYKD5ar0IRd8KqXXFJkqmVfRvMGPmM1x8fGAa2XhSA==
ns1     IN A 192.0.2.11
ns1     IN AAAA 2001:db8::11
ns2 60  IN A 192.0.2.12
mail    IN A 192.0.2.25
WWW     120 IN A 192.0.2.80
        120 IN A 192.0.2.81
        120 IN AAAA 2001:db8::80
        IN RRSIG A 13 3 120 20300101000000 20200101000000 12345 example.test. c2lnbmF0dXJl
txtonly IN TXT "only text"
hinfo   IN HINFO "PC" "Linux"
unknown IN TYPE65400 \# 4 01020304
naptr   IN NAPTR 100 10 "u" "E2U+sip" "!^.*$!sip:info@example.test!" .
tlsa    IN TLSA 3 1 1 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
sshfp   IN SSHFP 4 2 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
rp      IN A 192.0.2.99
_sip._udp IN SRV 10 20 5060 sip
_sip._udp IN SRV 20 20 5060 SIP2.wild
_sip._udp IN SRV 30 20 5060 ns.deleg
sip     IN A 192.0.2.60
a.b.ent IN A 192.0.2.70
c1      IN CNAME c2
c2      IN CNAME c3
c3      IN CNAME www
cloop   IN CNAME cloop2
cloop2  IN CNAME cloop
cself   IN CNAME cself
cnone   IN CNAME nowhere
cnodata IN CNAME txtonly
cent    IN CNAME b.ent
cout    IN CNAME www.elsewhere.test.
cother  IN CNAME www.other.test.
cothernone IN CNAME nothing.other.test.
cchild  IN CNAME host.child
cdeleg  IN CNAME some.deleg
cwild   IN CNAME from.cname.wild
cwildc  IN CNAME x.wildc
*.wild  IN A 192.0.2.90
        IN A 192.0.2.91
        IN TXT "a wildcard"
        IN MX 5 mail
real.wild IN A 192.0.2.92
deep.under.wild IN TXT "hides the wildcard below under.wild"
*.wildc IN CNAME www
*.wildself IN CNAME x.wildself
*.wildloop IN CNAME y.wildloop
*.wildmx IN MX 10 host.wild
*.star.*.mid IN A 192.0.2.93
deleg   IN NS ns.deleg
        IN NS ns2.deleg
        IN NS ns.elsewhere.test.
ns.deleg IN A 192.0.2.100
ns.deleg IN AAAA 2001:db8::100
ns2.deleg IN A 192.0.2.101
hidden.deleg IN TXT "below a cut"
signed  IN NS ns1
        IN DS 12345 13 2 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
outer   IN NS ns1
inner.outer IN NS ns2
lame    IN NS nothere
child   IN NS ns.child
        IN DS 54321 13 2 ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff
ns.child IN A 192.0.2.110
cut.child IN A 192.0.2.111
mx      IN MX 1 ns.deleg
        IN MX 2 any.wild
        IN MX 3 c1
        IN MX 4 mail
        IN MX 5 .
ptr     IN PTR www
ttl0 0  IN A 192.0.2.120
dup     IN A 192.0.2.121
dup     IN A 192.0.2.121
\065\.b IN A 192.0.2.122
*       IN HINFO "at" "the top"
"#;

const CHILD: &str = r#"
$TTL 900
@ IN SOA ns.child.example.test. hostmaster.example.test. 1 7200 3600 1209600 1800
@ IN NS ns
@ IN NS ns1.example.test.
ns IN A 192.0.2.110
host IN A 192.0.2.112
host IN MX 10 mail.example.test.
host IN MX 20 mail
mail IN AAAA 2001:db8::25
up IN CNAME www.example.test.
"#;

const OTHER: &str = r#"
$ORIGIN other.test.
@ 5 IN SOA ns hostmaster 1 7200 3600 1209600 300
@ 60 IN NS ns.example.test.
www 60 IN A 203.0.113.1
back 60 IN CNAME c1.example.test.
loop 60 IN CNAME loop2.example.test.
"#;

const REVERSE: &str = r#"
$TTL 86400
@ IN SOA ns1.example.test. hostmaster.example.test. 1 7200 3600 1209600 300
@ IN NS ns1.example.test.
1 IN PTR example.test.
80 IN PTR www.example.test.
"#;

/// A zone like those of operators: `@` in data, times with units, entries over several lines, many
/// record types, and glue deep below zone cuts, also for zones that are served here.
const DEEP: &str = r#"
$TTL 1h
@ 1d IN SOA @ hostmaster 2026112201 2h 30M 2w ( 5m )
@ NS ns1
@ NS a.b.c.far
@ MX 10 @
@ 2h TXT "@" "two"
ns1 1h30m A 192.0.2.1
ns1 IN 1w AAAA 2001:db8::1
alias CNAME @
\@ A 192.0.2.3
service SRV 1 2 3 @
loc LOC 52 22 23.000 N 4 53 32.000 E -2.00m 0.00m 10000m 10m
uri URI 10 1 "https://www.example.com/a;b"
cert CERT PKIX 12345 8 MIIB
smimea SMIMEA 3 0 0 0123456789abcdef
afsdb AFSDB 1 @
rt RT 10 ns1
apl APL 1:192.0.2.0/24 !2:2001:db8::/32
https HTTPS 1 . alpn=h2,h3 port=443 ipv4hint=192.0.2.1
svcb 60 SVCB 0 @
nid NID 10 0014:4fff:ff20:ee64
eui EUI48 00-00-5e-00-53-2a
caa CAA 0 issue "ca.example.net"
ipseckey IPSECKEY 10 1 2 192.0.2.38 AQNRU3mG
naptr NAPTR 100 10 "S" "SIP+D2U" "" @
a.b.c.d.ent TXT "deep"
* 5m A 192.0.2.4
*.wild MX 10 @
x.wild TXT ( "several"
        "lines" )
*.alias CNAME @
far NS a.b.c.far
far NS ns1
far NS a.sibling
a.b.c.far A 192.0.2.10
a.b.c.far AAAA 2001:db8::10
sibling NS a.sibling
a.sibling A 192.0.2.11
sub NS ns.x.sub
sub NS x.y.z.sub
sub NS other.sub
ns.x.sub A 192.0.2.12
x.y.z.sub A 192.0.2.13
other.sub AAAA 2001:db8::14
below.z.sub A 192.0.2.15
"#;

/// A child zone of `deep.test`. Of the names in its parent's glue, it contains only `other`.
const SUB: &str = r#"
$ORIGIN sub.deep.test.
$TTL 15m
@ SOA ns.x hostmaster 1 2h 30m 2w 10m
@ NS ns.x
@ NS x.y.z
@ NS other
other AAAA 2001:db8::14
own.x A 192.0.2.20
*.w A 192.0.2.21
up CNAME ns1.deep.test.
ghost CNAME ns.x
"#;

/// Names that exist only in the parent's glue, and their ancestors. The zone that answers for them
/// does not contain them.
pub(crate) const GLUE_ONLY: [&str; 5] = ["ns.x.sub", "x.y.z.sub", "below.z.sub", "y.z.sub", "z.sub"];

/// `DEEP`, with delegations whose glue does not fit into small answers.
fn wide() -> String {
    let mut text = DEEP.to_owned();
    for number in 0..13 {
        let _ = writeln!(text, "wide NS n{number}.with.a.long.name.inside.wide");
        let _ = writeln!(text, "n{number}.with.a.long.name.inside.wide A 198.51.100.{number}");
        let _ = writeln!(text, "n{number}.with.a.long.name.inside.wide AAAA 2001:db8:1::{number}");
    }
    for number in 0..4 {
        let _ = writeln!(text, "some NS n{number}.some");
        let _ = writeln!(text, "some NS n{number}.with.a.long.name.inside.wide");
        let _ = writeln!(text, "n{number}.some A 198.51.100.{number}");
        let _ = writeln!(text, "n{number}.some AAAA 2001:db8:2::{number}");
    }
    text
}

/// Records that do not fit into small answers.
fn large() -> String {
    let mut text = String::new();
    for number in 0..60 {
        let _ = writeln!(text, "many IN A 198.51.100.{number}");
        let _ = writeln!(text, "manycname{number} IN CNAME many");
    }
    for (name, strings) in [("text400", 2), ("text700", 4), ("text1100", 6), ("text3000", 15)] {
        for number in 0..strings {
            let _ = writeln!(text, "{name} IN TXT \"{number} {}\"", "x".repeat(180));
        }
    }
    for number in 0..13 {
        let _ = writeln!(text, "wide IN NS server-{number}.of-a-wide-delegation.wide");
        let _ = writeln!(text, "server-{number}.of-a-wide-delegation.wide IN A 198.51.100.{number}");
        let _ = writeln!(text, "server-{number}.of-a-wide-delegation.wide IN AAAA 2001:db8:1::{number}");
        let _ = writeln!(text, "hosts IN MX {number} host-{number}.of.many.others");
        let _ = writeln!(text, "host-{number}.of.many.others IN A 198.51.100.{number}");
        let _ = writeln!(text, "host-{number}.of.many.others IN AAAA 2001:db8:2::{number}");
        let _ = writeln!(text, "services IN SRV 1 1 {number} host-{number}.of.many.others");
    }
    let label = "a".repeat(63);
    let _ = writeln!(text, "{label}.{label}.{label}.long IN A 192.0.2.130");
    let _ = writeln!(text, "*.{label}.wild2 IN TXT \"below a long name\"");
    text
}

/// Writes the zone files. Returns the name and the file of each zone.
pub(crate) fn write(directory: &Path) -> Vec<(&'static str, PathBuf)> {
    let example = format!("{EXAMPLE}{}", large());
    [
        ("example.test", example.as_str()),
        ("child.example.test", CHILD),
        ("other.test", OTHER),
        ("2.0.192.in-addr.arpa", REVERSE),
        ("deep.test", &wide()),
        ("sub.deep.test", SUB),
    ]
    .into_iter()
    .map(|(name, text)| {
        let file = directory.join(format!("{name}.zone"));
        std::fs::write(&file, text).expect("a zone's file");
        (name, file)
    })
    .collect()
}

/// Names to query: the owners in the zones, the parents of the zones, and a name outside the zones.
pub(crate) fn names() -> Vec<String> {
    let example = format!("{EXAMPLE}{}", large());
    let zones = [
        (example.as_str(), "example.test"),
        (CHILD, "child.example.test"),
        (OTHER, "other.test"),
        (REVERSE, "2.0.192.in-addr.arpa"),
    ];
    let more = ["", "test", "elsewhere.test", "arpa"];
    names_of(&zones).into_iter().chain(more.map(str::to_owned)).collect()
}

/// Names to query in `deep.test` and `sub.deep.test`.
pub(crate) fn deep_names() -> Vec<String> {
    names_of(&[(&wide(), "deep.test"), (SUB, "sub.deep.test")])
}

fn names_of(zones: &[(&str, &str)]) -> Vec<String> {
    let mut names = Vec::new();
    for (text, origin) in zones {
        names.push((*origin).to_owned());
        for line in text.lines() {
            let owner = line.split(' ').next().unwrap_or_default();
            // Names with escapes are skipped, because random labels cover them.
            if !owner.is_empty() && !owner.starts_with(['$', '@', '\\']) {
                names.push(format!("{owner}.{origin}"));
            }
        }
    }
    names.sort();
    names.dedup();
    names
}

//! Zones with one of everything, in the syntax that both servers read.

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

/// What takes more room than some answers have.
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

/// Writes the zones' files; returns each zone's name and file.
pub(crate) fn write(directory: &Path) -> Vec<(&'static str, PathBuf)> {
    let example = format!("{EXAMPLE}{}", large());
    [
        ("example.test", example.as_str()),
        ("child.example.test", CHILD),
        ("other.test", OTHER),
        ("2.0.192.in-addr.arpa", REVERSE),
    ]
    .into_iter()
    .map(|(name, text)| {
        let file = directory.join(format!("{name}.zone"));
        std::fs::write(&file, text).expect("a zone's file");
        (name, file)
    })
    .collect()
}

/// Names that are asked for: owners, what is above and below them, and targets.
pub(crate) fn names() -> Vec<String> {
    let example = format!("{EXAMPLE}{}", large());
    let mut names: Vec<String> = vec![String::new(), "test".into(), "elsewhere.test".into(), "arpa".into()];
    let zones = [
        (example.as_str(), "example.test"),
        (CHILD, "child.example.test"),
        (OTHER, "other.test"),
        (REVERSE, "2.0.192.in-addr.arpa"),
    ];
    for (text, origin) in zones {
        names.push(origin.into());
        for line in text.lines() {
            let owner = line.split(' ').next().unwrap_or_default();
            // Escapes are left to the random labels.
            if !owner.is_empty() && !owner.starts_with(['$', '@', '\\']) {
                names.push(format!("{owner}.{origin}"));
            }
        }
    }
    names.sort();
    names.dedup();
    names
}

//! Replacements for addresses.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses seen, numbered from one.
#[derive(Default)]
pub(super) struct AddressAliases {
    ip: BTreeMap<IpAddr, u32>,
    mac: BTreeMap<[u8; 6], u32>,
}

impl AddressAliases {
    pub(super) fn replace_in_text(&mut self, text: &str) -> String {
        let is_part = |letter: char| letter.is_ascii_hexdigit() || matches!(letter, ':' | '.');
        let mut output = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(begin) = rest.find(is_part) {
            let (before, tail) = rest.split_at(begin);
            let (word, after) = tail.split_at(tail.find(|letter| !is_part(letter)).unwrap_or(tail.len()));
            output.push_str(before);
            // The first letters of a longer word are not an address.
            let is_whole_word = !before.ends_with(|letter: char| letter.is_alphanumeric() || letter == '_');
            match is_whole_word.then(|| self.replace_word(word)).flatten() {
                Some(alias) => output.push_str(&alias),
                None => output.push_str(word),
            }
            rest = after;
        }
        output.push_str(rest);
        output
    }

    /// The replacement for an address, with or without a port.
    fn replace_word(&mut self, word: &str) -> Option<String> {
        if let Some(mac) = parse_mac(word) {
            return Some(self.alias_mac(mac));
        }
        if let Ok(ip) = word.parse::<IpAddr>() {
            return Some(self.alias_ip(ip).to_string());
        }
        let (ip, port) = word.split_once(':')?;
        let ip: Ipv4Addr = ip.parse().ok()?;
        Some(format!("{}:{port}", self.alias_ip(ip.into())))
    }

    // `/proc/net/udp` and similar files: addresses as hexadecimal words in the byte order of the
    // CPU.
    pub(super) fn replace_in_hexadecimal(&mut self, text: &str) -> String {
        let mut output = String::with_capacity(text.len());
        for piece in text.split_inclusive([' ', '\n']) {
            let word = piece.trim_end_matches([' ', '\n']);
            let address = word
                .split_once(':')
                .and_then(|(address, port)| Some(format!("{}:{port}", self.replace_hexadecimal(address)?)));
            output.push_str(address.as_deref().unwrap_or(word));
            output.push_str(piece.get(word.len()..).unwrap_or(""));
        }
        output
    }

    fn replace_hexadecimal(&mut self, text: &str) -> Option<String> {
        let word =
            |offset: usize| Some(u32::from_str_radix(text.get(offset..offset + 8)?, 16).ok()?.to_ne_bytes());
        let format_word = |bytes: &[u8; 4]| format!("{:08X}", u32::from_ne_bytes(*bytes));
        match text.len() {
            8 => match self.alias_ip(Ipv4Addr::from(word(0)?).into()) {
                IpAddr::V4(ip) => Some(format_word(&ip.octets())),
                IpAddr::V6(_) => None,
            },
            32 => {
                let bytes = [word(0)?, word(8)?, word(16)?, word(24)?].concat();
                match self.alias_ip(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()) {
                    IpAddr::V6(ip) => Some(ip.octets().as_chunks::<4>().0.iter().map(format_word).collect()),
                    IpAddr::V4(_) => None,
                }
            }
            _ => None,
        }
    }

    fn alias_ip(&mut self, ip: IpAddr) -> IpAddr {
        match ip {
            _ if is_same_everywhere(ip) => ip,
            IpAddr::V4(_) => {
                // 198.18.0.0/15 is reserved for network benchmarks (RFC 2544).
                let number = self.number(ip) % (1 << 17);
                Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 0, 0).to_bits() + number).into()
            }
            IpAddr::V6(v6) => {
                if let Some(v4) = v6.to_ipv4_mapped()
                    && let IpAddr::V4(v4) = self.alias_ip(v4.into())
                {
                    return v4.to_ipv6_mapped().into();
                }
                let number = self.number(ip);
                let (high, low) = ((number >> 16) as u16, (number & 0xffff) as u16);
                let prefix = if v6.is_unicast_link_local() { [0xfe80, 0] } else { [0x2001, 0xdb8] };
                Ipv6Addr::new(prefix[0], prefix[1], 0, 0, 0, 0, high, low).into()
            }
        }
    }

    fn number(&mut self, ip: IpAddr) -> u32 {
        let next = u32::try_from(self.ip.len()).unwrap_or(u32::MAX).saturating_add(1);
        *self.ip.entry(ip).or_insert(next)
    }

    fn alias_mac(&mut self, mac: [u8; 6]) -> String {
        // Zero, broadcast and multicast addresses are the same on every host.
        if mac == [0; 6] || mac[0] & 1 == 1 {
            return format_mac(mac);
        }
        let next = u32::try_from(self.mac.len()).unwrap_or(u32::MAX).saturating_add(1);
        let [a, b, c, d] = self.mac.entry(mac).or_insert(next).to_be_bytes();
        // The second bit marks a locally administered address.
        format_mac([2, 0, a, b, c, d])
    }
}

/// Whether the address is the same on every host.
fn is_same_everywhere(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            // An address that begins with 255 is a mask or a broadcast address.
            ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || ip.octets()[0] == 255
        }
        IpAddr::V6(ip) => ip.is_unspecified() || ip.is_loopback() || ip.is_multicast(),
    }
}

fn parse_mac(word: &str) -> Option<[u8; 6]> {
    let bytes: Option<Vec<u8>> = word
        .split(':')
        .map(|part| if part.len() == 2 { u8::from_str_radix(part, 16).ok() } else { None })
        .collect();
    bytes?.try_into().ok()
}

fn format_mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equal_addresses_get_equal_aliases_and_special_addresses_stay() {
        let mut addresses = AddressAliases::default();
        for (text, expected) in [
            (r#"{"local": "10.1.2.3:53"}"#, r#"{"local": "198.18.0.1:53"}"#),
            ("10.1.2.3/8 10.1.2.4", "198.18.0.1/8 198.18.0.2"),
            (
                "0.0.0.0:53 127.0.0.1:5 [::]:53 [::1]:5 224.0.0.1",
                "0.0.0.0:53 127.0.0.1:5 [::]:53 [::1]:5 224.0.0.1",
            ),
            ("[2a01:4f8::7]:53", "[2001:db8::3]:53"),
            ("::ffff:10.1.2.3", "::ffff:198.18.0.1"),
            ("fe80::5054:ff:fe12:3456%eth0", "fe80::4%eth0"),
            (
                "link/ether 52:54:00:12:34:56 brd ff:ff:ff:ff:ff:ff",
                "link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff",
            ),
            ("0000:01:00.0 6.18.44 12:34:56 CPU: abc", "0000:01:00.0 6.18.44 12:34:56 CPU: abc"),
        ] {
            assert_eq!(addresses.replace_in_text(text), expected);
        }
    }

    #[test]
    fn hexadecimal_socket_addresses_get_the_alias_of_their_text_form() {
        let mut addresses = AddressAliases::default();
        let line = "  81: 00000000:0035 0302010A:1F90 07 00000000:00000000 00:00000000 00000000  0\n";
        let text = addresses.replace_in_hexadecimal(line);
        if cfg!(target_endian = "little") {
            assert_eq!(text, line.replace("0302010A", "010012C6"));
        }
        assert_eq!(addresses.replace_in_text("10.1.2.3"), "198.18.0.1");
        let any6 = "00000000000000000000000000000000:0035";
        assert_eq!(addresses.replace_in_hexadecimal(any6), any6);
        let other = addresses.replace_in_hexadecimal("B80D0120000000000000000001000000:0035");
        assert_ne!(other, "B80D0120000000000000000001000000:0035");
        assert_eq!(other.len(), 37);
    }

    proptest! {
        #[test]
        fn anonymising_arbitrary_text_never_panics_and_plain_words_stay(text in "[ -~\n]{0,200}", word in "[g-z ]{0,40}") {
            let mut addresses = AddressAliases::default();
            let _ = addresses.replace_in_text(&text);
            let _ = addresses.replace_in_hexadecimal(&text);
            prop_assert_eq!(addresses.replace_in_text(&word), word);
        }
    }
}

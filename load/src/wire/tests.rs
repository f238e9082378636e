use proptest::prelude::*;

use super::*;

fn link(text: &str) -> LinkSpeed {
    text.parse().unwrap()
}

fn v4(payload: u32) -> WireFormat {
    WireFormat::new(payload, IpVersion::V4, 0, link("10G")).unwrap()
}

#[test]
fn short_frames_are_padded_to_64_bytes() {
    for (speed, frames_per_second) in [("10G", 14_880_952), ("1G", 1_488_095), ("100M", 148_809)] {
        let wire = WireFormat::new(0, IpVersion::V4, 0, link(speed)).unwrap();
        assert_eq!(wire.datagrams_per_second(), frames_per_second);
    }
    // A payload of 18 bytes over IPv4 fills the shortest frame exactly.
    for payload in 0..=18 {
        assert_eq!((v4(payload).frame_bytes(), v4(payload).wire_bits()), (vec![64], 672));
    }
    assert_eq!(v4(19).frame_bytes(), [65]);
    assert!(
        (WireFormat::new(18, IpVersion::V4, 0, link("100G")).unwrap().figures().budget_ns - 6.72).abs()
            < 1e-9
    );
}

#[test]
fn wire_figures_are_correct_for_100_bytes_at_10_gbit() {
    let figures = v4(100).figures();
    assert_eq!((figures.wire_bytes, figures.wire_bits), (166, 1_328));
    assert_eq!((figures.datagrams_per_second, figures.frames_per_second), (7_530_120, 7_530_120));
    // The published 270,000 transactions per second are about 360 Mbit/s.
    assert!((v4(100).wire_bits_per_second(270_000.0) / 1e6 - 358.56).abs() < 1e-9);
    assert!((v4(100).line_rate_ratio(7_010_000.0) - 0.931).abs() < 0.001);
}

#[test]
fn ipv6_and_vlan_tags_add_their_header_bytes() {
    let wire = WireFormat::new(100, IpVersion::V6, 2, link("10G")).unwrap();
    assert_eq!(wire.frame_bytes(), [100 + 8 + 40 + 14 + 8 + 4]);
}

#[test]
fn fragments_carry_multiples_of_eight_bytes() {
    assert_eq!(v4(1_472).frame_bytes(), [1_518]);
    // 1481 bytes with the UDP header: 1480 in the first fragment, and one in the last, which is
    // padded to the shortest frame.
    assert_eq!(v4(1_473).frame_bytes(), [1_518, 64]);
    let v6 = WireFormat::new(1_453, IpVersion::V6, 0, link("10G")).unwrap();
    // 1461 bytes with the UDP header: 1448 after 48 bytes of IPv6 headers in the first fragment,
    // then 13.
    assert_eq!(v6.frame_bytes(), [1_448 + 48 + 18, 13 + 48 + 18]);
    assert_eq!(v6.with_mtu(9_000).unwrap().figures().frames, 1);
    let largest = v4(65_507).figures();
    assert_eq!(largest.frames, 45);
    assert!(largest.frames_per_second > largest.datagrams_per_second * 44);
}

#[test]
fn total_delay_is_the_sum_of_its_components() {
    let path = DelayPath { distance_metres: 100_000.0, processing_ns: 1_000.0, queued: 10 };
    let delays = v4(100).delays(&path);
    assert!((delays.transmission_ns - 132.8).abs() < 1e-9);
    assert!((delays.propagation_ns - 500_000.0).abs() < 1e-6);
    assert!((delays.queueing_ns - 1_328.0).abs() < 1e-9);
    assert!((delays.total_ns - 502_460.8).abs() < 1e-6);
}

#[test]
fn payload_vlan_tags_and_mtu_out_of_range_are_refused() {
    assert!(WireFormat::new(65_508, IpVersion::V4, 0, link("1G")).is_err());
    assert!(WireFormat::new(65_527, IpVersion::V6, 0, link("1G")).is_ok());
    assert!(WireFormat::new(1, IpVersion::V4, 9, link("1G")).is_err());
    assert!(v4(1).with_mtu(67).is_err());
    assert!(WireFormat::new(1, IpVersion::V6, 0, link("1G")).unwrap().with_mtu(1_279).is_err());
}

#[test]
fn link_speeds_parse_with_common_units() {
    for (text, bits) in [
        ("10G", 10_000_000_000),
        ("2.5G", 2_500_000_000),
        ("100M", 100_000_000),
        ("1Gbit/s", 1_000_000_000),
        (" 40 Gbps ", 40_000_000_000),
        ("25Gb/s", 25_000_000_000),
        ("64kbit", 64_000),
        ("1000000", 1_000_000),
        ("1.50M", 1_500_000),
        ("1000T", 1_000_000_000_000_000),
    ] {
        assert_eq!(link(text).bits_per_second(), bits, "{text}");
    }
    for wrong in
        ["", "G", "fast", "10X", "10GB", "-1G", "1.2.3G", ".5G", "1.G", "0", "0G", "1.5", "1001T", "10 G G"]
    {
        let error = wrong.parse::<LinkSpeed>().unwrap_err().to_string();
        assert!(error.contains(wrong.trim()), "{error}");
    }
}

proptest! {
    #[test]
    fn link_speeds_round_trip_through_text(bits in 1..=1_000_000_000_000_000u64) {
        let speed = LinkSpeed::from_bits_per_second(bits).unwrap();
        prop_assert_eq!(speed.to_string().parse::<LinkSpeed>(), Ok(speed));
    }

    #[test]
    fn parsing_arbitrary_text_never_panics(text in "\\PC{0,24}") {
        let _ = text.parse::<LinkSpeed>();
    }

    #[test]
    fn fragments_carry_the_whole_payload(
        payload in 0..=65_507u32, mtu in 1_280..=9_000u32, v6 in any::<bool>(),
    ) {
        let family = if v6 { IpVersion::V6 } else { IpVersion::V4 };
        let wire = WireFormat::new(payload, family, 0, link("10G")).unwrap().with_mtu(mtu).unwrap();
        let frames = wire.frame_bytes();
        prop_assert!(frames.iter().all(|frame| *frame <= u64::from(mtu) + 18));
        let (last, full) = frames.split_last().unwrap();
        let header = 18 + if !v6 { 20 } else if full.is_empty() { 40 } else { 48 };
        prop_assert!(full.iter().all(|frame| (frame - header) % 8 == 0));
        let left = u64::from(payload) + 8 - full.iter().map(|frame| frame - header).sum::<u64>();
        prop_assert!(left > 0);
        prop_assert_eq!(*last, (header + left).max(64));
    }
}

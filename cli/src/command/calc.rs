//! `linerate calc`: the packet rate of a link, and the delays of a packet.

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;
use linerate_load::wire::{
    self, AtRate, DelayPath, IpVersion, LinkCapacity, LinkSpeed, SHORTEST_FRAME_BYTES, WireFormat,
};

use super::results::ResultArgs;
use crate::envelope::Envelope;
use crate::origin::{self, HostSummary, Warning};

/// Wire arithmetic: what a link can carry, and where a packet's time goes.
#[derive(Debug, Args)]
pub(crate) struct CalcArgs {
    /// UDP payload of a packet, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    payload: u32,
    /// Length of the Ethernet frame instead of the payload, bytes with frame check sequence
    #[arg(long, value_name = "BYTES", conflicts_with = "payload")]
    frame: Option<u32>,
    /// Speed of the link, such as 100M, 2.5G or 10G
    #[arg(long, value_name = "SPEED", default_value = "10G")]
    link: LinkSpeed,
    /// IPv6 instead of IPv4
    #[arg(long)]
    ipv6: bool,
    /// VLAN tags per frame
    #[arg(long, value_name = "TAGS", default_value_t = 0)]
    vlan: u32,
    /// Longest IP packet of the link, bytes
    #[arg(long, value_name = "BYTES", default_value_t = wire::ETHERNET_MTU_BYTES)]
    mtu: u32,
    /// Transactions per second to compare with the line rate, such as 270000, 270k or 5.05M
    #[arg(long, value_name = "RATE", allow_negative_numbers = true, value_parser = transactions)]
    tps: Option<f64>,
    /// Length of the cable, such as 100m or 2.5km
    #[arg(long, value_name = "LENGTH", value_parser = parse_metres, default_value = "0m")]
    distance: f64,
    /// Packets of the same size queued before this one
    #[arg(long, value_name = "PACKETS", default_value_t = 0)]
    queue: u64,
    /// Time to process the packet, such as 500ns, 1us or 2ms
    #[arg(long, value_name = "TIME", value_parser = nanoseconds, default_value = "0ns")]
    processing: f64,
    #[command(flatten)]
    results: ResultArgs,
}

impl CalcArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let targets = self.results.targets()?;
        targets.write(&self.calculate()?)?;
        Ok(ExitCode::SUCCESS)
    }

    fn calculate(&self) -> Result<Envelope<LinkCapacity>> {
        let wire = self.wire()?;
        let figures = wire.figures();
        let path =
            DelayPath { distance_metres: self.distance, processing_ns: self.processing, queued: self.queue };
        let at_rate = self.tps.map(|tps| AtRate {
            transactions_per_second: tps,
            wire_bits_per_second: wire.wire_bits_per_second(tps),
            line_rate_ratio: wire.line_rate_ratio(tps),
        });
        let mut warnings = Vec::new();
        if figures.frames > 1 {
            warnings.push(Warning::new(
                "fragmented",
                format!(
                    "the packet is longer than the MTU of {} bytes and needs {} frames: losing one loses all",
                    self.mtu, figures.frames
                ),
            ));
        }
        if at_rate.is_some_and(|at_rate| at_rate.line_rate_ratio > 1.0) {
            warnings.push(Warning::new(
                "over-line-rate",
                format!("a link of {} does not carry that many transactions per second", self.link),
            ));
        }
        let shortest = WireFormat::new(0, IpVersion::V4, 0, self.link)?;
        let result = LinkCapacity {
            figures,
            shortest_frames_per_second: shortest.datagrams_per_second(),
            at_rate,
            delay: wire.delays(&path),
        };
        // The result is about a link, not about this host.
        Ok(Envelope::new(HostSummary::default(), origin::unix_seconds(), result).with_warnings(warnings))
    }

    fn wire(&self) -> Result<WireFormat> {
        let family = if self.ipv6 { IpVersion::V6 } else { IpVersion::V4 };
        let format_with =
            |payload| WireFormat::new(payload, family, self.vlan, self.link)?.with_mtu(self.mtu);
        let Some(frame) = self.frame else {
            return Ok(format_with(self.payload)?);
        };
        // A frame that is too long for padding shows the bytes of a frame besides its payload.
        let sample_format = format_with(1_000)?.with_mtu(wire::ETHERNET_MTU_BYTES)?;
        let headers = (sample_format.wire_bits() / 8 - wire::FRAME_OVERHEAD_BYTES - 1_000) as u32;
        let shortest_frame = headers.max(SHORTEST_FRAME_BYTES as u32);
        ensure!(
            frame >= shortest_frame,
            "--frame {frame}: a frame with these headers has at least {shortest_frame} bytes"
        );
        let wire = format_with(frame - headers).with_context(|| format!("--frame {frame}"))?;
        ensure!(
            wire.figures().frames == 1,
            "--frame {frame}: no frame is as long with an MTU of {} bytes; raise it with --mtu",
            self.mtu
        );
        Ok(wire)
    }
}

fn transactions(text: &str) -> Result<f64, String> {
    let rate =
        parse_quantity(text, &[("", 1.0), ("k", 1e3), ("M", 1e6)], "a rate such as 270000, 270k or 5.05M")?;
    if rate > 0.0 { Ok(rate) } else { Err("a rate is more than zero".to_owned()) }
}

fn parse_metres(text: &str) -> Result<f64, String> {
    parse_quantity(text, &[("m", 1.0), ("km", 1e3)], "a length such as 100m or 2.5km")
}

fn nanoseconds(text: &str) -> Result<f64, String> {
    let units = &[("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
    parse_quantity(text, units, "a time such as 500ns, 1us or 2ms")
}

/// A number with one of the units, converted to the base unit.
fn parse_quantity(text: &str, units: &[(&str, f64)], expected: &str) -> Result<f64, String> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = units.iter().find(|(name, _)| *name == unit.trim()).map(|(_, factor)| *factor);
    let value = number.parse::<f64>().ok().zip(factor).map(|(number, factor)| number * factor);
    value.filter(|value| value.is_finite() && *value <= 1e18).ok_or_else(|| format!("write {expected}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::render::style::TextStyle;
    use crate::render::text;

    #[derive(Debug, Parser)]
    struct Arguments {
        #[command(flatten)]
        calc: CalcArgs,
    }

    fn calc(arguments: &str) -> Result<Envelope<LinkCapacity>> {
        let words = std::iter::once("calc").chain(arguments.split_whitespace());
        Arguments::try_parse_from(words)?.calc.calculate()
    }

    fn text(arguments: &str) -> String {
        let document = calc(arguments).expect("valid").document();
        text::text(&document, TextStyle { width: 80, colour: false })
    }

    #[test]
    fn text_has_line_rate_and_one_way_delay() {
        insta::assert_snapshot!(text("--payload 100 --link 10G"));
    }

    #[test]
    fn text_has_the_given_rate_distance_queue_and_processing() {
        insta::assert_snapshot!(text(
            "--payload 100 --link 10G --ipv6 --vlan 1 --tps 270k --distance 2km --queue 10 --processing 1us"
        ));
    }

    #[test]
    fn text_warns_of_fragments_and_of_rates_above_line_rate() {
        insta::assert_snapshot!(text("--payload 4000 --link 100M --tps 1M"));
    }

    #[test]
    fn a_frame_size_has_the_figures_of_its_payload() {
        let by_frame = calc("--frame 146").expect("valid").result.figures;
        assert_eq!(by_frame, calc("--payload 100").expect("valid").result.figures);
        let jumbo = calc("--frame 9018 --mtu 9000 --vlan 0").expect("valid").result.figures;
        assert_eq!((jumbo.frames, jumbo.frame_bytes[0]), (1, 9_018));
    }

    #[test]
    fn extreme_values_neither_overflow_nor_print_nan() {
        for arguments in [
            "--payload 65507 --mtu 68 --link 1 --queue 18446744073709551615 --distance 1000000000km",
            "--payload 0 --link 1000T --tps 1000000000000M",
        ] {
            assert!(!text(arguments).contains("NaN"), "{arguments}");
        }
    }
}

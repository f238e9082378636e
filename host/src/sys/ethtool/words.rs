//! ethtool commands whose structures are 32-bit words: rings, channels, interrupt moderation
//! (linux/ethtool.h).

use std::io;

use super::ioctl;
use crate::stage::link::{ChannelCounts, CoalesceSettings, RingLengths};

const GET_COALESCE: u32 = 0x0e;
const SET_COALESCE: u32 = 0x0f;
const GET_RINGS: u32 = 0x10;
const SET_RINGS: u32 = 0x11;
const GET_CHANNELS: u32 = 0x3c;
const SET_CHANNELS: u32 = 0x3d;

/// Words of struct ethtool_coalesce, ethtool_ringparam and ethtool_channels, including the command.
const COALESCE_WORDS: usize = 23;
const RINGS_WORDS: usize = 9;
const CHANNELS_WORDS: usize = 9;

/// Offsets in struct ethtool_coalesce.
const COALESCE_RX_USECS: usize = 1;
const COALESCE_RX_FRAMES: usize = 2;
const COALESCE_TX_USECS: usize = 5;
const COALESCE_TX_FRAMES: usize = 6;
const COALESCE_ADAPTIVE_RX: usize = 10;
const COALESCE_ADAPTIVE_TX: usize = 11;

/// Offsets of the lengths in struct ethtool_ringparam, and of the counts in struct
/// ethtool_channels.
const RINGS_RX: usize = 5;
const RINGS_TX: usize = 8;
const CHANNELS_RX: usize = 5;
const CHANNELS_TX: usize = 6;
const CHANNELS_COMBINED: usize = 8;

pub(crate) fn rings(interface: &str) -> io::Result<RingLengths> {
    let words = get::<RINGS_WORDS>(interface, GET_RINGS)?;
    Ok(RingLengths { rx_max: words[1], tx_max: words[4], rx: words[RINGS_RX], tx: words[RINGS_TX] })
}

pub(crate) fn channels(interface: &str) -> io::Result<ChannelCounts> {
    let words = get::<CHANNELS_WORDS>(interface, GET_CHANNELS)?;
    Ok(ChannelCounts {
        rx_max: words[1],
        tx_max: words[2],
        combined_max: words[4],
        rx: words[CHANNELS_RX],
        tx: words[CHANNELS_TX],
        combined: words[CHANNELS_COMBINED],
    })
}

/// The ioctl cannot express that a driver lacks a parameter; it is zero.
pub(crate) fn coalesce(interface: &str) -> io::Result<CoalesceSettings> {
    let words = get::<COALESCE_WORDS>(interface, GET_COALESCE)?;
    Ok(CoalesceSettings {
        rx_usecs: Some(words[COALESCE_RX_USECS]),
        rx_frames: Some(words[COALESCE_RX_FRAMES]),
        tx_usecs: Some(words[COALESCE_TX_USECS]),
        tx_frames: Some(words[COALESCE_TX_FRAMES]),
        adaptive_rx: Some(words[COALESCE_ADAPTIVE_RX] != 0),
        adaptive_tx: Some(words[COALESCE_ADAPTIVE_TX] != 0),
    })
}

/// `None` leaves a parameter as it is.
pub(crate) fn set_coalesce(interface: &str, wanted: &CoalesceSettings) -> io::Result<()> {
    let values = [
        (COALESCE_RX_USECS, wanted.rx_usecs),
        (COALESCE_RX_FRAMES, wanted.rx_frames),
        (COALESCE_TX_USECS, wanted.tx_usecs),
        (COALESCE_TX_FRAMES, wanted.tx_frames),
        (COALESCE_ADAPTIVE_RX, wanted.adaptive_rx.map(u32::from)),
        (COALESCE_ADAPTIVE_TX, wanted.adaptive_tx.map(u32::from)),
    ];
    change::<COALESCE_WORDS>(interface, (GET_COALESCE, SET_COALESCE), &values)
}

/// `None` leaves a length as it is.
pub(crate) fn set_rings(interface: &str, rx: Option<u32>, tx: Option<u32>) -> io::Result<()> {
    change::<RINGS_WORDS>(interface, (GET_RINGS, SET_RINGS), &[(RINGS_RX, rx), (RINGS_TX, tx)])
}

/// `None` leaves a number as it is.
pub(crate) fn set_channels(
    interface: &str,
    rx: Option<u32>,
    tx: Option<u32>,
    combined: Option<u32>,
) -> io::Result<()> {
    let counts = [(CHANNELS_RX, rx), (CHANNELS_TX, tx), (CHANNELS_COMBINED, combined)];
    change::<CHANNELS_WORDS>(interface, (GET_CHANNELS, SET_CHANNELS), &counts)
}

fn get<const WORDS: usize>(interface: &str, command: u32) -> io::Result<[u32; WORDS]> {
    let mut words = [0; WORDS];
    words[0] = command;
    hand_over(interface, &mut words)?;
    Ok(words)
}

/// Reads the structure, changes some words, and writes it.
fn change<const WORDS: usize>(
    interface: &str,
    (get_command, set_command): (u32, u32),
    changes: &[(usize, Option<u32>)],
) -> io::Result<()> {
    let mut words = get::<WORDS>(interface, get_command)?;
    words[0] = set_command;
    for (place, value) in changes {
        if let (Some(word), Some(value)) = (words.get_mut(*place), value) {
            *word = *value;
        }
    }
    hand_over(interface, &mut words)
}

fn hand_over<const WORDS: usize>(interface: &str, words: &mut [u32; WORDS]) -> io::Result<()> {
    // SAFETY: `words` is as long as the structure its command takes, which holds nothing but words.
    unsafe { ioctl(interface, words.as_mut_ptr().cast()) }
}

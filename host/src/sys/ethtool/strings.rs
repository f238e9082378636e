//! ethtool commands whose answers have names: driver statistics and features (linux/ethtool.h).

use std::collections::BTreeMap;
use std::io;

use super::ioctl;
use crate::netlink::attribute::text;
use crate::root::ExplainedErrno;

const GET_STRINGS: u32 = 0x1b;
const GET_STATISTICS: u32 = 0x1d;
const GET_SET_INFO: u32 = 0x37;
const GET_FEATURES: u32 = 0x3a;
const SET_FEATURES: u32 = 0x3b;

/// `ETH_SS_STATS` and `ETH_SS_FEATURES`.
const STATISTICS: u32 = 1;
const FEATURES: u32 = 4;

/// `ETH_GSTRING_LEN`: bytes of a name.
const NAME_BYTES: usize = 32;

/// A larger count is invalid.
const MOST_NAMES: usize = 1 << 18;

// The kernel writes as many names or values as the driver currently has, even if the caller has
// room for fewer (ethtool_get_stats and ethtool_get_strings of net/ethtool/ioctl.c). Drivers have
// more of them after channels were added between two calls, so there is spare room.
fn with_room(count: usize) -> usize {
    2 * count + 4096
}

/// The driver's statistics. Equal names are added up.
pub(crate) fn statistics(interface: &str) -> io::Result<BTreeMap<String, u64>> {
    let names = names(interface, STATISTICS)?;
    let mut words = vec![0_u64; 1 + with_room(names.len())];
    // struct ethtool_stats: the command and the number of values, of 32 bits each, and the values.
    let count = u32::try_from(names.len()).map_err(|_| io::ErrorKind::InvalidData)?;
    words[0] = join_words(GET_STATISTICS, count);
    // SAFETY: `words` begins as struct ethtool_stats does and has room for more values than the driver gives.
    unsafe { ioctl(interface, words.as_mut_ptr().cast()) }?;
    let (_, value_count) = split_word(words[0]);
    if value_count != count {
        return Err(io::Error::other(format!(
            "{} statistics have names and {value_count} have values",
            names.len()
        )));
    }
    let mut statistics = BTreeMap::new();
    for (name, value) in names.into_iter().zip(words.into_iter().skip(1)).filter(|(name, _)| !name.is_empty())
    {
        // Some drivers, for example vmxnet3, use one name for the counters of all queues.
        let sum = statistics.entry(name).or_insert(0_u64);
        *sum = sum.wrapping_add(value);
    }
    Ok(statistics)
}

// Keyed by the kernel's names.
pub(crate) fn features(interface: &str) -> io::Result<BTreeMap<String, bool>> {
    let names = names(interface, FEATURES)?;
    let states = feature_states(interface, names.len())?;
    let on = |index: usize| states.is_set(ACTIVE, index);
    let named_features = names.into_iter().enumerate().filter(|(_, name)| !name.is_empty());
    Ok(named_features.map(|(index, name)| (name, on(index))).collect())
}

/// Whether the device can change one of the features with these names.
pub(crate) fn is_feature_changeable(interface: &str, has_name: impl Fn(&str) -> bool) -> io::Result<bool> {
    let names = names(interface, FEATURES)?;
    let states = feature_states(interface, names.len())?;
    let mut selected = names.iter().enumerate().filter(|(_, name)| has_name(name));
    Ok(selected.any(|(index, _)| states.is_set(AVAILABLE, index)))
}

/// Sets the features with these names that the device can change.
pub(crate) fn set_feature(interface: &str, has_name: impl Fn(&str) -> bool, on: bool) -> io::Result<()> {
    let names = names(interface, FEATURES)?;
    let states = feature_states(interface, names.len())?;
    let indices: Vec<usize> =
        names.iter().enumerate().filter(|(_, name)| has_name(name)).map(|(index, _)| index).collect();
    let changeable: Vec<usize> =
        indices.iter().copied().filter(|index| states.is_set(AVAILABLE, *index)).collect();
    if changeable.is_empty() {
        if !indices.is_empty() && indices.iter().all(|index| states.is_set(ACTIVE, *index) == on) {
            return Ok(());
        }
        return Err(ExplainedErrno::error(libc::EOPNOTSUPP, "the device has it fixed"));
    }
    // struct ethtool_sfeatures: the command, the number of blocks, and per block which bits to
    // change and their values.
    let blocks = names.len().div_ceil(32);
    let mut words = vec![0_u32; 2 + 2 * blocks];
    words[0] = SET_FEATURES;
    words[1] = u32::try_from(blocks).map_err(|_| io::ErrorKind::InvalidData)?;
    for index in changeable {
        let (word_index, bit) = (2 + index / 32 * 2, 1 << (index % 32));
        words[word_index] |= bit;
        words[word_index + 1] |= if on { bit } else { 0 };
    }
    // SAFETY: `words` is struct ethtool_sfeatures with as many blocks as it says.
    unsafe { ioctl(interface, words.as_mut_ptr().cast()) }
}

/// Words of struct ethtool_get_features_block, and offsets of the changeable and the active bits.
const BLOCK_WORDS: usize = 4;
const AVAILABLE: usize = 0;
const ACTIVE: usize = 2;

/// struct ethtool_gfeatures.
struct FeatureStates(Vec<u32>);

impl FeatureStates {
    fn is_set(&self, block_word: usize, index: usize) -> bool {
        let word = self.0.get(2 + index / 32 * BLOCK_WORDS + block_word).copied().unwrap_or(0);
        word >> (index % 32) & 1 != 0
    }
}

fn feature_states(interface: &str, count: usize) -> io::Result<FeatureStates> {
    let blocks = count.div_ceil(32);
    let mut words = vec![0_u32; 2 + BLOCK_WORDS * with_room(blocks)];
    words[0] = GET_FEATURES;
    words[1] = u32::try_from(blocks).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: `words` begins as struct ethtool_gfeatures does, and has room for more blocks than it says.
    unsafe { ioctl(interface, words.as_mut_ptr().cast()) }?;
    Ok(FeatureStates(words))
}

/// The names of a set, in the order of their values.
fn names(interface: &str, set: u32) -> io::Result<Vec<String>> {
    let count = names_in_set(interface, set)?;
    let mut bytes = vec![0_u8; 12 + NAME_BYTES * with_room(count)];
    // struct ethtool_gstrings: the command, the set, the number of names, of 32 bits each, and the names.
    let header = [GET_STRINGS, set, u32::try_from(count).map_err(|_| io::ErrorKind::InvalidData)?];
    for (slot, word) in bytes.chunks_exact_mut(4).zip(header) {
        slot.copy_from_slice(&word.to_ne_bytes());
    }
    // SAFETY: `bytes` begins as struct ethtool_gstrings does, whose fields the kernel copies bytewise, and has room for
    // more names than the driver gives.
    unsafe { ioctl(interface, bytes.as_mut_ptr().cast()) }?;
    let name_count = bytes.get(8..12).and_then(|word| word.first_chunk().copied()).map(u32::from_ne_bytes);
    let name_count = name_count.and_then(|name_count| usize::try_from(name_count).ok()).unwrap_or(0);
    let names = bytes.get(12..).unwrap_or_default().chunks_exact(NAME_BYTES).take(name_count);
    // Some drivers indent their names.
    Ok(names.map(|name| text(name).trim().to_owned()).collect())
}

fn names_in_set(interface: &str, set: u32) -> io::Result<usize> {
    // struct ethtool_sset_info: the command, a reserved word, a mask of sets, and one count per
    // set.
    let mut words = [0_u64; 3];
    words[0] = join_words(GET_SET_INFO, 0);
    words[1] = 1 << set;
    // SAFETY: `words` begins as struct ethtool_sset_info does, with room for the count of the one set in its mask.
    unsafe { ioctl(interface, words.as_mut_ptr().cast()) }?;
    // The kernel clears sets that the driver does not have.
    if words[1] == 0 {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    let (count, _) = split_word(words[2]);
    usize::try_from(count).ok().filter(|count| *count <= MOST_NAMES).ok_or(io::ErrorKind::InvalidData.into())
}

/// Two adjacent 32-bit words.
fn join_words(first: u32, second: u32) -> u64 {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first.to_ne_bytes());
    bytes[4..].copy_from_slice(&second.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

fn split_word(word: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]))
}

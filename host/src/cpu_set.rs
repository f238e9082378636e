//! CPU sets in the kernel's notations: lists (`0-4,10`) and masks (`00000003,ffffffff`).

use std::collections::BTreeSet;
use std::fmt;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuSet(BTreeSet<u32>);

// The highest CPU number accepted; the kernel's largest `NR_CPUS` is 8192.
const HIGHEST: u32 = 65_535;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{item}'{} is not {expected}", if item == text { String::new() } else { format!(" in '{text}'") })]
pub struct ParseCpuSetError {
    text: String,
    item: String,
    expected: &'static str,
}

impl CpuSet {
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses a list such as `0-4,10-14`, as in `/sys/devices/system/cpu/online`.
    pub fn from_list(text: &str) -> Result<Self, ParseCpuSetError> {
        let trimmed = text.trim();
        let mut set = BTreeSet::new();
        if trimmed.is_empty() {
            return Ok(Self(set));
        }
        for item in trimmed.split(',') {
            let error = || ParseCpuSetError {
                text: trimmed.to_owned(),
                item: item.to_owned(),
                expected: "a CPU number or a range such as 0-3",
            };
            let number =
                |part: &str| part.parse::<u32>().ok().filter(|cpu| *cpu <= HIGHEST).ok_or_else(error);
            let (first, last) = match item.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(item)?, number(item)?),
            };
            if first > last {
                return Err(error());
            }
            set.extend(first..=last);
        }
        Ok(Self(set))
    }

    /// Parses a mask of comma-separated 32-bit words, most significant first, as in `rps_cpus`.
    pub fn from_mask(text: &str) -> Result<Self, ParseCpuSetError> {
        let trimmed = text.trim();
        let mut set = BTreeSet::new();
        for (index, word) in trimmed.rsplit(',').enumerate() {
            let bits = u32::from_str_radix(word, 16).map_err(|_| ParseCpuSetError {
                text: trimmed.to_owned(),
                item: word.to_owned(),
                expected: "a hexadecimal word of up to 32 bits",
            })?;
            let base = u32::try_from(index).unwrap_or(u32::MAX).saturating_mul(32);
            set.extend((0..32).filter(|bit| bits & (1 << bit) != 0).map(|bit| base.saturating_add(bit)));
        }
        Ok(Self(set))
    }

    /// The set as a mask the kernel accepts: 32-bit words, most significant first.
    pub fn to_mask(&self) -> String {
        let words = self.0.last().map_or(1, |last| last / 32 + 1);
        (0..words)
            .rev()
            .map(|word| {
                let bits =
                    self.0.range(word * 32..(word + 1) * 32).fold(0_u32, |bits, cpu| bits | 1 << (cpu % 32));
                format!("{bits:08x}")
            })
            .collect::<Vec<_>>()
            .join(",")
    }

    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }
}

impl IntoIterator for CpuSet {
    type Item = u32;
    type IntoIter = std::collections::btree_set::IntoIter<u32>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

// As a list, `0-4,10`, because a set of 128 CPUs would be 128 numbers.
impl serde::Serialize for CpuSet {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for CpuSet {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let list = String::deserialize(deserializer)?;
        CpuSet::from_list(&list).map_err(serde::de::Error::custom)
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for cpu in self.iter() {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => ranges.push((cpu, cpu)),
            }
        }
        for (index, (first, last)) in ranges.into_iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            if first == last {
                write!(f, "{first}")?;
            } else {
                write!(f, "{first}-{last}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn kernel_cpu_lists_and_masks_are_parsed() {
        let nodes = CpuSet::from_list("0-4,10-14\n").expect("a list");
        assert_eq!(nodes.len(), 10);
        assert_eq!(nodes.to_string(), "0-4,10-14");
        let mask = CpuSet::from_mask("00000001,00000000,80000001\n").expect("a mask");
        assert_eq!(mask.iter().collect::<Vec<_>>(), [0, 31, 64]);
        assert_eq!(CpuSet::from_mask("f").expect("a short mask").to_string(), "0-3");
        assert!(CpuSet::from_mask("0").expect("an empty mask").is_empty());
    }

    #[test]
    fn invalid_cpu_lists_and_masks_are_rejected() {
        let error = CpuSet::from_list("0-3,x").expect_err("not a list");
        assert_eq!(error.to_string(), "'x' in '0-3,x' is not a CPU number or a range such as 0-3");
        assert!(CpuSet::from_list("3-1").is_err());
        assert!(CpuSet::from_list("0-4294967295").is_err());
        assert!(CpuSet::from_mask("fffffffff").is_err());
    }

    proptest! {
        #[test]
        fn lists_and_masks_round_trip(cpus in proptest::collection::btree_set(0_u32..400, 0..60)) {
            let set: CpuSet = cpus.iter().copied().collect();
            prop_assert_eq!(&CpuSet::from_list(&set.to_string()).expect("own list"), &set);
            prop_assert_eq!(&CpuSet::from_mask(&set.to_mask()).expect("own mask"), &set);
        }
    }
}

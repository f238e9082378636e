//! A table in the layout of the program: one row per CPU, then the sockets that the rows refer to.

use std::collections::BTreeMap;

use super::table::SteeringTable;

/// `struct entry` of bpf/steer.bpf.c: cookie and place. In a CPU's row the cookie is 0 and the
/// place is the index of its first socket entry, with their number in the upper 32 bits.
pub(super) type Entry = [u64; 2];

const NUMBER_SHIFT: u32 = 32;
const FIRST_MASK: u64 = u32::MAX as u64;

// `None` if a CPU is beyond the last row, or a cookie has no place.
pub(super) fn entries(table: &SteeringTable, places: &BTreeMap<u64, u32>, cpus: u32) -> Option<Vec<Entry>> {
    let mut entries = vec![[0; 2]; usize::try_from(cpus).ok()?];
    for (cpu, cookies) in &table.by_cpu {
        let (first, number) = (entries.len() as u64, cookies.len() as u64);
        *entries.get_mut(..cpus as usize)?.get_mut(*cpu as usize)? = [0, first | number << NUMBER_SHIFT];
        for cookie in cookies {
            entries.push([*cookie, u64::from(*places.get(cookie)?)]);
        }
    }
    Some(entries)
}

pub(super) fn table(entries: &[Entry], cpus: u32) -> SteeringTable {
    let mut by_cpu = BTreeMap::new();
    for (cpu, [_, row]) in (0..cpus).zip(entries) {
        let cookies: Vec<u64> = row_entries(entries, *row).iter().map(|[cookie, _]| *cookie).collect();
        if !cookies.is_empty() {
            by_cpu.insert(cpu, cookies);
        }
    }
    SteeringTable { by_cpu, ..SteeringTable::default() }
}

/// Places that the rows refer to, with their intended cookies.
pub(super) fn places(entries: &[Entry], cpus: u32) -> BTreeMap<u32, u64> {
    let rows = entries.iter().take(cpus as usize);
    let sockets = rows.flat_map(|[_, row]| row_entries(entries, *row));
    sockets.filter_map(|[cookie, place]| Some((u32::try_from(*place).ok()?, *cookie))).collect()
}

fn row_entries(entries: &[Entry], row: u64) -> &[Entry] {
    let first = usize::try_from(row & FIRST_MASK).unwrap_or(usize::MAX);
    let number = usize::try_from(row >> NUMBER_SHIFT).unwrap_or(usize::MAX);
    first.checked_add(number).and_then(|end| entries.get(first..end)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn table_with_a_missing_cpu_or_socket_has_no_entries() {
        let table: SteeringTable = "by-cpu 0:41 3:42".parse().expect("a table");
        let places = BTreeMap::from([(41, 0), (42, 1)]);
        assert!(entries(&table, &places, 4).is_some());
        assert!(
            entries(&table, &places, 3).is_none() && entries(&table, &BTreeMap::from([(41, 0)]), 4).is_none()
        );
        assert_eq!(super::table(&[[0, u64::MAX]], 1), SteeringTable::default(), "a row beyond the end");
    }

    proptest! {
        #[test]
        fn steering_tables_round_trip_through_map_entries(
            by_cpu in proptest::collection::btree_map(
                0_u32..16, proptest::collection::vec(1_u64..40, 1..5), 1..8),
        ) {
            let original = SteeringTable { by_cpu, ..SteeringTable::default() };
            let cookies: std::collections::BTreeSet<u64> = original.by_cpu.values().flatten().copied().collect();
            let places: BTreeMap<u64, u32> = cookies.into_iter().zip(0..).collect();
            let entries = entries(&original, &places, 16).expect("all entries");
            prop_assert_eq!(table(&entries, 16), original);
            let places_of_entries: BTreeMap<u64, u32> = super::places(&entries, 16).into_iter().map(|(p, c)| (c, p)).collect();
            prop_assert_eq!(places_of_entries, places);
        }
    }
}

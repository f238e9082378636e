use super::*;
use proptest::prelude::*;

/// BTF with an int, a structure of one member, and the enum, in the kernel's layout.
fn btf(enumeration: &str) -> Vec<u8> {
    let names =
        ["", "int", "sk_buff", "len", enumeration, "SKB_NOT_DROPPED_YET", "SKB_DROP_REASON_NO_SOCKET"];
    let mut offsets = Vec::new();
    let mut strings = Vec::new();
    for name in names {
        offsets.push(u32::try_from(strings.len()).unwrap());
        strings.extend(name.bytes().chain([0]));
    }
    let words = [
        offsets[1],
        1 << 24,
        4,
        32, // int
        offsets[2],
        4 << 24 | 1,
        4,
        offsets[3],
        1,
        0, // structure of one member
        offsets[4],
        6 << 24 | 2,
        4,
        offsets[5],
        0,
        offsets[6],
        3, // enum of two
    ];
    let types: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
    let (types_length, strings_length) =
        (u32::try_from(types.len()).unwrap(), u32::try_from(strings.len()).unwrap());
    let mut bytes = MAGIC.to_ne_bytes().to_vec();
    bytes.extend([1, 0]);
    bytes.extend([24, 0, types_length, types_length, strings_length].into_iter().flat_map(u32::to_ne_bytes));
    bytes.extend(types);
    bytes.extend(strings);
    bytes
}

#[test]
fn drop_reason_names_are_read_from_btf() {
    let names = names(&btf("skb_drop_reason")).unwrap();
    assert_eq!(names, BTreeMap::from([(0, "NOT_DROPPED_YET".to_owned()), (3, "NO_SOCKET".to_owned())]));
}

#[test]
fn btf_without_drop_reasons_has_no_names() {
    assert_eq!(names(&btf("zone_type")), None);
    assert_eq!(names(b""), None);
    assert_eq!(names(b"\x7fELF"), None);
}

proptest! {
    #[test]
    fn truncated_or_corrupted_btf_never_panics(at in 0_usize..200, value: u8, length in 0_usize..200) {
        let mut bytes = btf("skb_drop_reason");
        if let Some(byte) = bytes.get_mut(at) {
            *byte = value;
        }
        bytes.truncate(length);
        drop(names(&bytes));
    }
}

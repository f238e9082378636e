//! Selects the requests for each fault.

/// The interval of each fault, in requests. A fault counts the requests that the faults before it
/// left intact.
#[derive(Debug, Clone, Default)]
pub(crate) struct FaultRates {
    pub(crate) drop: FaultCounter,
    pub(crate) corrupt: FaultCounter,
    pub(crate) duplicate: FaultCounter,
}

/// Selects every n-th request.
#[derive(Debug, Clone, Default)]
pub(crate) struct FaultCounter {
    nth: Option<u64>,
    count: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestFate {
    Drop,
    Corrupt,
    Answer { twice: bool },
}

impl FaultRates {
    pub(crate) fn next(&mut self) -> RequestFate {
        if self.drop.is_due() {
            RequestFate::Drop
        } else if self.corrupt.is_due() {
            RequestFate::Corrupt
        } else {
            RequestFate::Answer { twice: self.duplicate.is_due() }
        }
    }
}

impl FaultCounter {
    pub(crate) fn nth(nth: u64) -> Self {
        assert!(nth > 0, "every 0th request");
        FaultCounter { nth: Some(nth), count: 0 }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.nth.is_some()
    }

    pub(crate) fn is_due(&mut self) -> bool {
        let Some(nth) = self.nth else { return false };
        self.count += 1;
        if self.count < nth {
            return false;
        }
        self.count = 0;
        true
    }
}

/// Changes one byte; `number` selects its position. An empty payload gets one byte.
pub(crate) fn damage(bytes: &mut Vec<u8>, number: u64) {
    if bytes.is_empty() {
        bytes.push(0);
    } else {
        let index = (number % bytes.len() as u64) as usize;
        bytes[index] ^= 0x20;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_always_changes_the_payload() {
        for (length, number) in (0..5).flat_map(|length| (0..12).map(move |number| (length, number))) {
            let mut after = vec![7; length];
            damage(&mut after, number);
            assert_eq!(after.len(), length.max(1));
            let changed: Vec<usize> = (0..after.len()).filter(|at| after[*at] != 7).collect();
            assert_eq!(changed, [number as usize % length.max(1)], "{length}");
        }
    }
}

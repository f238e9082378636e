//! The queue and the interface of a vector, derived from the name that the driver gave it.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServedQueues {
    Receive(u32),
    Transmit(u32),
    Both(u32),
    /// A block of gve: the lower half serves transmit queues, the upper half receive queues
    /// (drivers/net/ethernet/google/gve/gve.h, `gve_rx_idx_to_ntfy`).
    Block(u32),
    /// The whole interface.
    Whole,
    /// No queue: link changes, mailboxes, flow director.
    None,
}

/// Names by which to recognize the vectors of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VectorNames<'a> {
    pub interface: &'a str,
    /// The name on its bus: `virtio2`, `0000:81:00.0`; `None` without a device.
    pub device: Option<&'a str>,
}

impl VectorNames<'_> {
    pub(crate) fn owns_any(&self, name: &str) -> bool {
        name.split(", ").any(|part| self.owns(part.trim()))
    }

    pub(crate) fn names_interface(&self, name: &str) -> bool {
        contains_word(name, self.interface)
    }

    fn owns(&self, name: &str) -> bool {
        let by_device = self.device.is_some_and(|device| {
            // virtio2-input.0; mlx5_comp3@pci:0000:81:00.0, mlx4-1@0000:04:00.0; hns3-0000:7d:00.0-TxRx-0
            contains_word(name, device)
        });
        by_device || contains_word(name, self.interface)
    }

    pub(crate) fn served_queues(&self, name: &str) -> ServedQueues {
        let vector_name =
            name.split(", ").map(str::trim).find(|vector_name| self.owns(vector_name)).unwrap_or(name);
        if vector_name == self.interface || Some(vector_name) == self.device {
            return ServedQueues::Whole;
        }
        let (vector_name, _) = vector_name.split_once('@').unwrap_or((vector_name, ""));
        let mut pattern: String = vector_name.to_ascii_lowercase();
        for own_name in
            [Some(self.interface), self.device].into_iter().flatten().filter(|own_name| !own_name.is_empty())
        {
            pattern = pattern.replace(&own_name.to_ascii_lowercase(), " \u{1} ");
        }
        classify_words(&split_words(&pattern))
    }
}

/// Whether `text` contains `word` as a whole word.
pub(crate) fn contains_word(text: &str, word: &str) -> bool {
    let is_name_char = |letter: char| letter.is_ascii_alphanumeric();
    !word.is_empty()
        && text.match_indices(word).any(|(start, _)| {
            let before = text.get(..start).and_then(|before| before.chars().next_back());
            let after = text.get(start + word.len()..).and_then(|after| after.chars().next());
            !before.is_some_and(is_name_char) && !after.is_some_and(is_name_char)
        })
}

/// Splits letters from digits: `mlx5_comp3` is `mlx`, `5`, `comp`, `3`.
fn split_words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for part in text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '\u{1}') {
        let mut remaining = part;
        while let Some(first) = remaining.chars().next() {
            let is_digits = first.is_ascii_digit();
            let end = remaining
                .find(|letter: char| letter.is_ascii_digit() != is_digits)
                .unwrap_or(remaining.len());
            let (word, tail) = remaining.split_at(end);
            words.push(word);
            remaining = tail;
        }
    }
    words
}

fn classify_words(words: &[&str]) -> ServedQueues {
    let number = |word: &&str| word.parse::<u32>().ok();
    match words {
        // i40e's vector of the flow director polls its own queue.
        _ if words.contains(&"fdir") => ServedQueues::None,
        // All queues of a virtio device on one vector (drivers/virtio/virtio_pci_common.c).
        [.., "virtqueues"] => ServedQueues::Whole,
        // mlx4-2, a completion queue of mlx4.
        ["mlx", "4", queue] => number(queue).map_or(ServedQueues::None, ServedQueues::Both),
        // Xen: eth0-q0-rx (drivers/net/xen-netfront.c)
        [.., "q", queue, "rx"] => number(queue).map_or(ServedQueues::None, ServedQueues::Receive),
        [.., "q", queue, "tx"] => number(queue).map_or(ServedQueues::None, ServedQueues::Transmit),
        [.., "tx", "rx", queue] | [.., "rx", "tx", queue] => {
            number(queue).map_or(ServedQueues::None, ServedQueues::Both)
        }
        [.., "blk" | "block", queue] => number(queue).map_or(ServedQueues::None, ServedQueues::Block),
        [.., word, queue] => match (*word, number(queue)) {
            ("txrx" | "rxtx" | "comp" | "fp" | "q" | "queue" | "\u{1}", Some(queue)) => {
                ServedQueues::Both(queue)
            }
            ("rx" | "input", Some(queue)) => ServedQueues::Receive(queue),
            ("tx" | "output", Some(queue)) => ServedQueues::Transmit(queue),
            _ => ServedQueues::None,
        },
        _ => ServedQueues::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names from the `request_irq` calls of each driver in Linux 6.18.
    #[test]
    fn queues_are_parsed_from_the_vector_names_of_each_driver() {
        let eth0 = |device| VectorNames { interface: "eth0", device };
        for (names, vector, expected) in [
            (eth0(None), "eth0-TxRx-3", ServedQueues::Both(3)), // ixgbe, igb, igc, bnxt_en, hns3
            (eth0(None), "i40e-eth0-TxRx-12", ServedQueues::Both(12)), // i40e
            (eth0(None), "ice-eth0-TxRx-0", ServedQueues::Both(0)), // ice
            (eth0(None), "iavf-eth0-TxRx-7", ServedQueues::Both(7)), // iavf
            (eth0(None), "eth0-Tx-Rx-5", ServedQueues::Both(5)), // ena
            (eth0(None), "eth0-rxtx-1", ServedQueues::Both(1)), // vmxnet3, nfp
            (eth0(None), "bnxt: eth0-TxRx-1", ServedQueues::Both(1)),
            (eth0(None), "eth0-rx-2", ServedQueues::Receive(2)), // enic, e1000e, sfc
            (eth0(None), "eth0-tx-2", ServedQueues::Transmit(2)),
            (eth0(None), "eth0-fp-4", ServedQueues::Both(4)), // bnx2x
            (eth0(None), "eth0-q2", ServedQueues::Both(2)),   // be2net
            (eth0(None), "eth0 (queue 3)", ServedQueues::Both(3)), // cxgb4
            (eth0(None), "eth0-9", ServedQueues::Both(9)),    // sfc, bnx2, atlantic
            (eth0(None), "eth0-q1-rx", ServedQueues::Receive(1)), // xen-netfront
            (eth0(None), "eth0-q1-tx", ServedQueues::Transmit(1)),
            (eth0(None), "eth0", ServedQueues::Whole), // e1000e, r8169
            (eth0(None), "i801_smbus, eth0", ServedQueues::Whole),
            (eth0(None), "eth0:lsc", ServedQueues::None),
            (eth0(None), "i40e-eth0:fdir-TxRx-0", ServedQueues::None),
            (eth0(Some("virtio2")), "virtio2-input.0", ServedQueues::Receive(0)),
            (eth0(Some("virtio2")), "virtio2-output.3", ServedQueues::Transmit(3)),
            (eth0(Some("virtio2")), "virtio2-config", ServedQueues::None),
            (eth0(Some("virtio2")), "virtio2-virtqueues", ServedQueues::Whole),
            (eth0(Some("virtio2")), "virtio2", ServedQueues::Whole),
            (eth0(Some("0000:81:00.0")), "mlx5_comp3@pci:0000:81:00.0", ServedQueues::Both(3)),
            (eth0(Some("0000:81:00.0")), "mlx5_async0@pci:0000:81:00.0", ServedQueues::None),
            (eth0(Some("0000:81:00.0")), "mlx5_ctrl_0@pci:0000:81:00.0", ServedQueues::None),
            (eth0(Some("0000:04:00.0")), "mlx4-2@0000:04:00.0", ServedQueues::Both(2)),
            (eth0(Some("0000:00:04.0")), "gve-ntfy-blk5@pci:0000:00:04.0", ServedQueues::Block(5)),
            (eth0(Some("0000:00:04.0")), "eth0-ntfy-block.5", ServedQueues::Block(5)),
            (eth0(Some("0000:00:04.0")), "gve-mgmnt@pci:0000:00:04.0", ServedQueues::None),
            (eth0(Some("0000:7d:00.0")), "hns3-0000:7d:00.0-TxRx-6", ServedQueues::Both(6)),
            (eth0(Some("0000:7d:00.0")), "mana_q4@pci:0000:7d:00.0", ServedQueues::Both(4)),
        ] {
            assert!(names.owns_any(vector), "{vector}");
            assert_eq!(names.served_queues(vector), expected, "{vector}");
        }
    }

    #[test]
    fn vectors_of_similar_interface_names_are_not_matched() {
        let names = VectorNames { interface: "eth1", device: Some("virtio1") };
        for vector in ["eth10-TxRx-0", "veth1-rx-0", "virtio12-input.0", "xvirtio1-input.0", "", "ahci"] {
            assert!(!names.owns_any(vector), "{vector}");
        }
        assert!(!VectorNames { interface: "", device: None }.owns_any("eth0"));
    }

    #[test]
    fn digits_in_the_interface_name_are_not_a_queue_number() {
        let names = VectorNames { interface: "ens1f0np0", device: None };
        assert_eq!(names.served_queues("ens1f0np0-TxRx-11"), ServedQueues::Both(11));
        assert_eq!(names.served_queues("ens1f0np0:misc"), ServedQueues::None);
    }
}

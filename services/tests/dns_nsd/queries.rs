//! Random queries from a seed: for existing names, for missing names, and malformed queries.

use fastrand::Rng;

const TYPES: &[u16] = &[
    1, 1, 1, 1, 28, 28, 28, 2, 2, 5, 5, 6, 12, 15, 15, 16, 16, 33, 35, 39, 43, 43, 44, 46, 47, 48, 50, 52,
    99, 251, 252, 253, 255, 255, 256, 257, 13, 65400, 41, 0,
];
const PLAIN_TYPES: &[u16] = &[
    1, 1, 1, 1, 28, 28, 28, 2, 2, 5, 6, 12, 15, 15, 16, 16, 18, 29, 33, 35, 37, 43, 53, 64, 65, 255, 256,
    257, 65400,
];
const SIZES: &[u16] = &[0, 100, 512, 513, 600, 800, 1000, 1200, 1231, 1232, 1233, 1400, 4096, 65535];
const LABELS: &[&str] = &["a", "nothing", "*", "www", "x-y_z", "ns", "under", "\u{1}\u{2}.\\", "UPPER", "0"];

pub(crate) struct QueryGenerator {
    random: Rng,
    names: Vec<String>,
}

impl QueryGenerator {
    pub(crate) fn new(seed: u64, names: Vec<String>) -> Self {
        Self { random: Rng::with_seed(seed), names }
    }

    fn percent(&mut self, share: u32) -> bool {
        self.random.u32(0..100) < share
    }

    fn choose<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.random.usize(0..all.len())]
    }

    /// A name in wire format, partly with random letter case.
    fn name(&mut self) -> Vec<u8> {
        let mut labels: Vec<Vec<u8>> = {
            let name = &self.names[self.random.usize(0..self.names.len())];
            name.split('.').filter(|label| !label.is_empty()).map(|label| label.as_bytes().to_vec()).collect()
        };
        match self.random.u32(0..10) {
            0 | 1 => {
                for _ in 0..self.random.usize(1..4) {
                    let label = self.choose(LABELS).as_bytes().to_vec();
                    labels.insert(0, label);
                }
            }
            2 => {
                let length = self.random.usize(1..64);
                labels.insert(0, (0..length).map(|_| self.random.u8(..)).collect());
            }
            3 if !labels.is_empty() => {
                labels.remove(0);
            }
            4 if !labels.is_empty() => {
                let at = self.random.usize(0..labels.len());
                labels[at] = self.choose(LABELS).as_bytes().to_vec();
            }
            _ => {}
        }
        let mut wire = Vec::new();
        for label in labels {
            wire.push(label.len() as u8);
            wire.extend_from_slice(&label);
        }
        wire.push(0);
        if self.percent(40) {
            let random = &mut self.random;
            let mut at = 0;
            while wire[at] != 0 {
                let end = at + 1 + usize::from(wire[at]);
                for byte in &mut wire[at + 1..end] {
                    if byte.is_ascii_alphabetic() && random.bool() {
                        *byte ^= 0x20;
                    }
                }
                at = end;
            }
        }
        wire
    }

    fn options(&mut self) -> Vec<u8> {
        let size = if self.percent(80) { self.choose(SIZES) } else { self.random.u16(..) };
        let version = if self.percent(4) { self.random.u8(1..) } else { 0 };
        let mut flags = if self.percent(30) { 0x8000u16 } else { 0 };
        if self.percent(3) {
            flags |= self.random.u16(..0x8000);
        }
        let mut data = Vec::new();
        while self.percent(25) {
            // No DNS cookies (option 10), because NSD answers them with its own secret if it is
            // configured to.
            let code = self.choose(&[3u16, 8, 11, 12, 15, 65001]);
            let length = self.random.u16(0..40);
            data.extend_from_slice(&code.to_be_bytes());
            data.extend_from_slice(&length.to_be_bytes());
            data.extend((0..length).map(|_| self.random.u8(..)));
        }
        if self.percent(2) {
            data.push(0);
        }
        let mut length = data.len() as u16;
        if self.percent(2) {
            length = self.random.u16(..);
        }
        let mut record = vec![0, 0, 41];
        record.extend_from_slice(&size.to_be_bytes());
        record.extend_from_slice(&[if self.percent(3) { 7 } else { 0 }, version]);
        record.extend_from_slice(&flags.to_be_bytes());
        record.extend_from_slice(&length.to_be_bytes());
        record.extend_from_slice(&data);
        record
    }

    pub(crate) fn next(&mut self) -> Vec<u8> {
        let mut flags = if self.percent(50) { 0x0100u16 } else { 0 };
        if self.percent(10) {
            flags |= self.random.u16(..) & 0x07f0;
        }
        if self.percent(2) {
            flags |= self.random.u16(1..16) << 11;
        }
        if self.percent(1) {
            flags |= self.random.u16(1..16);
        }
        if self.random.u32(0..200) == 0 {
            flags |= 0x8000;
        }
        let class = match self.random.u32(0..40) {
            0 | 1 => 255,
            2 => 3,
            3 => 4,
            4 => self.random.u16(..),
            _ => 1,
        };
        let qtype = if self.percent(97) { self.choose(TYPES) } else { self.random.u16(..) };
        let mut question = if class == 3 && self.percent(60) { self.identity() } else { self.name() };
        question.extend_from_slice(&qtype.to_be_bytes());
        question.extend_from_slice(&class.to_be_bytes());
        let mut message = self.random.u16(..).to_be_bytes().to_vec();
        message.extend_from_slice(&flags.to_be_bytes());
        message.extend_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0]);
        message.extend_from_slice(&question);
        if self.percent(55) {
            message[11] = 1;
            let options = self.options();
            message.extend_from_slice(&options);
        }
        if self.percent(8) { self.damaged_message(message, &question) } else { message }
    }

    /// A well-formed query, like those of resolvers: class IN, with or without EDNS.
    pub(crate) fn plain(&mut self) -> Vec<u8> {
        let mut message = self.random.u16(..).to_be_bytes().to_vec();
        message.extend_from_slice(&[self.random.u8(..2), 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        message.extend_from_slice(&self.name());
        message.extend_from_slice(&self.choose(PLAIN_TYPES).to_be_bytes());
        message.extend_from_slice(&[0, 1]);
        if self.percent(70) {
            message[11] = 1;
            message.extend_from_slice(&[0, 0, 41]);
            message.extend_from_slice(&self.choose(SIZES).to_be_bytes());
            message.extend_from_slice(&[0; 6]);
        }
        message
    }

    fn identity(&mut self) -> Vec<u8> {
        let names: &[&[u8]] = &[
            b"\x02id\x06server\0",
            b"\x08HOSTname\x04bind\0",
            b"\x07version\x06server\0",
            b"\x07version\x04bind\0",
        ];
        self.choose(names).to_vec()
    }

    fn damaged_message(&mut self, mut message: Vec<u8>, question: &[u8]) -> Vec<u8> {
        match self.random.u32(0..14) {
            0 => message.truncate(self.random.usize(0..message.len())),
            1 => message.truncate(self.random.usize(12..message.len())),
            2 => {
                let more = self.random.usize(1..60);
                message.extend((0..more).map(|_| self.random.u8(..)));
            }
            // Length bytes that are no label length: reserved types and compression pointers.
            3 => message[12] = self.choose(&[0x40, 0x80, 0xbf, 0xc0, 0xff]),
            // Compression pointers to themselves, to each other, forward, and to the header.
            4 => {
                let pointer: [u8; 2] = self.choose(&[[0xc0, 12], [0xc0, 14], [0xc0, 0], [0xff, 0xff]]);
                message.splice(12..12, [pointer, [0xc0, 12]].concat());
            }
            5 => {
                message[5] = 2;
                message.splice(12..12, question.iter().copied());
            }
            6 => message[5] = self.choose(&[0, 2, 3]),
            // Only an OPT record, without a question.
            7 => {
                message[5] = 0;
                message[11] = 1;
                message.truncate(12);
                let options = self.options();
                message.extend_from_slice(&options);
            }
            8 => {
                let at = self.choose(&[7usize, 9]);
                message[at] = self.random.u8(1..3);
            }
            9 => message[11] = self.random.u8(..),
            // An A record in a section after the question.
            10 => {
                let at = self.choose(&[7usize, 9, 11]);
                message[at] += 1;
                message.extend_from_slice(b"\xc0\x0c\0\x01\0\x01\0\0\0\x01\0\x04\x01\x02\x03\x04");
            }
            // One more OPT record.
            11 => {
                message[11] += 1;
                let options = self.options();
                message.extend_from_slice(&options);
            }
            // A name close to the limit of 255 bytes, or longer.
            12 => {
                let labels = self.random.usize(3..6);
                let mut name: Vec<u8> = Vec::new();
                for _ in 0..labels {
                    name.push(63);
                    name.extend_from_slice(&[b'l'; 63]);
                }
                message.splice(12..12, name);
            }
            _ => {
                for _ in 0..self.random.usize(1..4) {
                    let at = self.random.usize(2..message.len());
                    message[at] ^= 1 << self.random.u32(0..8);
                }
            }
        }
        message
    }
}

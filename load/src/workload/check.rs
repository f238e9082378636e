//! Whether the parts of an exchange fit together.

use super::{EchoedTag, PreparedExchange, RequestOrder};
use crate::error::{GeneratorError, invalid};

impl PreparedExchange {
    pub(super) fn check(&self) -> Result<(), GeneratorError> {
        match self.problem() {
            Some(problem) => invalid(format!("workload {}: {problem}", self.protocol)),
            None => Ok(()),
        }
    }

    fn problem(&self) -> Option<String> {
        if self.requests.is_empty() {
            return Some("no request: give at least one".to_owned());
        }
        // A single request may be empty: any reply answers it.
        if self.requests.len() > 1
            && let Some(number) = self.requests.iter().position(Vec::is_empty)
        {
            return Some(format!("request {number} is empty: give it at least one byte"));
        }
        let reply_bytes = self.reply_bytes_read();
        if reply_bytes > self.shortest_reply_bytes {
            return Some(format!(
                "replies of {} bytes are taken, but {reply_bytes} have to be read",
                self.shortest_reply_bytes
            ));
        }
        if self.verify.is_some() && self.order != RequestOrder::ByTag {
            return Some("replies can be verified only if their tag identifies the request".to_owned());
        }
        match (self.tag, self.order) {
            (Some(tag), order) => self.tag_problem(tag, order),
            (None, RequestOrder::ByTag) => Some("requests in the order of their tag need a tag".to_owned()),
            (None, RequestOrder::InTurn) => None,
        }
    }

    fn reply_bytes_read(&self) -> usize {
        let marks = self.marks.iter().map(|mark| mark.offset + 1);
        let code = self.code.iter().map(|code| code.offset + 1);
        let tag = self.tag.iter().map(|tag| tag.reply_offset + tag.bytes);
        marks.chain(code).chain(tag).max().unwrap_or(0)
    }

    fn tag_problem(&self, tag: EchoedTag, order: RequestOrder) -> Option<String> {
        if !matches!(tag.bytes, 1 | 2 | 4 | 8) {
            return Some(format!("a tag of {} bytes: it has 1, 2, 4 or 8", tag.bytes));
        }
        let min_length = tag.request_offset + tag.bytes;
        if let Some(number) = self.requests.iter().position(|request| request.len() < min_length) {
            let length = self.requests[number].len();
            return Some(format!("request {number} has {length} bytes, too few for a tag of {tag}"));
        }
        if order == RequestOrder::InTurn {
            return None;
        }
        let count = self.requests.len() as u64;
        let mask = tag.mask();
        if !count.is_power_of_two() || count <= mask {
            return Some(format!(
                "{count} requests in the order of their tag: the number must be a power of two over {mask}"
            ));
        }
        let request_tag = EchoedTag { reply_offset: tag.request_offset, ..tag };
        let mismatch = (0..count)
            .zip(&self.requests)
            .find(|(number, bytes)| request_tag.read(bytes) != Some(number & mask));
        mismatch.map(|(number, _)| format!("request {number} does not have its number as its tag"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::ReplyMark;

    fn exchange(requests: Vec<Vec<u8>>, tag: Option<EchoedTag>) -> PreparedExchange {
        PreparedExchange {
            protocol: "raw",
            requests,
            order: RequestOrder::InTurn,
            tag,
            marks: Vec::new(),
            shortest_reply_bytes: 2,
            code: None,
            verify: None,
            notes: Vec::new(),
        }
    }

    const TAG: EchoedTag = EchoedTag { bytes: 1, request_offset: 0, reply_offset: 0 };

    #[test]
    fn problem_names_the_invalid_part_of_an_exchange() {
        assert_eq!(exchange(vec![vec![1]], None).problem(), None);
        assert_eq!(exchange(vec![vec![1]], Some(TAG)).problem(), None);
        let assert_problem = |exchange: PreparedExchange, text: &str| {
            let problem = exchange.problem().expect(text);
            assert!(problem.contains(text), "{problem}");
        };
        assert_problem(exchange(vec![], None), "no request");
        assert_problem(exchange(vec![vec![1], vec![]], None), "request 1 is empty");
        assert_problem(exchange(vec![vec![1]], Some(EchoedTag { bytes: 2, ..TAG })), "request 0 has 1 bytes");
        assert_problem(
            exchange(vec![vec![1; 9]], Some(EchoedTag { bytes: 3, reply_offset: 0, ..TAG })),
            "replies of 2 bytes",
        );
        let mark = ReplyMark { offset: 2, mask: 1, value: 1 };
        assert_problem(
            PreparedExchange { marks: vec![mark], ..exchange(vec![vec![1]], None) },
            "3 have to be read",
        );
        assert_problem(
            PreparedExchange { order: RequestOrder::ByTag, ..exchange(vec![vec![1]], None) },
            "need a tag",
        );
        assert_problem(
            PreparedExchange { order: RequestOrder::ByTag, ..exchange(vec![vec![0]], Some(TAG)) },
            "power of two over 255",
        );
    }

    #[test]
    fn requests_ordered_by_tag_require_consecutive_tags() {
        let mut requests: Vec<Vec<u8>> = (0..512u32).map(|number| vec![number as u8]).collect();
        let by_tag =
            |requests| PreparedExchange { order: RequestOrder::ByTag, ..exchange(requests, Some(TAG)) };
        assert_eq!(by_tag(requests.clone()).problem(), None);
        requests[300][0] ^= 1;
        assert!(by_tag(requests).problem().unwrap().contains("request 300"));
    }
}

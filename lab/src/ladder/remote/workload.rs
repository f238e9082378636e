//! The workload on its way to the generator on another host, before the first order.

use std::io::{self, Read, Write};

use linerate_load::workload::WorkloadContents;
use serde::{Deserialize, Serialize};

/// The longest first line.
const LONGEST_HEAD: usize = 8192;
const LARGEST_FILE: usize = 256 << 20;

/// The first line. The bytes of the file follow.
#[derive(Debug, Serialize, Deserialize)]
struct WorkloadHead {
    workload: String,
    bytes: usize,
}

// Sent over the connection and not in the command, where every user of the host could read a
// secret.
pub(super) fn send(workload: &WorkloadContents, output: &mut impl Write) -> io::Result<()> {
    let head = WorkloadHead { workload: workload.source.to_string(), bytes: workload.bytes.len() };
    let mut line = serde_json::to_vec(&head)?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.write_all(&workload.bytes)?;
    output.flush()
}

/// Reads a workload, and not a byte more, because orders follow.
pub fn receive_workload(input: &mut impl Read) -> io::Result<WorkloadContents> {
    let mut line = Vec::new();
    let mut byte = [0];
    while byte != *b"\n" {
        input.read_exact(&mut byte)?;
        line.push(byte[0]);
        if line.len() > LONGEST_HEAD {
            return Err(io::Error::other(format!("no workload within {LONGEST_HEAD} bytes")));
        }
    }
    let head: WorkloadHead = serde_json::from_slice(&line)?;
    let source = head.workload.parse().map_err(|why: String| io::Error::other(why))?;
    if head.bytes > LARGEST_FILE {
        return Err(io::Error::other(format!("a workload of {} bytes", head.bytes)));
    }
    let mut bytes = vec![0; head.bytes];
    input.read_exact(&mut bytes)?;
    Ok(WorkloadContents { source, bytes })
}

#[cfg(test)]
mod tests {
    use linerate_load::workload::WorkloadSource;

    use super::*;

    #[test]
    fn receive_workload_reads_exactly_one_workload() {
        let source = WorkloadSource::Dns("queries".to_owned());
        let workload = WorkloadContents { source, bytes: b"www.example A\n".to_vec() };
        let mut connection = Vec::new();
        send(&workload, &mut connection).expect("written");
        connection.extend(b"{\"order\":\"stop\"}\n");
        let mut input = connection.as_slice();
        let received_workload = receive_workload(&mut input).expect("read");
        assert_eq!((received_workload, input), (workload, &b"{\"order\":\"stop\"}\n"[..]));
        for odd in ["", "{\"order\":\"stop\"}\n", "{\"workload\":\"ntp\",\"bytes\":9}\nshort"] {
            assert!(receive_workload(&mut odd.as_bytes()).is_err(), "{odd}");
        }
    }
}

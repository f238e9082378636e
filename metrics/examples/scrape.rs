//! What a scrape takes of a CPU: of a machine of 128 CPUs and four NICs of 64 queues, read from memory, and of this one.

use linerate_host::recording::Entry;
use linerate_host::{Host, Recording};
use linerate_metrics::{Exporter, Format, Options, text};
use linerate_specimen::{Node, many};

/// How often; the middle counts.
const REPEATS: usize = 9;

fn main() {
    let mut recording = Recording::new();
    for (path, node) in many(128, 4, 64).trees()[0].followed().entries() {
        let entry = match node {
            Node::File(content) => Entry::File(content.clone().into_bytes()),
            Node::Link(target) => Entry::Link(target.clone()),
        };
        recording.insert(path, entry);
    }
    measure("128 CPUs, 4 NICs of 64 queues, from memory", Host::recorded(recording));
    measure("this machine", Host::live());
}

fn measure(name: &str, host: Host) {
    let mut exporter = Exporter::new(host, &Options::default());
    let mut lengths = (0, 0);
    let mut times: Vec<f64> = (0..REPEATS)
        .map(|_| {
            let begin = cpu_seconds();
            let exposition = exporter.scrape();
            let text = text::write(&exposition, Format::OpenMetrics);
            lengths = (exposition.families.iter().map(|(_, rows)| rows.len()).sum::<usize>(), text.len());
            cpu_seconds() - begin
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let (series, bytes) = lengths;
    println!("{name}: {:.1} ms of a CPU a scrape, {series} series, {bytes} bytes", times[REPEATS / 2] * 1e3);
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

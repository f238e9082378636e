use super::*;
use crate::Scope;
use crate::recording::{RecordedFailure, RecordedResult};
use std::io::Write;

use flate2::write::GzEncoder;

fn recording() -> HostRecording {
    let host = Host::scripted([
        ("/proc/uptime", "12.5 3.0\n"),
        ("/sys/class/net/eth0/mtu", "1500\n"),
        ("/calls/ethtool/eth0/rings.json", r#"{"errno": 95}"#),
    ]);
    let host = host.recording();
    let _ = host.read("/proc/uptime");
    let _ = host.read("/proc/no-such-file");
    let _ = host.read("/sys/class/net/eth0/mtu");
    let _ = host.read("/calls/ethtool/eth0/rings.json");
    let _ = host.list("/sys/class/net");
    let _ = host.list("/sys/no-such-directory");
    let mut recording = host.into_recording();
    recording
        .files
        .insert("/proc/1/io".into(), RecordedResult::Failed(RecordedFailure::Errno { errno: libc::EACCES }));
    recording
        .directories
        .insert("/proc".into(), RecordedResult::Read(vec!["1".into(), "2".into(), "uptime".into()]));
    recording.directories.insert("/proc/irq".into(), RecordedResult::Read(Vec::new()));
    recording
        .links
        .insert("/sys/class/net/eth0/device".into(), RecordedResult::Read("../../0000:01:00.0".into()));
    recording.insert_file("/sys/class/net/eth0/device/numa_node", "0\n");
    recording
        .links
        .insert("/proc/1/exe".into(), RecordedResult::Failed(RecordedFailure::Text { error: "no".into() }));
    recording
}

fn capture_info() -> CaptureInfo {
    CaptureInfo {
        schema: SCHEMA.to_owned(),
        version: "0.1.0".to_owned(),
        unix_seconds: Some(1_700_000_000),
        kernel: Some("6.18.0".to_owned()),
        host_name: None,
        anonymous: false,
        scope: Scope { port: Some(53), ..Scope::default() },
        readings: Vec::new(),
    }
}

fn archive_bytes(readings: &[HostRecording]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes, &capture_info(), readings).expect("written");
    bytes
}

fn read_results(host: &Host) -> Vec<String> {
    let mut results = Vec::new();
    for path in [
        "/proc/uptime",
        "/proc/no-such-file",
        "/proc/1/io",
        "/sys/class/net/eth0/mtu",
        "/sys/class/net/eth0/device/numa_node",
        "/calls/ethtool/eth0/rings.json",
    ] {
        results.push(format!("{:?}", host.read(path).map_err(|error| error.to_string())));
    }
    for path in ["/proc", "/proc/irq", "/sys/class/net", "/sys/no-such-directory", "/sys/class/net/eth0"] {
        results.push(format!("{:?}", host.list(path).map_err(|error| error.to_string())));
    }
    for path in ["/sys/class/net/eth0/device", "/proc/1/exe", "/proc/2/exe"] {
        results.push(format!("{:?}", host.read_link(path).map_err(|error| error.to_string())));
    }
    results
}

/// The archive as a file, and unpacked in a directory; both are in the temporary directory.
fn opened(bytes: &[u8]) -> (tempfile::TempDir, [OpenedCapture; 2]) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("x.tar.gz");
    std::fs::write(&file, bytes).expect("written");
    let unpacked = directory.path().join("x");
    tar::Archive::new(flate2::read::GzDecoder::new(bytes)).unpack(&unpacked).expect("unpacked");
    let captures = [file, unpacked].map(|path| OpenedCapture::open(&path).expect("opened"));
    (directory, captures)
}

#[test]
fn opened_archive_reads_the_same_as_its_recordings() {
    let mut later = recording();
    later.insert_file("/proc/uptime", "13.5 3.0\n");
    let (_directory, captures) = opened(&archive_bytes(&[recording(), later.clone()]));
    for capture in captures {
        assert_eq!(read_results(&capture.first), read_results(&Host::recorded(recording())));
        let second = capture.later.expect("two readings");
        assert_eq!(read_results(&second), read_results(&Host::recorded(later.clone())));
        let about = capture.about.expect("capture info");
        assert_eq!((about.scope.port, about.readings.len()), (Some(53), 2));
    }
}

#[test]
fn answers_and_lists_of_large_hosts_are_read_completely() {
    // More than 16 MiB of descriptors, and of sockets.
    let large_list = vec![b' '; 17 << 20];
    let names = vec!["a name of a file".repeat(64); 17 << 10];
    let mut recording = recording();
    recording.insert_file("/calls/sock_diag/udp4.json", large_list.clone());
    recording.directories.insert("/proc/1/fd".into(), RecordedResult::Read(names.clone()));
    let (_directory, captures) = opened(&archive_bytes(&[recording]));
    for host in captures.map(|capture| capture.first) {
        assert_eq!(host.read("/calls/sock_diag/udp4.json").expect("read").len(), large_list.len());
        assert_eq!(host.list("/proc/1/fd").expect("listed"), names);
    }
}

#[test]
fn captures_that_could_not_be_read_are_not_written() {
    let mut recording = recording();
    recording.insert_file("/proc/large", vec![b' '; (128 << 20) + 1]);
    let error = write(std::io::sink(), &capture_info(), &[recording]).expect_err("too large");
    assert_eq!(error.to_string(), "proc/large: more than any capture holds");
}

#[test]
fn tar_without_capture_info_is_read_as_one_reading() {
    let mut builder = tar::Builder::new(Vec::new());
    let mut add = |path: &str, kind: tar::EntryType, content: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o755);
        if kind == tar::EntryType::Symlink {
            header.set_size(0);
            builder.append_link(&mut header, path, "../../bus/pci/drivers/igb").expect("added");
        } else {
            builder.append_data(&mut header, path, content).expect("added");
        }
    };
    add("./proc/", tar::EntryType::Directory, b"");
    add("./proc/empty/", tar::EntryType::Directory, b"");
    add("./proc/uptime", tar::EntryType::Regular, b"1 1\n");
    add("./sys/driver", tar::EntryType::Symlink, b"");
    let (about, mut readings) = read_tar(&builder.into_inner().expect("written")[..]).expect("read");
    assert_eq!((about, readings.len()), (None, 1));
    let host = Host::recorded(readings.remove(0));
    assert_eq!(host.list("/proc").expect("listed"), ["empty", "uptime"]);
    assert!(host.list("/proc/empty").expect("listed").is_empty());
    assert_eq!(host.read_link("/sys/driver").expect("a link"), "../../bus/pci/drivers/igb");
}

fn refusal(bytes: &[u8]) -> String {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(bytes).expect("written");
    let error = OpenedCapture::open(file.path()).expect_err("refused").to_string();
    error.strip_prefix(&format!("{}: ", file.path().display())).expect("the path first").to_owned()
}

fn gzip() -> GzEncoder<Vec<u8>> {
    GzEncoder::new(Vec::new(), flate2::Compression::fast())
}

fn tar_gz_with_file(path: &str, content: &[u8]) -> Vec<u8> {
    let mut builder = tar::Builder::new(gzip());
    let mut header = tar::Header::new_gnu();
    // Written by hand, because the builder refuses such paths.
    let name = path.as_bytes();
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.set_size(content.len() as u64);
    header.set_cksum();
    builder.append(&header, content).expect("added");
    builder.into_inner().and_then(GzEncoder::finish).expect("finished")
}

#[test]
fn invalid_archives_are_refused_with_the_reason() {
    assert!(refusal(b"something else").starts_with("no whole archive of a capture: "));
    assert!(refusal(b"").starts_with("no whole archive of a capture: "));
    let mut empty = gzip();
    empty.write_all(&[0; 1024]).expect("written");
    let empty = empty.finish().expect("finished");
    assert_eq!(refusal(&empty), "nothing is in it");
    assert!(refusal(&[0x28, 0xb5, 0x2f, 0xfd, 0]).starts_with("a capture of linerate 0.1 under zstd: "));
    let whole = archive_bytes(&[recording()]);
    assert!(refusal(&whole[..whole.len() / 2]).starts_with("no whole archive of a capture: "));
    assert_eq!(
        refusal(&tar_gz_with_file("proc/../../etc/passwd", b"x")),
        "proc/../../etc/passwd: leads out of the archive"
    );
    let newer = br#"{"schema": "linerate.capture/2", "what": {"nobody": "knows"}}"#;
    assert_eq!(
        refusal(&tar_gz_with_file("capture.json", newer)),
        "its schema is linerate.capture/2, and this program reads linerate.capture/1: a newer linerate can read it"
    );
    let other = refusal(&tar_gz_with_file("capture.json", br#"{"schema": "linerate.load/1"}"#));
    assert_eq!(other, "capture.json: its schema is 'linerate.load/1', not linerate.capture/1");
    assert!(refusal(&tar_gz_with_file("capture.json", b"{")).starts_with("capture.json: EOF while parsing"));
}

#[test]
fn empty_or_missing_directory_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let error = OpenedCapture::open(directory.path()).expect_err("refused").to_string();
    assert!(error.ends_with(": neither proc nor sys nor capture.json is in it"), "{error}");
    let error = OpenedCapture::open(Path::new("/nonexistent")).expect_err("refused").to_string();
    assert_eq!(error, "/nonexistent: No such file or directory (os error 2)");
}

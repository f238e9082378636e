//! The outputs of results: standard output, or a file that is written as a whole. Messages go to
//! standard error.

use std::borrow::Cow;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::OFlags;
use serde::Serialize;

/// `FILE`, or `-` for standard output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OutputTarget {
    /// Standard output.
    Stdout,
    File(PathBuf),
}

impl From<&str> for OutputTarget {
    fn from(text: &str) -> Self {
        if text == "-" { OutputTarget::Stdout } else { OutputTarget::File(PathBuf::from(text)) }
    }
}

/// Fails if two options name the same output, where one result would replace the other.
pub(crate) fn check_distinct(options: &[(&str, Option<&str>)]) -> Result<()> {
    for (index, (option, output)) in options.iter().enumerate() {
        let is_kept = output.is_some_and(|output| output != "/dev/null");
        let earlier = options[..index].iter().find(|(_, earlier)| is_kept && earlier == output);
        if let (Some((earlier, _)), Some(output)) = (earlier, output) {
            let place = if *output == "-" { "standard output" } else { output };
            anyhow::bail!("{earlier} and {option} cannot share {place}; give one of them a file of its own");
        }
    }
    Ok(())
}

impl OutputTarget {
    /// The output that an option requests, if it can be written.
    pub(crate) fn from_option(option: Option<&str>) -> Result<Option<Self>> {
        let target = option.map(Self::from);
        target.iter().try_for_each(Self::check)?;
        Ok(target)
    }

    /// Checks before the work whether the result can be written after it.
    pub(crate) fn check(&self) -> Result<()> {
        let OutputTarget::File(path) = self else {
            return Ok(());
        };
        let is_file_path = !path.as_os_str().is_empty() && !path.as_os_str().as_bytes().ends_with(b"/");
        anyhow::ensure!(is_file_path, "cannot write '{}': it names no file", path.display());
        let directory = parent_directory(path);
        let metadata = fs::metadata(directory).with_context(|| {
            format!("cannot write {}: no directory {}", path.display(), directory.display())
        })?;
        anyhow::ensure!(
            metadata.is_dir(),
            "cannot write {}: {} is no directory",
            path.display(),
            directory.display()
        );
        anyhow::ensure!(!path.is_dir(), "cannot write {}: it is a directory", path.display());
        if is_written_in_place(path) {
            if path.is_file() {
                open_in_place(path, OpenOptions::new().append(true))?;
            }
            return Ok(());
        }
        // Only the owner of a file or of its directory can replace it in a sticky directory
        // (__check_sticky, fs/namei.c, Linux 6.18).
        let is_protected = metadata.mode() & STICKY != 0
            && fs::symlink_metadata(path).is_ok_and(|file| !is_own(&file))
            && !is_own(&metadata)
            && !rustix::process::geteuid().is_root();
        anyhow::ensure!(!is_protected, "cannot write {}: another user owns it", path.display());
        // Only an attempt shows the effect of capabilities, read-only mounts and servers of network
        // file systems.
        let part_path = part_path(path);
        write_new(&part_path, &[], READ_BY_OWNER)
            .and_then(|()| fs::remove_file(&part_path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    // Writes `text`. A file is replaced by a rename, so that it is never incomplete; a device, a
    // pipe and the target of a link are written in place.
    pub(crate) fn write(&self, text: &str) -> Result<()> {
        self.bytes(text.as_bytes(), false)
    }

    /// Writes content that only this user may read.
    pub(crate) fn write_private(&self, content: &[u8]) -> Result<()> {
        self.bytes(content, true)
    }

    fn bytes(&self, content: &[u8], is_private: bool) -> Result<()> {
        let path = match self {
            OutputTarget::Stdout => return if_read(print_bytes(content)),
            OutputTarget::File(path) => path,
        };
        if is_written_in_place(path) {
            if is_private && path.is_file() {
                fs::set_permissions(path, Permissions::from_mode(READ_BY_OWNER))
                    .with_context(|| format!("cannot write {}", path.display()))?;
            }
            let mut file = open_in_place(path, OpenOptions::new().write(true).truncate(true))?;
            let write_result = file.write_all(content);
            return if_read(write_result.with_context(|| format!("cannot write {}", path.display())));
        }
        let kept_mode = if is_private { None } else { mode_of_own_file(path) };
        let mode = kept_mode.unwrap_or(if is_private { READ_BY_OWNER } else { READ_BY_ALL });
        let part_path = part_path(path);
        let keep_mode = |mode: u32| fs::set_permissions(&part_path, Permissions::from_mode(mode));
        let write_result = write_new(&part_path, content, mode)
            .and_then(|()| kept_mode.map_or(Ok(()), keep_mode))
            .and_then(|()| fs::rename(&part_path, path));
        if write_result.is_err() {
            // The file may never have been created. The first error is the one to return.
            let _ = fs::remove_file(&part_path);
        }
        write_result.with_context(|| format!("cannot write {}", path.display()))
    }

    /// Writes `document` as JSON in one line, for long lists of numbers.
    pub(crate) fn write_compact_json(&self, document: &impl Serialize) -> Result<()> {
        self.write_json_text(serde_json::to_string(document))
    }

    /// Writes `document` as JSON.
    pub(crate) fn write_json(&self, document: &impl Serialize) -> Result<()> {
        self.write_json_text(serde_json::to_string_pretty(document))
    }

    fn write_json_text(&self, text: serde_json::Result<String>) -> Result<()> {
        self.write(&(text.context("the result cannot be written as JSON")? + "\n"))
    }
}

// Modes of files, before the umask.
const READ_BY_ALL: u32 = 0o666;
const READ_BY_OWNER: u32 = 0o600;
const STICKY: u32 = 0o1000;

/// Directories of links that only root and the kernel make. In the user namespace of a lab, these
/// links seem to be another user's.
const DEVICE_DIRECTORIES: [&str; 3] = ["/dev", "/dev/fd", "/proc/self/fd"];

/// A device or pipe cannot be replaced by another file, and a link such as `/dev/stdout` must not
/// be. Links of other users are replaced, because they could lead anywhere.
fn is_written_in_place(path: &Path) -> bool {
    let Ok(metadata) = fs::symlink_metadata(path) else { return false };
    path.exists() && if metadata.is_symlink() { is_trusted_link(path) } else { !metadata.is_file() }
}

fn is_trusted_link(path: &Path) -> bool {
    let is_of_device_directory =
        DEVICE_DIRECTORIES.iter().any(|directory| parent_directory(path) == Path::new(directory));
    let is_trusted = |link: Metadata| link.uid() == 0 || is_own(&link) || is_of_device_directory;
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink() && is_trusted(metadata))
}

/// Opens a file that is not replaced as a whole. Links of other users are not followed.
pub(crate) fn open_in_place(path: &Path, options: &mut OpenOptions) -> Result<File> {
    let is_trusted_link = is_trusted_link(path);
    let flags = if is_trusted_link { OFlags::empty() } else { OFlags::NOFOLLOW };
    let open_result = options.custom_flags(flags.bits() as i32).open(path);
    if open_result.is_err() && !is_trusted_link && path.is_symlink() {
        bail!("cannot write {}: it is a link of another user", path.display());
    }
    open_result.with_context(|| format!("cannot write {}", path.display()))
}

/// Another user could have made a file that all may write to.
fn mode_of_own_file(path: &Path) -> Option<u32> {
    let metadata =
        fs::symlink_metadata(path).ok().filter(|metadata| metadata.is_file() && is_own(metadata))?;
    Some(metadata.permissions().mode() & READ_BY_ALL)
}

fn is_own(metadata: &Metadata) -> bool {
    metadata.uid() == rustix::process::geteuid().as_raw()
}

/// The name under which a file is written until it is complete.
fn part_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.part", std::process::id()));
    parent_directory(path).join(name)
}

/// Writes a file that must not exist. In a directory that other users may write to, one of them
/// could have put a link there.
fn write_new(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?.write_all(content)
}

/// Prints a result to standard output. The exit status and what follows must not depend on whether
/// the reader of the output has ended.
pub(crate) fn print(text: &str) -> Result<()> {
    if_read(print_live(text))
}

/// Prints one of many outputs. Fails if the reader has ended, so that the command ends as well.
pub(crate) fn print_live(text: &str) -> Result<()> {
    print_bytes(printable(text).as_bytes())
}

/// Success if the only failure was that the reader has ended.
pub(crate) fn if_read(result: Result<()>) -> Result<()> {
    result.or_else(|error| if is_broken_pipe(&error) { Ok(()) } else { Err(error) })
}

fn print_bytes(content: &[u8]) -> Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(content).and_then(|()| stdout.flush()).context("cannot write to standard output")
}

/// Prints to standard error. Neither a server nor a change of the host must stop because the
/// terminal has disappeared, or `tee` was ended by the same Ctrl-C.
pub(crate) fn print_status(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(printable(text).as_bytes()).and_then(|()| stderr.flush());
}

/// As `eprint!`, by [`print_status`].
macro_rules! status {
    ($($text:tt)*) => { $crate::output::print_status(&format!($($text)*)) };
}

/// As `eprintln!`, by [`print_status`].
macro_rules! status_line {
    ($($text:tt)*) => { $crate::output::print_status(&format!("{}\n", format_args!($($text)*))) };
}

/// Moves to the top left of a terminal and clears it. Only printed at the beginning of a text.
pub(crate) const CLEAR_SCREEN: &str = "\x1b[H\x1b[J";

/// Goes to the first column and clears the line. Only printed at the beginning of a text.
pub(crate) const CLEAR_LINE: &str = "\r\x1b[K";

/// The colours of [`TextStyle`](crate::render::style::TextStyle).
const COLOURS: [&str; 6] = ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m"];

/// Replaces control characters other than colours, and clearing at the beginning. Names of
/// processes and texts of other hosts may contain some, which could hide or forge parts of a report
/// on a terminal.
fn printable(text: &str) -> Cow<'_, str> {
    let is_harmless = |character: char| !character.is_control() || matches!(character, '\n' | '\t');
    if text.chars().all(is_harmless) {
        return Cow::Borrowed(text);
    }
    let mut printable_text = String::with_capacity(text.len());
    let mut rest = text;
    for clearing in [CLEAR_SCREEN, CLEAR_LINE] {
        if let Some(cleared_text) = text.strip_prefix(clearing) {
            printable_text.push_str(clearing);
            rest = cleared_text;
        }
    }
    while let Some(character) = rest.chars().next() {
        let colour = COLOURS.into_iter().find(|sequence| rest.starts_with(sequence));
        match colour {
            Some(sequence) => printable_text.push_str(sequence),
            None => printable_text.push(if is_harmless(character) { character } else { '?' }),
        }
        rest = &rest[colour.map_or(character.len_utf8(), str::len)..];
    }
    Cow::Owned(printable_text)
}

/// Whether the reader of our output has ended, which is no failure of this program.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// An error and its causes on one line. Leaves out a cause that the words above it contain.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |line, cause| {
        let cause = cause.to_string();
        match line.as_str() {
            "" => cause,
            line if line.contains(&cause) => line.to_owned(),
            line => format!("{line}: {cause}"),
        }
    })
}

/// The argument list for the result, with only the name of the program.
pub(crate) fn argv() -> Vec<String> {
    let mut arguments = std::env::args_os();
    let program = arguments.next().map(PathBuf::from).unwrap_or_default();
    let program = program.file_name().unwrap_or_default().to_os_string();
    std::iter::once(program)
        .chain(arguments)
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect()
}

fn parent_directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A line on standard error that is replaced and finally removed, if it is a terminal.
pub(crate) struct ProgressLine {
    is_terminal: bool,
}

impl ProgressLine {
    pub(crate) fn new() -> Self {
        Self { is_terminal: std::io::stderr().is_terminal() }
    }

    pub(crate) fn show(&self, text: &str) {
        if self.is_terminal {
            status!("{CLEAR_LINE}{text}");
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.show("");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_files_are_replaced_atomically() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("x.json");
        let target = OutputTarget::File(path.clone());
        target.check().expect("writable");
        target.write_json(&[1, 2]).expect("written");
        target.write_json(&[3]).expect("written again");
        assert_eq!(fs::read_to_string(&path).expect("read"), "[\n  3\n]\n");
        assert_eq!(fs::read_dir(directory.path()).expect("listed").count(), 1);
        let old = fs::File::open(&path).expect("opened");
        fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("set");
        target.write("new").expect("written");
        assert_eq!(io::read_to_string(old).expect("read"), "[\n  3\n]\n", "a reader keeps the old file");
        assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o640);
        let link = directory.path().join("link.json");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        OutputTarget::File(link.clone()).write("by a link").expect("written");
        assert!(link.is_symlink() && fs::read_to_string(&path).expect("read") == "by a link");
    }

    #[test]
    fn outputs_that_cannot_be_written_are_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let link = directory.path().join("link.json");
        // Nobody can open this file for writing (kernfs_fop_open, fs/kernfs/file.c, Linux 6.18).
        std::os::unix::fs::symlink("/sys/kernel/uevent_seqnum", &link).expect("a link");
        for path in ["".into(), directory.path().join("new/"), link] {
            OutputTarget::File(path.clone()).check().expect_err(&path.display().to_string());
        }
    }

    #[test]
    fn links_of_other_users_are_not_followed() {
        if !rustix::process::geteuid().is_root() {
            return linerate_testkit::skip("links_of_other_users_are_not_followed", "requires root");
        }
        let directory = tempfile::tempdir().expect("a directory");
        let (link, file) = (directory.path().join("link"), directory.path().join("file"));
        for target in [Path::new("/dev/full"), &file] {
            fs::write(&file, "old").expect("written");
            std::os::unix::fs::symlink(target, &link).expect("a link");
            std::os::unix::fs::lchown(&link, Some(65_534), None).expect("its owner");
            let append_result = open_in_place(&link, OpenOptions::new().append(true).create(true));
            assert!(append_result.expect_err("a link").to_string().ends_with("it is a link of another user"));
            OutputTarget::File(link.clone()).write("new").expect("replaced");
            assert!(!link.is_symlink() && fs::read(&file).expect("read") == b"old", "{}", target.display());
            fs::remove_file(&link).expect("removed");
        }
    }

    #[test]
    fn a_pipe_whose_reader_has_ended_is_no_error() {
        use std::os::fd::AsRawFd;
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let target = OutputTarget::File(format!("/proc/self/fd/{}", writer.as_raw_fd()).into());
        target.write("text").expect("no error");
        OutputTarget::from("/dev/full").write("text").expect_err("no space");
    }

    #[test]
    fn only_colours_and_clearing_at_the_beginning_are_printed() {
        use crate::render::style::{TextStyle, TextTone};
        let style = TextStyle { width: 80, colour: true };
        for tone in [TextTone::Strong, TextTone::Good, TextTone::Bad, TextTone::Warn, TextTone::Faint] {
            let painted = style.paint(tone, "x\ty\n");
            assert_eq!(printable(&painted), painted);
        }
        assert_eq!(printable("\x1b[8mna\x07me\x1b]0;t\r\u{9b}31m"), "?[8mna?me?]0;t??31m");
        for clearing in [CLEAR_SCREEN, CLEAR_LINE] {
            let replaced = clearing.replace(char::is_control, "?");
            assert_eq!(printable(&format!("{clearing}a{clearing}")), format!("{clearing}a{replaced}"));
        }
    }

    #[test]
    fn error_lines_omit_repeated_causes() {
        let error = anyhow::anyhow!("no such CPU").context("cannot pin: no such CPU").context("--cpus");
        assert_eq!(one_line(&error), "--cpus: cannot pin: no such CPU");
    }
}

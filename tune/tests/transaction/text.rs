//! Journals with damaged text.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use linerate_tune::journal::record::UndoReason::Asked;
use linerate_tune::journal::{JournalCorruption, JournalError};
use linerate_tune::transaction::undo;
use proptest::prelude::*;

use crate::fake::{self, Fake, Scratch, begin, setting, value};

fn tune(fake: &Fake, scratch: &Scratch) {
    let changes = [0, 1, 2].map(|number| (setting(number), value("7")));
    fake::tune(scratch, fake, begin(), &changes).expect("made");
}

/// The journal of a tune with three changes that was undone.
fn journal(fake: &Fake, scratch: &Scratch) -> Vec<u8> {
    tune(fake, scratch);
    undo(&mut scratch.lock(), fake, None, Asked).expect("undone");
    fs::read(scratch.store().journal_path()).expect("read")
}

fn ends_of_lines(text: &[u8]) -> Vec<usize> {
    text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect()
}

#[test]
fn truncated_journal_is_read_and_trimmed_to_its_last_whole_line() {
    let (fake, scratch) = (Fake::new(3), Scratch::new());
    let text = journal(&fake, &scratch);
    let ends = ends_of_lines(&text);
    let path = scratch.store().journal_path();
    for cut in 0..=text.len() {
        fs::write(&path, &text[..cut]).expect("written");
        let line_count = ends.iter().filter(|end| **end <= cut).count();
        let is_torn = cut != 0 && !ends.contains(&cut);
        let journal = scratch.store().read().expect("read");
        assert_eq!(journal.entries.len(), line_count, "cut at {cut}");
        assert_eq!(
            journal.trouble,
            is_torn.then_some(JournalCorruption::Torn { line: line_count as u64 + 1 }),
            "cut at {cut}"
        );
        drop(scratch.lock());
        let length = if line_count == 0 { 0 } else { ends[line_count - 1] };
        assert_eq!(fs::read(&path).expect("read"), &text[..length], "cut at {cut}");
    }
    // A file system may have extended the file without its data.
    fs::write(&path, [&text[..], &[0; 700]].concat()).expect("written");
    assert!(matches!(scratch.store().read().expect("read").trouble, Some(JournalCorruption::Torn { .. })));
    assert_eq!(scratch.lock().next_tune(), 2);
}

/// A flipped byte in any line costs no other record, and undo restores all values, unless both
/// records of a change are lost.
#[test]
fn flipped_byte_damages_only_its_lines_and_undo_restores_known_changes() {
    let scratch = Scratch::new();
    tune(&Fake::new(3), &scratch);
    let text = fs::read(scratch.store().journal_path()).expect("read");
    let ends = ends_of_lines(&text);
    assert_eq!(ends.len(), 8, "begun, three intents with their results, ended");
    let starts: Vec<usize> = std::iter::once(0).chain(ends.iter().copied()).collect();
    for line in 0..ends.len() {
        // In the record, in its checksum, and in the newline, which joins two lines.
        for (at, lost_lines) in [(starts[line] + 30, 1), (ends[line] - 4, 1), (ends[line] - 1, 2)] {
            if lost_lines == 2 && line + 1 == ends.len() {
                continue;
            }
            let (fake, mut damaged_text) = (Fake::new(3), text.clone());
            damaged_text[at] ^= 1;
            fs::write(scratch.store().journal_path(), &damaged_text).expect("written");
            (0..3).for_each(|number| fake.set(&setting(number), "7"));
            let journal = scratch.store().read().expect("read");
            assert_eq!(journal.entries.len(), ends.len() - lost_lines, "{line}: {:?}", journal.trouble);
            let Some(JournalCorruption::Damaged { line: reported_line, .. }) = journal.trouble else {
                panic!("{line}")
            };
            assert_eq!(reported_line, line as u64 + 1);
            let report = undo(&mut scratch.lock(), &fake, Some(1), Asked).expect("undone");
            assert_eq!(report.damaged_lines, [line as u64 + 1], "{line}");
            assert!(report.has_skipped() && !report.has_failures(), "the damage needs attention: {report:?}");
            // If both records of a change are lost, the change is unknown. The damage is reported.
            let all_known = lost_lines == 1 || line % 2 == 0;
            let unrestored = (0..3).filter(|number| fake.now(&setting(*number)) != "0").count();
            assert_eq!(unrestored, usize::from(!all_known), "line {line}, {lost_lines} lost");
            let text_after_undo = fs::read(scratch.store().journal_path()).expect("read");
            assert!(
                text_after_undo.starts_with(&damaged_text) && text_after_undo.len() > damaged_text.len(),
                "nothing was cut off"
            );
            let journal_after_undo = scratch.store().read().expect("read");
            assert_eq!(journal_after_undo.tunes().len(), 1, "{line}");
            assert!(!journal_after_undo.tunes()[0].is_open(), "{line}");
        }
    }
}

#[test]
fn missing_line_is_reported_as_damage() {
    let (fake, scratch) = (Fake::new(3), Scratch::new());
    let text = journal(&fake, &scratch);
    let ends = ends_of_lines(&text);
    let text_without_line = [&text[..ends[1]], &text[ends[2]..]].concat();
    fs::write(scratch.store().journal_path(), text_without_line).expect("written");
    let journal = scratch.store().read().expect("read");
    let Some(JournalCorruption::Damaged { line: 3, why, .. }) = journal.trouble else {
        panic!("{:?}", journal.trouble)
    };
    assert_eq!(why, "record 3 is missing before it");
    assert_eq!(journal.entries.len(), ends.len() - 1);
}

/// A program does not append to a journal that it does not understand.
#[test]
fn journal_of_a_newer_version_is_not_written() {
    let (fake, scratch) = (Fake::new(3), Scratch::new());
    let mut text = journal(&fake, &scratch);
    let body = "{\"sequence\":99,\"unix_seconds\":2,\"record\":{\"teleported\":{\"tune\":3}}";
    text.extend(format!("{body},\"crc32\":\"{:08x}\"}}\n", crc32fast::hash(body.as_bytes())).bytes());
    fs::write(scratch.store().journal_path(), &text).expect("written");
    let error = scratch.store().lock().expect_err("newer");
    assert!(matches!(error, JournalError::Newer { .. }), "{error}");
    assert_eq!(fs::read(scratch.store().journal_path()).expect("read"), text);
}

#[test]
fn journal_writable_by_others_is_refused() {
    let (fake, scratch) = (Fake::new(3), Scratch::new());
    journal(&fake, &scratch);
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
    mode(&scratch.store().journal_path(), 0o666);
    for error in [scratch.store().read().expect_err("refused"), scratch.store().lock().expect_err("refused")]
    {
        assert!(error.to_string().contains("others may write it (mode 0666)"), "{error}");
    }
    mode(&scratch.store().journal_path(), 0o600);
    mode(scratch.store().directory(), 0o777);
    let error = scratch.store().lock().expect_err("refused");
    assert!(matches!(error, JournalError::NotOurs { .. }), "{error}");
}

#[test]
fn journal_files_are_private_and_the_lock_error_names_its_holder() {
    let (fake, scratch) = (Fake::new(3), Scratch::new());
    assert!(scratch.store().read().expect("no journal yet").entries.is_empty());
    journal(&fake, &scratch);
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o7777;
    assert_eq!(mode(&scratch.store().journal_path()), 0o600);
    assert_eq!(mode(scratch.store().directory()), 0o700);
    let lock = scratch.lock();
    assert_eq!(
        scratch.store().read().expect("read").holder.and_then(|holder| holder.pid),
        Some(std::process::id())
    );
    let error = scratch.store().lock().expect_err("held");
    let line = format!(
        "linerate is changing settings already (process {}): wait until it has ended",
        std::process::id()
    );
    assert_eq!(error.to_string(), line);
    drop(lock);
    assert_eq!(scratch.store().read().expect("read").holder, None);
}

proptest! {
    #[test]
    fn arbitrary_text_after_valid_lines_keeps_the_earlier_records(
        text in prop::collection::vec(any::<u8>(), 0..400),
        line in any::<prop::sample::Index>(),
    ) {
        let (fake, scratch) = (Fake::new(3), Scratch::new());
        let whole = journal(&fake, &scratch);
        let entries = scratch.store().read().expect("read").entries;
        let ends = ends_of_lines(&whole);
        let last = line.index(ends.len());
        fs::write(scratch.store().journal_path(), [&whole[..ends[last]], &text].concat()).expect("written");
        let journal = scratch.store().read().expect("read");
        prop_assert_eq!(&journal.entries[..], &entries[..=last]);
        prop_assert_eq!(journal.trouble.is_some(), !text.is_empty());
        let _ = journal.tunes();
        prop_assert!(scratch.store().lock().is_ok());
    }
}

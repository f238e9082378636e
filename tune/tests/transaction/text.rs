//! Journals with damaged text.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use linerate_host::SettingValue;
use linerate_tune::journal::record::UndoReason::Asked;
use linerate_tune::journal::{JournalCorruption, JournalError};
use linerate_tune::transaction::{TuneTransaction, undo};
use proptest::prelude::*;

use crate::fake::{Fake, Scratch, begin, setting};

/// The journal of a tune with three changes that was undone.
fn journal(fake: &Fake, scratch: &Scratch) -> Vec<u8> {
    let mut writer = scratch.lock();
    let mut transaction = TuneTransaction::begin(&mut writer, fake, begin()).expect("begun");
    for number in 0..3 {
        transaction.change(fake, &setting(number), &SettingValue::new("7")).expect("made");
    }
    transaction.end(None).expect("ended");
    undo(&mut writer, fake, None, Asked).expect("undone");
    fs::read(scratch.store().journal_path()).expect("read")
}

fn ends_of_lines(text: &[u8]) -> Vec<usize> {
    text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect()
}

#[test]
fn a_journal_cut_anywhere_is_read_up_to_its_last_whole_line_and_written_on() {
    let (fake, scratch) = (Fake::new(3), Scratch::new());
    let text = journal(&fake, &scratch);
    let ends = ends_of_lines(&text);
    let path = scratch.store().journal_path();
    for cut in 0..=text.len() {
        fs::write(&path, &text[..cut]).expect("written");
        let whole = ends.iter().filter(|end| **end <= cut).count();
        let torn = cut != 0 && !ends.contains(&cut);
        let journal = scratch.store().read().expect("read");
        assert_eq!(journal.entries.len(), whole, "cut at {cut}");
        assert_eq!(
            journal.trouble,
            torn.then_some(JournalCorruption::Torn { line: whole as u64 + 1 }),
            "cut at {cut}"
        );
        drop(scratch.lock());
        let kept = if whole == 0 { 0 } else { ends[whole - 1] };
        assert_eq!(fs::read(&path).expect("read"), &text[..kept], "cut at {cut}");
    }
}

#[test]
fn undo_finishes_from_a_journal_cut_anywhere() {
    let (fake, scratch) = (Fake::new(3), Scratch::new());
    let text = journal(&fake, &scratch);
    let path = scratch.store().journal_path();
    for end in ends_of_lines(&text) {
        // The host is in the state that the remaining records describe; the next change was not
        // made.
        let fake = Fake::new(3);
        fs::write(&path, &text[..end]).expect("written");
        for held in scratch.store().read().expect("read").tunes().iter().flat_map(|tune| &tune.tracked) {
            let done = held.open_step.is_none() && held.outcome.is_none();
            fake.set(&held.setting, if done { "7" } else { "0" });
        }
        let _ = undo(&mut scratch.lock(), &fake, None, Asked);
        for number in 0..3 {
            assert_eq!(fake.now(&setting(number)), "0", "cut at {end}");
        }
    }
}

/// A flipped byte in any line costs no other record, and undo restores all values, unless both
/// records of a change are lost.
#[test]
fn a_byte_flipped_in_any_line_costs_no_other_record_and_undo_puts_all_back() {
    let tuned = Fake::new(3);
    let scratch = Scratch::new();
    let mut writer = scratch.lock();
    let mut transaction = TuneTransaction::begin(&mut writer, &tuned, begin()).expect("begun");
    for number in 0..3 {
        transaction.change(&tuned, &setting(number), &SettingValue::new("7")).expect("made");
    }
    transaction.end(None).expect("ended");
    drop(writer);
    let text = fs::read(scratch.store().journal_path()).expect("read");
    let ends = ends_of_lines(&text);
    assert_eq!(ends.len(), 8, "begun, three intents and what became of them, ended");
    let starts: Vec<usize> = std::iter::once(0).chain(ends.iter().copied()).collect();
    for line in 0..ends.len() {
        // In the record, in its checksum, and in the newline, which joins two lines.
        for (at, lost) in [(starts[line] + 30, 1), (ends[line] - 4, 1), (ends[line] - 1, 2)] {
            if lost == 2 && line + 1 == ends.len() {
                continue;
            }
            let (fake, mut damaged) = (Fake::new(3), text.clone());
            damaged[at] ^= 1;
            fs::write(scratch.store().journal_path(), &damaged).expect("written");
            (0..3).for_each(|number| fake.set(&setting(number), "7"));
            let journal = scratch.store().read().expect("read");
            assert_eq!(journal.entries.len(), ends.len() - lost, "{line}: {:?}", journal.trouble);
            let Some(JournalCorruption::Damaged { line: named, .. }) = journal.trouble else {
                panic!("{line}")
            };
            assert_eq!(named, line as u64 + 1);
            let undone = undo(&mut scratch.lock(), &fake, Some(1), Asked).expect("undone");
            assert_eq!(undone.damaged_lines, [line as u64 + 1], "{line}");
            assert!(undone.has_skipped() && !undone.has_failures(), "a person should look: {undone:?}");
            // If both records of a change are lost, the change is unknown. The damage is reported.
            let all_known = lost == 1 || line % 2 == 0;
            let left = (0..3).filter(|number| fake.now(&setting(*number)) != "0").count();
            assert_eq!(left, usize::from(!all_known), "line {line}, {lost} lost");
            let now = fs::read(scratch.store().journal_path()).expect("read");
            assert!(now.starts_with(&damaged) && now.len() > damaged.len(), "nothing was cut off");
            let again = scratch.store().read().expect("read");
            assert_eq!(again.tunes().len(), 1, "{line}");
            assert!(!again.tunes()[0].is_open(), "{line}");
        }
    }
}

#[test]
fn a_line_that_is_missing_is_damage() {
    let (fake, scratch) = (Fake::new(3), Scratch::new());
    let text = journal(&fake, &scratch);
    let ends = ends_of_lines(&text);
    let without = [&text[..ends[1]], &text[ends[2]..]].concat();
    fs::write(scratch.store().journal_path(), without).expect("written");
    let journal = scratch.store().read().expect("read");
    let Some(JournalCorruption::Damaged { line: 3, why, .. }) = journal.trouble else {
        panic!("{:?}", journal.trouble)
    };
    assert_eq!(why, "record 3 is missing before it");
    assert_eq!(journal.entries.len(), ends.len() - 1);
}

/// A program does not append to a journal that it does not understand.
#[test]
fn a_line_of_a_later_version_is_not_written_after() {
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
fn zeros_at_the_end_are_a_torn_line() {
    let (fake, scratch) = (Fake::new(3), Scratch::new());
    let mut text = journal(&fake, &scratch);
    text.extend([0; 700]);
    fs::write(scratch.store().journal_path(), &text).expect("written");
    assert!(matches!(scratch.store().read().expect("read").trouble, Some(JournalCorruption::Torn { .. })));
    assert_eq!(scratch.lock().next_tune(), 2);
}

#[test]
fn what_others_could_have_written_is_not_used() {
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
fn files_are_private_and_a_lock_is_one_line() {
    let (fake, scratch) = (Fake::new(3), Scratch::new());
    assert!(scratch.store().read().expect("no journal yet").entries.is_empty());
    journal(&fake, &scratch);
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o7777;
    assert_eq!(mode(&scratch.store().journal_path()), 0o600);
    assert_eq!(mode(scratch.store().directory()), 0o700);
    let held = scratch.lock();
    assert_eq!(
        scratch.store().read().expect("read").holder.and_then(|held| held.pid),
        Some(std::process::id())
    );
    let error = scratch.store().lock().expect_err("held");
    let line = format!(
        "linerate is changing settings already (process {}): wait until it has ended",
        std::process::id()
    );
    assert_eq!(error.to_string(), line);
    drop(held);
    assert_eq!(scratch.store().read().expect("read").holder, None);
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..400), line in any::<prop::sample::Index>()) {
        let (fake, scratch) = (Fake::new(3), Scratch::new());
        let whole = journal(&fake, &scratch);
        let ends = ends_of_lines(&whole);
        let at = ends[line.index(ends.len())];
        fs::write(scratch.store().journal_path(), [&whole[..at], &text].concat()).expect("written");
        let journal = scratch.store().read().expect("read");
        prop_assert!(journal.entries.len() > line.index(ends.len()));
        let _ = journal.tunes();
    }
}

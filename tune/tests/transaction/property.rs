//! Whatever happens, undo restores all original values, except where others set a value.

use std::collections::BTreeMap;
use std::sync::Once;

use linerate_host::{Setting, SettingValue};
use linerate_tune::journal::record::UndoOutcome;
use linerate_tune::journal::record::UndoReason::Asked;
use linerate_tune::status::SettingState;
use linerate_tune::transaction::{ChangeOutcome, TuneError, TuneTransaction, undo};
use proptest::prelude::*;

use crate::fake::{Fake, Manner, Scratch, begin, setting, undo_until_finished};

const SETTINGS: usize = 5;

/// Changes of one tune: the number of a setting, and its value.
type Changes = Vec<(usize, u8)>;

fn changes() -> impl Strategy<Value = Changes> {
    prop::collection::vec((0..SETTINGS, 0..4_u8), 1..12)
}

fn manner() -> impl Strategy<Value = Manner> {
    prop_oneof![
        6 => Just(Manner::Obeys),
        1 => Just(Manner::Refuses(libc::EPERM)),
        1 => Just(Manner::Refuses(libc::EBUSY)),
        1 => Just(Manner::Refuses(libc::EINVAL)),
        1 => Just(Manner::Ignores),
        1 => Just(Manner::HalfObeys),
    ]
}

fn tune(fake: &Fake, scratch: &Scratch, changes: &Changes) -> Result<(), TuneError> {
    let mut writer = scratch.lock();
    let mut transaction = TuneTransaction::begin(&mut writer, fake, begin())?;
    for (number, value) in changes {
        let setting = setting(*number);
        let to = SettingValue::new(value.to_string());
        if let ChangeOutcome::Made = transaction.change(fake, &setting, &to)? {
            assert_eq!(fake.now(&setting), to.as_str());
        }
    }
    transaction.end(None)
}

fn state(fake: &Fake) -> BTreeMap<Setting, String> {
    (0..SETTINGS).map(|number| (setting(number), fake.now(&setting(number)))).collect()
}

fn status_is_true(fake: &Fake, scratch: &Scratch, foreign: &BTreeMap<Setting, String>) {
    let status = crate::fake::status(scratch, fake);
    for entry in status.tunes.iter().flat_map(|tune| &tune.settings) {
        let now = fake.now(&entry.setting);
        assert_eq!(entry.now.as_ref().map(SettingValue::as_str), Some(now.as_str()));
        match &entry.state {
            SettingState::InEffect => assert_eq!(entry.to, entry.now),
            SettingState::NotMade { .. } => assert!(entry.from.is_none() || entry.from == entry.now),
            SettingState::Drifted => assert!(foreign.contains_key(&entry.setting), "{entry:?}"),
            other => panic!("{other:?}"),
        }
    }
    // A value that is not the original one is reported, or set by others.
    for (setting, now) in state(fake) {
        let is_listed =
            status.tunes.iter().flat_map(|tune| &tune.settings).any(|entry| entry.setting == setting);
        assert!(
            now == "0" || is_listed || foreign.contains_key(&setting),
            "{setting} reads {now}: not listed"
        );
    }
}

pub(crate) fn quiet() {
    static ONCE: Once = Once::new();
    // A kill is a panic, and prints nothing.
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if info.payload().is::<&str>() || info.payload().is::<String>() {
                usual(info);
            }
        }));
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn undo_restores_all_original_values_except_foreign_ones(
        changes in changes(),
        manners in prop::collection::vec(manner(), SETTINGS),
        kill in prop::option::of(0..60_u32),
        others in prop::collection::btree_map(0..SETTINGS, 0..3_u8, 0..3),
        undo_kills in prop::collection::vec(0..20_u32, 0..4),
    ) {
        quiet();
        let (fake, scratch) = (Fake::new(SETTINGS), Scratch::new());
        for (number, manner) in manners.iter().enumerate() {
            fake.behave(&setting(number), *manner);
        }
        let result = fake.fuse.killed_at(kill, || tune(&fake, &scratch, &changes));
        if let Some(result) = result { result.expect("journalled") }
        // The half-written value of a killed program may be a value that others set, so undo keeps it.
        let half: BTreeMap<_, _> = state(&fake).into_iter().filter(|(_, now)| now.starts_with("half-")).collect();
        prop_assert!(half.len() <= 1);
        status_is_true(&fake, &scratch, &half);

        let foreign: BTreeMap<_, _> =
            others.iter().map(|(number, value)| (setting(*number), format!("other-{value}"))).collect();
        for (setting, value) in &foreign {
            fake.set(setting, value);
        }
        let mut expected: BTreeMap<_, _> = (0..SETTINGS).map(|number| (setting(number), "0".to_owned())).collect();
        expected.extend(half);
        expected.extend(foreign);
        status_is_true(&fake, &scratch, &expected);

        for number in 0..SETTINGS {
            fake.behave(&setting(number), Manner::Obeys);
        }
        let reports = undo_until_finished((&fake, &fake.fuse), &scratch, None, &undo_kills);
        prop_assert_eq!(state(&fake), expected.clone());
        for undo in reports.iter().flat_map(|report| &report.settings) {
            if let UndoOutcome::Drift { found } = &undo.outcome {
                prop_assert_eq!(found.as_str(), expected[&undo.setting].as_str());
                prop_assert_ne!(found.as_str(), "0");
            }
        }
        let status = crate::fake::status(&scratch, &fake);
        let mut settings = status.tunes.iter().flat_map(|tune| &tune.settings);
        let in_effect = settings.any(|entry| entry.state == SettingState::InEffect);
        prop_assert!(!in_effect, "{:?}", status);
    }

    #[test]
    fn stacked_tunes_can_be_undone_in_any_order(
        first in changes(),
        second in changes(),
        third in changes(),
        order in Just(vec![1, 2, 3]).prop_shuffle(),
        undo_kills in prop::collection::vec(0..20_u32, 0..3),
    ) {
        quiet();
        let (fake, scratch) = (Fake::new(SETTINGS), Scratch::new());
        for changes in [first, second, third] {
            tune(&fake, &scratch, &changes).expect("made");
        }
        for id in order {
            undo_until_finished((&fake, &fake.fuse), &scratch, Some(id), &undo_kills);
        }
        prop_assert!(state(&fake).values().all(|value| value == "0"), "{:?}", state(&fake));
    }

    #[test]
    fn tune_made_again_after_a_kill_sets_all_values_and_can_be_undone(
        changes in changes(),
        kill in 0..60_u32,
    ) {
        quiet();
        let (fake, scratch) = (Fake::new(SETTINGS), Scratch::new());
        // A plan sets each setting once.
        let values: BTreeMap<usize, u8> = changes.into_iter().collect();
        let changes_once: Changes = values.into_iter().collect();
        let is_killed = fake.fuse.killed_at(Some(kill), || tune(&fake, &scratch, &changes_once)).is_none();
        if is_killed && !scratch.lock().tunes().is_empty() {
            let mut writer = scratch.lock();
            let error = TuneTransaction::resume(&mut writer, &fake).expect_err("the tune has no plan");
            assert!(matches!(error, TuneError::NoPlan { tune: 1 }), "{error}");
        }
        if is_killed {
            tune(&fake, &scratch, &changes_once).expect("made");
        }
        for (number, value) in &changes_once {
            prop_assert_eq!(fake.now(&setting(*number)), value.to_string());
        }
        while undo(&mut scratch.lock(), &fake, None, Asked).is_ok() {}
        prop_assert!(state(&fake).values().all(|value| value == "0"));
    }
}

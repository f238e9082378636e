use super::*;
use crate::top::sample;

fn state() -> TopState {
    let mut state = TopState::default();
    state.take(sample::small());
    state
}

fn press(state: &mut TopState, code: KeyCode) -> Option<TopAction> {
    state.press(KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn arrow_keys_move_between_stages_and_items() {
    let mut state = state();
    press(&mut state, KeyCode::Down);
    assert_eq!(state.item(), Some(&HistoryItem::Interface("eth0".into())));
    press(&mut state, KeyCode::Down);
    assert_eq!(state.item(), Some(&HistoryItem::Receive("eth0".into(), 0)));
    press(&mut state, KeyCode::Right);
    assert_eq!((state.stage(), state.item()), (PanelStage::Cpus, None));
    press(&mut state, KeyCode::End);
    assert_eq!(state.item(), Some(&HistoryItem::Cpu(3)));
    press(&mut state, KeyCode::Up);
    assert_eq!(state.item(), Some(&HistoryItem::Cpu(2)));
    press(&mut state, KeyCode::BackTab);
    assert_eq!(state.item(), Some(&HistoryItem::Receive("eth0".into(), 0)), "each stage keeps its selection");
    press(&mut state, KeyCode::Char('5'));
    assert_eq!(state.stage(), PanelStage::Out);
    press(&mut state, KeyCode::Tab);
    assert_eq!(state.stage(), PanelStage::Queues);
}

#[test]
fn slash_starts_a_filter_and_escape_clears_the_filter() {
    let mut state = state();
    press(&mut state, KeyCode::Char('/'));
    for letter in "Rx-1".chars() {
        press(&mut state, KeyCode::Char(letter));
    }
    assert_eq!((state.choice.filter.as_str(), state.typing.as_deref()), ("rx-1", Some("Rx-1")));
    assert_eq!(press(&mut state, KeyCode::Enter), None);
    press(&mut state, KeyCode::Down);
    press(&mut state, KeyCode::Down);
    assert_eq!(state.item(), Some(&HistoryItem::Receive("eth0".into(), 1)));
    press(&mut state, KeyCode::Esc);
    assert_eq!(state.choice.filter, "");
    assert_eq!(press(&mut state, KeyCode::Char('q')), Some(TopAction::Quit));
}

#[test]
fn letters_with_control_do_nothing_except_control_c() {
    let mut state = state();
    let mut press = |letter| state.press(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL));
    for letter in "fdeuqp/".chars() {
        assert_eq!(press(letter), None, "{letter}");
    }
    assert_eq!(press('c'), Some(TopAction::Quit));
    assert!(!state.paused && state.typing.is_none());
}

#[test]
fn q_closes_the_overlay_without_quitting() {
    let mut state = state();
    press(&mut state, KeyCode::Char('?'));
    assert_eq!(state.over, Some(TopOverlay::Help));
    press(&mut state, KeyCode::Down);
    assert_eq!(state.scrolled.get(), 1);
    assert_eq!(press(&mut state, KeyCode::Char('q')), None);
    assert_eq!((&state.over, state.scrolled.get()), (&None, 0));
    assert_eq!(press(&mut state, KeyCode::Char('q')), Some(TopAction::Quit));
    press(&mut state, KeyCode::Down);
    press(&mut state, KeyCode::Enter);
    assert_eq!(state.over, Some(TopOverlay::Details(HistoryItem::Interface("eth0".into()))));
}

#[test]
fn pausing_freezes_the_screen_but_not_the_history() {
    let mut state = state();
    press(&mut state, KeyCode::Char('p'));
    let mut next = sample::small();
    next.unix_seconds = Some(9.0);
    state.take(next);
    assert_ne!(state.snapshot.as_ref().and_then(|snapshot| snapshot.unix_seconds), Some(9.0));
    assert_eq!(
        state.history.values(&HistoryItem::Cpu(0), linerate_host::live::HistoryMetric::Softirq).count(),
        2
    );
    press(&mut state, KeyCode::Char(' '));
    state.take(sample::small());
    assert!(!state.paused);
}

#[test]
fn background_jobs_run_one_at_a_time_and_on_running_hosts_only() {
    let mut state = state();
    assert_eq!(press(&mut state, KeyCode::Char('d')), Some(TopAction::Drops));
    state.busy = Some("counting drops");
    assert_eq!(press(&mut state, KeyCode::Char('f')), None);
    assert_eq!(state.message.as_deref(), Some("counting drops: wait until that is done"));
    state.busy = None;
    state.source = SnapshotFeed::Replay { at: 0, of: 2, speed: 1.0, file: "x".into() };
    assert_eq!(press(&mut state, KeyCode::Char('f')), None);
    assert_eq!(state.message.as_deref(), Some("stacks are sampled on a running host only"));
    assert_eq!(press(&mut state, KeyCode::Right), Some(TopAction::Step(1)));
}

#[test]
fn random_keys_never_panic() {
    use KeyCode::{Backspace, Down, Enter, Esc, Home, Left, PageDown, Right, Tab, Up};
    const KEYS: [KeyCode; 10] = [Tab, Up, Down, Left, Right, Esc, Enter, PageDown, Home, Backspace];
    let mut state = TopState::default();
    let mut random = 1_u32;
    for number in 0..4000 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let letter = char::from(u8::try_from(32 + (random >> 16) % 95).expect("a letter"));
        // Two of twelve keys are letters.
        let code = KEYS.get((random >> 8) as usize % 12).copied();
        let _ = press(&mut state, code.unwrap_or(KeyCode::Char(letter)));
        if number == 1000 {
            state.take(sample::small());
        }
    }
}

//! Settings with what they were and are to be, a row each.

use std::collections::BTreeSet;

use linerate_host::setting::SteeringTable;
use linerate_host::{CpuSet, Setting, SettingValue};

use crate::render::column::cut;
use crate::render::format;
use crate::render::style::{TextStyle, TextTone};

/// A value longer than this says more in the full form.
const LONGEST: usize = 34;
/// Rows beyond these are counted, not shown, but in the full form.
const MOST: usize = 24;

pub(super) struct SettingRow {
    pub(super) name: String,
    pub(super) from: String,
    pub(super) to: String,
    /// The masks that the lists of CPUs are written as.
    masks: Option<(String, String)>,
}

impl SettingRow {
    pub(super) fn new(name: String, setting: &Setting, from: &SettingValue, to: &SettingValue) -> Self {
        let (was, becomes) = (shown(setting, from), shown(setting, to));
        let masks = is_mask(setting).then(|| (from.to_string(), to.to_string()));
        Self { name, from: was, to: becomes, masks }
    }
}

/// The rows below one another, masks beside the lists of CPUs where there is room.
pub(super) fn lines(rows: &[SettingRow], before: usize, full: bool, style: TextStyle) -> Vec<String> {
    let widest =
        |cell: fn(&SettingRow) -> &str| rows.iter().map(|row| cell(row).chars().count()).max().unwrap_or(0);
    let (name, from, to) = (widest(|row| &row.name), widest(|row| &row.from), widest(|row| &row.to));
    let indent = " ".repeat(before);
    let room = style.width.saturating_sub(before + name + from + to + 10);
    let masks_fit = rows.iter().all(|row| {
        row.masks.as_ref().is_none_or(|(old, new)| old.chars().count() + new.chars().count() + 4 <= room)
    });
    let most = if full { rows.len() } else { MOST };
    let mut lines: Vec<String> = rows
        .iter()
        .take(most)
        .map(|row| {
            let masks = match &row.masks {
                Some((old, new)) if full || masks_fit => {
                    let pad = to.saturating_sub(row.to.chars().count()) + 4;
                    style.paint(TextTone::Faint, &format!("{}{old} -> {new}", " ".repeat(pad)))
                }
                _ => String::new(),
            };
            format!("{indent}{:<name$}  {:<from$} -> {}{masks}", row.name, row.from, row.to)
        })
        .collect();
    if rows.len() > most {
        lines.push(style.paint(TextTone::Faint, &format!("{indent}and {} more (--full)", rows.len() - most)));
    }
    lines
}

/// `eth0 rx-0/rps_cpus: none -> 0-3`.
pub(super) fn one_line(setting: &Setting, from: &SettingValue, to: &SettingValue) -> String {
    format!("{setting}: {} -> {}", shown(setting, from), shown(setting, to))
}

/// A value as people read it: CPUs as a list, nothing as `none`, in one line.
pub(crate) fn shown(setting: &Setting, value: &SettingValue) -> String {
    let text = value.as_str();
    if is_mask(setting)
        && let Some(cpus) = cpus(text)
    {
        return cpus;
    }
    if let (Setting::Steering { .. }, Ok(table)) = (setting, text.parse::<SteeringTable>()) {
        return steering(&table, text);
    }
    let mut lines = text.lines();
    match (lines.next(), lines.count()) {
        (None | Some(""), 0) => "none".to_owned(),
        (Some(one), 0) => cut(one, LONGEST),
        (_, more) => format!("{} lines", more + 1),
    }
}

/// Steering of a few CPUs as it is, of many in figures.
fn steering(table: &SteeringTable, text: &str) -> String {
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    let sockets: BTreeSet<u64> = table.by_cpu.values().flatten().copied().collect();
    format!("by-cpu, {} CPUs to {} sockets", table.by_cpu.len(), sockets.len())
}

/// The CPUs of a mask, and the one of them that takes effect where that is told.
fn cpus(text: &str) -> Option<String> {
    let (mask, at) = text.split_once(" at ").map_or((text, None), |(mask, at)| (mask, Some(at)));
    let cpus: Vec<u32> = CpuSet::from_mask(mask).ok()?.iter().collect();
    let list = if cpus.is_empty() { "none".to_owned() } else { format::cpu_list(&cpus) };
    Some(match at {
        Some(at) if list != at => format!("{list} at {at}"),
        _ => list,
    })
}

fn is_mask(setting: &Setting) -> bool {
    matches!(setting, Setting::QueueCpus { .. } | Setting::IrqAffinity { .. })
}

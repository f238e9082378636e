//! Reads a profile.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use linerate_host::diagnosis::rule;
use linerate_host::stage::StageName;
use linerate_host::stage::spread::{RpsTarget, SecondThreads, SpreadPolicy};
use linerate_host::{CpuSet, Severity};
use serde::Deserialize;
use toml::Spanned;

use super::{
    CpuPolicy, FindingPolicy, InterfaceKnob, ProfileError, ProfileKnob, ProfileValue, SkipCondition,
    TuneProfile, ValueBound,
};

/// Reasons by id of a finding.
type Reasons = BTreeMap<Spanned<String>, Spanned<String>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileFile {
    name: Spanned<String>,
    title: String,
    #[serde(rename = "for")]
    purpose: String,
    not_for: String,
    #[serde(default)]
    needs_udp_service: bool,
    cpus: FileCpus,
    #[serde(default)]
    fix: BTreeMap<Spanned<String>, Severity>,
    #[serde(default)]
    ask: Reasons,
    #[serde(default)]
    leave: Reasons,
    #[serde(default)]
    set: Vec<Spanned<FileWanted>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileCpus {
    second_threads: SecondThreads,
    free: Spanned<String>,
    interrupts: bool,
    rps: RpsTarget,
    xps: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileWanted {
    sysctl: Option<String>,
    interface: Option<InterfaceKnob>,
    machine: Option<MachineKnob>,
    to: Option<String>,
    at_least: Option<u64>,
    at_most: Option<u64>,
    why: String,
    source: Option<String>,
    risk: Option<String>,
    finding: Option<Spanned<String>>,
    #[serde(default)]
    unless: Vec<SkipCondition>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum MachineKnob {
    Governor,
}

struct ProfileText<'a> {
    text: &'a str,
    origin: &'a str,
}

impl ProfileText<'_> {
    fn wrong(&self, span: Option<Range<usize>>, message: impl Into<String>) -> ProfileError {
        let offset = span.map_or(0, |span| span.start);
        let line = self.text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1;
        ProfileError(format!("{}:{line}: {}", self.origin, message.into()))
    }
}

pub(super) fn profile(text: &str, origin: &str) -> Result<TuneProfile, ProfileError> {
    let source = ProfileText { text, origin };
    let file: ProfileFile = toml::from_str(text).map_err(|error| {
        // The library's message may have several lines.
        source.wrong(error.span(), error.message().replace('\n', " "))
    })?;
    let name = file.name.get_ref();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    if name.is_empty() || !name.chars().all(is_plain) {
        let message = format!("'{name}' is no name: letters, digits, - and _ make one");
        return Err(source.wrong(Some(file.name.span()), message));
    }
    let findings = findings(&source, &file)?;
    Ok(TuneProfile {
        name: name.clone(),
        title: file.title,
        purpose: file.purpose,
        not_for: file.not_for,
        needs_udp_service: file.needs_udp_service,
        cpus: cpus(&source, &file.cpus)?,
        findings,
        values: file.set.into_iter().map(|item| profile_value(&source, item)).collect::<Result<_, _>>()?,
        text: text.to_owned(),
        anyway: false,
    })
}

fn cpus(source: &ProfileText<'_>, file: &FileCpus) -> Result<CpuPolicy, ProfileError> {
    let free = CpuSet::from_list(file.free.get_ref())
        .map_err(|error| source.wrong(Some(file.free.span()), format!("free: {error}")))?;
    let policy = SpreadPolicy {
        second_threads: file.second_threads,
        handing: file.rps,
        free,
        interrupts_stay: !file.interrupts,
        stays: BTreeSet::new(),
    };
    Ok(CpuPolicy { policy, xps: file.xps })
}

/// The id of a finding, or all of a stage as `stage.*`.
fn id(source: &ProfileText<'_>, id: &Spanned<String>) -> Result<String, ProfileError> {
    let name = id.get_ref();
    let stage = name.strip_suffix(".*").and_then(|name| name.parse::<StageName>().ok());
    if stage.is_none() && rule(name).is_none() {
        let message = format!(
            "'{name}' is no finding: ids are those that `linerate doctor` shows, or a stage's all, such as \"irq.*\""
        );
        return Err(source.wrong(Some(id.span()), message));
    }
    Ok(name.clone())
}

fn findings(
    source: &ProfileText<'_>,
    file: &ProfileFile,
) -> Result<BTreeMap<String, FindingPolicy>, ProfileError> {
    let mut policies: BTreeMap<String, (&str, FindingPolicy)> = BTreeMap::new();
    let mut add = |table: &'static str, key: &Spanned<String>, policy: FindingPolicy| match policies
        .insert(id(source, key)?, (table, policy))
    {
        Some((other, _)) => {
            let message = format!("'{}' is in {other} and in {table}", key.get_ref());
            Err(source.wrong(Some(key.span()), message))
        }
        None => Ok(()),
    };
    for (key, severity) in &file.fix {
        add("[fix]", key, FindingPolicy::Fix(*severity))?;
    }
    for (key, reason) in &file.ask {
        add("[ask]", key, FindingPolicy::Ask(sentence(source, key, reason)?))?;
    }
    for (key, reason) in &file.leave {
        add("[leave]", key, FindingPolicy::Leave(sentence(source, key, reason)?))?;
    }
    Ok(policies.into_iter().map(|(key, (_, policy))| (key, policy)).collect())
}

fn sentence(
    source: &ProfileText<'_>,
    key: &Spanned<String>,
    reason: &Spanned<String>,
) -> Result<String, ProfileError> {
    if reason.get_ref().trim().is_empty() {
        let message = format!("why is '{}' left? A sentence is expected", key.get_ref());
        return Err(source.wrong(Some(reason.span()), message));
    }
    Ok(reason.get_ref().clone())
}

fn profile_value(source: &ProfileText<'_>, item: Spanned<FileWanted>) -> Result<ProfileValue, ProfileError> {
    let span = item.span();
    let wrong = |message: &str| Err(source.wrong(Some(span.clone()), message));
    let item = item.into_inner();
    let knob = match (item.sysctl, item.interface, item.machine) {
        (Some(name), None, None) if name.contains('.') => ProfileKnob::Sysctl(name),
        (Some(name), None, None) => {
            return wrong(&format!(
                "'{name}' is no sysctl: a dotted name such as net.core.rmem_max is expected"
            ));
        }
        (None, Some(knob), None) => ProfileKnob::Interface(knob),
        (None, None, Some(MachineKnob::Governor)) => ProfileKnob::Governor,
        _ => return wrong("each [[set]] has one of `sysctl`, `interface` and `machine`"),
    };
    let to = match (item.to, item.at_least, item.at_most) {
        (Some(value), None, None) if !value.trim().is_empty() => ValueBound::Exactly(value),
        (None, Some(number), None) => ValueBound::AtLeast(number),
        (None, None, Some(number)) => ValueBound::AtMost(number),
        _ => return wrong("each [[set]] has one of `to`, `at_least` and `at_most`"),
    };
    let finding = item.finding.map(|name| id(source, &name)).transpose()?;
    Ok(ProfileValue {
        knob,
        to,
        why: item.why,
        source: item.source,
        risk: item.risk,
        finding,
        unless: item.unless,
    })
}

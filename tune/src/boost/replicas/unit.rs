//! The drop-in that makes a systemd service start its server through `linerate boost run`, and
//! keeps the service's own hardening for the copies.

use linerate_host::{Host, ini};

use crate::persist::{argument, is_expressible};

/// Where units are, the first directory first (systemd.unit(5)).
const DIRECTORIES: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// Capabilities for `boost run`: BPF programs, copies of sockets, another user for the copies.
const CAPABILITIES: &str = "CAP_BPF CAP_PERFMON CAP_NET_ADMIN CAP_SYS_ADMIN CAP_SYS_PTRACE CAP_SYS_RESOURCE CAP_SYS_NICE \
                            CAP_SETUID CAP_SETGID CAP_SETPCAP CAP_KILL CAP_DAC_OVERRIDE";
const SYSTEM_CALLS: &str = "bpf perf_event_open pidfd_open pidfd_getfd pidfd_send_signal setns capset \
                            sched_setaffinity sched_setscheduler";
/// For setpriv, which gives the copies the user of the unit.
const USER_CALLS: &str = "setresuid setresgid setgroups";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaUnit {
    /// Such as `ntpd.service`.
    pub unit: String,
    pub drop_in: String,
    /// Notes for the user, one sentence each.
    pub notes: Vec<String>,
}

/// Why copies of a unit's server cannot be run, in one line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ReplicaUnitError(String);

struct ServiceSection(Vec<(String, String)>);

impl ReplicaUnit {
    /// `options` are the options of `boost run`. `command` replaces the command of the unit, if it
    /// is not empty. `program` is the absolute path of linerate.
    pub fn of(
        host: &Host,
        unit: &str,
        (program, options, command): (&str, &[String], &[String]),
    ) -> Result<Self, ReplicaUnitError> {
        let service = ServiceSection::read(host, unit).ok_or_else(|| {
            let directories = DIRECTORIES.join(", ");
            ReplicaUnitError(format!(
                "there is no unit {unit} (looked in {directories}): see systemctl list-unit-files"
            ))
        })?;
        let unsuited = |why: String| ReplicaUnitError(format!("{unit}: {why}"));
        if !is_expressible(program) {
            return Err(unsuited(format!(
                "systemd cannot start {program}: move linerate to another directory"
            )));
        }
        if let Some(reason) = service.refusal(!command.is_empty()) {
            return Err(unsuited(reason));
        }
        let unit_command = service.last("ExecStart").unwrap_or_default();
        let (flags, unit_command) =
            unit_command.split_at(unit_command.find(|letter| !"-:+!".contains(letter)).unwrap_or_default());
        let command = match command {
            [] => unit_command.to_owned(),
            words => words.iter().map(|word| argument(word)).collect::<Vec<_>>().join(" "),
        };
        // Only linerate runs as root: `!` leaves the other restrictions of the unit as they are.
        let as_root = if service.last("User").is_some() { "!" } else { "" };
        let kept_flags: String = flags.chars().filter(|flag| "-:".contains(*flag)).collect();
        // `!!` is ignored where the kernel has ambient capabilities (systemd.service(5)).
        let is_privileged = flags.contains('+') || flags.matches('!').count() == 1;
        let privileges = service.privileges(host, is_privileged).map_err(unsuited)?;
        let options = options.iter().map(|word| argument(word)).collect::<Vec<_>>().join(" ");
        let mut drop_in = format!(
            "# Written by linerate boost unit; linerate tune undo removes it.\n[Service]\nExecStart=\n\
             ExecStart={as_root}{kept_flags}{} boost run {options} -- {privileges}{command}\n\
             Delegate=yes\n",
            argument(program)
        );
        let mut notes = Vec::new();
        for (key, value, reason) in service.changes() {
            drop_in += &format!("{key}={value}\n");
            notes.extend(reason.map(|reason| format!("{key}={value}: {reason}.")));
        }
        Ok(Self { unit: unit.to_owned(), drop_in, notes })
    }
}

impl ServiceSection {
    /// The drop-in of linerate is omitted.
    fn read(host: &Host, unit: &str) -> Option<Self> {
        let template = unit.split_once('@').map(|(name, _)| format!("{name}@.service"));
        let names = || [Some(unit.to_owned()), template.clone()].into_iter().flatten();
        let candidates = names().flat_map(|name| DIRECTORIES.map(|directory| format!("{directory}/{name}")));
        let main_text = candidates.into_iter().find_map(|path| host.read(&path).ok())?;
        let directories = names().flat_map(|name| DIRECTORIES.map(|parent| format!("{parent}/{name}.d")));
        let list = |directory: String| (directory.clone(), host.list(&directory).unwrap_or_default());
        let mut drop_ins = ini::layered(directories.map(list), ".conf");
        drop_ins.retain(|path| !path.ends_with("/90-linerate.conf"));
        let mut section = Self(Vec::new());
        section.add(&main_text);
        drop_ins.iter().filter_map(|path| host.read(path).ok()).for_each(|text| section.add(&text));
        Some(section)
    }

    fn add(&mut self, text: &str) {
        // A line that ends with a backslash goes on.
        let text = text.replace("\\\n", " ");
        for entry in ini::entries(&text).filter(|entry| entry.section == "Service") {
            if entry.value.is_empty() {
                self.0.retain(|(key, _)| key != entry.key);
            }
            // Without a value, this one means no capability (systemd.exec(5)).
            if !entry.value.is_empty() || entry.key == "CapabilityBoundingSet" {
                self.0.push((entry.key.to_owned(), entry.value.to_owned()));
            }
        }
    }

    fn values<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    fn last(&self, key: &str) -> Option<&str> {
        self.0.iter().rfind(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    fn is_on(&self, key: &str) -> bool {
        self.last(key).is_some_and(|value| ini::switch(value) == Some("on"))
    }

    /// Why copies of the server cannot be run; `None` if they can.
    fn refusal(&self, has_command: bool) -> Option<String> {
        let kind = self.last("Type").unwrap_or("simple");
        let hint =
            "give the command that keeps the server in the foreground: linerate boost unit ... -- COMMAND";
        if kind == "forking" && !has_command {
            return Some(format!("it goes to the background (Type=forking): {hint}"));
        }
        if !["simple", "exec", "forking", "notify", "notify-reload"].contains(&kind) {
            return Some(format!("its Type={kind} is that of no server that stays in the foreground"));
        }
        if self.is_on("DynamicUser") || self.is_on("PrivateUsers") {
            return Some(
                "DynamicUser= and PrivateUsers= leave no user for the copies: turn them off first".to_owned(),
            );
        }
        if self.values("ExecStart").count() != 1
            || self.last("ExecStart").is_some_and(|command| command.starts_with(['@', '|']))
        {
            return Some("only a unit with one plain ExecStart= can be replicated".to_owned());
        }
        None
    }

    /// The command before the command of the server. It gives the copies the user, groups and
    /// capabilities that the unit gave the server.
    fn privileges(&self, host: &Host, is_privileged: bool) -> Result<String, String> {
        let capabilities = |key: &str| {
            let names = self.values(key).flat_map(str::split_whitespace).map(str::to_lowercase);
            let names: Vec<String> = names.collect();
            // A list that begins with ~ names the capabilities to remove.
            let is_removal = names.first().is_some_and(|name| name.starts_with('~'));
            let sign = if is_removal { "-" } else { "+" };
            let short_names =
                names.iter().map(|name| name.trim_start_matches('~').trim_start_matches("cap_"));
            let signed_names =
                short_names.filter(|name| !name.is_empty()).map(|name| format!("{sign}{name}"));
            let base = if is_removal { "+all" } else { "-all" };
            let set: Vec<String> = std::iter::once(base.to_owned()).chain(signed_names).collect();
            self.last(key).map(|_| set.join(","))
        };
        let mut words = Vec::new();
        if let Some(user) = self.last("User").filter(|_| !is_privileged) {
            let group = self.last("Group").map(str::to_owned).or_else(|| primary_group(host, user));
            let group = group.ok_or_else(|| {
                format!("the primary group of its User={user} is not in /etc/passwd: give the unit a Group=")
            })?;
            words.push(format!("--reuid={user} --regid={group}"));
            let supplementary: Vec<&str> =
                self.values("SupplementaryGroups").flat_map(str::split_whitespace).collect();
            words.push(match supplementary.is_empty() {
                true => "--init-groups".to_owned(),
                false => {
                    let more = supplementary.into_iter().map(str::to_owned);
                    let groups: Vec<String> =
                        std::iter::once(group).chain(groups_of(host, user)).chain(more).collect();
                    format!("--groups={}", groups.join(","))
                }
            });
        }
        words.extend(capabilities("CapabilityBoundingSet").map(|set| format!("--bounding-set={set}")));
        let ambient = capabilities("AmbientCapabilities");
        words.extend(ambient.map(|set| format!("--inh-caps={set} --ambient-caps={set}")));
        // linerate starts programs with the default action.
        let is_ignored = self.last("IgnoreSIGPIPE").is_none_or(|value| ini::switch(value) != Some("off"));
        let signals = if is_ignored { "/usr/bin/env --ignore-signal=PIPE " } else { "" };
        Ok(match words.is_empty() {
            true => signals.to_owned(),
            false => format!("{signals}/usr/bin/setpriv {} -- ", words.join(" ")),
        })
    }

    /// The changes of the drop-in other than the command, with reasons.
    fn changes(&self) -> Vec<(&'static str, String, Option<&'static str>)> {
        let mut changes = Vec::new();
        let mut change = |key, value: &str, reason| changes.push((key, value.to_owned(), reason));
        match self.last("Type").unwrap_or("simple") {
            "forking" => {
                change("Type", "exec", None);
                change("PIDFile", "", None);
            }
            "notify" | "notify-reload" => {
                change("NotifyAccess", "all", Some("the first copy that is ready makes the service ready"));
            }
            _ => {}
        }
        if self.last("KillMode").is_none_or(|mode| mode == "control-group") {
            change("KillMode", "mixed", Some("linerate ends the copies, and prints their last lines"));
        }
        // systemd expects the notifications of linerate's process, so that the copies send none.
        if self.last("WatchdogSec").is_some_and(|time| !["0", "infinity"].contains(&time)) {
            change(
                "WatchdogSec",
                "0",
                Some("linerate is the main process, and restarts copies that end, but not copies that hang"),
            );
        }
        if self.is_on("ProtectControlGroups")
            || self.last("ProtectControlGroups").is_some_and(|value| value != "no")
        {
            change("ProtectControlGroups", "no", Some("linerate makes a control group for the copies"));
        }
        if self.last("CapabilityBoundingSet").is_some() {
            change(
                "CapabilityBoundingSet",
                CAPABILITIES,
                Some("for linerate, the copies keep the set of the unit"),
            );
        }
        if self.last("SystemCallFilter").is_some() {
            let user_calls = self.last("User").map(|_| format!(" {USER_CALLS}")).unwrap_or_default();
            change(
                "SystemCallFilter",
                &format!("{SYSTEM_CALLS}{user_calls}"),
                Some("linerate's own, which the filter allows the copies, too"),
            );
        }
        let families = self.values("RestrictAddressFamilies").collect::<Vec<_>>().join(" ");
        if !families.is_empty() && !families.starts_with('~') && !families.contains("AF_NETLINK") {
            change("RestrictAddressFamilies", "AF_NETLINK", Some("linerate lists sockets"));
        }
        changes
    }
}

/// The lines of a file with fields and colons (passwd(5), group(5)).
fn colon_fields(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().map(|line| line.split(':').collect())
}

/// The number of the group of a user, by name or number.
fn primary_group(host: &Host, user: &str) -> Option<String> {
    let text = host.read("/etc/passwd").ok()?;
    colon_fields(&text).find_map(|fields| match fields[..] {
        [name, _, uid, gid, ..] if name == user || uid == user => Some(gid.to_owned()),
        _ => None,
    })
}

/// The numbers of the other groups that have a user as a member.
fn groups_of(host: &Host, user: &str) -> Vec<String> {
    let text = host.read("/etc/group").unwrap_or_default();
    let group = |fields: Vec<&str>| match fields[..] {
        [_, _, gid, members] if members.split(',').any(|member| member == user) => Some(gid.to_owned()),
        _ => None,
    };
    colon_fields(&text).filter_map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: (&str, &str) =
        ("/etc/passwd", "root:x:0:0::/root:/bin/sh\nntp:x:105:112::/:/x\nnobody:x:65534:65533::/:/x\n");
    const GROUP: (&str, &str) = ("/etc/group", "ntp:x:112:\nssl-cert:x:115:nobody,ntp\nadm:x:4:syslog\n");

    fn unit(files: &[(&str, &str)], command: &[&str]) -> Result<ReplicaUnit, ReplicaUnitError> {
        let host = Host::scripted(files.iter().map(|(path, text)| (*path, *text)));
        let options = ["--replicas".to_owned(), "2".to_owned()];
        let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        ReplicaUnit::of(&host, "ntp.service", ("/usr/bin/linerate", &options, &command))
    }

    #[test]
    fn drop_in_keeps_the_user_and_hardening_of_the_unit() {
        let main = "[Unit]\nDescription=x\n[Service]\nType=notify\nUser=ntp\nExecStart=-/usr/sbin/ntpd -g \\\n  $OPTIONS\n\
                    AmbientCapabilities=CAP_NET_BIND_SERVICE\nProtectControlGroups=yes\nProtectHome=yes\n";
        let drop_in = "[Service]\nExecStart=\nExecStart=/opt/ntpd $OPTIONS\nCapabilityBoundingSet=CAP_NET_BIND_SERVICE CAP_SYS_TIME\n\
                       SystemCallFilter=@system-service\nRestrictAddressFamilies=AF_INET\n";
        let files = [
            PASSWD,
            ("/usr/lib/systemd/system/ntp.service", main),
            ("/etc/systemd/system/ntp.service.d/10-local.conf", drop_in),
            ("/etc/systemd/system/ntp.service.d/90-linerate.conf", "[Service]\nExecStart=\nExecStart=/x\n"),
        ];
        let unit = unit(&files, &[]).expect("suited");
        assert_eq!(
            unit.drop_in,
            format!(
                "# Written by linerate boost unit; linerate tune undo removes it.\n[Service]\nExecStart=\n\
                 ExecStart=!/usr/bin/linerate boost run --replicas 2 -- /usr/bin/env --ignore-signal=PIPE \
                 /usr/bin/setpriv --reuid=ntp --regid=112 --init-groups \
                 --bounding-set=-all,+net_bind_service,+sys_time --inh-caps=-all,+net_bind_service \
                 --ambient-caps=-all,+net_bind_service -- /opt/ntpd $OPTIONS\n\
                 Delegate=yes\nNotifyAccess=all\nKillMode=mixed\nProtectControlGroups=no\nCapabilityBoundingSet={CAPABILITIES}\n\
                 SystemCallFilter={SYSTEM_CALLS} {USER_CALLS}\nRestrictAddressFamilies=AF_NETLINK\n"
            )
        );
        assert_eq!(unit.notes.len(), 6, "{:?}", unit.notes);
    }

    #[test]
    fn drop_in_follows_the_settings_of_the_unit() {
        let prefix = "-- /usr/bin/env --ignore-signal=PIPE ";
        for (lines, expected) in [
            ("User=nobody\n", "/usr/bin/setpriv --reuid=nobody --regid=65533 --init-groups -- /bin/x"),
            ("User=105\n", "/usr/bin/setpriv --reuid=105 --regid=112 --init-groups -- /bin/x"),
            ("User=nobody\nGroup=adm\n", "--reuid=nobody --regid=adm --init-groups -- /bin/x"),
            (
                "User=nobody\nSupplementaryGroups=adm audio\nSupplementaryGroups=4\n",
                "--regid=65533 --groups=65533,115,adm,audio,4 -- /bin/x",
            ),
            ("IgnoreSIGPIPE=no\n", "--replicas 2 -- /bin/x\n"),
            ("WatchdogSec=1min\n", "\nWatchdogSec=0\n"),
            ("KillMode=process\n", "Delegate=yes\n"),
            ("CapabilityBoundingSet=\n", "/usr/bin/setpriv --bounding-set=-all -- /bin/x\n"),
            ("CapabilityBoundingSet=CAP_KILL\nCapabilityBoundingSet=\n", "\nCapabilityBoundingSet=CAP_BPF "),
            ("CapabilityBoundingSet=~\n", "/usr/bin/setpriv --bounding-set=+all -- /bin/x\n"),
            ("SystemCallFilter=~@resources\n", " sched_setaffinity sched_setscheduler\n"),
            ("User=nobody\nSystemCallFilter=~@privileged\n", " setresuid setresgid setgroups\n"),
            ("", "Delegate=yes\nKillMode=mixed\n"),
        ] {
            let text = format!("[Service]\nExecStart=/bin/x\n{lines}");
            let files = [PASSWD, GROUP, ("/lib/systemd/system/ntp.service", &*text)];
            let drop_in = unit(&files, &[]).expect("suited").drop_in;
            assert!(drop_in.contains(expected), "{lines}: {drop_in}");
            assert_eq!(drop_in.contains("WatchdogSec"), lines.starts_with("WatchdogSec"), "{drop_in}");
            assert_eq!(drop_in.contains("KillMode"), !lines.starts_with("KillMode"), "{drop_in}");
        }
        for (flags, has_user) in [("", true), ("!!", true), ("-!!", true), ("!", false), ("+", false)] {
            let text = format!("[Service]\nExecStart={flags}/bin/x\nUser=ntp\n");
            let files = [PASSWD, ("/lib/systemd/system/ntp.service", &*text)];
            let drop_in = unit(&files, &[]).expect("suited").drop_in;
            assert!(drop_in.contains(prefix), "{drop_in}");
            assert_eq!(drop_in.contains("--reuid=ntp"), has_user, "{flags}: {drop_in}");
        }
        let text = "[Service]\nExecStart=/bin/x\nUser=%i\n";
        let error = unit(&[PASSWD, ("/lib/systemd/system/ntp.service", text)], &[]).expect_err("no group");
        assert!(error.to_string().contains("give the unit a Group="), "{error}");
    }

    #[test]
    fn forking_unit_requires_a_command() {
        let files = [(
            "/lib/systemd/system/ntp.service",
            "[Service]\nType=forking\nPIDFile=/run/x\nExecStart=/usr/sbin/ntpd\n",
        )];
        let error = unit(&files, &[]).expect_err("forking").to_string();
        assert!(error.contains("-- COMMAND"), "{error}");
        let drop_in =
            unit(&files, &["/usr/sbin/ntpd", "-n", "-p", "/run/{replica} $x"]).expect("suited").drop_in;
        assert!(
            drop_in.contains(
                "ExecStart=/usr/bin/linerate boost run --replicas 2 -- /usr/bin/env --ignore-signal=PIPE /usr/sbin/ntpd -n"
            ),
            "{drop_in}"
        );
        assert!(
            drop_in.contains("\"/run/{replica} $$x\"") && drop_in.contains("Type=exec\nPIDFile=\n"),
            "{drop_in}"
        );
        let oneshot_unit =
            [("/lib/systemd/system/ntp.service", "[Service]\nType=oneshot\nExecStart=/bin/true\n")];
        assert!(unit(&oneshot_unit, &[]).is_err() && unit(&[("/x", "")], &[]).is_err());
    }
}

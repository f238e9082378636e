//! The systemd units that reapply settings, and the links that enable them.
//!
//! `linerate-tune@IF.service` runs each time the device of an interface appears. At boot this is mostly
//! before its addresses are set, when a link reset harms least. `linerate-tune.service` runs late in the
//! boot and after each start of a program that manages the same settings; it leaves settings in effect
//! alone. There is one instance per interface, because systemd drops a start request while the unit is
//! starting (systemd 257 src/core/job.c, `job_install`), and two NICs may appear at the same time.
//!
//! Neither stays active (no `RemainAfterExit=`), so that each cause starts it again. Neither requires or
//! awaits a device: a missing NIC must not delay the boot by the 90 s that systemd waits. Neither is
//! ordered before the network: cloud-init's first stage runs after the network and before
//! `sysinit.target`, which these units follow, and systemd breaks such a cycle by dropping a unit.

use std::fmt::Write as _;

use linerate_host::Setting;
use linerate_host::setting::QueueDirection;

use super::{DOCUMENT_FILE, PersistFile, PersistTarget};

pub(super) const DIRECTORY: &str = "/etc/systemd/system";
const SERVICE: &str = "linerate-tune.service";
const TEMPLATE: &str = "linerate-tune@.service";
/// Units that set links, addresses and features.
const NETWORK: [&str; 3] = ["NetworkManager.service", "systemd-networkd.service", "network-online.target"];

/// The units, and the links that `systemctl enable` would make.
pub(super) fn files(
    target: &PersistTarget<'_>,
    settings: &[&Setting],
    interfaces: &[&str],
) -> Vec<PersistFile> {
    let path = |name: &str| format!("{DIRECTORY}/{name}");
    let mut files = vec![PersistFile::text(path(SERVICE), service(target, settings))];
    if !interfaces.is_empty() {
        files.push(PersistFile::text(path(TEMPLATE), template(target)));
    }
    let link = |wanting: &str, instance: &str, unit: &str| {
        PersistFile::link(path(&format!("{wanting}.wants/{instance}")), format!("../{unit}"))
    };
    files.extend(wanted_by(settings).map(|unit| link(unit, SERVICE, SERVICE)));
    files.extend(interfaces.iter().map(|interface| {
        let instance = TEMPLATE.replace('@', &format!("@{}", escape(interface)));
        link(&device_unit(interface), &instance, TEMPLATE)
    }));
    files
}

fn wanted_by(settings: &[&Setting]) -> impl Iterator<Item = &'static str> {
    ["multi-user.target"].into_iter().chain(related_units(settings))
}

/// Units of programs that manage the same settings, or that forget exclusions when they are restarted.
fn related_units(settings: &[&Setting]) -> Vec<&'static str> {
    let units_of = |setting: &&Setting| match setting {
        Setting::IrqAffinity { .. } => &["google-guest-agent.service", "irqbalance.service"][..],
        Setting::QueueCpus { direction: QueueDirection::Transmit, .. } => &["google-guest-agent.service"],
        // They start with an empty ruleset, or with their own.
        Setting::NftTable { .. } => &["nftables.service", "firewalld.service"],
        Setting::IptablesRule { .. } => {
            &["firewalld.service", "iptables.service", "ip6tables.service", "netfilter-persistent.service"]
        }
        // Not tlp.service, which starts after multi-user.target.
        Setting::Governor { .. } => {
            &["cpufrequtils.service", "cpupower.service", "power-profiles-daemon.service"]
        }
        Setting::Audit => &["auditd.service"],
        _ => &[],
    };
    let mut units: Vec<_> = settings.iter().flat_map(units_of).copied().chain(["tuned.service"]).collect();
    units.sort_unstable();
    units.dedup();
    units
}

fn service(target: &PersistTarget<'_>, settings: &[&Setting]) -> String {
    let related_units = related_units(settings).join(" ");
    let wanting_units: Vec<_> = wanted_by(settings).collect();
    let mut text = head("Apply the tuned packet path again", target);
    // The restart of such a program starts this unit after it.
    let _ = writeln!(text, "After={} {related_units}", NETWORK.join(" "));
    // Most drivers allocate interrupts when the interface comes up.
    if settings.iter().any(|setting| matches!(setting, Setting::IrqAffinity { .. })) {
        text.push_str("Wants=network-online.target\n");
    }
    text.push_str(&body(target, ""));
    let _ = writeln!(text, "\n[Install]\nWantedBy={}", wanting_units.join(" "));
    text
}

fn template(target: &PersistTarget<'_>) -> String {
    let mut text = head("Apply the tuned packet path of %I again", target);
    text.push_str(&body(target, " --interface %I"));
    text.push_str("\n[Install]\nWantedBy=sys-subsystem-net-devices-%i.device\n");
    text
}

fn head(description: &str, target: &PersistTarget<'_>) -> String {
    // No start limit, because a run without changes does no harm.
    format!(
        "# Written by `linerate tune persist`; `linerate tune unpersist` removes it.\n[Unit]\n\
         Description={description}\nDocumentation=man:linerate-tune-persist(1)\n\
         ConditionPathExists={DOCUMENT_FILE}\nConditionFileIsExecutable={program}\nStartLimitIntervalSec=0\n",
        program = specifiers(target.program),
    )
}

// The sandbox permits a program below /home or /root, the journal, and kernel settings. A run also undoes
// overdue tunes, which may include threads (`CAP_SYS_NICE`), sockets of other processes
// (`CAP_SYS_PTRACE`, pidfd_getfd) and steering programs (`CAP_BPF`).
pub(super) const SANDBOX: &str = "\
NoNewPrivileges=yes
CapabilityBoundingSet=CAP_NET_ADMIN CAP_NET_RAW CAP_SYS_ADMIN CAP_SYS_NICE CAP_SYS_PTRACE CAP_BPF CAP_PERFMON CAP_AUDIT_CONTROL \
CAP_AUDIT_READ CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER CAP_KILL
PrivateTmp=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
RestrictAddressFamilies=AF_UNIX AF_NETLINK AF_INET AF_INET6
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallErrorNumber=EPERM
SystemCallFilter=@system-service bpf pidfd_getfd
";

fn body(target: &PersistTarget<'_>, options: &str) -> String {
    format!(
        "\n[Service]\nType=oneshot\n\
         ExecStart={program} tune reapply --file {DOCUMENT_FILE} --state-dir {state}{options}\n\
         TimeoutStartSec=2min\nProtectHome=read-only\nProtectSystem=full\nReadWritePaths={writable}\n{SANDBOX}",
        program = argument(target.program),
        state = argument(target.state_dir),
        writable = word(&format!("-{}", target.state_dir)),
    )
}

/// Whether a unit can name this path.
pub(crate) fn is_expressible(path: &str) -> bool {
    path.starts_with('/') && !path.contains(char::is_control)
}

// A word of a command line, in which systemd expands variables (systemd.service(5)).
pub(crate) fn argument(text: &str) -> String {
    word(text).replace('$', "$$")
}

// A literal word of a list (systemd.syntax(7)).
fn word(text: &str) -> String {
    let text = specifiers(text).replace('\\', "\\\\").replace('"', "\\\"");
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+=:@%,$".contains(&byte);
    if text.bytes().all(is_plain) { text } else { format!("\"{text}\"") }
}

fn specifiers(word: &str) -> String {
    word.replace('%', "%%")
}

fn device_unit(interface: &str) -> String {
    format!("sys-subsystem-net-devices-{}.device", escape_from(interface, false))
}

// Escapes a text for the name of a unit (systemd.unit(5)).
fn escape(text: &str) -> String {
    escape_from(text, true)
}

fn escape_from(text: &str, at_start: bool) -> String {
    text.bytes().enumerate().fold(String::new(), |mut escaped, (index, byte)| {
        match byte {
            b'/' => escaped.push('-'),
            b'.' if at_start && index == 0 => escaped.push_str("\\x2e"),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b':' | b'_' | b'.' => escaped.push(char::from(byte)),
            other => {
                // Writing to a String cannot fail.
                let _ = write!(escaped, "\\x{other:02x}");
            }
        }
        escaped
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use linerate_testkit::skip;

    use super::super::{FileContent, SettingContext, tests::target};
    use super::*;

    /// The output of a program; `None` if it is not installed.
    fn stdout_of(program: &str, arguments: &[&str]) -> Option<String> {
        let output = Command::new(program).args(arguments).output().ok()?;
        Some(String::from_utf8(output.stdout).expect("text").trim_end().to_owned())
    }

    #[test]
    fn unit_names_are_escaped_like_systemd_escape() {
        for interface in ["eth0", "eth0.5", "br-lan", "a-b@c:d%e", ".hidden", "wlan_0", "ü", "x=y"] {
            let path = format!("/sys/subsystem/net/devices/{interface}");
            let Some(device) = stdout_of("systemd-escape", &["--path", "--suffix=device", &path]) else {
                skip("unit_names_are_escaped_like_systemd_escape", "systemd-escape is not installed");
                return;
            };
            assert_eq!(device_unit(interface), device);
            assert_eq!(
                escape(interface),
                stdout_of("systemd-escape", &["--", interface]).expect("runs"),
                "{interface}"
            );
        }
    }

    #[test]
    fn program_paths_are_quoted_or_rejected() {
        assert_eq!(argument("/usr/bin/linerate"), "/usr/bin/linerate");
        assert_eq!(argument("/opt/line rate/100%/$x"), "\"/opt/line rate/100%%/$$x\"");
        assert!(!is_expressible("bin/linerate") && !is_expressible("/a\nb"));
    }

    #[test]
    fn units_that_manage_the_same_settings_are_listed() {
        let queue = |direction| Setting::QueueCpus { interface: "eth0".into(), direction, queue: 0 };
        let (rps, xps) = (queue(QueueDirection::Receive), queue(QueueDirection::Transmit));
        let family = linerate_host::setting::NftFamily::Inet;
        let table = Setting::NftTable { family, table: "linerate".into() };
        assert_eq!(related_units(&[&rps]), ["tuned.service"]);
        assert_eq!(related_units(&[&xps, &xps]), ["google-guest-agent.service", "tuned.service"]);
        assert_eq!(
            related_units(&[&table, &Setting::Audit]),
            ["auditd.service", "firewalld.service", "nftables.service", "tuned.service"]
        );
    }

    #[test]
    fn links_match_systemctl_enable() {
        let directory = tempfile::tempdir().expect("a directory");
        let direction = QueueDirection::Receive;
        let rps = Setting::QueueCpus { interface: "eth0".into(), direction, queue: 0 };
        let irq = Setting::IrqAffinity { irq: 3, action: String::new() };
        let (settings, interfaces) = ([&rps, &irq], ["eth0", "br-lan"]);
        let root = directory.path();
        let system = root.join("etc/systemd/system");
        std::fs::create_dir_all(&system).expect("made");
        let mut our_links = Vec::new();
        for file in files(&target(&[], &SettingContext::default()), &settings, &interfaces) {
            let path = file.path.trim_start_matches('/').to_owned();
            match file.content {
                FileContent::Text(text) => std::fs::write(root.join(path), text).expect("written"),
                FileContent::Link(target) => {
                    our_links.push((path, target.trim_start_matches("../").to_owned()));
                }
            }
        }
        our_links.sort();
        let root_argument = format!("--root={}", root.display());
        let instances =
            ["linerate-tune.service", "linerate-tune@eth0.service", "linerate-tune@br\\x2dlan.service"];
        let enable = [&[root_argument.as_str(), "enable"], instances.as_slice()].concat();
        let Ok(output) = Command::new("systemctl").args(&enable).output() else {
            skip("links_match_systemctl_enable", "systemctl is not installed");
            return;
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut enabled_links = Vec::new();
        for entry in std::fs::read_dir(&system).expect("listed").map(|entry| entry.expect("an entry").path())
        {
            if entry.is_dir() {
                enabled_links.extend(std::fs::read_dir(entry).expect("listed").map(|link| {
                    let path = link.expect("a link").path();
                    let target = std::fs::read_link(&path).expect("a link");
                    let name = target.file_name().expect("a name").to_string_lossy().into_owned();
                    (path.strip_prefix(root).expect("below").display().to_string(), name)
                }));
            }
        }
        enabled_links.sort();
        assert_eq!(our_links, enabled_links);
    }

    #[test]
    fn systemd_accepts_the_units() {
        let directory = tempfile::tempdir().expect("a directory");
        let program = directory.path().join("line rate");
        std::fs::copy("/bin/true", &program).expect("copied");
        let surroundings = SettingContext::default();
        let target = target(&[], &surroundings);
        let target = PersistTarget { program: program.to_str().expect("text"), ..target };
        let irq = Setting::IrqAffinity { irq: 3, action: String::new() };
        let mut paths = Vec::new();
        for file in files(&target, &[&irq, &Setting::Audit], &["br-lan"]) {
            let FileContent::Text(text) = file.content else { continue };
            let name = file.path.rsplit('/').next().expect("a name").replace('@', "@br\\x2dlan");
            let path = directory.path().join(name);
            std::fs::write(&path, text).expect("written");
            paths.push(path);
        }
        let Ok(output) = Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&paths).output()
        else {
            skip("systemd_accepts_the_units", "systemd-analyze is not installed");
            return;
        };
        let stderr = String::from_utf8_lossy(&output.stderr);
        let our_lines: Vec<_> = stderr.lines().filter(|line| line.contains("linerate")).collect();
        assert!(output.status.success() && our_lines.is_empty(), "{stderr}");
    }
}

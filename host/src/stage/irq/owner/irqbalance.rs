//! irqbalance: arguments, environment, and interrupts to leave alone.

use super::IrqOwner;
use crate::{Host, ini};

/// Environment files of its service on Debian and Red Hat.
const ENVIRONMENTS: [&str; 2] = ["/etc/default/irqbalance", "/etc/sysconfig/irqbalance"];

/// Variables that affect interrupts.
const WANTED: [&str; 4] =
    ["IRQBALANCE_ARGS", "IRQBALANCE_BANNED_CPULIST", "IRQBALANCE_BANNED_CPUS", "IRQBALANCE_ONESHOT"];

/// The command that adds a ban per interrupt to irqbalance's arguments.
pub(super) fn ban_command(owner: &IrqOwner, irqs: &[u32]) -> Option<String> {
    let bans: Vec<String> = irqs
        .iter()
        .filter(|irq| !owner.leaves_alone.contains(irq))
        .map(|irq| format!("--banirq={irq}"))
        .collect();
    if bans.is_empty() {
        return None;
    }
    let (file, arguments) =
        owner.environment.clone().unwrap_or_else(|| (ENVIRONMENTS[0].to_owned(), String::new()));
    let arguments = format!("{arguments} {}", bans.join(" "));
    Some(format!(
        "echo 'IRQBALANCE_ARGS=\"{}\"' >> {file} && systemctl restart irqbalance",
        arguments.trim().replace(['\'', '"'], "")
    ))
}

pub(super) fn observe(host: &Host, pid: u32) -> IrqOwner {
    let command_line = format!("/proc/{pid}/cmdline");
    let arguments = host.read(&command_line).unwrap_or_default();
    let arguments: Vec<&str> = arguments.split('\0').filter(|word| !word.is_empty()).collect();
    let leaves_alone = banned_interrupts(&arguments);
    let mut how = if arguments.is_empty() { "irqbalance".to_owned() } else { arguments.join(" ") };
    let mut environment_file = None;
    for path in ENVIRONMENTS {
        let Ok(text) = host.read(path) else { continue };
        let variables = environment(&text);
        let arguments_entry = variables.iter().rev().find(|(key, _)| *key == "IRQBALANCE_ARGS");
        environment_file.get_or_insert((
            path.to_owned(),
            arguments_entry.map_or_else(String::new, |(_, value)| (*value).to_owned()),
        ));
        for (key, value) in variables {
            how.push_str(&format!("; {key}={value} ({path})"));
        }
    }
    let (name, pid) = ("irqbalance".to_owned(), Some(pid));
    IrqOwner { name, how, pid, read_from: command_line, leaves_alone, environment: environment_file }
}

/// The interrupts of `--banirq=24`, `--banirq 24` and `-i 24`; some versions accept a list with
/// commas.
pub(crate) fn banned_interrupts(arguments: &[&str]) -> Vec<u32> {
    let mut irqs = Vec::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let value = match *word {
            "-i" | "--banirq" => words.next().copied(),
            word => word.strip_prefix("--banirq=").or_else(|| word.strip_prefix("-i")),
        };
        irqs.extend(
            value.unwrap_or_default().split(',').filter_map(|number| number.trim().parse::<u32>().ok()),
        );
    }
    irqs
}

pub(crate) fn environment(text: &str) -> Vec<(&str, &str)> {
    ini::entries(text)
        .map(|entry| (entry.key, entry.value.trim_matches(['"', '\''])))
        .filter(|(key, value)| WANTED.contains(key) && !value.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Debian 12 ships it, with two lines filled in.
    const DEBIAN: &str = "# irqbalance is a daemon process that distributes interrupts across\n\
        # IRQBALANCE_ONESHOT\n#IRQBALANCE_ONESHOT=\n\nIRQBALANCE_BANNED_CPULIST=2-19\n\
        IRQBALANCE_ARGS=\"--banirq=24 --hintpolicy=exact\"\n";

    #[test]
    fn irqbalance_arguments_environment_and_bans_are_read() {
        let host = Host::scripted([
            ("/proc/612/cmdline", "/usr/sbin/irqbalance\0--foreground\0--banirq=24\0-i\x0025\0"),
            ("/etc/default/irqbalance", DEBIAN),
        ]);
        let owner = observe(&host, 612);
        assert_eq!(
            owner.how,
            "/usr/sbin/irqbalance --foreground --banirq=24 -i 25; \
             IRQBALANCE_BANNED_CPULIST=2-19 (/etc/default/irqbalance); \
             IRQBALANCE_ARGS=--banirq=24 --hintpolicy=exact (/etc/default/irqbalance)"
        );
        assert_eq!(owner.leaves_alone, [24, 25]);
        assert_eq!(owner.read_from, "/proc/612/cmdline");
        assert_eq!(
            ban_command(&owner, &[24, 30]).as_deref(),
            Some(
                "echo 'IRQBALANCE_ARGS=\"--banirq=24 --hintpolicy=exact --banirq=30\"' \
                 >> /etc/default/irqbalance && systemctl restart irqbalance"
            )
        );
        assert_eq!(ban_command(&owner, &[24, 25]), None);
    }

    #[test]
    fn banirq_options_are_parsed_in_every_form() {
        assert_eq!(
            banned_interrupts(&["irqbalance", "--banirq=1,2", "-i3", "--banirq", "4", "-i"]),
            [1, 2, 3, 4]
        );
        assert_eq!(banned_interrupts(&["irqbalance", "--interval=10", "--banirq=x"]), [0; 0]);
    }
}

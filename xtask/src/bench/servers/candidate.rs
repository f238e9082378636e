//! The servers and their start.

use std::path::Path;

use linerate_lab::program::ServerRecipe;

use super::{BUFFER, PORT};

pub(super) struct ServerCandidate {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    start: CandidateStart,
    /// Whether the server receives requests from the device, before the network stack.
    pub(super) takes_frames: bool,
}

enum CandidateStart {
    /// A server of this crate.
    Reference,
    /// XDP_TX at the interface.
    Reflector,
    /// `linerate serve echo` with these options.
    Echo(&'static str),
    /// `linerate serve dns` with these options.
    Dns(&'static str),
    /// A recipe of share/servers, with another line after the given one.
    Recipe(&'static str, &'static str),
}

pub(super) const MMSG: &str = "mmsg";
/// The mmsg server with an overload policy.
pub(super) const MMSG_POLICY: &str = "mmsg-policy";
pub(super) const XDP: &str = "xdp";
pub(super) const C: &str = "c";
pub(super) const TOKIO: &str = "tokio";
pub(super) const XDP_TX: &str = "xdp-tx";
pub(super) const DNS_XDP: &str = "dns-xdp";
pub(super) const NSD: &str = "nsd";

const DNS_FILES: &str = r#"workload = "dns:{directory}/queries"
[files]
"example.zone" = "{zone}"
"queries" = "{queries}"
"#;

/// The servers in the order of their turns. Compared servers are neighbours, so that their turns
/// are close in time.
pub(super) const CANDIDATES: [ServerCandidate; 10] = {
    use CandidateStart::{Dns, Echo, Recipe, Reference, Reflector};
    const fn stack(name: &'static str, about: &'static str, start: CandidateStart) -> ServerCandidate {
        ServerCandidate { name, about, start, takes_frames: false }
    }
    const fn device(name: &'static str, about: &'static str, start: CandidateStart) -> ServerCandidate {
        ServerCandidate { name, about, start, takes_frames: true }
    }
    [
        stack(
            TOKIO,
            "tokio::net::UdpSocket, recv_from and send_to, a runtime and a socket a thread",
            Reference,
        ),
        stack(C, "a loop in C, recvmmsg and sendmmsg of 64, a socket a thread", Reference),
        stack(MMSG, "ours on mmsg: recvmmsg and sendmmsg of 64, a socket a thread", Echo("")),
        stack(
            MMSG_POLICY,
            "the same that sheds, with fair shares and an XDP guard",
            Echo("--overload protect"),
        ),
        device(XDP, "ours on AF_XDP, a socket a queue", Echo("--backend xdp")),
        device(XDP_TX, "every frame returned by an XDP program: the ceiling", Reflector),
        stack("dns-mmsg", "ours on mmsg, the zone in memory", Dns("")),
        device(DNS_XDP, "ours on AF_XDP, the zone in memory", Dns("--backend xdp")),
        stack(
            NSD,
            "NSD, reuseport, one process a worker",
            Recipe(include_str!("../../../../share/servers/nsd.toml"), "server:"),
        ),
        stack("knot", "Knot DNS on sockets", Recipe(include_str!("../../../../share/servers/knot.toml"), "")),
    ]
};

impl ServerCandidate {
    /// Writes a recipe that runs the server on these CPUs. `None` if it runs in the kernel.
    pub(super) fn recipe(
        &self,
        linerate: &Path,
        cpus: &str,
        directory: &Path,
    ) -> anyhow::Result<Option<ServerRecipe>> {
        let command = |program: &Path, arguments: &str| {
            let program = program.display();
            let line = format!(
                "{program} {arguments} --bind {{address}}:{{port}} --workers {{workers}} --cpus {cpus}"
            );
            format!("command = {:?}\n", line.split_whitespace().collect::<Vec<_>>())
        };
        let text = match self.start {
            CandidateStart::Reflector => return Ok(None),
            CandidateStart::Reference => {
                let arguments = format!("bench server --kind {}", self.name);
                command(&std::env::current_exe()?, &arguments) + "workload = \"echo\"\n"
            }
            CandidateStart::Echo(options) => {
                let arguments = format!("serve echo --receive-buffer {BUFFER} {options}");
                command(linerate, &arguments) + "workload = \"echo\"\n"
            }
            CandidateStart::Dns(options) => {
                let zone = "--zone example={directory}/example.zone";
                let arguments = format!("serve dns {zone} --receive-buffer {BUFFER} {options}");
                command(linerate, &arguments) + DNS_FILES
            }
            CandidateStart::Recipe(text, "") => text.to_owned(),
            CandidateStart::Recipe(text, line) => {
                text.replace(line, &format!("{line}\n  receive-buffer-size: {BUFFER}"))
            }
        };
        // All servers run on the same CPUs.
        let text = text.replacen("command = [", &format!("command = [\"taskset\", \"-c\", \"{cpus}\", "), 1);
        let file = directory.join(self.name).with_extension("toml");
        std::fs::write(&file, text)?;
        Ok(Some(ServerRecipe::find(&file.to_string_lossy(), None, Some(PORT))?))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use linerate_lab::program::RecipeValues;

    use super::*;

    #[test]
    fn every_server_starts_on_the_given_cpus_with_its_files() {
        for candidate in CANDIDATES {
            let directory = tempfile::tempdir().expect("a directory");
            let recipe = candidate.recipe(Path::new("/linerate"), "1,2", directory.path()).expect("a recipe");
            let Some(recipe) = recipe else { continue };
            let address = (Ipv4Addr::LOCALHOST, PORT).into();
            let values = RecipeValues { address, workers: 2, directory: directory.path() };
            let (program, arguments) = recipe.write(&values).expect("written");
            assert_eq!((program.as_str(), arguments[..2].join(" ").as_str()), ("taskset", "-c 1,2"));
            recipe.requests(directory.path()).expect("requests");
            if candidate.name == NSD {
                let configuration = std::fs::read_to_string(directory.path().join("nsd.conf")).expect("read");
                assert!(configuration.contains("  receive-buffer-size: 4194304\n"), "{configuration}");
            }
        }
    }
}

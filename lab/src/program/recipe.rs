//! Recipes: the command of a server, its configuration files, and the requests that it answers.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use linerate_load::LoadWorkload;
use linerate_load::workload::{WorkloadOptions, WorkloadSource};
use serde::{Deserialize, Serialize};

/// Names in the zone of recipes for DNS servers: more than a cache line, fewer than a cache.
const ZONE_NAMES: u32 = 1_000;

/// How to start a server program, and what to ask it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ServerRecipe {
    /// Name of the recipe, or the program of a command.
    #[serde(default)]
    pub name: String,
    /// One sentence about the server.
    #[serde(default)]
    pub about: String,
    #[serde(default, skip_serializing)]
    package: Option<String>,
    /// Program and arguments, with `{address}`, `{port}`, `{workers}` and `{directory}`.
    command: Vec<String>,
    /// UDP port.
    #[serde(default = "default_port")]
    pub port: u16,
    /// Requests: `dns:FILE`, `ntp`, `radius:FILE`, `raw:FILE` or `echo`.
    pub workload: String,
    /// Whether the server sends no replies, such as a syslog server: what it reads is counted.
    #[serde(default)]
    pub no_reply: bool,
    /// Configuration files by name, with the same placeholders, and `{zone}`, `{queries}`, `{hosts}`, `{local-data}`.
    #[serde(default, skip_serializing)]
    files: BTreeMap<String, String>,
    /// By step: why the step is not possible from outside, or the server option that replaces it.
    #[serde(default, skip_serializing)]
    from_the_server: BTreeMap<String, String>,
}

/// Values of a recipe's placeholders.
#[derive(Debug, Clone, Copy)]
pub struct RecipeValues<'a> {
    pub address: SocketAddr,
    pub workers: usize,
    pub directory: &'a Path,
}

/// Why a recipe cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecipeError {
    #[error(
        "unknown server '{server}': give a command with {{address}} and {{port}}, a recipe file (.toml), or one of {}",
        names()
    )]
    Unknown { server: String },
    #[error("{file}: {why}")]
    Invalid { file: String, why: String },
    #[error("a server command requires --workload: dns:FILE, ntp, radius:FILE, raw:FILE or echo")]
    NoWorkload,
    #[error("workload '{workload}': {why}")]
    Workload { workload: String, why: String },
    #[error("the configuration of the server cannot be written: {0}")]
    Unwritable(String),
}

fn default_port() -> u16 {
    5300
}

macro_rules! built_in {
    ($($name:literal)*) => {
        /// The recipes of share/servers.
        const BUILT_IN: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../share/servers/", $name, ".toml")))),*];
    };
}

built_in!("bind" "chrony" "coredns" "dnsmasq" "freeradius" "knot" "nsd" "pdns" "rsyslog" "unbound");

fn names() -> String {
    ServerRecipe::built_in_names().collect::<Vec<_>>().join(", ")
}

impl ServerRecipe {
    pub fn built_in_names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// The recipe that `--server` names: built in, a file, or a command.
    pub fn find(server: &str, workload: Option<&str>, port: Option<u16>) -> Result<Self, RecipeError> {
        let mut recipe = if let Some((name, text)) = BUILT_IN.iter().find(|(name, _)| *name == server) {
            Self::parse(name, text, name)?
        } else if server.ends_with(".toml") {
            let invalid = |why: String| RecipeError::Invalid { file: server.to_owned(), why };
            let text = fs::read_to_string(server).map_err(|error| invalid(error.to_string()))?;
            let stem = Path::new(server).file_stem().map(|stem| stem.to_string_lossy().into_owned());
            Self::parse(&stem.unwrap_or_default(), &text, server)?
        } else {
            Self::of_command(server, workload)?
        };
        if let Some(workload) = workload {
            workload.clone_into(&mut recipe.workload);
        }
        recipe.port = port.unwrap_or(recipe.port);
        Ok(recipe)
    }

    fn parse(name: &str, text: &str, file: &str) -> Result<Self, RecipeError> {
        let invalid = |why: String| RecipeError::Invalid { file: file.to_owned(), why };
        let recipe: Self = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(0, |span| text[..span.start.min(text.len())].lines().count());
            invalid(format!("line {}: {}", line.max(1), error.message()))
        })?;
        if recipe.command.is_empty() {
            return Err(invalid("command is empty".to_owned()));
        }
        Ok(Self { name: name.to_owned(), ..recipe })
    }

    fn of_command(command: &str, workload: Option<&str>) -> Result<Self, RecipeError> {
        let words = shlex::split(command).filter(|words| !words.is_empty());
        let words = words.ok_or_else(|| RecipeError::Unknown { server: command.to_owned() })?;
        // A single word without `{port}` is a mistyped recipe name: as a command it would have no
        // port to listen on.
        if !command.contains("{port}") && words.len() == 1 {
            return Err(RecipeError::Unknown { server: command.to_owned() });
        }
        let program = Path::new(&words[0]).file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(Self {
            name: program.unwrap_or_else(|| words[0].clone()),
            about: command.to_owned(),
            command: words,
            port: default_port(),
            workload: workload.ok_or(RecipeError::NoWorkload)?.to_owned(),
            ..Self::default()
        })
    }

    /// A server that runs already, for a report. Its arguments can have passwords, so they are left out.
    pub(crate) fn of_running(name: &str, port: u16, workload: &str) -> Self {
        Self {
            name: name.to_owned(),
            about: "a running server".to_owned(),
            command: vec![name.to_owned()],
            port,
            workload: workload.to_owned(),
            ..Self::default()
        }
    }

    /// Whether the number of workers can be chosen.
    #[must_use]
    pub fn has_workers(&self) -> bool {
        self.command.iter().chain(self.files.values()).any(|text| text.contains("{workers}"))
    }

    /// Why a step is not possible from outside, if the recipe has a reason.
    #[must_use]
    pub fn reserved_for_server(&self, step: &str) -> Option<&str> {
        self.from_the_server.get(step).map(String::as_str)
    }

    /// Writes the configuration files. Returns the program and its arguments.
    pub fn write(&self, values: &RecipeValues<'_>) -> Result<(String, Vec<String>), RecipeError> {
        for (name, text) in &self.files {
            fs::write(values.directory.join(name), values.fill(text))?;
        }
        let mut words = self.command.iter().map(|word| values.fill(word));
        let program = words.next().unwrap_or_default();
        Ok((program, words.collect()))
    }

    /// The requests of the workload. Files of the recipe are in its directory.
    pub fn requests(&self, directory: &Path) -> Result<LoadWorkload, RecipeError> {
        let workload_error = |why: String| RecipeError::Workload { workload: self.workload.clone(), why };
        let text = self.workload.replace("{directory}", &directory.to_string_lossy());
        let source: WorkloadSource = text.parse().map_err(workload_error)?;
        source.read(&WorkloadOptions::default()).map_err(|error| workload_error(error.to_string()))
    }

    /// An error at the start, with the package that contains the program.
    pub(super) fn hint(&self, error: &str) -> String {
        match &self.package {
            Some(package) => format!("{error}; Debian packages: {package}"),
            None => error.to_owned(),
        }
    }
}

impl RecipeValues<'_> {
    /// The text with all placeholders replaced.
    #[must_use]
    pub fn fill(&self, text: &str) -> String {
        let zone_lines = |line: fn(u32) -> String| (0..ZONE_NAMES).map(line).collect::<String>();
        let filled = text
            .replace("{address}", &self.address.ip().to_string())
            .replace("{port}", &self.address.port().to_string())
            .replace("{workers}", &self.workers.to_string())
            .replace("{directory}", &self.directory.to_string_lossy());
        if !filled.contains('{') {
            return filled;
        }
        let mut zone = String::from(
            "$ORIGIN example.\n$TTL 300\n@ IN SOA ns hostmaster 1 3600 600 86400 300\n@ IN NS ns\nns IN A 192.0.2.1\n",
        );
        for name in 0..ZONE_NAMES {
            let _ = writeln!(zone, "host{name} IN A {}", host_address(name));
        }
        filled
            .replace("{zone}", &zone)
            .replace("{queries}", &zone_lines(|name| format!("host{name}.example A\n")))
            .replace("{hosts}", &zone_lines(|name| format!("{} host{name}.example\n", host_address(name))))
            .replace(
                "{local-data}",
                &zone_lines(|name| {
                    format!("local-data: \"host{name}.example. 300 IN A {}\"\n", host_address(name))
                }),
            )
    }
}

/// An address of the network for documentation (RFC 5737).
fn host_address(name: u32) -> String {
    format!("198.51.100.{}", name % 250 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(directory: &Path) -> RecipeValues<'_> {
        RecipeValues { address: SocketAddr::from(([198, 18, 0, 1], 5300)), workers: 3, directory }
    }

    #[test]
    fn built_in_recipes_replace_every_placeholder() {
        for (name, _) in BUILT_IN {
            let recipe = ServerRecipe::find(name, None, None).expect(name);
            let directory = tempfile::tempdir().expect("a directory");
            let (program, arguments) = recipe.write(&values(directory.path())).expect(name);
            assert!(!program.is_empty() && !recipe.about.is_empty());
            let files = fs::read_dir(directory.path()).expect("read").flatten();
            let texts = files.map(|file| fs::read_to_string(file.path()).expect("text"));
            for text in texts.chain(arguments) {
                let placeholder =
                    ["{address", "{port", "{workers", "{directory", "{zone", "{queries", "{hosts"];
                assert!(!placeholder.iter().any(|open| text.contains(open)), "{name}: {text}");
            }
        }
    }

    #[test]
    fn find_accepts_names_files_and_commands_and_reports_unknown_ones() {
        let find = |server, workload| ServerRecipe::find(server, workload, None);
        let command = find("/opt/x/server --listen {address}:{port}", Some("echo")).expect("a command");
        assert_eq!((command.name.as_str(), command.port), ("server", 5300));
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("mine.toml");
        fs::write(&file, "command = [\"x\", \"{port}\"]\nworkload = \"ntp\"\nport = 123\n").expect("written");
        let recipe = find(file.to_str().expect("a name"), None).expect("a recipe");
        assert_eq!((recipe.name.as_str(), recipe.workload.as_str(), recipe.port), ("mine", "ntp", 123));
        let recipe = ServerRecipe::find("nsd", Some("echo"), Some(7)).expect("a recipe");
        assert_eq!((recipe.name.as_str(), recipe.workload.as_str(), recipe.port), ("nsd", "echo", 7));
        assert_eq!(find("server {port}", None), Err(RecipeError::NoWorkload));
        let unknown = find("nds", Some("echo")).expect_err("no such recipe").to_string();
        assert!(unknown.starts_with("unknown server 'nds'") && unknown.contains("nsd"), "{unknown}");
        let missing = find("/nowhere/x.toml", None).expect_err("no such file").to_string();
        assert!(missing.starts_with("/nowhere/x.toml: "), "{missing}");
    }

    #[test]
    fn recipe_errors_report_the_file_and_the_key() {
        let error = ServerRecipe::parse("x", "command = [\"x\"]\nworkload = \"echo\"\nprot = 5\n", "x.toml");
        let text = error.expect_err("a mistake").to_string();
        assert!(text.starts_with("x.toml: ") && text.contains("prot"), "{text}");
    }
}

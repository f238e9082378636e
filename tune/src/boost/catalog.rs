//! Known servers and their options for one socket per thread, with sources. One file per server in
//! `tune/servers/`.

use std::sync::LazyLock;

#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerProduct {
    /// Id, such as `nsd`.
    pub id: String,
    /// Display name.
    pub name: String,
    /// Names of its processes (`comm`, at most 15 bytes).
    pub processes: Vec<String>,
    /// UDP ports that identify a server whose process name is unknown.
    #[serde(default)]
    pub ports: Vec<u16>,
    /// A sentence on how it receives datagrams.
    pub shape: String,
    /// State per client in one thread or process; `None` if every reader can answer every client.
    pub client_state: Option<ClientState>,
    #[serde(default)]
    pub options: Vec<ProductOption>,
}

/// Where a server keeps the state of a client. Packets of the client that reach another thread are
/// lost, so that such a server must not be steered by CPU.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientState {
    /// The thread or process, as in "kept in ...".
    pub kept_in: String,
    /// URL of the documentation.
    pub source: String,
}

#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProductOption {
    pub gives: OptionEffect,
    /// A line of its configuration; `N` stands for the number of CPUs.
    pub setting: String,
    /// The first version with the option; `None` for all.
    pub since: Option<String>,
    /// URL of the documentation.
    pub source: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OptionEffect {
    Workers,
    /// A socket for each worker (SO_REUSEPORT).
    Sockets,
    Pinning,
    Steering,
    Buffers,
}

macro_rules! product_files {
    ($($id:literal)*) => {
        &[$(($id, include_str!(concat!("../../servers/", $id, ".toml")))),*]
    };
}

/// Ids and texts.
const FILES: &[(&str, &str)] = product_files! {
    "bind" "caddy" "chrony" "coredns" "coturn" "dnsdist" "dnsmasq" "envoy" "freeradius"
    "game-server" "haproxy" "kamailio" "knot" "nginx" "nsd" "openvpn" "pdns-auth" "pdns-recursor"
    "quic" "unbound" "wireguard-go"
};

static PRODUCTS: LazyLock<Vec<ServerProduct>> = LazyLock::new(|| {
    let parsed = FILES.iter().map(|(id, text)| match toml::from_str::<ServerProduct>(text) {
        Ok(product) => product,
        // A test parses each of them.
        Err(error) => unreachable!("tune/servers/{id}.toml: {error}"),
    });
    parsed.collect()
});

/// The server whose process has this name.
pub fn of_process(comm: &str) -> Option<&'static ServerProduct> {
    PRODUCTS.iter().find(|product| product.processes.iter().any(|name| name == comm))
}

/// The server that these UDP ports are assigned to.
pub fn of_ports(ports: &[u16]) -> Option<&'static ServerProduct> {
    PRODUCTS.iter().find(|product| product.ports.iter().any(|port| ports.contains(port)))
}

pub fn product(id: &str) -> Option<&'static ServerProduct> {
    PRODUCTS.iter().find(|product| product.id == id)
}

impl ServerProduct {
    pub(super) fn options_for(&self, effect: OptionEffect) -> impl Iterator<Item = &ProductOption> {
        self.options.iter().filter(move |option| option.gives == effect)
    }
}

impl ProductOption {
    /// The setting with this number of CPUs for each `N`.
    pub fn with_cpus(&self, cpus: usize) -> String {
        self.setting.replace('N', &cpus.to_string())
    }
}

impl OptionEffect {
    pub fn in_words(self) -> &'static str {
        match self {
            OptionEffect::Workers => "more workers",
            OptionEffect::Sockets => "a socket for each worker",
            OptionEffect::Pinning => "workers on CPUs",
            OptionEffect::Steering => "steering by CPU",
            OptionEffect::Buffers => "larger buffers",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn catalog_files_parse_and_cite_sources() {
        let mut ids = BTreeSet::new();
        let mut names = BTreeSet::new();
        for (id, text) in FILES {
            let product: ServerProduct = toml::from_str(text).unwrap_or_else(|error| panic!("{id}: {error}"));
            assert_eq!(product.id, *id);
            assert!(ids.insert(product.id.clone()), "{id} is there twice");
            assert!(!product.processes.is_empty() || !product.ports.is_empty(), "{id}");
            let state = product.client_state.as_ref();
            assert!(state.is_none_or(|state| state.source.starts_with("https://")), "{id}");
            assert!(product.shape.ends_with('.'), "{id}");
            for name in &product.processes {
                assert!(name.len() <= 15, "the kernel cuts {name}");
                assert!(names.insert(name.clone()), "{name} is of two servers");
            }
            for option in &product.options {
                assert!(option.source.starts_with("https://"), "{id}: {} has no source", option.setting);
                assert!(!option.setting.trim().is_empty(), "{id}");
                let mut parts = option.setting.split('N').peekable();
                while let (Some(before), Some(after)) = (parts.next(), parts.peek()) {
                    let around = [before.chars().next_back(), after.chars().next()];
                    assert!(
                        !around.into_iter().flatten().any(char::is_alphanumeric),
                        "{id}: {}",
                        option.setting
                    );
                }
            }
        }
    }

    #[test]
    fn products_are_found_by_process_name_catalog_id_and_port() {
        assert_eq!(of_process("nsd").map(|product| product.id.as_str()), Some("nsd"));
        assert_eq!(product("nsd").map(|product| product.name.as_str()), Some("NSD"));
        assert_eq!(of_process("pdns_recursor").map(|product| product.id.as_str()), Some("pdns-recursor"));
        assert_eq!(of_process("no such"), None);
        assert_eq!(of_ports(&[8053, 443]).map(|product| product.id.as_str()), Some("quic"));
        assert_eq!(of_ports(&[53]), None);
    }
}

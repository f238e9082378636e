//! The file of users: clients with their secrets, users with their passwords and replies.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use linerate_networks::{Net, NetError};
use serde::Deserialize;

use super::dictionary;
use super::packet::{MOST_BYTES, VALUE_BYTES};
use super::secret::PASSWORD_BYTES;

/// Bytes of a reply that a user's attributes leave free: the header, a Message-Authenticator, and the Proxy-States of
/// some proxies.
const RESERVED_BYTES: usize = 1024;

/// Clients by network, and users by name.
///
/// The file is TOML:
///
/// ```toml
/// [[client]]                    # a NAS, or a network of them
/// network = "192.0.2.0/24"      # the smallest network that has the address applies
/// secret = "a long random one"
/// message-authenticator = "required"  # default; "optional" for a NAS that sends none, which attackers can exploit
///
/// [[user]]
/// name = "alice"
/// password = "wonderland"
/// [user.reply]                  # attributes of an Access-Accept, in this order
/// Framed-IP-Address = "192.0.2.7"
/// Session-Timeout = 3600
/// Reply-Message = ["one line", "another"]
/// ```
///
/// Attributes have their names of RFC 2865. `Attr-N = "0x..."` is any other, by its number.
#[derive(Clone, PartialEq, Eq)]
pub struct UserDatabase {
    // Smaller networks first.
    clients: Vec<RadiusClient>,
    users: HashMap<Vec<u8>, RadiusUser>,
}

/// A network of NASes.
#[derive(Clone, PartialEq, Eq)]
pub struct RadiusClient {
    pub network: Net,
    pub secret: Vec<u8>,
    /// Whether Access-Requests require a Message-Authenticator.
    pub signature_required: bool,
}

#[derive(Clone, PartialEq, Eq)]
pub struct RadiusUser {
    pub password: Vec<u8>,
    /// Numbers and values of attributes, in order.
    pub reply: Vec<(u8, Vec<u8>)>,
}

/// Without secrets and passwords.
impl fmt::Debug for UserDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let networks: Vec<String> = self.clients.iter().map(|client| client.network.to_string()).collect();
        f.debug_struct("UserDatabase").field("clients", &networks).field("users", &self.users.len()).finish()
    }
}

/// Why a file of users cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UsersError {
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// Not TOML, or unknown keys.
    #[error("{}:{line}: {message}", path.display())]
    Syntax {
        path: PathBuf,
        /// From 1.
        line: usize,
        message: String,
    },
    #[error("{}: {item}: {why}", path.display())]
    Item { path: PathBuf, item: String, why: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UsersFile {
    #[serde(default)]
    client: Vec<ClientItem>,
    #[serde(default)]
    user: Vec<UserItem>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ClientItem {
    network: String,
    secret: String,
    #[serde(default)]
    message_authenticator: AccessCheck,
}

#[derive(Deserialize, Default, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum AccessCheck {
    #[default]
    Required,
    Optional,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UserItem {
    name: String,
    password: String,
    #[serde(default)]
    reply: toml::Table,
}

impl UserDatabase {
    /// # Errors
    /// With the file's name and the line or item.
    pub fn read(path: &Path) -> Result<Self, UsersError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| UsersError::Read { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// Parses the content of the file `path`.
    ///
    /// # Errors
    /// With the file's name and the line or item.
    pub fn parse(text: &str, path: &Path) -> Result<Self, UsersError> {
        let file: UsersFile = toml::from_str(text).map_err(|error| UsersError::Syntax {
            path: path.to_owned(),
            line: line_of(text, error.span().map_or(0, |span| span.start)),
            message: error.message().replace('\n', " "),
        })?;
        let item_error = |item: String, why: String| UsersError::Item { path: path.to_owned(), item, why };
        let mut users = Self { clients: Vec::new(), users: HashMap::new() };
        if file.client.is_empty() {
            let why = "there is none, so nobody could ask: name at least one network and its secret";
            return Err(item_error("client".to_owned(), why.to_owned()));
        }
        for entry in file.client {
            let name = format!("client \"{}\"", entry.network);
            let client = client(&entry).map_err(|why| item_error(name.clone(), why))?;
            if users.clients.iter().any(|other| is_same_network(other.network, client.network)) {
                return Err(item_error(name, "given twice".to_owned()));
            }
            users.clients.push(client);
        }
        // Therefore the first network that contains an address is the smallest.
        users.clients.sort_by_key(|client| std::cmp::Reverse(client.network.prefix()));
        for entry in file.user {
            let name = format!("user \"{}\"", entry.name);
            let user = user(&entry).map_err(|why| item_error(name.clone(), why))?;
            if users.users.insert(entry.name.into_bytes(), user).is_some() {
                return Err(item_error(name, "given twice".to_owned()));
            }
        }
        Ok(users)
    }

    #[must_use]
    pub fn client(&self, address: IpAddr) -> Option<&RadiusClient> {
        let address = address.to_canonical();
        self.clients.iter().find(|client| client.network.contains(address))
    }

    #[must_use]
    pub fn user(&self, name: &[u8]) -> Option<&RadiusUser> {
        self.users.get(name)
    }
}

/// Whether the networks have the same addresses, whatever their host bits.
fn is_same_network(network: Net, other: Net) -> bool {
    network.prefix() == other.prefix() && other.hosts().next().is_some_and(|host| network.contains(host))
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

fn client(entry: &ClientItem) -> Result<RadiusClient, String> {
    if entry.secret.is_empty() {
        return Err("secret: empty, which protects nothing".to_owned());
    }
    Ok(RadiusClient {
        network: entry.network.parse().map_err(|why: NetError| format!("network: {why}"))?,
        secret: entry.secret.clone().into_bytes(),
        signature_required: entry.message_authenticator == AccessCheck::Required,
    })
}

fn user(entry: &UserItem) -> Result<RadiusUser, String> {
    let check_length = |item: &str, text: &str, min: usize, max: usize| match text.len() {
        length if length < min => Err(format!("{item}: empty")),
        length if length > max => Err(format!("{item}: {length} bytes, it has at most {max}")),
        _ => Ok(()),
    };
    check_length("name", &entry.name, 1, VALUE_BYTES)?;
    check_length("password", &entry.password, 1, PASSWORD_BYTES)?;
    let mut reply = Vec::new();
    for (name, value) in &entry.reply {
        let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        for value in values {
            reply.push(dictionary::encode(name, value).map_err(|why| format!("reply.{name}: {why}"))?);
        }
    }
    let bytes: usize = reply.iter().map(|(_, value)| value.len() + 2).sum();
    if bytes > MOST_BYTES - RESERVED_BYTES {
        return Err(format!(
            "reply: {bytes} bytes of attributes, {} are left to them",
            MOST_BYTES - RESERVED_BYTES
        ));
    }
    Ok(RadiusUser { password: entry.password.clone().into_bytes(), reply })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
[[client]]
network = "192.0.2.0/24"
secret = "wide"

[[client]]
network = "192.0.2.9"
secret = "narrow"
message-authenticator = "optional"

[[user]]
name = "alice"
password = "wonderland"
[user.reply]
Session-Timeout = 60
Reply-Message = ["one", "two"]
Class = "0x01"

[[user]]
name = "bob"
password = "b"
"#;

    fn parse(text: &str) -> Result<UserDatabase, UsersError> {
        UserDatabase::parse(text, Path::new("users.toml"))
    }

    #[test]
    fn clients_and_users_parse_from_the_file() {
        let users = parse(GOOD).unwrap();
        let secret = |ip: &str| users.client(ip.parse().unwrap()).map(|client| client.secret.as_slice());
        assert_eq!(secret("192.0.2.9"), Some(&b"narrow"[..]));
        assert_eq!(secret("::ffff:192.0.2.8"), Some(&b"wide"[..]));
        assert_eq!(secret("192.0.3.8"), None);
        assert!(users.clients[1].signature_required && !users.clients[0].signature_required);
        let alice = users.user(b"alice").unwrap();
        assert_eq!(alice.password, b"wonderland");
        // Numbers and texts in the file's order.
        let numbers: Vec<u8> = alice.reply.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [27, 18, 18, 25]);
        assert_eq!((users.users.len(), users.user(b"carol").is_none()), (2, true));
        assert!(!format!("{users:?}").contains("wonderland"));
    }

    #[test]
    fn errors_name_file_and_item() {
        let client = "[[client]]\nnetwork = \"::/0\"\nsecret = \"s\"\n";
        let user = "[[user]]\nname = \"a\"\npassword = \"p\"\n";
        let long = format!("reply.Class = [{}]", format!("\"{}\",", "x".repeat(250)).repeat(20));
        for (text, part) in [
            (String::new(), "users.toml: client: there is none"),
            (client.replace("::/0", "x"), "users.toml: client \"x\": network: \"x\" is not"),
            (client.replace("\"s\"", "\"\""), "client \"::/0\": secret: empty"),
            (client.repeat(2), "client \"::/0\": given twice"),
            (format!("{client}{}", client.replace("::/0", "::1/0")), "client \"::1/0\": given twice"),
            (client.replace("secret", "secert"), "users.toml:3: unknown field `secert`"),
            ("[[client]\n".to_owned(), "users.toml:1: "),
            (format!("{client}{}", user.replace("\"p\"", "\"\"")), "user \"a\": password: empty"),
            (format!("{client}{user}{user}"), "user \"a\": given twice"),
            (format!("{client}{user}reply.Nonsense = 1"), "user \"a\": reply.Nonsense: no attribute"),
            (format!("{client}{user}reply.Class = 1.5"), "reply.Class: a float is no value"),
            (format!("{client}{user}{long}"), "reply: 5040 bytes of attributes"),
        ] {
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains(part) && error.starts_with("users.toml:"), "{error}");
        }
        let error = UserDatabase::read(Path::new("/nonexistent/u.toml")).unwrap_err().to_string();
        assert!(error.starts_with("/nonexistent/u.toml: "), "{error}");
    }
}

//! A tree of files and symbolic links, in memory or in a directory.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::path::Path;

/// What a path holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    File(String),
    /// A symbolic link's target.
    Link(String),
}

/// Files and links of a host by absolute path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    nodes: BTreeMap<String, Node>,
}

impl Tree {
    /// Puts a file there, over what was there before.
    pub fn file(&mut self, path: impl Into<String>, content: impl Into<String>) {
        self.nodes.insert(path.into(), Node::File(content.into()));
    }

    /// Puts a file of one line there, as most of sysfs is.
    pub fn line(&mut self, path: impl Into<String>, value: impl Display) {
        self.file(path, format!("{value}\n"));
    }

    /// Puts a link there.
    pub fn link(&mut self, path: impl Into<String>, target: impl Into<String>) {
        self.nodes.insert(path.into(), Node::Link(target.into()));
    }

    /// Puts an answer of the kernel there, under a key such as `ethtool/eth0/rings`.
    pub fn call(&mut self, key: &str, answer: &serde_json::Value) {
        self.file(format!("/calls/{key}.json"), format!("{answer:#}\n"));
    }

    /// Puts there that the kernel refused to answer, with an error number as in errno(3).
    pub fn refusal(&mut self, key: &str, errno: i32) {
        self.call(key, &serde_json::json!({ "errno": errno }));
    }

    /// Puts all of another tree there, over what was there before.
    pub fn put_over(&mut self, other: &Self) {
        self.nodes.extend(other.nodes.clone());
    }

    /// Takes a path away; none if there was nothing.
    pub fn remove(&mut self, path: &str) -> Option<Node> {
        self.nodes.remove(path)
    }

    /// What a path holds.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Node> {
        self.nodes.get(path)
    }

    /// All of it, by path.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.nodes.iter().map(|(path, node)| (path.as_str(), node))
    }

    /// The same with what is below a linked directory also at the path of the link, as a reader finds it who follows
    /// links: `/sys/class/net/eth0/device/numa_node`.
    #[must_use]
    pub fn followed(&self) -> Self {
        let mut nodes = self.nodes.clone();
        for (path, node) in &self.nodes {
            let Node::Link(target) = node else { continue };
            let prefix = format!("{}/", resolve(path, target));
            for (below, node) in self.below(&prefix) {
                nodes.insert(format!("{path}/{}", &below[prefix.len()..]), node.clone());
            }
        }
        Self { nodes }
    }

    fn below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a String, &'a Node)> {
        self.nodes.range(prefix.to_owned()..).take_while(move |(path, _)| path.starts_with(prefix))
    }

    /// Writes it into a directory.
    ///
    /// # Errors
    /// Whatever the file system refuses.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        for (path, node) in &self.nodes {
            let place = directory.join(path.trim_start_matches('/'));
            if let Some(parent) = place.parent() {
                std::fs::create_dir_all(parent)?;
            }
            match node {
                Node::File(content) => std::fs::write(place, content)?,
                Node::Link(target) => std::os::unix::fs::symlink(target, place)?,
            }
        }
        Ok(())
    }
}

/// Where a link at `path` leads, by its text alone.
fn resolve(path: &str, target: &str) -> String {
    let mut parts: Vec<&str> = if target.starts_with('/') {
        Vec::new()
    } else {
        path.split('/').filter(|part| !part.is_empty()).collect()
    };
    if !target.starts_with('/') {
        parts.pop();
    }
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        let mut tree = Tree::default();
        tree.link("/sys/class/net/eth0/device", "../../../devices/pci0/0000:01:00.0");
        tree.line("/sys/devices/pci0/0000:01:00.0/numa_node", 1);
        tree.link("/proc/7/fd/3", "socket:[9]");
        tree
    }

    #[test]
    fn what_is_below_a_link_is_found_in_memory_and_in_a_directory() {
        let path = "/sys/class/net/eth0/device/numa_node";
        assert_eq!(tree().followed().get(path), Some(&Node::File("1\n".into())));
        let directory = tempfile::tempdir().expect("a directory");
        tree().write(directory.path()).expect("written");
        assert_eq!(std::fs::read_to_string(directory.path().join(&path[1..])).expect("read"), "1\n");
        let link = std::fs::read_link(directory.path().join("proc/7/fd/3")).expect("a link");
        assert_eq!(link.to_string_lossy(), "socket:[9]");
    }
}

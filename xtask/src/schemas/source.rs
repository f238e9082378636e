//! The serialized types of the workspace, as their sources declare them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use syn::{Attribute, ImplItem, Item, ItemImpl, Meta, Type};

use super::types::text_of;

const CRATES: [&str; 9] = ["cli", "engine", "host", "lab", "load", "services", "trace", "tune", "xtask"];

/// A declared type and its directory, which distinguishes types of the same name.
struct DeclaredType {
    krate: &'static str,
    item: Item,
}

#[derive(Default)]
pub(super) struct SourceTypes {
    types: BTreeMap<String, Vec<DeclaredType>>,
    /// Schema and type of each `impl CommandResult`.
    results: Vec<(String, String)>,
}

impl SourceTypes {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut types = Self::default();
        for krate in CRATES {
            types.read_directory(krate, &root.join(krate).join("src"))?;
        }
        types.results.sort();
        Ok(types)
    }

    pub(super) fn command_results(&self) -> Vec<(String, String)> {
        self.results.clone()
    }

    /// The type of this name. If there are several, the type of the crate `krate`.
    pub(super) fn find(&self, name: &str, krate: &str) -> Result<(&'static str, &Item)> {
        let candidates = self.types.get(name).map_or(&[][..], Vec::as_slice);
        let mut matching: Vec<_> = candidates.iter().filter(|declared| declared.krate == krate).collect();
        if matching.is_empty() {
            // Aliases of other crates are only for the files of those crates.
            matching = candidates.iter().filter(|declared| !matches!(declared.item, Item::Type(_))).collect();
        }
        ensure!(
            matching.len() == 1,
            "{} serialized types are called {name}; one is required",
            matching.len()
        );
        Ok((matching[0].krate, &matching[0].item))
    }

    fn read_directory(&mut self, krate: &'static str, directory: &Path) -> Result<()> {
        let directory_text = || directory.display().to_string();
        for entry in fs::read_dir(directory).with_context(directory_text)? {
            let path = entry.with_context(directory_text)?.path();
            if path.is_dir() {
                self.read_directory(krate, &path)?;
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                let file = syn::parse_file(&text).with_context(|| path.display().to_string())?;
                self.add(krate, file.items);
            }
        }
        Ok(())
    }

    fn add(&mut self, krate: &'static str, items: Vec<Item>) {
        for item in items {
            let (name, is_serialized) = match &item {
                Item::Struct(item) => (item.ident.to_string(), derives_serialize(&item.attrs)),
                Item::Enum(item) => (item.ident.to_string(), derives_serialize(&item.attrs)),
                Item::Type(item) => (item.ident.to_string(), true),
                Item::Impl(item) => {
                    self.results.extend(command_result(item));
                    continue;
                }
                _ => continue,
            };
            if is_serialized {
                self.types.entry(name).or_default().push(DeclaredType { krate, item });
            }
        }
    }
}

fn derives_serialize(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("derive")
            && matches!(&attribute.meta, Meta::List(list) if list.tokens.to_string().contains("Serialize"))
    })
}

/// Schema and type of an `impl CommandResult for TYPE`.
fn command_result(item: &ItemImpl) -> Option<(String, String)> {
    let (_, path, _) = item.trait_.as_ref()?;
    if path.segments.last()?.ident != "CommandResult" {
        return None;
    }
    let Type::Path(self_type) = &*item.self_ty else { return None };
    let schema = item.items.iter().find_map(|item| match item {
        ImplItem::Const(constant) if constant.ident == "SCHEMA" => text_of(&constant.expr),
        _ => None,
    })?;
    Some((schema, self_type.path.segments.last()?.ident.to_string()))
}

//! A JSON Schema of a type, by the rules of serde's derive.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Map, Value, json};
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Expr, ExprLit, Field, Fields, GenericArgument, Item, ItemEnum, Lit, Meta, PathArguments,
    Token, Type,
};

use super::source::SourceTypes;

/// The definitions that a schema refers to.
pub(super) struct SchemaDefinitions<'a> {
    sources: &'a SourceTypes,
    /// `None` while a definition is in progress, because types may contain themselves.
    made: BTreeMap<String, Option<Value>>,
}

/// The parameters of a generic type.
type TypeArguments = BTreeMap<String, Value>;

/// The scope in which names are resolved.
#[derive(Clone, Copy)]
struct NameScope<'a> {
    krate: &'static str,
    arguments: &'a TypeArguments,
}

impl<'a> SchemaDefinitions<'a> {
    pub(super) fn new(sources: &'a SourceTypes) -> Self {
        Self { sources, made: BTreeMap::new() }
    }

    pub(super) fn finish(self) -> Map<String, Value> {
        self.made.into_iter().filter_map(|(name, definition)| Some((name, definition?))).collect()
    }

    /// A reference to the definition of a type.
    pub(super) fn reference(&mut self, name: &str) -> Result<Value> {
        self.named_type("cli", name, &TypeArguments::new())
    }

    /// The schema of a type itself. Its parameters may be anything.
    pub(super) fn expanded(&mut self, name: &str) -> Result<Value> {
        let (krate, item) = self.sources.find(name, "cli")?;
        let arguments = parameters(item).into_iter().map(|name| (name, json!(true))).collect();
        self.item(krate, item, &arguments)
    }

    fn named_type(&mut self, krate: &'static str, name: &str, arguments: &TypeArguments) -> Result<Value> {
        let (krate, item) = self.sources.find(name, krate)?;
        if !arguments.is_empty() || matches!(item, Item::Type(_)) {
            return self.item(krate, item, arguments).with_context(|| format!("in {name}"));
        }
        if !self.made.contains_key(name) {
            self.made.insert(name.to_owned(), None);
            let schema = self.item(krate, item, arguments).with_context(|| format!("in {name}"))?;
            self.made.insert(name.to_owned(), Some(schema));
        }
        Ok(json!({"$ref": format!("#/$defs/{name}")}))
    }

    fn item(&mut self, krate: &'static str, item: &Item, arguments: &TypeArguments) -> Result<Value> {
        let scope = NameScope { krate, arguments };
        match item {
            Item::Type(item) => self.type_schema(&item.ty, scope),
            Item::Struct(item) => {
                let serde = SerdeAttributes::read(&item.attrs)?;
                let schema = self.fields(&item.fields, &serde, scope)?;
                Ok(with_description(schema, &item.attrs))
            }
            Item::Enum(item) => {
                let schema = self.variants(item, scope)?;
                Ok(with_description(schema, &item.attrs))
            }
            _ => bail!("neither a struct nor an enum"),
        }
    }

    fn fields(&mut self, fields: &Fields, serde: &SerdeAttributes, scope: NameScope<'_>) -> Result<Value> {
        match fields {
            Fields::Unit => Ok(json!({"type": "null"})),
            Fields::Unnamed(fields) if fields.unnamed.len() == 1 => {
                self.type_schema(&fields.unnamed[0].ty, scope)
            }
            Fields::Unnamed(fields) => {
                let items: Vec<Value> = fields
                    .unnamed
                    .iter()
                    .map(|field| self.type_schema(&field.ty, scope))
                    .collect::<Result<_>>()?;
                Ok(tuple(&items))
            }
            Fields::Named(fields) if serde.has("transparent") => self.type_schema(&fields.named[0].ty, scope),
            Fields::Named(fields) => {
                let (mut properties, mut required_names) = (Map::new(), Vec::new());
                for field in &fields.named {
                    self.field(field, serde, scope, &mut properties, &mut required_names)
                        .with_context(|| format!("field {}", name_of(field)))?;
                }
                Ok(json!({"type": "object", "properties": properties, "required": required_names}))
            }
        }
    }

    fn field(
        &mut self,
        field: &Field,
        container: &SerdeAttributes,
        scope: NameScope<'_>,
        properties: &mut Map<String, Value>,
        required_names: &mut Vec<Value>,
    ) -> Result<()> {
        let serde = SerdeAttributes::read(&field.attrs)?;
        if serde.has("skip") || serde.has("skip_serializing") {
            return Ok(());
        }
        if serde.has("flatten") {
            let Type::Path(path) = &field.ty else { bail!("a flattened field has a named type") };
            let name = path.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
            let (krate, item) = self.sources.find(&name, scope.krate)?;
            let flattened = self.item(krate, item, &TypeArguments::new())?;
            // Of a flattened enum, each key exists in only one of its variants.
            let variants = flattened["anyOf"].as_array().cloned().unwrap_or_default();
            for source in variants.iter().chain([&flattened]) {
                properties.extend(source["properties"].as_object().cloned().unwrap_or_default());
            }
            required_names.extend(flattened["required"].as_array().cloned().unwrap_or_default());
            return Ok(());
        }
        let own_name = name_of(field);
        let name = serde.value("rename").unwrap_or_else(|| container.renamed_field(&own_name));
        let schema =
            if serde.value("with").or(serde.value("serialize_with")).is_some_and(|with| with == "seconds") {
                json!({"type": "number"})
            } else {
                ensure!(serde.value("with").is_none(), "'with' functions other than seconds are not known");
                self.type_schema(&field.ty, scope)?
            };
        properties.insert(name.clone(), with_description(schema, &field.attrs));
        if !serde.has("skip_serializing_if") {
            required_names.push(name.into());
        }
        Ok(())
    }

    fn variants(&mut self, item: &ItemEnum, scope: NameScope<'_>) -> Result<Value> {
        let serde = SerdeAttributes::read(&item.attrs)?;
        let (mut unit_names, mut descriptions, mut schemas) = (Vec::new(), Vec::new(), Vec::new());
        for variant in &item.variants {
            let variant_serde = SerdeAttributes::read(&variant.attrs)?;
            if variant_serde.has("skip") || variant_serde.has("skip_serializing") {
                continue;
            }
            let name = variant_serde
                .value("rename")
                .unwrap_or_else(|| serde.renamed_variant(&variant.ident.to_string()));
            let is_unit = matches!(variant.fields, Fields::Unit);
            let tag = serde.value("tag");
            if is_unit && tag.is_none() && !serde.has("untagged") {
                let description = with_description(json!({}), &variant.attrs);
                descriptions
                    .extend(description["description"].as_str().map(|text| format!("`{name}`: {text}")));
                unit_names.push(name);
                continue;
            }
            // Fields of variants are not renamed by `rename_all` of the enum.
            let mut schema = if is_unit {
                json!({"type": "object", "properties": {}, "required": []})
            } else {
                self.fields(&variant.fields, &variant_serde, scope)
                    .with_context(|| format!("variant {}", variant.ident))?
            };
            if let Some(tag) = tag {
                // A newtype variant holds a struct, whose keys are next to the tag.
                if let Some(target) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
                    let definition = self.made.get(target).cloned().flatten();
                    schema = definition.context("a tagged variant cannot contain itself")?;
                }
                schema["properties"][&tag] = json!({"const": name});
                if let Some(required) = schema["required"].as_array_mut() {
                    required.insert(0, tag.into());
                }
            } else if !serde.has("untagged") {
                schema = json!({"type": "object", "properties": {&name: schema}, "required": [name]});
            }
            schemas.push(with_description(schema, &variant.attrs));
        }
        if !unit_names.is_empty() {
            let mut unit_schema = json!({"enum": unit_names});
            if !descriptions.is_empty() {
                unit_schema["description"] = descriptions.join(" ").into();
            }
            if schemas.is_empty() {
                return Ok(unit_schema);
            }
            schemas.insert(0, unit_schema);
        }
        Ok(json!({"anyOf": schemas}))
    }

    fn type_schema(&mut self, rust_type: &Type, scope: NameScope<'_>) -> Result<Value> {
        match rust_type {
            Type::Reference(reference) => self.type_schema(&reference.elem, scope),
            Type::Paren(inner) => self.type_schema(&inner.elem, scope),
            Type::Slice(slice) => Ok(array(&self.type_schema(&slice.elem, scope)?)),
            Type::Array(items) => Ok(array(&self.type_schema(&items.elem, scope)?)),
            Type::Tuple(items) => {
                let items = items
                    .elems
                    .iter()
                    .map(|item| self.type_schema(item, scope))
                    .collect::<Result<Vec<_>>>()?;
                Ok(tuple(&items))
            }
            Type::Path(path) => {
                let segment = path.path.segments.last().context("a type has a name")?;
                let mut type_arguments = Vec::new();
                if let PathArguments::AngleBracketed(generics) = &segment.arguments {
                    for argument in &generics.args {
                        if let GenericArgument::Type(argument_type) = argument {
                            type_arguments.push(self.type_schema(argument_type, scope)?);
                        }
                    }
                }
                let name = segment.ident.to_string();
                match scope.arguments.get(&name) {
                    Some(argument) => Ok(argument.clone()),
                    None => self.path(&name, type_arguments, scope),
                }
            }
            _ => bail!("no JSON is known of this type"),
        }
    }

    fn path(&mut self, name: &str, mut arguments: Vec<Value>, scope: NameScope<'_>) -> Result<Value> {
        let last_argument = arguments.pop();
        Ok(match (name, last_argument) {
            ("bool", _) => json!({"type": "boolean"}),
            ("u8" | "u16" | "u32" | "u64" | "u128" | "usize", _) => json!({"type": "integer", "minimum": 0}),
            ("i8" | "i16" | "i32" | "i64" | "i128" | "isize", _) => json!({"type": "integer"}),
            ("f32" | "f64", _) => json!({"type": "number"}),
            (
                "String" | "str" | "char" | "PathBuf" | "Path" | "IpAddr" | "Ipv4Addr" | "Ipv6Addr"
                | "SocketAddr" | "Net",
                _,
            ) => json!({"type": "string"}),
            ("Value", _) => json!(true),
            ("Box" | "Arc" | "Rc" | "Cow", Some(content)) => content,
            ("Option", Some(content)) => optional(content),
            ("Vec" | "BTreeSet" | "HashSet" | "VecDeque", Some(content)) => array(&content),
            ("BTreeMap" | "HashMap", Some(content)) => {
                json!({"type": "object", "additionalProperties": content})
            }
            ("Known", Some(content)) => {
                let unknown_schema = json!({
                    "type": "object", "properties": {"unknown": {"type": "string", "description": "Why it is unknown."}},
                    "required": ["unknown"],
                });
                json!({"anyOf": [content, unknown_schema]})
            }
            (_, last_argument) => {
                if let Some(schema) = serialized_by_hand(name) {
                    return Ok(schema);
                }
                let (_, item) = self.sources.find(name, scope.krate)?;
                arguments.extend(last_argument);
                let type_parameters = parameters(item).into_iter().zip(arguments).collect();
                self.named_type(scope.krate, name, &type_parameters)?
            }
        })
    }
}

/// Types whose `Serialize` is not derived.
fn serialized_by_hand(name: &str) -> Option<Value> {
    let count = json!({"type": "integer", "minimum": 0});
    Some(match name {
        "CpuSet" => json!({"type": "string", "description": "A list such as `0-3,8`."}),
        "RefusalCounts" | "RadiusCounts" => json!({"type": "object", "additionalProperties": count}),
        "Latency" => {
            let ns = optional(count.clone());
            let histogram = json!({
                "type": "string",
                "description": "The whole distribution, 1 ns to 60 s with three digits: compressed V2 encoding of HdrHistogram in base64.",
            });
            json!({
                "type": "object", "description": "Nanoseconds. Quantiles are null without samples.",
                "properties": {"count": count, "p50": ns, "p90": ns, "p99": ns, "p999": ns, "max": ns, "histogram": histogram},
                "required": ["count", "p50", "p90", "p99", "p999", "max", "histogram"],
            })
        }
        _ => return None,
    })
}

fn optional(mut schema: Value) -> Value {
    match schema.get("type") {
        Some(Value::String(kind)) if kind != "object" => {
            schema["type"] = json!([kind, "null"]);
            schema
        }
        _ => json!({"anyOf": [schema, {"type": "null"}]}),
    }
}

fn array(items: &Value) -> Value {
    json!({"type": "array", "items": items})
}

fn tuple(items: &[Value]) -> Value {
    json!({"type": "array", "prefixItems": items, "minItems": items.len(), "items": false})
}

fn name_of(field: &Field) -> String {
    field
        .ident
        .as_ref()
        .map(|ident| ident.to_string().trim_start_matches("r#").to_owned())
        .unwrap_or_default()
}

/// The names of type parameters.
fn parameters(item: &Item) -> Vec<String> {
    let generics = match item {
        Item::Struct(item) => &item.generics,
        Item::Enum(item) => &item.generics,
        Item::Type(item) => &item.generics,
        _ => return Vec::new(),
    };
    generics.type_params().map(|parameter| parameter.ident.to_string()).collect()
}

/// Adds the doc comment as the description.
fn with_description(schema: Value, attributes: &[Attribute]) -> Value {
    let lines =
        attributes.iter().filter(|attribute| attribute.path().is_ident("doc")).filter_map(|attribute| {
            match &attribute.meta {
                Meta::NameValue(pair) => text_of(&pair.value),
                _ => None,
            }
        });
    // Only the first paragraph, because further paragraphs are for readers of the code. Links of
    // rustdoc become words.
    let paragraph: Vec<String> = lines
        .map(|line| line.trim().to_owned())
        .take_while(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let text = paragraph.join(" ").replace("[`", "`").replace("`]", "`");
    let mut schema = match schema {
        Value::Bool(true) => json!({}),
        schema => schema,
    };
    if !text.is_empty()
        && let Some(object) = schema.as_object_mut()
    {
        let value_list = object
            .get("description")
            .and_then(Value::as_str)
            .filter(|description| description.starts_with('`'));
        let text = value_list.map_or_else(|| text.clone(), |listed_values| format!("{text} {listed_values}"));
        object.insert("description".into(), text.into());
    }
    schema
}

/// The text of a string literal.
pub(super) fn text_of(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

/// The words in `#[serde(...)]`, with their values.
#[derive(Debug, Default)]
struct SerdeAttributes(Vec<(String, Option<String>)>);

impl SerdeAttributes {
    fn read(attributes: &[Attribute]) -> Result<Self> {
        let mut serde_attributes = Self::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("serde")) {
            for meta in attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)? {
                let name = meta.path().get_ident().map(ToString::to_string).unwrap_or_default();
                let value = match &meta {
                    Meta::NameValue(pair) => text_of(&pair.value),
                    _ => None,
                };
                serde_attributes.0.push((name, value));
            }
        }
        Ok(serde_attributes)
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(attribute_name, _)| attribute_name == name)
    }

    fn value(&self, name: &str) -> Option<String> {
        self.0.iter().find(|(attribute_name, _)| attribute_name == name).and_then(|(_, value)| value.clone())
    }

    fn renamed_field(&self, name: &str) -> String {
        match self.value("rename_all").as_deref() {
            Some("kebab-case") => name.replace('_', "-"),
            _ => name.to_owned(),
        }
    }

    fn renamed_variant(&self, name: &str) -> String {
        let separator = match self.value("rename_all").as_deref() {
            Some("kebab-case") => "-",
            Some("snake_case") => "_",
            Some("lowercase") => "",
            _ => return name.to_owned(),
        };
        let mut renamed = String::new();
        for (index, character) in name.char_indices() {
            if character.is_uppercase() && index > 0 {
                renamed.push_str(separator);
            }
            renamed.extend(character.to_lowercase());
        }
        renamed
    }
}

//! Options whose values have names.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use linerate_load::generator::GeneratorBackend;

/// The name of a value, its help, and the value.
pub(crate) type NamedValue<T> = (&'static str, &'static str, T);

/// A parser of these values.
pub(crate) fn one_of<T: Clone + Send + Sync>(
    values: &'static [NamedValue<T>],
) -> impl TypedValueParser<Value = T> {
    let names = values.iter().map(|(name, help, _)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(names).try_map(|name| {
        let named_value = values.iter().find(|(value_name, ..)| *value_name == name);
        named_value.map(|(.., value)| value.clone()).ok_or("it has no value")
    })
}

/// Ways in which requests of a load generator reach the kernel.
pub(crate) const LOAD_BACKENDS: &[NamedValue<GeneratorBackend>] = &[
    ("auto", "xdp if it works here, otherwise socket", GeneratorBackend::Auto),
    (
        "xdp",
        "Sent by the kernel, replies matched by an XDP program; an error if a requirement is missing. With many \
         drivers, attaching the program takes the link down for a moment",
        GeneratorBackend::Xdp,
    ),
    ("socket", "Ordinary UDP sockets", GeneratorBackend::Socket),
];

//! Symbols of kernel addresses.

use linerate_host::{Host, Known};

use crate::TraceError;

const SYMBOLS: &str = "/proc/kallsyms";

const RESTRICT: &str = "/proc/sys/kernel/kptr_restrict";

// No function is longer; an address farther behind a function's begin is in no function.
const LONGEST: u64 = 1 << 20;

/// A function's name in the source, without suffixes of compiler clones: `.isra.0`, `.part.0`,
/// `.constprop.0`, `.cold`.
pub(crate) fn source_name(function: &str) -> &str {
    function.split('.').next().unwrap_or(function)
}

/// Whether the name begins with one of these prefixes, which are separated by spaces.
pub(crate) fn begins_with_any(name: &str, prefixes: &str) -> bool {
    prefixes.split_whitespace().any(|prefix| name.starts_with(prefix))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelSymbol {
    pub name: String,
    /// `bpf` for a BPF program; `None` for the kernel itself.
    pub module: Option<String>,
}

/// The functions of the running kernel and its modules at the time of reading.
#[derive(Debug)]
pub struct KernelSymbols {
    functions: Known<Vec<SymbolEntry>>,
}

#[derive(Debug)]
struct SymbolEntry {
    address: u64,
    name: Box<str>,
    module: Option<Box<str>>,
}

impl KernelSymbols {
    /// Reads /proc/kallsyms. If the kernel hides addresses, symbols are unknown.
    pub fn kernel(host: &Host) -> Result<Self, TraceError> {
        let functions = parse_functions(&host.read(SYMBOLS)?);
        if !functions.is_empty() {
            return Ok(Self { functions: Known::Value(functions) });
        }
        Ok(Self { functions: Known::unknown(hidden_reason(host.read(RESTRICT).ok().as_deref())) })
    }

    /// Unknown if the address has no symbol, or the kernel hides addresses.
    pub fn name(&self, address: u64) -> Known<KernelSymbol> {
        self.functions.as_ref().and_then(|functions| {
            let index = functions.partition_point(|function| function.address <= address);
            let candidate = index.checked_sub(1).and_then(|last| functions.get(last));
            let symbol = candidate.filter(|function| address - function.address < LONGEST).map(|function| {
                KernelSymbol {
                    name: function.name.to_string(),
                    module: function.module.as_deref().map(str::to_owned),
                }
            });
            symbol.ok_or_else(|| format!("no function of {SYMBOLS} is at {address:#x}")).into()
        })
    }

    /// The reason why no address has a symbol, if so.
    pub fn why_unknown(&self) -> Option<&str> {
        self.functions.why()
    }
}

// Addresses read as zero without permission (`kallsyms_show_value`, kernel/ksyms_common.c, Linux
// 6.18).
fn hidden_reason(restrict: Option<&str>) -> String {
    match restrict.map(str::trim) {
        Some("2") => format!("{SYMBOLS} shows no addresses: kernel.kptr_restrict is 2, set it to 1"),
        _ => format!(
            "{SYMBOLS} shows no addresses: this requires CAP_SYSLOG, and kernel.kptr_restrict below 2"
        ),
    }
}

// Functions in /proc/kallsyms by address: `ffffffffc0201000 t nf_hook_slow\t[module]`. Of several
// names at one address the first, as in the kernel (`get_symbol_pos`, kernel/kallsyms.c, Linux
// 6.18).
fn parse_functions(text: &str) -> Vec<SymbolEntry> {
    let mut functions: Vec<SymbolEntry> = text.lines().filter_map(parse_function).collect();
    // A stable sort, so that `dedup` keeps the first of several names.
    functions.sort_by_key(|function| function.address);
    functions.dedup_by_key(|function| function.address);
    functions
}

// `None` for data, and without an address.
fn parse_function(line: &str) -> Option<SymbolEntry> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok().filter(|address| *address != 0)?;
    if !matches!(words.next()?, "t" | "T" | "w" | "W") {
        return None;
    }
    let name = words.next()?.into();
    let module = words.next().map(|module| module.trim_matches(['[', ']']).into());
    Some(SymbolEntry { address, name, module })
}

pub(crate) fn any_symbols(text: &str) {
    let symbols = KernelSymbols { functions: Known::Value(parse_functions(text)) };
    _ = (symbols.name(0), symbols.name(u64::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81a2f150 T nf_hook_slow
ffffffff81a2f0f0 t nf_queue_entry_free
ffffffff82001000 D init_task
ffffffffc0201000 t udp_tunnel_xmit\t[udp_tunnel]
ffffffffc0300010 t bpf_prog_6deef7357e7b4530_counts\t[bpf]
";

    fn symbols(text: &str, restrict: &str) -> KernelSymbols {
        KernelSymbols::kernel(&Host::scripted([(SYMBOLS, text), (RESTRICT, restrict)])).unwrap()
    }

    #[test]
    fn addresses_resolve_to_the_preceding_function() {
        let symbols = symbols(TEXT, "0\n");
        let name = |address| {
            let symbol = symbols.name(address).into_value();
            symbol.map(|symbol| (symbol.name, symbol.module.unwrap_or_default()))
        };
        for (address, function, module) in [
            (0xffff_ffff_8100_0000, "_stext", ""),
            (0xffff_ffff_81a2_f14f, "nf_queue_entry_free", ""),
            (0xffff_ffff_81a2_f1c0, "nf_hook_slow", ""),
            (0xffff_ffff_c020_101f, "udp_tunnel_xmit", "udp_tunnel"),
            (0xffff_ffff_c030_0011, "bpf_prog_6deef7357e7b4530_counts", "bpf"),
        ] {
            assert_eq!(name(address), Some((function.to_owned(), module.to_owned())));
        }
        assert_eq!(name(0xffff_ffff_8200_1000), None, "data is not a function");
        assert_eq!(name(0x1000), None);
    }

    #[test]
    fn hidden_kernel_addresses_are_unknown_with_a_reason() {
        let hidden_symbols = symbols("0000000000000000 T _stext\n", "2\n");
        assert_eq!(hidden_symbols.name(7).why(), hidden_symbols.why_unknown());
        assert!(hidden_symbols.why_unknown().unwrap().contains("kptr_restrict is 2"));
        assert!(symbols("0000000000000000 T _stext\n", "1\n").why_unknown().unwrap().contains("CAP_SYSLOG"));
    }
}

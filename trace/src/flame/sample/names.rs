//! Symbols of sampled addresses.

use std::collections::HashMap;

use blazesym::symbolize::source::{Process, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use linerate_host::{Host, Known};

use super::mappings;
use crate::TraceError;
use crate::flame::profile::{FrameKind, StackFrame};
use crate::symbols::{KernelSymbols, source_name};

/// Instead of the name of a thread outside of this PID namespace, which has no number here.
pub(super) const OUTSIDE: &str = "[other PID namespace]";

/// Limit of lookups for addresses of a process, if lookups fail.
const TRIES: u32 = 64;

pub(super) struct FunctionNames {
    symbols: KernelSymbols,
    symbolizer: Symbolizer,
    frames: Vec<StackFrame>,
    indices: HashMap<StackFrame, u32>,
    kernel: HashMap<u64, u32>,
    // `None` for addresses that are not code.
    user: HashMap<(u32, u64), Option<u32>>,
    threads: HashMap<(u32, u32), String>,
    /// Processes without symbols, and why.
    nameless: HashMap<u32, String>,
    /// The first lookup that failed: its process, and why.
    nameless_files: Option<String>,
}

impl FunctionNames {
    pub(super) fn new(host: &Host) -> Result<Self, TraceError> {
        let symbolizer = Symbolizer::builder()
            .enable_code_info(false)
            .enable_inlined_fns(false)
            .enable_auto_reload(false)
            .build();
        Ok(Self {
            symbols: KernelSymbols::kernel(host)?,
            symbolizer,
            frames: Vec::new(),
            indices: HashMap::new(),
            kernel: HashMap::new(),
            user: HashMap::new(),
            threads: HashMap::new(),
            nameless: HashMap::new(),
            nameless_files: None,
        })
    }

    pub(super) fn frame(&self, index: u32) -> &StackFrame {
        &self.frames[index as usize]
    }

    pub(super) fn into_frames(self) -> Vec<StackFrame> {
        self.frames
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        if let Some(why) = self.symbols.why_unknown() {
            notes.push(format!("kernel functions have no names, and interrupts count as tasks: {why}"));
        }
        // In order, so that equal runs print the same.
        if let Some((pid, why)) = self.nameless.iter().min() {
            let count = self.nameless.len();
            notes.push(format!(
                "functions of {count} processes have no names, for example of process {pid}: {why}"
            ));
        }
        notes.extend(self.nameless_files.iter().map(|why| format!("some functions have no names: {why}")));
        notes
    }

    pub(super) fn kernel(&mut self, address: u64) -> u32 {
        if let Some(index) = self.kernel.get(&address) {
            return *index;
        }
        let (name, module) = match self.symbols.name(address) {
            Known::Value(symbol) => (source_name(&symbol.name).to_owned(), symbol.module),
            Known::Unknown { .. } => (StackFrame::UNKNOWN.to_owned(), None),
        };
        let index = self.index(StackFrame { name, module, kind: FrameKind::Kernel });
        self.kernel.insert(address, index);
        index
    }

    // The function at an address that was [looked up](Self::look_up). `None` if it is not code:
    // without frame pointers, a supposed caller may be anything.
    pub(super) fn user(&mut self, pid: u32, address: u64) -> Option<u32> {
        if let Some(index) = self.user.get(&(pid, address)) {
            return *index;
        }
        Some(self.unknown())
    }

    /// The unknown user-space function.
    pub(super) fn unknown(&mut self) -> u32 {
        self.index(StackFrame { name: StackFrame::UNKNOWN.to_owned(), module: None, kind: FrameKind::User })
    }

    // Looks up addresses of a process together, because each call reads its mappings.
    pub(super) fn look_up(&mut self, host: &Host, pid: u32, addresses: impl IntoIterator<Item = u64>) {
        let mut new_addresses: Vec<u64> =
            addresses.into_iter().filter(|address| !self.user.contains_key(&(pid, *address))).collect();
        new_addresses.sort_unstable();
        new_addresses.dedup();
        if new_addresses.is_empty() || self.nameless.contains_key(&pid) {
            return;
        }
        let maps =
            host.read(&format!("/proc/{pid}/maps")).map(|maps| mappings::parse(&maps)).unwrap_or_default();
        if maps.is_empty() {
            self.nameless.insert(pid, "it had ended".to_owned());
            return;
        }
        // An address that is not code was never a caller, and its file may have no functions.
        let (code, other_addresses): (Vec<u64>, Vec<u64>) =
            new_addresses.into_iter().partition(|address| mappings::find_mapping(&maps, *address).is_some());
        self.user.extend(other_addresses.into_iter().map(|address| ((pid, address), None)));
        let mut remaining_tries = TRIES;
        let names = self.names_of(pid, &code, &mut remaining_tries);
        for (address, symbol) in code.into_iter().zip(names) {
            let frame = user_frame(symbol, mappings::find_mapping(&maps, address).flatten());
            let index = self.index(frame);
            self.user.insert((pid, address), Some(index));
        }
    }

    /// Function and file of each address with a symbol. One bad mapped file makes a whole lookup
    /// fail, so failed lookups are split.
    fn names_of(&mut self, pid: u32, addresses: &[u64], remaining_tries: &mut u32) -> Vec<Option<Named>> {
        if addresses.is_empty() {
            return Vec::new();
        }
        let mut process = Process::new(pid.into());
        process.debug_syms = false;
        // Any user can make /tmp/perf-PID.map a pipe that never ends, or larger than memory.
        process.perf_map = false;
        *remaining_tries = remaining_tries.saturating_sub(1);
        match self.symbolizer.symbolize(&Source::Process(process), Input::AbsAddr(addresses)) {
            Ok(symbols) => symbols.iter().map(symbol_name).collect(),
            Err(_) if addresses.len() > 1 && *remaining_tries > 0 => {
                let (low, high) = addresses.split_at(addresses.len() / 2);
                let mut names = self.names_of(pid, low, remaining_tries);
                names.extend(self.names_of(pid, high, remaining_tries));
                names
            }
            Err(error) => {
                self.nameless_files.get_or_insert_with(|| format!("process {pid}: {error}"));
                vec![None; addresses.len()]
            }
        }
    }

    /// The name of a thread when it was first seen.
    pub(super) fn comm(&mut self, host: &Host, pid: u32, thread: u32) -> &str {
        self.threads.entry((pid, thread)).or_insert_with(|| match pid {
            0 => "swapper".to_owned(),
            _ => host
                .read(&format!("/proc/{pid}/task/{thread}/comm"))
                .or_else(|_| host.read(&format!("/proc/{pid}/comm")))
                .map_or_else(|_| format!("[{pid}]"), |comm| comm.trim_end_matches('\n').to_owned()),
        })
    }

    fn index(&mut self, frame: StackFrame) -> u32 {
        if let Some(index) = self.indices.get(&frame) {
            return *index;
        }
        let index = self.frames.len() as u32;
        self.frames.push(frame.clone());
        self.indices.insert(frame, index);
        index
    }
}

/// A function's name and the path of its file.
type Named = (String, Option<String>);

fn symbol_name(symbolized: &Symbolized<'_>) -> Option<Named> {
    let symbol = symbolized.as_sym()?;
    let file = symbol.module.as_deref().map(|path| path.to_string_lossy().into_owned());
    Some((symbol.name.to_string(), file))
}

/// Without a symbol, the file is still known.
fn user_frame(symbol: Option<Named>, mapped_file: Option<&str>) -> StackFrame {
    let (name, path) = symbol.unwrap_or_else(|| (StackFrame::UNKNOWN.to_owned(), None));
    let path = path.or_else(|| mapped_file.map(str::to_owned));
    let module =
        path.and_then(|path| path.rsplit('/').next().map(str::to_owned)).filter(|file| !file.is_empty());
    StackFrame { name, module, kind: FrameKind::User }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_come_from_files_that_any_user_can_write() {
        let pid = std::process::id();
        let path = format!("/tmp/perf-{pid}.map");
        std::fs::write(&path, "1 7ffffffffffe jit\n").expect("written");
        // The stack of a thread is anonymous memory, as the code of a JIT compiler is.
        let names = std::thread::spawn(move || {
            let mut functions = FunctionNames::new(&Host::live()).expect("symbols");
            functions.names_of(pid, &[(&raw const functions).addr() as u64], &mut 1)
        });
        let names = names.join();
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(names.expect("names"), [None]);
    }
}

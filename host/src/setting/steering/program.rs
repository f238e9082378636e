//! The program of `bpf/steer.bpf.c` and its maps: loaded, or found where it is attached.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use aya::maps::{Array, ArrayOfMaps, Map, MapData, MapError, PerCpuArray, PerCpuValues};
use aya::programs::{SkReuseport, loaded_programs};
use aya::{Ebpf, EbpfLoader};

use super::table_rows::Entry;
use crate::background::pause_after_burst;
use crate::reuseport::ChoosingProgram;
use crate::sys::socket_array;
use crate::{CpuSet, Host, bpf};

static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/steer.bpf.o"));

// `BPF_F_INNER_MAP` of linux/bpf.h (Linux 5.10): a table may have another size than the one it
// replaces.
const ANY_LENGTH: u32 = 1 << 12;

// Number of connection IDs and clients that are remembered (the most recently used). An entry has
// about 100 bytes.
const REMEMBERED: u32 = 1 << 17;

const MAPS: [&str; 5] = ["steer_sockets", "steer_tables", "steer_chosen", "steer_hashed", "steer_ids"];

// Nothing is pinned: the maps exist as long as the program, which exists as long as it is
// attached.
pub(super) struct SteeringMaps {
    sockets: MapData,
    tables: ArrayOfMaps<MapData, Array<MapData, Entry>>,
    chosen: PerCpuArray<MapData, u64>,
    hashed: PerCpuArray<MapData, u64>,
    /// Has one entry if IDs are not followed.
    ids: MapData,
}

/// The program before it is attached.
pub(super) struct LoadedSteering(Ebpf);

impl SteeringMaps {
    /// Loads a program for this many sockets. It has no sockets and no table yet.
    pub(super) fn load(places: u32, follows_quic_ids: bool) -> io::Result<(LoadedSteering, Self)> {
        let mut loader = EbpfLoader::new();
        let follow = u8::from(follows_quic_ids);
        if follows_quic_ids {
            loader.map_max_entries("steer_ids", REMEMBERED).map_max_entries("steer_flows", REMEMBERED);
        }
        pause_after_burst();
        let mut object = loader
            .override_global("follow_ids", &follow, true)
            .map_max_entries("steer_sockets", places)
            .map_max_entries("steer_chosen", places)
            .load(OBJECT)
            .map_err(bpf::error)?;
        pause_after_burst();
        steering_program(&mut object)?.load().map_err(bpf::error)?;
        let maps = MAPS.iter().filter_map(|name| Some(((*name).to_owned(), object.take_map(name)?)));
        let maps = Self::from_maps(maps.collect()).ok_or(io::ErrorKind::InvalidData)?;
        Ok((LoadedSteering(object), maps))
    }

    // The maps of the program with this id. `None` if it is not linerate's program, even if it has
    // the same name.
    pub(super) fn of(id: u32) -> io::Result<Option<Self>> {
        let mut maps = BTreeMap::new();
        for map in maps_of(id)? {
            let data = MapData::from_id(map).map_err(bpf::error)?;
            let name = data.info().map_err(bpf::error)?.name_as_str().unwrap_or_default().to_owned();
            maps.insert(name, Map::from_map_data(data).map_err(bpf::error)?);
        }
        Ok(Self::from_maps(maps))
    }

    fn from_maps(mut maps: BTreeMap<String, Map>) -> Option<Self> {
        let (Map::ReusePortSockArray(sockets), Map::LruHashMap(ids)) =
            (maps.remove("steer_sockets")?, maps.remove("steer_ids")?)
        else {
            return None;
        };
        let tables = maps.remove("steer_tables")?.try_into().ok()?;
        let chosen: PerCpuArray<_, _> = maps.remove("steer_chosen")?.try_into().ok()?;
        let hashed = maps.remove("steer_hashed")?.try_into().ok()?;
        let are_others_known =
            maps.keys().all(|name| ["steer_flows", "steer_lengths", ".rodata"].contains(&name.as_str()));
        let info = sockets.info().ok()?;
        let is_consistent = info.value_size() == 8 && info.max_entries() == chosen.len();
        (are_others_known && is_consistent).then_some(Self { sockets, tables, chosen, hashed, ids })
    }

    pub(super) fn follows_quic_ids(&self) -> bool {
        self.ids.info().is_ok_and(|info| info.max_entries() > 1)
    }

    pub(super) fn places(&self) -> u32 {
        self.chosen.len()
    }

    /// Cookies by place, without closed sockets.
    pub(super) fn sockets(&self) -> io::Result<BTreeMap<u32, u64>> {
        let mut cookies = BTreeMap::new();
        for place in 0..self.places() {
            if let Some(cookie) = socket_array::cookie(self.sockets_fd(), place)? {
                cookies.insert(place, cookie);
            }
        }
        Ok(cookies)
    }

    /// Puts a socket into a place and restarts the counter of the place.
    pub(super) fn put(&mut self, place: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let zeros = vec![0; possible_cpus()?.len()];
        let zeros = PerCpuValues::try_from(zeros)?;
        self.chosen.set(place, zeros, 0).map_err(bpf::error)?;
        socket_array::put(self.sockets_fd(), place, socket)
    }

    pub(super) fn remove_socket(&self, place: u32) -> io::Result<()> {
        socket_array::remove(self.sockets_fd(), place)
    }

    /// The active table; empty before the first table is set.
    pub(super) fn table(&self) -> io::Result<Vec<Entry>> {
        let table = match self.tables.get(&0, 0) {
            Ok(table) => table,
            Err(MapError::KeyNotFound) => return Ok(Vec::new()),
            Err(error) => return Err(bpf::error(error)),
        };
        table.iter().collect::<Result<_, _>>().map_err(bpf::error)
    }

    // Activates a table. When this returns, no packet uses the previous one: the kernel waits for
    // running programs (`maybe_wait_bpf_programs` of kernel/bpf/syscall.c, Linux 5.0).
    pub(super) fn activate_table(&mut self, entries: &[Entry]) -> io::Result<()> {
        let length = u32::try_from(entries.len()).map_err(io::Error::other)?;
        let mut table = Array::create(length, ANY_LENGTH).map_err(bpf::error)?;
        for (index, entry) in (0..).zip(entries) {
            table.set(index, entry, 0).map_err(bpf::error)?;
        }
        self.tables.set(0, &table, 0).map_err(bpf::error)
    }

    /// Packets for the socket at a place, by CPU.
    pub(super) fn chosen(&self, place: u32) -> io::Result<BTreeMap<u32, u64>> {
        by_cpu(&self.chosen.get(&place, 0).map_err(bpf::error)?)
    }

    /// Packets left to the kernel's hash, by CPU.
    pub(super) fn hashed(&self) -> io::Result<BTreeMap<u32, u64>> {
        by_cpu(&self.hashed.get(&0, 0).map_err(bpf::error)?)
    }

    fn sockets_fd(&self) -> BorrowedFd<'_> {
        self.sockets.fd().as_fd()
    }
}

impl LoadedSteering {
    /// Attaches the program to the group of this socket. It replaces any other program.
    pub(super) fn attach(mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        steering_program(&mut self.0)?.attach(socket).map_err(bpf::error)
    }
}

// Detaches any program of a socket's group (Linux 5.3).
pub(super) fn detach(socket: BorrowedFd<'_>) -> io::Result<()> {
    SkReuseport::detach(socket).map_err(bpf::error)
}

/// Possible CPUs, in the order of per-CPU values.
pub(super) fn possible_cpus() -> io::Result<Vec<u32>> {
    let cpus = Host::live().read_parsed("/sys/devices/system/cpu/possible", CpuSet::from_list);
    cpus.map(|cpus| cpus.iter().collect()).map_err(io::Error::other)
}

fn steering_program(object: &mut Ebpf) -> io::Result<&mut SkReuseport> {
    let program = object.program_mut(ChoosingProgram::STEER).ok_or(io::ErrorKind::NotFound)?;
    program.try_into().map_err(bpf::error)
}

fn maps_of(id: u32) -> io::Result<Vec<u32>> {
    for program in loaded_programs() {
        match program {
            Ok(program) if program.id() == id => {
                return Ok(program.map_ids().map_err(bpf::error)?.unwrap_or_default());
            }
            Ok(_) => {}
            Err(error) => match bpf::error(error) {
                // The map was removed in the meantime.
                error if error.raw_os_error() == Some(libc::ENOENT) => {}
                error => return Err(error),
            },
        }
    }
    Err(io::Error::from_raw_os_error(libc::ENOENT))
}

/// Counts by CPU, without zeros.
fn by_cpu(values: &PerCpuValues<u64>) -> io::Result<BTreeMap<u32, u64>> {
    let counts = possible_cpus()?.into_iter().zip(values.iter().copied());
    Ok(counts.filter(|(_, packets)| *packets > 0).collect())
}

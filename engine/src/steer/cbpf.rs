//! The classic program: a comparison tree over the table.

use std::os::fd::AsFd;

use super::error::SteeringError;
use super::table::CpuTable;
use crate::sys::option;

const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const JUMP: u16 = 0x05; // BPF_JMP | BPF_JA
const IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const IF_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K
const RETURN_LOADED: u16 = 0x16; // BPF_RET | BPF_A
/// `SKF_AD_OFF + SKF_AD_CPU`: loads the number of the CPU the program runs on.
const CPU: u32 = (-0x1000i32 + 36) as u32;
// No group is that large. For a result out of range the kernel uses its hash
// (net/core/sock_reuseport.c, `reuseport_select_sock`).
const BY_HASH: u32 = u32::MAX;
/// `BPF_MAXINSNS`.
const LONGEST: usize = 4096;

/// The classic BPF program for a table, as [`attach`](super::attach) attaches it. It returns the
/// slot of the CPU on which it runs, or a number out of range for a CPU without a slot. It needs as
/// many comparisons as the table's size has bits, or one if the slot of each CPU is its number.
///
/// # Errors
/// [`SteeringError::TooLong`] for a table that requires more than 4096 instructions.
pub fn program(table: &CpuTable) -> Result<Vec<libc::sock_filter>, SteeringError> {
    let pairs = table.pairs();
    let mut program = vec![statement(LOAD, CPU)];
    if (0u32..).zip(&pairs).all(|(number, pair)| *pair == (number, number)) {
        // Before Linux 6.8 there is room for a tree of 363 CPUs only (net.core.optmem_max).
        program.push(comparison(IF_AT_LEAST, pairs.len() as u32));
        program.extend([statement(RETURN, BY_HASH), statement(RETURN_LOADED, 0)]);
    } else {
        emit(&pairs, &mut program);
    }
    if program.len() > LONGEST {
        return Err(SteeringError::TooLong { cpus: pairs.len(), instructions: program.len() });
    }
    Ok(program)
}

pub(super) fn attach(socket: &impl AsFd, table: &CpuTable) -> Result<(), SteeringError> {
    option::attach_reuseport_cbpf(socket, &program(table)?).map_err(|source| match source.raw_os_error() {
        Some(libc::EINVAL) => SteeringError::NotReuseport,
        Some(libc::ENOMEM) => SteeringError::NoRoom { cpus: table.pairs().len() },
        _ => SteeringError::Kernel { what: "SO_ATTACH_REUSEPORT_CBPF (Linux 4.5)", source },
    })
}

fn statement(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k }
}

// Skips the next instruction unless the comparison holds.
fn comparison(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 1, k }
}

fn emit(pairs: &[(u32, u32)], program: &mut Vec<libc::sock_filter>) {
    match pairs {
        [] => program.push(statement(RETURN, BY_HASH)),
        [(cpu, slot)] => {
            program.push(comparison(IF_EQUAL, *cpu));
            program.push(statement(RETURN, *slot));
            program.push(statement(RETURN, BY_HASH));
        }
        _ => {
            let (low, high) = pairs.split_at(pairs.len() / 2);
            // A comparison skips at most 255 instructions, so the way to the upper half is an unconditional jump.
            program.push(comparison(IF_AT_LEAST, high[0].0));
            let jump = program.len();
            program.push(statement(JUMP, 0));
            emit(low, program);
            program[jump].k = u32::try_from(program.len() - jump - 1).unwrap_or(u32::MAX);
            emit(high, program);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// What the kernel would make of the program on a CPU; also how many instructions it took.
    fn interpret(program: &[libc::sock_filter], cpu: u32) -> (u32, usize) {
        let (mut at, mut accumulator, mut steps) = (0, 0, 0);
        loop {
            let libc::sock_filter { code, jt, jf, k } = program[at];
            (at, steps) = (at + 1, steps + 1);
            let mut jump = |holds: bool| at += usize::from(if holds { jt } else { jf });
            match code {
                LOAD => {
                    assert_eq!(k, 0xffff_f024);
                    accumulator = cpu;
                }
                IF_EQUAL => jump(accumulator == k),
                IF_AT_LEAST => jump(accumulator >= k),
                JUMP => at += k as usize,
                RETURN => return (k, steps),
                RETURN_LOADED => return (accumulator, steps),
                other => panic!("no such instruction: {other:#x}"),
            }
        }
    }

    proptest! {
        #[test]
        fn program_selects_the_slot_of_each_cpu_in_logarithmic_steps(
            slots in prop_oneof![
                prop::collection::btree_map(0u32..2000, 0usize..600, 1..700),
                (1u32..2000).prop_map(|cpus| (0..cpus).map(|cpu| (cpu, cpu as usize)).collect()),
            ],
            other_cpus in prop::collection::vec(any::<u32>(), 20),
        ) {
            let program = program(&CpuTable::from_pairs(slots.clone())?)?;
            let neighbours = slots.keys().flat_map(|cpu| [cpu.wrapping_sub(1), *cpu, cpu + 1]);
            for cpu in neighbours.chain(other_cpus) {
                let (result, steps) = interpret(&program, cpu);
                let expected = slots.get(&cpu).map_or(BY_HASH, |slot| *slot as u32);
                prop_assert_eq!(result, expected, "on CPU {}", cpu);
                prop_assert!(steps <= 3 + 2 * (slots.len().ilog2() as usize + 1), "{} steps", steps);
            }
        }
    }

    #[test]
    fn tables_of_more_than_819_cpus_are_refused() -> Result<(), SteeringError> {
        let sized = |cpus: u32| CpuTable::from_pairs((0..cpus).map(|cpu| (cpu, 0)));
        assert!(program(&sized(819)?).is_ok());
        let error = program(&sized(820)?).map_err(|error| error.to_string());
        assert!(error.is_err_and(|text| text.contains("820 CPUs") && text.contains("Program::Ebpf")));
        Ok(())
    }

    #[test]
    fn one_cpu_table_compiles_to_four_instructions() -> Result<(), SteeringError> {
        let program = program(&CpuTable::from_pairs(BTreeMap::from([(5, 0)]))?)?;
        assert_eq!(program.len(), 4);
        assert_eq!(interpret(&program, 5).0, 0);
        assert_eq!(interpret(&program, 0).0, BY_HASH);
        Ok(())
    }
}

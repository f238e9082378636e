//! Compiles the C side of `xtask bench engine`, always optimized, because the engine is compared with it.

fn main() {
    let source = "src/bench/echo_mmsg.c";
    println!("cargo::rerun-if-changed={source}");
    cc::Build::new().file(source).opt_level(2).debug(false).std("c11").flag("-Wextra").compile("echo_mmsg");
}

//! Reads a setting of this host, or writes it and reads it back: `setting JSON [VALUE]`.
//!
//! `setting '{"rings": {"interface": "eth0"}}' 'rx 4096'`

use std::process::ExitCode;

use linerate_host::{Host, Setting, SettingValue};

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("setting: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let host = Host::live();
    let (json, value) = match arguments {
        [json] => (json, None),
        [json, value] => (json, Some(SettingValue::new(value))),
        _ => return Err("usage: setting JSON [VALUE]".into()),
    };
    let setting: Setting = serde_json::from_str(json)?;
    println!("{setting}: {}", setting.read(&host)?);
    if let Some(value) = value {
        let typed = setting.command(&value).unwrap_or_else(|| format!("no command for '{value}'"));
        let outcome = setting.write(&host, &value);
        println!("{setting}: {} ({typed})", setting.read(&host)?);
        outcome?;
    }
    Ok(())
}

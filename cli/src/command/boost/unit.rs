//! `linerate boost unit`: a drop-in with which systemd starts copies of a service's server.

use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use linerate_host::setting::SettingValue;
use linerate_host::{CpuSet, Host, Setting};
use linerate_tune::boost::replicas::ReplicaUnit;
use linerate_tune::transaction::{ChangeOutcome, TuneStart, TuneTransaction};

use super::apply::must_be_root;
use super::run::copies;
use crate::command::tune::persist::check_program;
use crate::command::tune::{ConsentMode, StateDirArgs};
use crate::interrupt::InterruptFlag;
use crate::output;
use crate::quantity;

#[derive(Debug, Args)]
pub(super) struct BoostUnitArgs {
    /// The service, such as ntpd.service
    unit: String,
    /// Number of copies
    #[arg(short = 'n', long, value_name = "N", value_parser = copies())]
    replicas: u32,
    /// Share this UDP and TCP port only [default: every port that the server binds]
    #[arg(short = 'p', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// CPUs of the copies, such as 0-3,8 [default: the CPUs on which packets arrive]
    #[arg(long, value_name = "LIST", value_parser = quantity::parse_cpus)]
    cpus: Option<CpuSet>,
    #[command(flatten)]
    consent: ConsentMode,
    #[command(flatten)]
    state_dir: StateDirArgs,
    /// The server in the foreground, instead of the command of the unit; {replica} is the number of
    /// the copy
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<String>,
}

impl BoostUnitArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        must_be_root("unit")?;
        self.consent.check()?;
        let (host, interrupt) = (Host::live(), InterruptFlag::install()?);
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        check_program(&program)?;
        let command_parts = (&*program.to_string_lossy(), &*self.options(), &*self.command);
        let replica_unit = ReplicaUnit::of(&host, &self.unit, command_parts)?;
        let (setting, new_value) = (
            Setting::UnitDropIn { unit: replica_unit.unit.clone() },
            SettingValue::new(replica_unit.drop_in.clone()),
        );
        let current_value = setting.read(&host)?;
        if current_value == new_value {
            status_line!("nothing to change: the drop-in is as it should be");
            return Ok(ExitCode::SUCCESS);
        }
        let notes: String = replica_unit.notes.iter().map(|note| format!("{note}\n")).collect();
        output::print(&format!("{setting}:\n\n{}\n{notes}", replica_unit.drop_in))?;
        if interrupt.is_raised() || !self.consent.confirm("write this drop-in?", &interrupt)? {
            status_line!("nothing was changed");
            return Ok(ExitCode::from(1));
        }
        let mut writer = self.state_dir.writable_store()?.lock()?;
        let tune_start = TuneStart::new(format!("boost unit {}", replica_unit.unit), output::argv());
        let mut transaction = TuneTransaction::begin(&mut writer, &host, tune_start)?;
        let tune = transaction.id();
        let outcome = transaction.change_from(&host, &setting, &current_value, &new_value)?;
        let refusal = match outcome {
            ChangeOutcome::Refused { why } => Some(why),
            ChangeOutcome::Made | ChangeOutcome::Already => None,
        };
        transaction.end(refusal.clone())?;
        ensure!(refusal.is_none(), "{}", refusal.unwrap_or_default());
        let undo = self.state_dir.command(&format!("undo {tune}"));
        status_line!(
            "Tune {tune} is made. Start the copies: systemctl restart {}. To undo it: {undo}",
            replica_unit.unit
        );
        Ok(ExitCode::SUCCESS)
    }

    /// Options for `boost run`.
    fn options(&self) -> Vec<String> {
        let mut options = vec!["--replicas".to_owned(), self.replicas.to_string()];
        options.extend(self.port.iter().flat_map(|port| ["--port".to_owned(), port.to_string()]));
        options.extend(self.cpus.iter().flat_map(|cpus| ["--cpus".to_owned(), cpus.to_string()]));
        options
    }
}

//! Scenarios: ringway between real guests and real kernels.
//!
//! How: [`plan`] lists them. [`runner`] starts each as a process of its own inside fresh network,
//! process and mount namespaces, where [`run_here`] carries it out; when that process ends, for
//! whatever reason, the kernel ends everything it started and removes every interface with it.
//! A guest runs one script ([`console`]) that obeys commands on its console, so that what a
//! scenario does is all here, in Rust.
//!
//! Limits: x86-64; every scenario has a time limit that ends in SIGKILL.

mod console;
mod initramfs;
mod iperf;
mod net;
mod plan;
mod process;
mod qemu;
mod ringway;
mod runner;
mod scenarios_attach;
mod scenarios_control;
mod scenarios_dpdk;
mod scenarios_driver;
mod scenarios_offload;
mod scenarios_pairs;
mod scenarios_qemu;
mod scenarios_uml;
mod scenarios_unikernel;
mod services;
mod stage;
mod testpmd;
mod traffic;
mod uml;

use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;

use crate::counts::Counts;
use crate::paths::Paths;
use crate::{driver_test, unikernel};
use plan::{Case, Needs, Scenario};
use stage::Stage;

/// The names of all scenarios, in the order in which they run.
pub fn names() -> Vec<String> {
    plan::scenarios().into_iter().map(|scenario| scenario.name).collect()
}

/// Runs the scenarios that are wanted, one after the other.
pub fn run(paths: &Paths, is_wanted: impl Fn(&str) -> bool) -> Counts {
    let scenarios = plan::scenarios().into_iter().filter(|scenario| is_wanted(&scenario.name));
    let mut counts = Counts::default();
    let mut machine = None;
    let mut built = Vec::new();
    for scenario in scenarios {
        if !is_built(paths, scenario.needs, &mut built) {
            println!("test guest::{} ... FAILED", scenario.name);
            counts += Counts::one(false);
            continue;
        }
        let machine = machine.get_or_insert_with(|| runner::Machine::look(paths));
        counts += runner::run(paths, machine, &scenario);
    }
    counts
}

/// Builds what scenarios with these needs start, once. That it does not build is no reason to skip
/// them.
fn is_built(paths: &Paths, needs: Needs, built: &mut Vec<(Needs, bool)>) -> bool {
    if let Some((_, is_built)) = built.iter().find(|(known, _)| *known == needs) {
        return *is_built;
    }
    let result = match needs {
        Needs::Unikernel => unikernel::build(paths).map(drop),
        Needs::DpdkDevice => driver_test::build(paths),
        Needs::Uml | Needs::Qemu | Needs::Dpdk => Ok(()),
    };
    if let Err(error) = &result {
        println!("{error:#}");
    }
    built.push((needs, result.is_ok()));
    result.is_ok()
}

/// Measures ringway against QEMU's own tap, in one guest.
///
/// # Errors
/// The measurement fails.
pub fn bench(paths: &Paths) -> anyhow::Result<()> {
    let counts = run(paths, |name| name == plan::SANITY);
    if counts.passed != 1 {
        bail!("{}: {counts}", plan::SANITY);
    }
    Ok(())
}

/// Carries out one scenario in this process, which is alone in its namespaces.
pub fn run_here(paths: &Paths, name: &str, directory: &Path) -> ExitCode {
    let Some(scenario) = plan::scenarios().into_iter().find(|scenario| scenario.name == name)
    else {
        eprintln!("{name}: no such scenario");
        return ExitCode::FAILURE;
    };
    stage::end_with_parent(directory);
    let stage = Stage::new(paths, name, directory);
    match carry_out(&stage, &scenario) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn carry_out(stage: &Stage, scenario: &Scenario) -> anyhow::Result<()> {
    net::prepare()?;
    match &scenario.case {
        Case::UmlPair(case) => scenarios_uml::pair(stage, case),
        Case::AttachUml => scenarios_attach::uml(stage),
        Case::AttachQemu => scenarios_attach::qemu(stage),
        Case::AttachDpdk => scenarios_attach::dpdk(stage),
        Case::UmlPairs => scenarios_pairs::pairs(stage),
        Case::UmlControl => scenarios_control::control(stage),
        Case::UmlMixed => scenarios_offload::mixed(stage),
        Case::QemuTap(case) => scenarios_qemu::tap(stage, case),
        Case::QemuReboot => scenarios_qemu::reboot(stage),
        Case::QemuReconnect => scenarios_qemu::reconnect(stage),
        Case::Sanity => scenarios_qemu::sanity(stage),
        Case::Dpdk(case) => scenarios_dpdk::echo(stage, case),
        Case::DpdkDevice => scenarios_driver::vhost(stage),
        Case::Unikernel(case) => scenarios_unikernel::serve(stage, case),
    }
}

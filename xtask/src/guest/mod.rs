//! Scenarios: ringway between real guests and real kernels.
//!
//! How: [`plan`] lists them. [`runner`] starts each as a process of its own inside fresh
//! [`namespaces`], where [`run_here`] carries it out with the guests and tools of
//! [`ringway_guests`].
//!
//! Limits: x86-64; every scenario has a time limit that ends in SIGKILL.

mod plan;
mod runner;
mod scenarios_attach;
mod scenarios_bench;
mod scenarios_captures;
mod scenarios_coalesce;
mod scenarios_control;
mod scenarios_dpdk;
mod scenarios_driver;
mod scenarios_front_ends;
mod scenarios_offload;
mod scenarios_pairs;
mod scenarios_pairs_qemu;
mod scenarios_poll;
mod scenarios_qemu;
mod scenarios_uml;
mod scenarios_unikernel;
mod services;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ringway_guests::{
    console, iperf, monitor, namespaces, net, process, qemu, ringway, stage, testpmd, traffic, uml,
};

use crate::counts::Counts;
use crate::paths::Paths;
use crate::{dpdk_files, driver_test, kernel_files, newest, unikernel};
use plan::{Case, Needs, Scenario};
use stage::Stage;

/// Names a directory with an unpacked QEMU, to try another one.
const QEMU_VARIABLE: &str = "RINGWAY_GUEST_QEMU";

/// Names a directory with an unpacked User Mode Linux, to try another one.
const UML_VARIABLE: &str = "RINGWAY_GUEST_UML";

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
        Needs::DpdkDevice => driver_test::PROGRAM.build(paths),
        Needs::UmlAndQemu => scenarios_captures::PROGRAM.build(paths),
        Needs::Uml | Needs::NewestUml | Needs::Dpdk => Ok(()),
        Needs::Qemu | Needs::NewestQemu | Needs::NewestKernel => Ok(()),
    };
    if let Err(error) = &result {
        println!("{error:#}");
    }
    built.push((needs, result.is_ok()));
    result.is_ok()
}

/// Carries out one scenario in this process, which is alone in its namespaces.
pub fn run_here(paths: &Paths, name: &str, directory: &Path) -> ExitCode {
    let Some(scenario) = plan::scenarios().into_iter().find(|scenario| scenario.name == name)
    else {
        eprintln!("{name}: no such scenario");
        return ExitCode::FAILURE;
    };
    stage::end_with_parent(directory);
    let programs = stage::Programs {
        ringway: paths.ringway(),
        qemu: qemu_of(paths, scenario.needs),
        kernel: kernel_of(paths, scenario.needs),
        uml: uml_of(paths, scenario.needs),
        dpdk: dpdk_files::find(paths),
    };
    let stage = Stage::new(programs, logs_of(paths, name), directory);
    match carry_out(&stage, &scenario) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Below which QEMU is, for scenarios with these needs.
fn qemu_of(paths: &Paths, needs: Needs) -> PathBuf {
    let prepared = match needs {
        Needs::NewestQemu => newest::qemu(paths),
        _ => PathBuf::from("/"),
    };
    std::env::var_os(QEMU_VARIABLE).map_or(prepared, PathBuf::from)
}

/// Below which the kernel of QEMU guests is, for scenarios with these needs.
fn kernel_of(paths: &Paths, needs: Needs) -> PathBuf {
    let prepared = match needs {
        Needs::NewestKernel => newest::kernel(paths),
        _ => kernel_files::directory(paths),
    };
    std::env::var_os(kernel_files::VARIABLE).map_or(prepared, PathBuf::from)
}

/// Below which User Mode Linux is, for scenarios with these needs.
fn uml_of(paths: &Paths, needs: Needs) -> PathBuf {
    let prepared = match needs {
        Needs::NewestUml => newest::uml(paths),
        _ => PathBuf::from("/"),
    };
    std::env::var_os(UML_VARIABLE).map_or(prepared, PathBuf::from)
}

/// Where the logs of a scenario are.
fn logs_of(paths: &Paths, name: &str) -> PathBuf {
    paths.guest().join("logs").join(name)
}

fn carry_out(stage: &Stage, scenario: &Scenario) -> anyhow::Result<()> {
    net::prepare()?;
    match &scenario.case {
        Case::UmlPair(case) => scenarios_uml::pair(stage, case),
        Case::AttachUml => scenarios_attach::uml(stage),
        Case::AttachQemu { queues } => scenarios_attach::qemu(stage, *queues),
        Case::AttachReadme => scenarios_attach::readme(stage),
        Case::AttachDpdk => scenarios_attach::dpdk(stage),
        Case::UmlPoll => scenarios_poll::poll(stage),
        Case::BenchGuest => scenarios_bench::guests(stage),
        Case::BenchPacing => scenarios_bench::pacing(stage),
        Case::BenchRing => scenarios_bench::rings(stage),
        Case::UmlPairs => scenarios_pairs::pairs(stage),
        Case::QemuPairs { is_packed } => scenarios_pairs_qemu::pairs(stage, *is_packed),
        Case::UmlControl => scenarios_control::control(stage),
        Case::UmlCoalesce { is_newest } => scenarios_coalesce::coalesce(stage, *is_newest),
        Case::Captures => scenarios_captures::compare(stage),
        Case::UmlMixed => scenarios_offload::mixed(stage),
        Case::QemuTap(case) => scenarios_qemu::tap(stage, case),
        Case::QemuReboot => scenarios_qemu::reboot(stage),
        Case::QemuReconnect => scenarios_qemu::reconnect(stage),
        Case::QemuFrontEnd { packed } => scenarios_front_ends::qemu(stage, *packed),
        Case::DpdkServer { packed } => scenarios_front_ends::dpdk_server(stage, *packed),
        Case::Sanity => scenarios_qemu::sanity(stage),
        Case::Dpdk(case) => scenarios_dpdk::echo(stage, case),
        Case::DpdkDevice => scenarios_driver::vhost(stage),
        Case::Unikernel(case) => scenarios_unikernel::serve(stage, case),
    }
}

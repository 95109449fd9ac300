//! Scenarios: ringway between real guests and real kernels.
//!
//! How: [`plan`] lists them. [`runner`] starts each as a process of its own inside fresh
//! namespaces, where [`run_here`] carries it out with the guests and tools of [`ringway_guests`].
//!
//! Limits: x86-64; every scenario has a time limit that ends in SIGKILL.

mod needs;
mod plan;
mod runner;
mod scenarios_attach;
mod scenarios_bench;
mod scenarios_capture_pair;
mod scenarios_captures;
mod scenarios_coalesce;
mod scenarios_control;
mod scenarios_dpdk;
mod scenarios_driver;
mod scenarios_evpn;
mod scenarios_front_ends;
mod scenarios_nat;
mod scenarios_offload;
mod scenarios_ovs;
mod scenarios_pairs;
mod scenarios_pairs_qemu;
mod scenarios_poll;
mod scenarios_qemu;
mod scenarios_restart;
mod scenarios_restart_dpdk;
mod scenarios_restart_memory;
mod scenarios_uml;
mod scenarios_unikernel;
mod scene;
mod services;
mod switches;

use crate::counts::Counts;
use crate::paths::Paths;

pub use runner::run_here;

/// The names of all scenarios, in the order in which they run.
pub fn names() -> Vec<String> {
    plan::scenarios().into_iter().map(|scenario| scenario.name).collect()
}

/// Runs the scenarios that are wanted, one after the other.
pub fn run(paths: &Paths, is_wanted: impl Fn(&str) -> bool) -> Counts {
    let scenarios = plan::scenarios().into_iter().filter(|scenario| is_wanted(&scenario.name));
    let mut counts = Counts::default();
    // What is there is looked at, and what has to be is built, once for all with the same needs.
    let mut known: Vec<(needs::Needs, bool, Option<String>)> = Vec::new();
    for scenario in scenarios {
        let needs = scenario.needs;
        if known.iter().all(|(known, ..)| *known != needs) {
            let built = needs.build(paths).map_err(|error| println!("{error:#}")).is_ok();
            known.push((needs, built, needs.why_not(paths)));
        }
        let found = known.iter().find(|(known, ..)| *known == needs);
        counts += match found {
            Some((_, true, missing)) => runner::run(paths, missing.as_deref(), &scenario),
            _ => {
                println!("test guest::{} ... FAILED", scenario.name);
                Counts::one(false)
            }
        };
    }
    counts
}

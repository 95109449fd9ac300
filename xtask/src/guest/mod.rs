//! Scenarios: ringway between real guests and real kernels.
//!
//! How: [`plan`] lists them. [`runner`] starts each as a process of its own inside fresh
//! namespaces, where [`run_here`] carries it out with the guests and tools of [`ringway_guests`].
//!
//! Limits: x86-64; every scenario has a time limit that ends in SIGKILL.

mod needs;
mod plan;
mod runner;
mod scenarios_arrivals;
mod scenarios_attach;
mod scenarios_bench;
mod scenarios_captures;
mod scenarios_coalesce;
mod scenarios_control;
mod scenarios_dpdk;
mod scenarios_driver;
mod scenarios_evpn;
mod scenarios_front_ends;
mod scenarios_nat;
mod scenarios_nat_forward;
mod scenarios_offload;
mod scenarios_ovs;
mod scenarios_pairs;
mod scenarios_poll;
mod scenarios_qemu;
mod scenarios_restart;
mod scenarios_restart_dpdk;
mod scenarios_uml;
mod scenarios_unikernel;
mod scenarios_why;
mod scene;
mod services;
mod switches;

use std::cmp::Reverse;

use anyhow::anyhow;
use needs::Needs;
use ringway_guests::stage::Programs;

use crate::lanes::{self, LANES};
use crate::paths::Paths;
use crate::tally::Tally;

pub use runner::run_here;

/// The programs of guests of User Mode Linux.
pub fn programs(paths: &Paths) -> Programs {
    Needs::Uml.programs(paths)
}

pub fn names() -> Vec<String> {
    plan::scenarios().into_iter().map(|scenario| scenario.name).collect()
}

/// Runs the scenarios that are wanted: first those that may share the processors, then those that
/// may not, one after the other.
pub fn run(paths: &Paths, is_wanted: impl Fn(&str) -> bool) -> Tally {
    let scenarios = plan::scenarios().into_iter().filter(|scenario| is_wanted(&scenario.name));
    let (alone, mut shared): (Vec<_>, Vec<_>) = scenarios.partition(plan::Scenario::runs_alone);
    // The longest first, so that none is left over at the end.
    shared.sort_by_key(|scenario| Reverse(scenario.limit));
    let mut built = Built::default();
    for scenario in shared.iter().chain(&alone) {
        built.prepare(paths, scenario.needs);
    }
    let mut tally = lanes::run(&shared, LANES, |scenario| built.run(paths, scenario));
    tally += lanes::run(&alone, 1, |scenario| built.run(paths, scenario));
    tally
}

/// What is there is looked at, and what has to be is built, once for all with the same needs.
#[derive(Default)]
struct Built(Vec<(Needs, bool, Option<String>)>);

impl Built {
    fn prepare(&mut self, paths: &Paths, needs: Needs) {
        if self.0.iter().all(|(known, ..)| *known != needs) {
            let built = needs.build(paths).map_err(|error| println!("{error:#}")).is_ok();
            self.0.push((needs, built, needs.why_not(paths)));
        }
    }

    fn run(&self, paths: &Paths, scenario: &plan::Scenario) -> Tally {
        match self.0.iter().find(|(known, ..)| *known == scenario.needs) {
            Some((_, true, missing)) => runner::run(paths, missing.as_deref(), scenario),
            _ => {
                let name = format!("guest::{}", scenario.name);
                Tally::told(&name, &Err(anyhow!("a program that it needs was not built")))
            }
        }
    }
}

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

use std::sync::{Mutex, PoisonError};

use needs::Needs;

use crate::counts::Counts;
use crate::paths::Paths;

pub use runner::run_here;

pub fn names() -> Vec<String> {
    plan::scenarios().into_iter().map(|scenario| scenario.name).collect()
}

/// How many scenarios run at once: most of them wait for one guest that boots.
const AT_ONCE: usize = 2;

/// Runs the scenarios that are wanted: first those that may share the processors, then those that
/// may not, one after the other.
pub fn run(paths: &Paths, is_wanted: impl Fn(&str) -> bool) -> Counts {
    let scenarios = plan::scenarios().into_iter().filter(|scenario| is_wanted(&scenario.name));
    let (alone, shared): (Vec<_>, Vec<_>) = scenarios.partition(plan::Scenario::runs_alone);
    let mut built = Built::default();
    for scenario in shared.iter().chain(&alone) {
        built.prepare(paths, scenario.needs);
    }
    let counts = Mutex::new(Counts::default());
    for (scenarios, lanes) in [(shared, AT_ONCE), (alone, 1)] {
        let next = Mutex::new(scenarios.iter());
        let one = || next.lock().unwrap_or_else(PoisonError::into_inner).next();
        std::thread::scope(|scope| {
            for _ in 0..lanes {
                scope.spawn(|| {
                    while let Some(scenario) = one() {
                        let count = built.run(paths, scenario);
                        *counts.lock().unwrap_or_else(PoisonError::into_inner) += count;
                    }
                });
            }
        });
    }
    counts.into_inner().unwrap_or_else(PoisonError::into_inner)
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

    fn run(&self, paths: &Paths, scenario: &plan::Scenario) -> Counts {
        match self.0.iter().find(|(known, ..)| *known == scenario.needs) {
            Some((_, true, missing)) => runner::run(paths, missing.as_deref(), scenario),
            _ => {
                println!("test guest::{} ... FAILED", scenario.name);
                Counts::one(false)
            }
        }
    }
}

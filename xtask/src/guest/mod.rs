//! Scenarios: ringway between real guests and real kernels.
//!
//! How: [`plan`] lists them. [`runner`] starts each as a process of its own inside fresh
//! namespaces, where [`run_here`] carries it out with the guests and tools of [`ringway_guests`].
//!
//! Limits: x86-64; every scenario has a time limit that ends in SIGKILL.

mod migration_scene;
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
mod scenarios_migration;
mod scenarios_migration_given_up;
mod scenarios_migration_guide;
mod scenarios_migration_pages;
mod scenarios_migration_saved;
mod scenarios_nat;
mod scenarios_nat_ends;
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
use std::collections::BTreeSet;
use std::sync::OnceLock;

use anyhow::anyhow;
use needs::Needs;
use ringway_guests::stage::Programs;

use crate::lanes;
use crate::paths::Paths;
use crate::tally::Tally;

pub use plan::Scenario;
pub use runner::run_here;

/// The programs of guests of User Mode Linux.
pub fn programs(paths: &Paths) -> Programs {
    Needs::Uml.programs(paths)
}

pub fn names() -> Vec<String> {
    plan::scenarios().into_iter().map(|scenario| scenario.name).collect()
}

/// The scenarios of one run.
pub struct Scenarios {
    /// Those that may share the processors, the longest first, so that none is left over.
    pub shared: Vec<Scenario>,
    alone: Vec<Scenario>,
    left: BTreeSet<String>,
    built: OnceLock<Built>,
}

impl Scenarios {
    /// The ones that are wanted; those of the long tier are left to it, unless they are named.
    pub fn choose(is_wanted: impl Fn(&str) -> bool, is_named: impl Fn(&str) -> bool) -> Self {
        let wanted = plan::scenarios().into_iter().filter(|scenario| is_wanted(&scenario.name));
        let is_left =
            |it: &Scenario| it.is_long && !ringway_extent::is_long() && !is_named(&it.name);
        let (left, now): (Vec<_>, Vec<_>) = wanted.partition(is_left);
        let (alone, mut shared): (Vec<_>, Vec<_>) = now.into_iter().partition(Scenario::runs_alone);
        shared.sort_by_key(|scenario| Reverse(scenario.limit));
        let left = left.into_iter().map(|scenario| scenario.name).collect();
        Self { shared, alone, left, built: OnceLock::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.shared.is_empty() && self.alone.is_empty()
    }

    pub fn run(&self, paths: &Paths, scenario: &Scenario) -> Tally {
        let all = || self.shared.iter().chain(&self.alone).map(|scenario| scenario.needs);
        self.built.get_or_init(|| Built::prepare(paths, all())).run(paths, scenario)
    }

    /// Runs those that may not share the processors, one after the other.
    pub fn run_alone(&self, paths: &Paths) -> Tally {
        let mut tally = lanes::run(&self.alone, 1, |scenario| self.run(paths, scenario));
        tally.left_out.extend(self.left.iter().cloned());
        tally
    }
}

/// The needs of scenarios: programs are built and looked for once for all with the same needs.
#[derive(Default)]
struct Built(Vec<(Needs, bool, Option<String>)>);

impl Built {
    fn prepare(paths: &Paths, all: impl Iterator<Item = Needs>) -> Self {
        let mut built = Self::default();
        for needs in all {
            if built.0.iter().all(|(known, ..)| *known != needs) {
                let is_built = needs.build(paths).map_err(|error| println!("{error:#}")).is_ok();
                built.0.push((needs, is_built, needs.why_not(paths)));
            }
        }
        built
    }

    fn run(&self, paths: &Paths, scenario: &Scenario) -> Tally {
        match self.0.iter().find(|(known, ..)| *known == scenario.needs) {
            Some((_, true, missing)) => runner::run(paths, missing.as_deref(), scenario),
            _ => {
                let name = format!("guest::{}", scenario.name);
                Tally::told(&name, &Err(anyhow!("a program that it needs was not built")))
            }
        }
    }
}

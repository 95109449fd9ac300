//! The figures again, to look at: a group of bars for each, a bar for each policy.

use super::super::Pairing;
use super::figures::FIGURES;
use super::tables::Turns;
use super::{POLICIES, policy_name};
use crate::Spread;
use crate::report::{Group, Plot};

/// How the names of figures end that are drawn beside each other, which is also their unit.
const UNITS: [&str; 3] = ["Gb/s", "mean, ms", "99th percentile, ms"];

/// One plot for each unit: bars are medians of all rounds, their lines reach from the lowest to the
/// highest.
pub(super) fn plots(pairing: Pairing, turns: &Turns) -> Vec<Plot> {
    let spread =
        |policy: usize, figure: usize| Spread::of(turns[policy][figure].iter().copied().flatten());
    let plot = |unit: &str| {
        let group = |(figure, (name, _)): (usize, &(&str, _))| {
            let name = name.strip_suffix(unit)?.strip_suffix(", ")?.to_string();
            let values = (0..POLICIES.len()).map(|policy| spread(policy, figure)).collect();
            Some(Group { name, values })
        };
        Plot {
            title: format!("{}: {unit}", pairing.name()),
            unit: unit.into(),
            series: (0..POLICIES.len()).map(|policy| policy_name(policy).to_string()).collect(),
            groups: FIGURES.iter().enumerate().filter_map(group).collect(),
        }
    };
    UNITS.map(plot).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_is_in_one_plot_with_all_policies() {
        let mut turns = Turns::default();
        turns[1][0] = vec![Some(1.0), None, Some(3.0), Some(2.0)];
        let plots = plots(Pairing::UmlHost, &turns);
        assert_eq!(plots.iter().map(|plot| plot.groups.len()).sum::<usize>(), FIGURES.len());
        let values = &plots[0].groups[0].values;
        assert_eq!((plots[0].series.len(), values.len()), (POLICIES.len(), POLICIES.len()));
        assert_eq!(values[1], Some(Spread { median: 2.0, low: 1.0, high: 3.0 }));
        assert_eq!(plots[0].groups[0].name, "TCP out");
        assert_eq!(values[0], None);
    }
}

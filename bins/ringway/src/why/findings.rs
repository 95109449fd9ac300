//! From two statistics to what holds a port back: a pure function.

use super::look::{Finding, Look};
use super::rules::RULES;

/// Everything that is found, the weightiest first.
pub fn findings(look: &Look<'_>) -> Vec<Finding> {
    let mut found: Vec<Finding> = RULES.iter().filter_map(|rule| rule(look)).collect();
    found.sort_by_key(|finding| std::cmp::Reverse(finding.weight));
    found
}

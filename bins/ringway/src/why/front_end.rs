//! Findings about the front-ends of a port.

use super::look::{Finding, Look};

/// Nothing is wrong with the guest that is served.
pub fn front_end_waits(look: &Look<'_>) -> Option<Finding> {
    let next = look.port.waiting_front_end.as_ref()?;
    let advice = "it is served when the one that is connected ends: end that one, or give the \
                  second one a port of its own, as for a guest that moves from one to the other";
    Some(Finding {
        weight: 1,
        what: "a second front-end waits for the port",
        figure: next.to_string(),
        advice: advice.to_owned(),
    })
}

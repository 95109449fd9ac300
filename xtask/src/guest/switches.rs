//! Three switches of a device: what a scenario is called for each way to set them, what the device
//! is told, and what must have been negotiated then.

/// A feature, the option that switches it, and what it is called when it is off and on.
type Switch = (&'static str, &'static str, [&'static str; 2]);

#[derive(Debug, Clone, Copy)]
pub struct Switches {
    pub switches: [Switch; 3],
    /// How options say off and on.
    pub values: [&'static str; 2],
}

impl Switches {
    pub fn name(&self, on: [bool; 3]) -> String {
        self.each(on).map(|((_, _, names), on)| names[usize::from(on)]).join("_")
    }

    pub fn options(&self, on: [bool; 3]) -> String {
        let option = |((_, name, _), on): (Switch, bool)| {
            format!(",{name}={}", self.values[usize::from(on)])
        };
        self.each(on).map(option).concat()
    }

    pub fn negotiated(&self, on: [bool; 3]) -> [(&'static str, bool); 3] {
        self.each(on).map(|((feature, ..), on)| (feature, on))
    }

    fn each(&self, on: [bool; 3]) -> [(Switch, bool); 3] {
        [0, 1, 2].map(|at| (self.switches[at], on[at]))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{scenarios_dpdk, scenarios_qemu};

    #[test]
    fn names_and_options_follow_from_the_switches() {
        let (dpdk, qemu) = (&scenarios_dpdk::SWITCHES, &scenarios_qemu::SWITCHES);
        assert_eq!(dpdk.name([true, false, true]), "packed_any_order_mergeable");
        assert_eq!(dpdk.options([true, false, true]), ",packed_vq=1,in_order=0,mrg_rxbuf=1");
        assert_eq!(qemu.name([true, false, true]), "packed_big_event_idx");
        assert_eq!(qemu.options([true, false, true]), ",packed=on,mrg_rxbuf=off,event_idx=on");
        assert_eq!(qemu.negotiated([true, false, true])[1], ("MRG_RXBUF", false));
    }
}

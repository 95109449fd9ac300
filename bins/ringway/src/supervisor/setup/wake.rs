//! Events that the supervisor waits for.

use ringway_switch::PortId;

use crate::wake_token::wake_sources;

wake_sources! {
    0 Signal,
    1 Bell,
    2 Control,
    3 ControlClient(client: u32),
    4 Listener(port: PortId),
    5 Link(port: PortId),
    6 Reload,
    7 Plane(plane: u32),
    8 PlaneEnd(plane: u32),
    9 WorkerEnd,
    10 Child,
}
